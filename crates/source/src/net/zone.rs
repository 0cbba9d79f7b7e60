//! Zones of link-local addresses, as in `http://[fe80::1%25eth0]:8470/` (RFC 6874).
//!
//! Two machines on one cable have such addresses only, and the address alone does not say which of
//! this machine's interfaces leads there. An URL cannot hold a zone (nor does it belong into a
//! request), so it is taken off here and remembered for the connections of this process.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::{Mutex, PoisonError};

use swath_formats::percent;

/// Interfaces by address: what the user has named, so a few.
static ZONES: Mutex<BTreeMap<Ipv6Addr, u32>> = Mutex::new(BTreeMap::new());

/// Why a zone cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// The address before the `%` is none.
    #[error("{0:?} is no IPv6 address")]
    Address(String),
    /// This machine has no such interface.
    #[error("this machine has no network interface {0:?}")]
    Interface(String),
    /// The same address in another zone was named before.
    #[error("the address {0} was named in another zone before: one of them for each command")]
    TwoZones(Ipv6Addr),
}

/// The address `text` without the zone in it, which is remembered; `None` if there is no zone.
///
/// # Errors
/// [`ZoneError`] if there is one that cannot be used.
pub fn without_zone(text: &str) -> Result<Option<String>, ZoneError> {
    let begin = text.find("://").map_or(0, |at| at + 3);
    let end = text[begin..].find(['/', '?', '#']).map_or(text.len(), |at| begin + at);
    let authority = &text[begin..end];
    let host = authority.rfind('@').map_or(0, |at| at + 1);
    let Some((inner, _)) = authority[host..].strip_prefix('[').and_then(|it| it.split_once(']'))
    else {
        return Ok(None);
    };
    let Some((address, zone)) = inner.split_once('%') else { return Ok(None) };
    let zone = percent::decode_text(zone.strip_prefix("25").unwrap_or(zone));
    let parsed: Ipv6Addr =
        address.parse().map_err(|_| ZoneError::Address(address.chars().take(40).collect()))?;
    remember(parsed, &zone)?;
    let (before, after) = (&text[..begin + host], &text[begin + host + 1 + inner.len()..]);
    Ok(Some(format!("{before}[{address}{after}")))
}

fn remember(address: Ipv6Addr, zone: &str) -> Result<(), ZoneError> {
    let unknown = || ZoneError::Interface(zone.chars().take(40).collect());
    let index = match zone.parse::<u32>() {
        Ok(index) => index,
        Err(_) => {
            let name = CString::new(zone).map_err(|_| unknown())?;
            // SAFETY: the name is a C string that lives until the call returns.
            unsafe { libc::if_nametoindex(name.as_ptr()) }
        }
    };
    if index == 0 {
        return Err(unknown());
    }
    let mut zones = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
    match zones.insert(address, index) {
        Some(other) if other != index => Err(ZoneError::TwoZones(address)),
        _ => Ok(()),
    }
}

/// Returns where to connect for an address, in its zone if it has one.
pub(super) fn with_zone(address: IpAddr, port: u16) -> SocketAddr {
    match address {
        IpAddr::V6(own) if own.is_unicast_link_local() => {
            let zones = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
            SocketAddrV6::new(own, port, 0, zones.get(&own).copied().unwrap_or(0)).into()
        }
        _ => SocketAddr::new(address, port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_taken_off_and_goes_into_the_address() {
        for (text, expected) in [
            ("http://[fe80::a1%25lo]:8470/a?b#c", "http://[fe80::a1]:8470/a?b#c"),
            ("https://me:pw@[fe80::a2%lo]/x%25y", "https://me:pw@[fe80::a2]/x%25y"),
            ("http://[fe80::a3%251]", "http://[fe80::a3]"),
        ] {
            assert_eq!(without_zone(text).unwrap().as_deref(), Some(expected));
        }
        for text in ["http://a/%25lo", "http://[::1]/a%25b", "http://a/[x%25lo]", "x", "http://["] {
            assert_eq!(without_zone(text), Ok(None), "{text}");
        }
        let SocketAddr::V6(address) = with_zone("fe80::a1".parse().unwrap(), 1) else { panic!() };
        assert_eq!((address.scope_id(), address.port()), (1, 1));
        let SocketAddr::V6(other) = with_zone("fe80::b1".parse().unwrap(), 1) else { panic!() };
        assert_eq!(other.scope_id(), 0);
    }

    #[test]
    fn a_zone_that_is_none_is_named() {
        let said = |text: &str| without_zone(text).unwrap_err().to_string();
        assert!(said("http://[fe80::1%25no-such-if]/").contains("\"no-such-if\""));
        assert!(said("http://[fe80::1%25]/").contains("no network interface"));
        assert!(said("http://[1.2.3.4%25lo]/").contains("no IPv6 address"));
        without_zone("http://[fe80::c1%251]/").unwrap();
        assert!(said("http://[fe80::c1%252]/").contains("in another zone"));
    }
}
