//! The peers of one torrent.
//!
//! Seeders and leechers, IPv4 and IPv6, are apart: a client gets peers of its own address family, and
//! a seeder gets leechers, with a few seeders when it starts. A peer is its address and port. It takes
//! 48 bytes (IPv6: 56) and 10 to 20 of the hash table; tables grow by doubling, so there are up to
//! twice as many.

use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

use fastrand::Rng;
use indexmap::IndexMap;
use swath_formats::tracker::{Peer, PeerId, SwarmCounts};

/// The peers of one torrent.
#[derive(Debug, Default)]
pub struct Swarm {
    /// How often a peer became complete.
    pub completed: u32,
    pub four: Peers<[u8; 4]>,
    pub six: Peers<[u8; 16]>,
}

/// The peers of one address family.
#[derive(Debug)]
pub struct Peers<A> {
    pub seeders: Table<A>,
    pub leechers: Table<A>,
}

/// Peers by address and port, each at a position that changes when others leave.
pub type Table<A> = IndexMap<(A, u16), Member>;

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: PeerId,
    /// Second of its last announce.
    pub seen_s: u32,
    /// Second in which it last got peers.
    pub served_s: u32,
}

/// What a peer was before its announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    Absent,
    Leecher(Member),
    Seeder(Member),
}

/// What an answer needs.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The most peers.
    pub count: usize,
    /// The most seeders among them.
    pub seeders_max: usize,
    /// Peers that were last seen before this second are left out.
    pub since_s: u32,
}

impl Swarm {
    /// Returns the number of peers.
    pub fn len(&self) -> usize {
        self.four.len() + self.six.len()
    }

    /// Returns the counts of a scrape. A client with both address families counts twice.
    pub fn counts(&self) -> SwarmCounts {
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        SwarmCounts {
            seeders: small(self.four.seeders.len() + self.six.seeders.len()),
            completed: self.completed,
            leechers: small(self.four.leechers.len() + self.six.leechers.len()),
        }
    }

    /// Removes the peers that were last seen before this second; returns how many.
    pub fn expire(&mut self, before_s: u32) -> usize {
        self.four.expire(before_s) + self.six.expire(before_s)
    }

    /// Removes the peer that has been silent for longest, of some chosen at random; returns whether
    /// there was one.
    pub fn drop_silent(&mut self, rng: &mut Rng) -> bool {
        let Swarm { four, six, .. } = self;
        match rng.usize(..(four.len() + six.len()).max(1)) < four.len() {
            true => four.drop_silent(rng),
            false => six.drop_silent(rng),
        }
    }
}

impl<A> Default for Peers<A> {
    fn default() -> Self {
        Peers { seeders: Table::default(), leechers: Table::default() }
    }
}

impl<A: Copy + Eq + Hash + Into<IpAddr>> Peers<A> {
    pub fn len(&self) -> usize {
        self.seeders.len() + self.leechers.len()
    }

    /// Returns what the peer is.
    pub fn find(&self, key: &(A, u16)) -> Before {
        match (self.seeders.get(key), self.leechers.get(key)) {
            (Some(member), _) => Before::Seeder(*member),
            (None, Some(member)) => Before::Leecher(*member),
            (None, None) => Before::Absent,
        }
    }

    /// Adds the peer or replaces what was known of it. `before` is what [`Peers::find`] returned.
    pub fn put(&mut self, key: (A, u16), member: Member, is_seeder: bool, before: Before) {
        match (is_seeder, before) {
            (true, Before::Leecher(_)) => _ = self.leechers.swap_remove(&key),
            (false, Before::Seeder(_)) => _ = self.seeders.swap_remove(&key),
            _ => {}
        }
        let table = if is_seeder { &mut self.seeders } else { &mut self.leechers };
        table.insert(key, member);
    }

    /// Removes the peer; returns whether it was there.
    pub fn remove(&mut self, key: &(A, u16)) -> bool {
        self.seeders.swap_remove(key).is_some() || self.leechers.swap_remove(key).is_some()
    }

    /// Chooses peers for the one with this key. A leecher gets seeders and leechers in the proportion
    /// of the swarm, and at least one of either kind if there is one.
    pub fn choose(&self, key: &(A, u16), wish: Wish, rng: &mut Rng) -> Vec<Peer> {
        let Wish { count, seeders_max, .. } = wish;
        let mut peers = Vec::new();
        let others = self.leechers.len() - usize::from(self.leechers.contains_key(key));
        let seeders = match self.seeders.len() - usize::from(self.seeders.contains_key(key)) {
            all if all + others <= count => all,
            all => {
                let share = count * all / (all + others);
                share
                    .clamp(usize::from(all > 0), all)
                    .min(count - usize::from(others > 0 && count > 1))
            }
        };
        let seeders = seeders.min(seeders_max);
        pick(&self.seeders, seeders, key, wish.since_s, rng, &mut peers);
        pick(&self.leechers, count.saturating_sub(seeders), key, wish.since_s, rng, &mut peers);
        peers
    }

    fn expire(&mut self, before_s: u32) -> usize {
        let len_before = self.len();
        for table in [&mut self.seeders, &mut self.leechers] {
            table.retain(|_, member| member.seen_s >= before_s);
            if table.capacity() > SHRINK_ABOVE && table.capacity() / 4 > table.len() {
                table.shrink_to_fit();
            }
        }
        len_before - self.len()
    }

    fn drop_silent(&mut self, rng: &mut Rng) -> bool {
        let seeders = self.seeders.len();
        let at = |position: usize| match position.checked_sub(seeders) {
            None => self.seeders.get_index(position),
            Some(position) => self.leechers.get_index(position),
        };
        let chosen = (0..DROP_AMONG).filter_map(|_| at(rng.usize(..self.len().max(1))));
        let longest = chosen.min_by_key(|(_, member)| member.seen_s).map(|(key, _)| *key);
        longest.is_some_and(|key| self.remove(&key))
    }
}

/// Adds up to `count` peers of a table, but the one with this key: one from each of as many equal
/// parts of the table, so that all are different and each peer is as likely as any other.
fn pick<A: Copy + Eq + Hash + Into<IpAddr>>(
    table: &Table<A>,
    count: usize,
    own: &(A, u16),
    since_s: u32,
    rng: &mut Rng,
    peers: &mut Vec<Peer>,
) {
    let own = table.get_index_of(own);
    let others = table.len() - usize::from(own.is_some());
    let parts = count.min(others);
    peers.reserve(parts);
    for part in 0..parts {
        let (begin, end) = (part * others / parts, (part + 1) * others / parts);
        let position = rng.usize(begin..end);
        // Its own place is passed over.
        let position = position + usize::from(own.is_some_and(|own| position >= own));
        let Some((key, member)) = table.get_index(position) else { continue };
        if member.seen_s >= since_s {
            let address = SocketAddr::new(key.0.into(), key.1);
            peers.push(Peer { address, id: Some(member.id) });
        }
    }
}

/// Candidates for being dropped. With 16, hardly a peer that has announced lately is dropped.
const DROP_AMONG: usize = 16;
/// Smaller tables keep their memory.
const SHRINK_ABOVE: usize = 64;

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    fn peers(seeders: u16, leechers: u16) -> Peers<[u8; 4]> {
        let mut peers = Peers::default();
        for port in 1..=seeders + leechers {
            let member = Member { id: PeerId([0; 20]), seen_s: port.into(), served_s: 0 };
            peers.put(([10, 0, 0, 1], port), member, port <= seeders, Before::Absent);
        }
        peers
    }

    fn chosen(peers: &Peers<[u8; 4]>, own: u16, wish: Wish, rng: &mut Rng) -> Vec<u16> {
        let chosen = peers.choose(&([10, 0, 0, 1], own), wish, rng);
        let mut ports: Vec<u16> = chosen.iter().map(|peer| peer.address.port()).collect();
        ports.sort_unstable();
        ports
    }

    proptest! {
        #[test]
        fn choices_are_different_others_and_as_many_as_there_are(
            seeders in 0..60u16, leechers in 0..60u16, own in 1..130u16, count in 0..80usize, most in 0..4usize,
            seed: u64
        ) {
            let swarm = peers(seeders, leechers);
            let is_seeder = own <= seeders;
            let seeders_max = if is_seeder { most } else { usize::MAX };
            let wish = Wish { count, seeders_max, since_s: 0 };
            let ports = chosen(&swarm, own, wish, &mut Rng::with_seed(seed));
            let mut different = ports.clone();
            different.dedup();
            prop_assert_eq!(&different, &ports);
            prop_assert!(!ports.contains(&own));
            let seeders_got = ports.iter().filter(|port| **port <= seeders).count();
            let is_in = own <= seeders + leechers;
            let other_leechers = usize::from(leechers) - usize::from(is_in && !is_seeder);
            if is_seeder {
                prop_assert!(ports.len() >= count.min(leechers.into()));
                prop_assert!(seeders_got <= most);
            } else {
                prop_assert_eq!(ports.len(), count.min(usize::from(seeders) + other_leechers));
                if count > 1 && seeders > 0 {
                    prop_assert!(seeders_got > 0);
                }
                if count > 1 && other_leechers > 0 {
                    prop_assert!(ports.len() > seeders_got);
                }
            }
        }
    }

    #[test]
    fn every_peer_is_as_likely_as_any_other() {
        let swarm = peers(0, 97);
        let mut times = [0; 98];
        let mut rng = Rng::with_seed(1);
        for _ in 0..3000 {
            let wish = Wish { count: 10, seeders_max: 0, since_s: 0 };
            for port in chosen(&swarm, 50, wish, &mut rng) {
                times[usize::from(port)] += 1;
            }
        }
        assert_eq!(times[50], 0);
        // 10 of 96, 3000 times.
        for (port, times) in times.iter().enumerate().skip(1).filter(|(port, _)| *port != 50) {
            assert!((220..420).contains(times), "{port}: {times}");
        }
    }

    #[test]
    fn silent_peers_are_left_out_expire_and_make_room() {
        let mut swarm = Swarm { four: peers(5, 1000), ..Swarm::default() };
        let wish = Wish { count: 2000, seeders_max: usize::MAX, since_s: 900 };
        let mut rng = Rng::with_seed(7);
        assert_eq!(chosen(&swarm.four, 0, wish, &mut rng), (900..=1005).collect::<Vec<_>>());
        for _ in 0..100 {
            assert!(swarm.drop_silent(&mut rng));
        }
        // The peers that were seen last stay.
        let left =
            (800..=1005).filter(|port| swarm.four.leechers.contains_key(&([10, 0, 0, 1], *port)));
        assert!(left.count() >= 195, "{}", swarm.len());
        assert_eq!(swarm.len(), 905);
        assert_eq!(swarm.expire(1000), 905 - swarm.len());
        assert_eq!(swarm.counts(), SwarmCounts { seeders: 0, completed: 0, leechers: 6 });
        assert!(swarm.four.leechers.capacity() < 64);
        swarm.expire(2000);
        assert!(!swarm.drop_silent(&mut rng));
    }

    #[test]
    fn a_peer_is_either_a_seeder_or_a_leecher() {
        let mut swarm = peers(0, 1);
        let key = ([10, 0, 0, 1], 1);
        let before = swarm.find(&key);
        let Before::Leecher(member) = before else { panic!("{before:?}") };
        swarm.put(key, member, true, before);
        assert_eq!((swarm.len(), swarm.find(&key)), (1, Before::Seeder(member)));
        swarm.put(key, member, false, Before::Seeder(member));
        assert_eq!((swarm.len(), swarm.find(&key)), (1, Before::Leecher(member)));
        assert!(swarm.remove(&key) && !swarm.remove(&key));
        assert_eq!(swarm.find(&key), Before::Absent);
    }
}
