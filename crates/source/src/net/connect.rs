//! Opening connections: names, address families side by side (RFC 8305), TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use url::Host;

use super::Net;
use super::stream::{Conn, ReadAhead, kernel_rtt};
use crate::error::LaneError;
use crate::source::Trust;
use crate::target::{Origin, Target};

impl Net {
    /// A connection to `target`: an idle one if there is one, else a new one, within the time-out.
    pub(crate) async fn connect(&self, target: &Target, reuse: bool) -> Result<Conn, LaneError> {
        let Some(origin) = &target.origin else {
            return Err(LaneError::Scheme { scheme: target.url.scheme().to_owned() });
        };
        if reuse && let Some(conn) = self.take_idle(origin) {
            return Ok(conn);
        }
        let limit = self.timeout();
        match timeout(limit, self.connect_new(origin, target.trust)).await {
            Ok(result) => result,
            Err(_) => Err(LaneError::Connect {
                host: origin.to_string(),
                reason: format!("no answer within {} s", limit.as_secs_f64()),
            }),
        }
    }

    async fn connect_new(&self, origin: &Origin, trust: Trust) -> Result<Conn, LaneError> {
        let addresses = self.addresses(origin, trust).await?;
        let (tcp, peer, rtt) = match first_to_answer(&addresses, origin.port).await {
            Ok(connected) => connected,
            Err(error) => {
                self.shared.names.forget(&origin.host.to_string());
                return Err(LaneError::Connect {
                    host: origin.to_string(),
                    reason: error.to_string(),
                });
            }
        };
        if addresses.len() > 1 {
            self.shared.names.prefer(&origin.host.to_string(), peer.ip());
        }
        // Requests are small and must not wait for acknowledgements.
        let _ = tcp.set_nodelay(true);
        if !origin.tls {
            return Ok(Conn::plain(tcp, origin.clone(), peer, rtt));
        }
        let tls_error = |reason: String| LaneError::Tls { host: origin.to_string(), reason };
        let name = server_name(&origin.host)
            .ok_or_else(|| tls_error("not a proper host name".to_owned()))?;
        let tls = self.shared.tls.connect(name, ReadAhead::new(tcp)).await;
        let tls = tls.map_err(|error| tls_error(error.to_string()))?;
        Ok(Conn::tls(tls, origin.clone(), peer, rtt))
    }

    /// The addresses of `origin` that may be contacted.
    async fn addresses(&self, origin: &Origin, trust: Trust) -> Result<Vec<IpAddr>, LaneError> {
        let addresses = match &origin.host {
            Host::Ipv4(address) => vec![IpAddr::V4(*address)],
            Host::Ipv6(address) => vec![IpAddr::V6(*address)],
            Host::Domain(name) => {
                let dns_error = |reason: String| LaneError::Dns { host: name.clone(), reason };
                let found = self.shared.names.resolve(name, origin.port).await;
                found.map_err(|error| dns_error(plain_words(&error)))?
            }
        };
        let surroundings = &self.shared.surroundings;
        if trust == Trust::Named {
            addresses.iter().for_each(|&address| surroundings.allow(address));
            return Ok(addresses);
        }
        let refused = addresses.iter().find(|&&address| !surroundings.permits(address)).copied();
        let permitted: Vec<IpAddr> =
            addresses.into_iter().filter(|&address| surroundings.permits(address)).collect();
        match refused {
            Some(address) if permitted.is_empty() => Err(LaneError::RefusedAddress { address }),
            _ => Ok(permitted),
        }
    }
}

fn server_name(host: &Host<String>) -> Option<ServerName<'static>> {
    Some(match host {
        Host::Domain(name) => ServerName::try_from(name.trim_end_matches('.').to_owned()).ok()?,
        Host::Ipv4(address) => ServerName::from(IpAddr::V4(*address)),
        Host::Ipv6(address) => ServerName::from(IpAddr::V6(*address)),
    })
}

/// The next address is tried when one has not answered for this long (RFC 8305, section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// So many addresses of one name are tried.
const ADDRESSES_LIMIT: usize = 8;

/// Connect to whichever of `addresses` answers first, preferring the earlier ones.
async fn first_to_answer(
    addresses: &[IpAddr],
    port: u16,
) -> io::Result<(TcpStream, SocketAddr, Duration)> {
    let mut waiting =
        addresses.iter().take(ADDRESSES_LIMIT).map(|&address| SocketAddr::new(address, port));
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
    let rtt = kernel_rtt(&tcp).map_or(elapsed, |kernel| kernel.min(elapsed));
    Ok((tcp, address, rtt))
}

/// The resolver's error without its technical prefix.
fn plain_words(error: &io::Error) -> String {
    let text = error.to_string();
    text.rsplit(": ").next().unwrap_or(&text).to_owned()
}
