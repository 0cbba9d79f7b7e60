//! The address of a peer as links and trackers write it: a host, perhaps by name, and a port.

use core::net::Ipv6Addr;
use std::fmt;
use std::str::FromStr;

/// Where a peer listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// The port; not 0.
    pub port: u16,
}

impl FromStr for PeerAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<PeerAddress, ()> {
        let (host, port) = text.rsplit_once(':').ok_or(())?;
        let port = crate::number(port).and_then(|port| u16::try_from(port).ok());
        let port = port.filter(|port| *port > 0).ok_or(())?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match inner {
            Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
            None => {
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                (1..=HOST_BYTES_MAX).contains(&host.len()) && host.bytes().all(is_name)
            }
        };
        let host = inner.unwrap_or(host).to_owned();
        if is_host { Ok(PeerAddress { host, port }) } else { Err(()) }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The longest name of the DNS.
const HOST_BYTES_MAX: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_and_addresses() {
        for text in ["node-7.cluster.example:6881", "10.0.0.1:1", "[2001:db8::1]:65535"] {
            assert_eq!(text.parse::<PeerAddress>().unwrap().to_string(), text);
        }
        for text in ["", "a", "a:0", "a:65536", ":1", "[1]:1", "a b:1", "a/b:1", "2001:db8::1:1"] {
            assert!(text.parse::<PeerAddress>().is_err(), "{text}");
        }
        assert!(format!("{}:1", "a".repeat(254)).parse::<PeerAddress>().is_err());
    }
}
