//! Identifies a client where each may use only a part of something.

use std::net::{IpAddr, SocketAddr};

use ipnet::Ipv6Net;

/// A client by its address. Of IPv6 that is a network of 64 bits: a single machine has all of it, and
/// could be somebody else with each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(IpAddr);

impl From<SocketAddr> for Client {
    fn from(peer: SocketAddr) -> Client {
        Client::from(peer.ip())
    }
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Client {
        Client(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Net::new_assert(address, NETWORK_BITS).network().into(),
            address => address,
        })
    }
}

#[cfg(test)]
impl Client {
    /// One on this machine.
    pub const HERE: Client = Client(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
}

/// A single machine has all addresses of such a network.
const NETWORK_BITS: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> Client {
        Client::from(address.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn one_machine_is_one_client_whatever_addresses_it_has() {
        assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff::9"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
    }
}
