//! Which networks may be contacted: a foreign server must not lead us to machines that only we
//! can reach.
//!
//! Addresses fall into four classes. Public ones are always fine; the others only if a source
//! that the user named is of the same class.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, Ordering};

use url::Host;

/// The classes of addresses in which the user's own sources are.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    allowed: AtomicU8,
}

/// Whose neighbourhood an address belongs to, as a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Public = 0,
    Private = 1,
    LinkLocal = 2,
    Loopback = 4,
}

impl Surroundings {
    /// The user named a source here.
    pub fn allow(&self, address: IpAddr) {
        self.allowed.fetch_or(class(address) as u8, Ordering::Relaxed);
    }

    /// The user named a source with this host; names are judged when they are resolved.
    pub fn allow_host(&self, host: &Host<String>) {
        match host {
            Host::Ipv4(address) => self.allow(IpAddr::V4(*address)),
            Host::Ipv6(address) => self.allow(IpAddr::V6(*address)),
            Host::Domain(name) if name == "localhost" => {
                self.allow(IpAddr::V4(Ipv4Addr::LOCALHOST))
            }
            Host::Domain(_) => {}
        }
    }

    /// The user named a source with this name, which leads to these addresses. Whoever looks after a
    /// name can have it lead anywhere: one that leads to several classes, or to this machine without
    /// being called so, opens nothing.
    pub fn allow_named(&self, addresses: &[IpAddr]) {
        let Some(&first) = addresses.first() else { return };
        let of_one_class = addresses.iter().all(|&address| class(address) == class(first));
        if of_one_class && class(first) != Class::Loopback {
            self.allow(first);
        }
    }

    /// Returns whether something from the network may lead us to `address`.
    pub fn permits(&self, address: IpAddr) -> bool {
        let class = class(address) as u8;
        class == 0 || self.allowed.load(Ordering::Relaxed) & class != 0
    }
}

/// Returns whether an address is one that everybody can reach, and no machine of ours alone.
pub(super) fn is_public(address: IpAddr) -> bool {
    class(address) == Class::Public
}

fn class(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => class_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(inner) => class_v4(inner),
            None => class_v6(address),
        },
    }
}

fn class_v4(address: Ipv4Addr) -> Class {
    let [a, b, c, _] = address.octets();
    if address.is_loopback() || a == 0 {
        Class::Loopback
    } else if address.is_link_local() || address.is_multicast() || address.is_broadcast() {
        Class::LinkLocal
    } else if address.is_private()
        || (a == 100 && b & 0xc0 == 64)
        || (a == 198 && b & 0xfe == 18)
        || (a, b, c) == (192, 0, 0)
        || a >= 240
    {
        // Carriers' networks (RFC 6598), benchmarks' (RFC 2544), those of protocols (RFC 6890), and what
        // is reserved.
        Class::Private
    } else {
        Class::Public
    }
}

fn class_v6(address: Ipv6Addr) -> Class {
    let segments = address.segments();
    let first = segments[0];
    // Translated and tunnelled addresses lead to the IPv4 address in them (RFC 6052, RFC 3056).
    let embedded = match segments {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some((high, low)),
        // The same without a prefix of a network's own (RFC 2765).
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some((high, low)),
        // Teredo (RFC 4380) has it with all bits turned round.
        [0x2001, 0, .., high, low] => Some((!high, !low)),
        _ => None,
    };
    if let Some((high, low)) = embedded {
        return class_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    }
    if address.is_loopback() || address.is_unspecified() {
        Class::Loopback
    } else if let [0, 0, 0, 0, 0, 0, high, low] = segments {
        // IPv4-compatible addresses (RFC 4291, deprecated) are nobody's in public.
        match class_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))) {
            Class::Public => Class::Private,
            inner => inner,
        }
    } else if first & 0xffc0 == 0xfe80 || first & 0xff00 == 0xff00 {
        Class::LinkLocal
    } else if first & 0xfe00 == 0xfc00
        || first & 0xffc0 == 0xfec0
        || segments[..3] == [0x64, 0xff9b, 1]
    {
        // Unique local (RFC 4193), site-local before it (RFC 3879), and translation within a
        // network (RFC 8215).
        Class::Private
    } else {
        Class::Public
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_users_own_neighbourhood_is_open() {
        let here = Surroundings::default();
        let loopback: IpAddr = "127.1.2.3".parse().unwrap();
        let private: IpAddr = "192.168.1.1".parse().unwrap();
        assert!(here.permits("192.0.2.1".parse().unwrap()));
        for closed in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:a00:1::",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "100.64.0.1",
            "198.18.0.1",
            "192.0.0.8",
            "240.0.0.1",
            "64:ff9b:1::1",
            "2001::80ff:fffe",
            "::ffff:0:7f00:1",
            "169.254.169.254",
            "fe80::1",
            "fd00::1",
            "fec0::1",
            "feff::1",
            "::7f00:1",
            "::10.0.0.1",
            "::8.8.8.8",
            "ff02::1",
            "::",
        ] {
            assert!(!here.permits(closed.parse().unwrap()), "{closed}");
        }
        for open in ["192.0.2.1", "2001:db8::1", "2001::f7f7:f7f7", "64:ff9b::808:808"] {
            assert!(here.permits(open.parse().unwrap()), "{open}");
        }
        // A name with a public address and one of this machine opened the latter for redirects.
        here.allow_named(&["192.0.2.1".parse().unwrap(), loopback, private]);
        here.allow_named(&[loopback]);
        here.allow_named(&[]);
        assert!(!here.permits(private) && !here.permits(loopback));
        here.allow_named(&[private, "10.0.0.1".parse().unwrap()]);
        assert!(here.permits(private) && !here.permits(loopback));
        here.allow_host(&Host::Domain("localhost".to_owned()));
        assert!(here.permits(loopback));
    }
}
