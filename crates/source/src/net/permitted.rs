//! Where connections may lead: the only place that decides it.
//!
//! A connection and a datagram need a [`Permitted`], and only [`Net`] makes one, of addresses that it has
//! judged by who named them ([`Trust`]): what the user named may be anywhere, and what the network named
//! – a mirror, a redirect, a tracker, a web seed, a peer – is public or in a network where the user's own
//! sources are. A server that runs jobs of others has a list instead, which holds whoever named an address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use url::Host;

use super::Net;
use super::address::is_public;
use super::connect::plain_words;
use crate::error::LaneError;
use crate::source::Trust;
use crate::target::Origin;

/// An address that may be contacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permitted(SocketAddr);

impl Permitted {
    /// Returns the address of a proxy: the user chose it, and connections to it lead elsewhere.
    pub(super) fn of_user(address: SocketAddr) -> Permitted {
        Permitted(address)
    }

    pub(crate) fn address(self) -> SocketAddr {
        self.0
    }
}

impl Net {
    /// Returns the addresses of `origin` that may be contacted.
    pub(super) async fn addresses(
        &self,
        origin: &Origin,
        trust: Trust,
    ) -> Result<Vec<Permitted>, LaneError> {
        let addresses = match &origin.host {
            Host::Ipv4(address) => vec![IpAddr::V4(*address)],
            Host::Ipv6(address) => vec![IpAddr::V6(*address)],
            Host::Domain(name) => {
                let found = self.shared.names.resolve(name, origin.port).await;
                found.map_err(|error| LaneError::Dns {
                    host: name.clone(),
                    reason: plain_words(&error),
                })?
            }
        };
        let ips = self.permitted(&origin.host, addresses, Some(origin.port), trust)?;
        Ok(ips.into_iter().map(|ip| Permitted(SocketAddr::new(ip, origin.port))).collect())
    }

    /// Checks an address that a proxy is asked for. A proxy resolves names out of our sight, but an address
    /// that says itself where it leads is judged all the same.
    pub(super) fn permitted_by_name(&self, origin: &Origin, trust: Trust) -> Result<(), LaneError> {
        let address = match &origin.host {
            Host::Ipv4(address) => IpAddr::V4(*address),
            Host::Ipv6(address) => IpAddr::V6(*address),
            Host::Domain(name) if is_localhost(name) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Host::Domain(_) => return Ok(()),
        };
        self.permitted(&origin.host, vec![address], Some(origin.port), trust).map(drop)
    }

    /// Checks that something from the network, such as a tracker, may lead us to this address: every public
    /// one, and others in networks where the user's own sources and trackers are.
    ///
    /// # Errors
    /// [`LaneError::RefusedAddress`] if it may not.
    pub fn may_be_led_to(&self, address: SocketAddr) -> Result<(), LaneError> {
        self.permitted_peer(address, Trust::Discovered).map(drop)
    }

    /// Returns the address of a peer, if something of this trust may lead us there.
    pub(crate) fn permitted_peer(
        &self,
        address: SocketAddr,
        trust: Trust,
    ) -> Result<Permitted, LaneError> {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let host = match ip {
            IpAddr::V4(ip) => Host::Ipv4(ip),
            IpAddr::V6(ip) => Host::Ipv6(ip),
        };
        self.permitted(&host, vec![ip], Some(port), trust)?;
        Ok(Permitted(address))
    }

    /// Returns the addresses of a peer that is named by its host, as something of this trust may lead us
    /// there.
    ///
    /// # Errors
    /// [`LaneError`]: the name is unknown, or none of its addresses is permitted.
    pub async fn peer_addresses(
        &self,
        name: &str,
        port: u16,
        trust: Trust,
    ) -> Result<Vec<SocketAddr>, LaneError> {
        let host = name.parse().map_or_else(
            |_| Host::parse(name),
            |ip| {
                Ok(match ip {
                    IpAddr::V4(ip) => Host::Ipv4(ip),
                    IpAddr::V6(ip) => Host::Ipv6(ip),
                })
            },
        );
        let unknown = |error: url::ParseError| LaneError::Dns {
            host: name.to_owned(),
            reason: error.to_string(),
        };
        let origin = Origin { tls: false, host: host.map_err(unknown)?, port };
        let permitted = self.addresses(&origin, trust).await?;
        Ok(permitted.into_iter().map(Permitted::address).collect())
    }

    /// Returns those of the `addresses` of a host that something of this trust may lead us to, on this port if
    /// that is known.
    pub(super) fn permitted(
        &self,
        host: &Host<String>,
        addresses: Vec<IpAddr>,
        port: Option<u16>,
        trust: Trust,
    ) -> Result<Vec<IpAddr>, LaneError> {
        let surroundings = &self.shared.surroundings;
        if let Some(listed) = &self.shared.options.reach {
            let is_in_reach = |address: &IpAddr| {
                let address = address.to_canonical();
                is_public(address) || listed.iter().any(|reach| reach.has(host, address, port))
            };
            let (near, far): (Vec<IpAddr>, Vec<IpAddr>) =
                addresses.into_iter().partition(is_in_reach);
            return match far.first() {
                Some(&address) if near.is_empty() => {
                    Err(LaneError::RefusedAddress { address, is_by_rule: true })
                }
                _ => Ok(near),
            };
        }
        if trust != Trust::Discovered {
            match host {
                Host::Domain(name) if !is_localhost(name) => surroundings.allow_named(&addresses),
                _ => addresses.iter().for_each(|&address| surroundings.allow(address)),
            }
            return Ok(addresses);
        }
        let refused = addresses.iter().find(|&&address| !surroundings.permits(address)).copied();
        let permitted: Vec<IpAddr> =
            addresses.into_iter().filter(|&address| surroundings.permits(address)).collect();
        match refused {
            Some(address) if permitted.is_empty() => {
                Err(LaneError::RefusedAddress { address, is_by_rule: false })
            }
            _ => Ok(permitted),
        }
    }
}

/// Names that every machine has for itself (RFC 6761, section 6.3).
fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::NetOptions;

    #[tokio::test]
    async fn what_the_network_names_leads_inside_only_where_the_user_is() {
        let net = Net::new(NetOptions::default()).unwrap();
        let inside = [
            "127.0.0.1:1",
            "10.1.2.3:1",
            "169.254.169.254:80",
            "[fd00::1]:1",
            "[::ffff:10.0.0.1]:1",
        ];
        for address in inside {
            let judged = net.permitted_peer(address.parse().unwrap(), Trust::Discovered);
            assert!(matches!(judged, Err(LaneError::RefusedAddress { .. })), "{address}");
        }
        let named = net.peer_addresses("localhost", 1, Trust::Discovered).await;
        assert!(matches!(named, Err(LaneError::RefusedAddress { .. })), "{named:?}");
        assert!(net.datagrams("127.0.0.1", 1, Trust::Discovered).await.is_err());
        assert!(net.peer_addresses("a b", 1, Trust::Discovered).await.is_err());
        // The user is in this network, so that others of it may be named.
        net.permitted_peer("10.9.9.9:1".parse().unwrap(), Trust::Named).unwrap();
        for (address, may) in inside.into_iter().zip([false, true, false, true, true]) {
            let judged = net.permitted_peer(address.parse().unwrap(), Trust::Discovered);
            assert_eq!(judged.is_ok(), may, "{address}");
        }
        let named = net.peer_addresses("10.1.1.1", 7, Trust::Discovered).await.unwrap();
        assert_eq!(named, ["10.1.1.1:7".parse().unwrap()]);
    }
}
