//! Several addresses of one name, tried side by side (RFC 8305, "happy eyeballs").

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::permitted::Permitted;
use super::zone::with_zone;
use swath_transport::kernel;

/// The next address is tried when one has not answered for this long (RFC 8305, section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// So many addresses of one name are tried.
const ADDRESSES_LIMIT: usize = 8;

/// Connects to whichever of `addresses` answers first, preferring the earlier ones; `from` our address
/// where that can be.
pub(super) async fn first_to_answer(
    addresses: &[Permitted],
    from: Option<IpAddr>,
) -> io::Result<(TcpStream, SocketAddr, Duration)> {
    let addresses = addresses.iter().take(ADDRESSES_LIMIT).map(|it| it.address());
    let mut waiting = addresses.map(|address| with_zone(address.ip(), address.port()));
    let mut attempts = JoinSet::new();
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = waiting.next() {
            attempts.spawn(connect_one(address, from));
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

/// Returns our address `from` if connections to `to` can begin there.
pub(super) fn usable(from: Option<IpAddr>, to: SocketAddr) -> Option<IpAddr> {
    from.filter(|ip| ip.is_ipv6() == to.is_ipv6() && ip.is_loopback() == to.ip().is_loopback())
}

async fn connect_one(
    address: SocketAddr,
    from: Option<IpAddr>,
) -> io::Result<(TcpStream, SocketAddr, Duration)> {
    let begin = Instant::now();
    let tcp = match usable(from, address) {
        None => TcpStream::connect(address).await?,
        Some(from) => {
            let socket = if from.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
            socket.bind(SocketAddr::new(from, 0))?;
            socket.connect(address).await?
        }
    };
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
        let to = |ips: &[IpAddr]| -> Vec<Permitted> {
            ips.iter().map(|&ip| Permitted::of_user(SocketAddr::new(ip, port))).collect()
        };
        let (_, peer, _) = first_to_answer(&to(&addresses), None).await.unwrap();
        assert_eq!(peer, listener.local_addr().unwrap());
        assert!(first_to_answer(&to(&addresses[..2]), None).await.is_err());
        assert!(first_to_answer(&to(&[]), None).await.is_err());
    }
    #[tokio::test]
    async fn connections_begin_at_our_address_where_they_can() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for (from, seen) in
            [("127.0.0.2", "127.0.0.2"), ("192.0.2.1", "127.0.0.1"), ("::1", "127.0.0.1")]
        {
            let (ip, from) = (seen.parse::<IpAddr>().unwrap(), from.parse().unwrap());
            let to = Permitted::of_user(SocketAddr::from(([127, 0, 0, 1], port)));
            let (tcp, ..) = first_to_answer(&[to], Some(from)).await.unwrap();
            assert_eq!(tcp.local_addr().unwrap().ip(), ip);
        }
    }
}
