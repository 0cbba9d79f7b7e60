//! Addresses of peers of one torrent, and when to connect to them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use swath_model::Time;
use swath_source::Trust;

/// Addresses that were told by trackers, peers and the user; a bounded number of them, because anybody
/// can tell many that lead nowhere.
#[derive(Debug, Default)]
pub(super) struct Addresses(HashMap<SocketAddr, Known>);

#[derive(Debug)]
struct Known {
    /// Who named it.
    trust: Trust,
    /// Failures in a row.
    failures: u32,
    not_before: Time,
    /// It is connected, or about to be.
    is_busy: bool,
}

impl Addresses {
    /// Adds an address unless it is known, cannot be a peer's, or there are too many.
    pub fn add(&mut self, address: SocketAddr, trust: Trust, now: Time) {
        let address = canonical(address);
        let may_be = address.port() > 0 && is_of_one_machine(address.ip());
        if !may_be || self.0.contains_key(&address) {
            return;
        }
        if self.0.len() >= ADDRESSES_MAX {
            // Make room by what has failed most.
            let spare = self.0.iter().filter(|(_, known)| known.failures > 0 && known.may_go());
            let worst = spare.max_by_key(|(_, known)| known.failures).map(|(address, _)| *address);
            let Some(worst) = worst else { return };
            self.0.remove(&worst);
        }
        self.0.insert(address, Known { trust, failures: 0, not_before: now, is_busy: false });
    }

    /// Takes the next address to connect to: those that the user named first, then those that failed
    /// least.
    pub fn next(&mut self, now: Time) -> Option<(SocketAddr, Trust)> {
        let ready =
            self.0.iter_mut().filter(|(_, known)| !known.is_busy && known.not_before <= now);
        let (address, known) = ready.min_by_key(|(address, known)| {
            (known.trust != Trust::Named, known.failures, known.not_before, **address)
        })?;
        known.is_busy = true;
        Some((*address, known.trust))
    }

    /// The address is connected, by us or by the peer.
    pub fn connected(&mut self, address: SocketAddr) {
        if let Some(known) = self.0.get_mut(&canonical(address)) {
            (known.is_busy, known.failures) = (true, 0);
        }
    }

    /// There is no connection any more. It is not tried again before `wait` is over.
    pub fn left(&mut self, address: SocketAddr, wait: Duration, now: Time) {
        if let Some(known) = self.0.get_mut(&canonical(address)) {
            (known.is_busy, known.not_before) = (false, now + wait);
        }
    }

    /// The address was not reached. After some failures it is forgotten, unless the user named it.
    pub fn failed(&mut self, address: SocketAddr, now: Time) {
        let address = canonical(address);
        let Some(known) = self.0.get_mut(&address) else { return };
        known.failures += 1;
        known.is_busy = false;
        let most = if known.trust == Trust::Named { DOUBLINGS_NAMED } else { DOUBLINGS_MAX };
        known.not_before = now + RETRY.saturating_mul(1 << known.failures.min(most));
        if known.failures >= FAILURES_MAX && known.may_go() {
            self.0.remove(&address);
        }
    }
}

impl Known {
    fn may_go(&self) -> bool {
        self.trust != Trust::Named && !self.is_busy
    }
}

/// Returns the address in the form of its own family.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn is_of_one_machine(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}

/// A tracker gives some hundred at most; many of them are gone.
const ADDRESSES_MAX: usize = 2_000;
/// The wait after a failure, before it is doubled; a named peer may just be starting.
const RETRY: Duration = Duration::from_secs(2);
/// It doubles so often, to eight minutes.
const DOUBLINGS_MAX: u32 = 8;
/// Whoever names a peer waits for it, while it starts or looks through its data: eight seconds.
const DOUBLINGS_NAMED: u32 = 2;
/// The tracker names a peer again that comes back.
const FAILURES_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1000)
    }

    fn address(number: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], number))
    }

    /// Returns how many addresses could be connected to, now or later.
    fn waiting(all: &Addresses) -> usize {
        all.0.values().filter(|known| !known.is_busy).count()
    }

    #[test]
    fn addresses_are_tried_ever_less_and_forgotten() {
        let mut all = Addresses::default();
        all.add(address(1), Trust::Discovered, at(0));
        all.add("[::ffff:192.0.2.1]:1".parse().unwrap(), Trust::Discovered, at(0));
        all.add(address(2), Trust::Named, at(0));
        assert_eq!(all.next(at(0)), Some((address(2), Trust::Named)));
        assert_eq!(all.next(at(0)), Some((address(1), Trust::Discovered)));
        assert_eq!(all.next(at(0)), None);
        all.failed(address(1), at(0));
        assert_eq!((all.next(at(3)), waiting(&all)), (None, 1));
        let (mut now, mut tries) = (at(4), 1);
        while now < at(24 * 3600) {
            if let Some((address, _)) = all.next(now) {
                tries += 1;
                all.failed(address, now);
            }
            now = now + Duration::from_secs(1);
        }
        assert_eq!((tries, all.next(now)), (6, None));
        // The one that the user named is tried for ever.
        all.failed(address(2), now);
        (0..20).for_each(|_| all.failed(address(2), now));
        assert!(all.next(now + Duration::from_secs(600)).is_some());
    }

    #[test]
    fn connected_peers_are_not_dialled() {
        let mut all = Addresses::default();
        all.add(address(1), Trust::Discovered, at(0));
        all.connected(address(1));
        assert_eq!(all.next(at(9)), None);
        all.left(address(1), Duration::from_secs(60), at(10));
        assert_eq!(all.next(at(69)), None);
        assert!(all.next(at(70)).is_some());
    }

    #[test]
    fn lies_do_not_fill_the_memory() {
        let mut all = Addresses::default();
        for text in ["0.0.0.0:1", "224.0.0.1:1", "255.255.255.255:1", "1.2.3.4:0", "[ff02::1]:1"] {
            all.add(text.parse().unwrap(), Trust::Discovered, at(0));
        }
        assert_eq!(waiting(&all), 0);
        (1..5000).for_each(|port| all.add(address(port), Trust::Discovered, at(0)));
        assert_eq!(waiting(&all), ADDRESSES_MAX);
        // One that failed makes room for a new one.
        let (gone, _) = all.next(at(0)).unwrap();
        all.failed(gone, at(0));
        all.add(address(9999), Trust::Discovered, at(0));
        assert_eq!(waiting(&all), ADDRESSES_MAX);
        assert!(all.0.contains_key(&address(9999)) && !all.0.contains_key(&gone));
    }
}
