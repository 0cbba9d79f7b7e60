//! Several addresses of one name, tried side by side (RFC 8305, "happy eyeballs").

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::zone::with_zone;
use swath_transport::kernel;

/// The next address is tried when one has not answered for this long (RFC 8305, section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// So many addresses of one name are tried.
const ADDRESSES_LIMIT: usize = 8;

/// Connects to whichever of `addresses` answers first, preferring the earlier ones.
pub(super) async fn first_to_answer(
    addresses: &[IpAddr],
    port: u16,
) -> io::Result<(TcpStream, SocketAddr, Duration)> {
    let mut waiting =
        addresses.iter().take(ADDRESSES_LIMIT).map(|&address| with_zone(address, port));
    let mut attempts = JoinSet::new();
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = waiting.next() {
            attempts.spawn(connect_one(address));
        }
        let answer = if waiting.len() > 0 {
            match timeout(NEXT_ADDRESS_AFTER, attempts.join_next()).await {
                Ok(answer) => answer,
                Err(_) => continue,
            }
        } else {
            attempts.join_next().await
        };
        match answer {
            Some(Ok(Ok(connected))) => return Ok(connected),
            Some(Ok(Err(error))) => last_error = error,
            Some(Err(_)) => {}
            None if waiting.len() == 0 => return Err(last_error),
            None => {}
        }
    }
}

async fn connect_one(address: SocketAddr) -> io::Result<(TcpStream, SocketAddr, Duration)> {
    let begin = Instant::now();
    let tcp = TcpStream::connect(address).await?;
    let elapsed = begin.elapsed();
    // The kernel's figure does not contain the time until this task ran again.
    let rtt = kernel::rtt(&tcp).map_or(elapsed, |kernel| kernel.min(elapsed));
    Ok((tcp, address, rtt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_address_does_not_hide_a_live_one() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // Nobody listens at the other loopback addresses.
        let addresses: Vec<IpAddr> =
            ["::1", "127.0.0.2", "127.0.0.1"].map(|text| text.parse().unwrap()).into();
        let (_, peer, _) = first_to_answer(&addresses, port).await.unwrap();
        assert_eq!(peer, listener.local_addr().unwrap());
        assert!(first_to_answer(&addresses[..2], port).await.is_err());
        assert!(first_to_answer(&[], port).await.is_err());
    }
}
