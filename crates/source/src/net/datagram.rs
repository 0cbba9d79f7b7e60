//! Datagrams to a host, under the same rules as connections: names, permitted addresses, proxies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::UdpSocket;
use url::Host;

use super::happy::usable;
use super::{Net, connect};
use crate::error::LaneError;
use crate::source::Trust;
use crate::target::Origin;

impl Net {
    /// Returns sockets connected to a host's UDP port, one for each address family that it has and
    /// that this machine can send by; at least one.
    ///
    /// # Errors
    /// [`LaneError`]: the name is unknown, the address is not permitted, or connections to this host
    /// go through a proxy, which carries no datagrams.
    pub async fn datagrams(
        &self,
        host: &str,
        port: u16,
        trust: Trust,
    ) -> Result<Vec<UdpSocket>, LaneError> {
        let unknown = |reason: String| LaneError::Dns { host: host.to_owned(), reason };
        let parsed = Host::parse(host).map_err(|error| unknown(error.to_string()))?;
        let origin = Origin { tls: false, host: parsed, port };
        if let Some(proxy) = self.shared.options.proxy(&origin) {
            return Err(LaneError::Proxy {
                proxy: proxy.host_str().unwrap_or_default().to_owned(),
                reason: "it carries no UDP".to_owned(),
                code: None,
            });
        }
        let addresses = self.addresses(&origin, trust).await?;
        let mut sockets = Vec::new();
        let mut failed = None;
        for is_six in [false, true] {
            let Some(ip) = addresses.iter().find(|ip| ip.is_ipv6() == is_six) else { continue };
            match connected(SocketAddr::new(*ip, port), self.shared.options.from).await {
                Ok(socket) => sockets.push(socket),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if sockets.is_empty() => Err(connect::broke(&origin, &error)),
            _ if sockets.is_empty() => Err(unknown("the name has no address".to_owned())),
            _ => Ok(sockets),
        }
    }
}

/// Returns a socket that gets datagrams from this address alone, with our address `from` if it can have
/// that.
async fn connected(to: SocketAddr, from: Option<IpAddr>) -> std::io::Result<UdpSocket> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((usable(from, to).unwrap_or(any), 0)).await?;
    socket.connect(to).await?;
    Ok(socket)
}
