//! Datagrams to a host, and a port for uTP, under the same rules as connections: names, permitted addresses, proxies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use swath_transport::{Utp, UtpAdmission};
use tokio::net::UdpSocket;
use url::Host;

use super::happy::usable;
use super::permitted::Permitted;
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
            let of_family = addresses.iter().find(|it| it.address().is_ipv6() == is_six);
            let Some(&permitted) = of_family else { continue };
            match connected(permitted, self.from).await {
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

    /// Opens a port for uTP, as [`Utp::bind`] does; at our own address, if there is one, where all
    /// addresses are meant. `None` if there is a proxy: it carries no uTP, and what is fetched through a
    /// proxy is not to be fetched past it.
    ///
    /// # Errors
    /// As the system says.
    pub async fn utp(
        &self,
        address: SocketAddr,
        admits: impl Fn(IpAddr) -> UtpAdmission + Send + Sync + 'static,
    ) -> std::io::Result<Option<Utp>> {
        if self.shared.options.proxies.is_any() {
            return Ok(None);
        }
        let ip = self.from.filter(|_| address.ip().is_unspecified()).unwrap_or(address.ip());
        Utp::bind(SocketAddr::new(ip, address.port()), admits).await.map(Some)
    }
}

/// Returns a socket that gets datagrams from this address alone, with our address `from` if it can have
/// that.
async fn connected(to: Permitted, from: Option<IpAddr>) -> std::io::Result<UdpSocket> {
    let to = to.address();
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((usable(from, to).unwrap_or(any), 0)).await?;
    socket.connect(to).await?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{NetOptions, Proxies};

    #[tokio::test]
    async fn no_port_is_opened_for_utp_where_there_is_a_proxy() {
        let any = "0.0.0.0:0".parse().unwrap();
        let net = Net::new(NetOptions::default()).unwrap();
        let net = net.from_address(Ipv4Addr::LOCALHOST.into());
        let utp = net.utp(any, |_| UtpAdmission::Yes).await.unwrap().unwrap();
        assert_eq!(utp.address().ip(), Ipv4Addr::LOCALHOST);
        for variable in ["http_proxy", "https_proxy", "all_proxy"] {
            let env = |name: &str| (name == variable).then(|| "http://proxy.example".to_owned());
            let proxies = Proxies::from_env(env).unwrap();
            let net = Net::new(NetOptions { proxies, ..NetOptions::default() }).unwrap();
            assert!(net.utp(any, |_| UtpAdmission::Yes).await.unwrap().is_none(), "{variable}");
        }
    }
}
