//! Names to addresses, remembered for a minute.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Resolved names.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: Mutex<HashMap<String, (Instant, Vec<IpAddr>)>>,
}

impl Names {
    /// Returns the addresses of `host`, IPv6 and IPv4 alternating in the system's order of preference.
    pub async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<IpAddr>> {
        if let Some(addresses) = self.remembered(host) {
            return Ok(addresses);
        }
        let found = tokio::net::lookup_host((host, port)).await?;
        let addresses = interleaved(found.map(|address: SocketAddr| address.ip()));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= NAMES_LIMIT {
            known.clear();
        }
        known.insert(host.to_owned(), (Instant::now(), addresses.clone()));
        Ok(addresses)
    }

    /// `address` answered: try it first the next time.
    pub fn prefer(&self, host: &str, address: IpAddr) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, addresses)) = known.get_mut(host)
            && let Some(at) = addresses.iter().position(|&other| other == address)
        {
            addresses[..=at].rotate_right(1);
        }
    }

    /// Forgets `host`: none of its addresses answered.
    pub fn forget(&self, host: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(host);
    }

    fn remembered(&self, host: &str) -> Option<Vec<IpAddr>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, addresses) = known.get(host)?;
        (since.elapsed() < LIFE).then(|| addresses.clone())
    }
}

/// How long an answer is trusted; short enough for servers that move by DNS.
const LIFE: Duration = Duration::from_secs(60);
/// More names than this are not remembered at once.
const NAMES_LIMIT: usize = 10_000;

/// Returns the families alternating, beginning with the first one's (RFC 8305, section 4).
fn interleaved(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut unique: Vec<IpAddr> = Vec::new();
    for address in addresses {
        if !unique.contains(&address) {
            unique.push(address);
        }
    }
    let first_is_v6 = unique.first().is_some_and(IpAddr::is_ipv6);
    let (first, second): (Vec<IpAddr>, Vec<IpAddr>) =
        unique.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let mut mixed = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    loop {
        match (first.next(), second.next()) {
            (None, None) => return mixed,
            (one, other) => mixed.extend(one.into_iter().chain(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate() {
        let all =
            ["::1", "::2", "::3", "127.0.0.1", "::1"].map(|text| text.parse::<IpAddr>().unwrap());
        let mixed: Vec<String> =
            interleaved(all.into_iter()).iter().map(ToString::to_string).collect();
        assert_eq!(mixed, ["::1", "127.0.0.1", "::2", "::3"]);
    }
}
