//! Whom to serve: which peers get one of the upload slots, without clock and sockets.
//!
//! Peers that the user knows (an allow-list of institutes) need not earn a slot: whoever lacks what
//! is rare gets it first, and among equals whoever got least. Unknown peers get slots for what they
//! give us (tit-for-tat, BEP 3), and while we have everything by turns; one slot is optimistic, for
//! a peer that could not give anything yet. Known peers come first, but leave that one slot to
//! unknown ones that wait.

use std::cmp::Reverse;
use std::time::Duration;

use swath_model::Time;

/// The number that the swarm gives a connected peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerKey(pub u64);

/// What counts of a peer that wants pieces of ours.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The peer.
    pub key: PeerKey,
    /// Whether the user knows it.
    pub is_known: bool,
    /// What it lacks of our pieces.
    pub need: Need,
    /// Bytes that we sent it.
    pub sent_bytes: u64,
    /// Bytes per second that it sends us.
    pub gives_bytes_per_s: u64,
    /// When it got the slot that it has.
    pub served_since: Option<Time>,
    /// It has a slot and takes nothing.
    pub is_stalled: bool,
}

/// What a peer lacks. Greater is more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// How many peers have the rarest piece that it lacks, the most being the least urgent.
    rarity: Reverse<u32>,
    /// How many pieces it lacks that are as rare.
    pieces: u32,
}

impl Need {
    /// Lacks `pieces` pieces that `holders` other peers have, and none that fewer have.
    pub fn new(holders: u32, pieces: u32) -> Need {
        Need { rarity: Reverse(holders), pieces }
    }
}

/// Who has slots.
#[derive(Debug)]
pub struct Slots {
    optimistic: Option<(PeerKey, Time)>,
    random: fastrand::Rng,
}

impl Slots {
    /// Returns slots that nobody has.
    pub fn new(seed: u64) -> Slots {
        Slots { optimistic: None, random: fastrand::Rng::with_seed(seed) }
    }

    /// Returns who gets one of `count` slots now, of the peers that want one. Call it again after
    /// [`CHOOSE_EVERY`], or when somebody leaves.
    pub fn choose(&mut self, now: Time, count: usize, candidates: &[Candidate]) -> Vec<PeerKey> {
        let (mut known, mut unknown): (Vec<_>, Vec<_>) =
            candidates.iter().partition(|peer| peer.is_known);
        let optimistic = match count > 1 || known.is_empty() {
            true => self.optimistic(now, &unknown),
            false => None,
        };
        let left = count.saturating_sub(usize::from(optimistic.is_some()));
        // Small differences must not make peers change places all the time.
        known.sort_by_key(|peer| {
            let is_stable = is_fresh(peer, now);
            (peer.is_stalled, Reverse((is_stable, peer.need)), peer.sent_bytes, peer.key)
        });
        unknown.retain(|peer| Some(peer.key) != optimistic);
        unknown.sort_by_key(|peer| {
            let is_stable = is_fresh(peer, now);
            let gives = Reverse((peer.gives_bytes_per_s, is_stable));
            (peer.is_stalled, gives, peer.sent_bytes, peer.key)
        });
        let ranked = known.iter().chain(&unknown).map(|peer| peer.key).take(left);
        optimistic.into_iter().take(count).chain(ranked).collect()
    }

    /// Returns the unknown peer that has the optimistic slot; another one after a while.
    fn optimistic(&mut self, now: Time, unknown: &[&Candidate]) -> Option<PeerKey> {
        let is_there = |key| unknown.iter().any(|peer| peer.key == key);
        match self.optimistic {
            Some((key, since)) if now.since(since) < OPTIMISTIC_LASTS && is_there(key) => Some(key),
            _ => {
                let waiting: Vec<_> =
                    unknown.iter().filter(|peer| peer.served_since.is_none()).collect();
                let next = match self.random.choice(&waiting) {
                    Some(peer) => Some(peer.key),
                    // All of them are served: it may stay.
                    None => self.random.choice(unknown).map(|peer| peer.key),
                };
                self.optimistic = next.map(|key| (key, now));
                next
            }
        }
    }
}

/// Returns whether a peer has got its slot only lately.
fn is_fresh(peer: &Candidate, now: Time) -> bool {
    peer.served_since.is_some_and(|since| now.since(since) < SLOT_LASTS)
}

/// Returns how many slots an upload rate carries, which is the user's limit if there is one.
pub fn slot_count(bytes_per_s: u64) -> usize {
    let carried = usize::try_from(bytes_per_s / SLOT_BYTES_PER_S).unwrap_or(SLOTS_MAX);
    carried.clamp(SLOTS_MIN, SLOTS_MAX)
}

/// Slots are given anew after this time, as other clients do.
pub const CHOOSE_EVERY: Duration = Duration::from_secs(10);
/// A peer needs some time to begin.
const SLOT_LASTS: Duration = Duration::from_secs(20);
/// As in other clients: three rounds.
const OPTIMISTIC_LASTS: Duration = Duration::from_secs(30);
/// A peer that gets less than this would hardly be faster than without us.
const SLOT_BYTES_PER_S: u64 = 1 << 20;
/// Fewer would be idle between a peer's requests.
const SLOTS_MIN: usize = 8;
/// More read from too many places of a disk at once.
const SLOTS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(key: u64) -> Candidate {
        Candidate {
            key: PeerKey(key),
            is_known: true,
            need: Need::new(1, 1),
            sent_bytes: 0,
            gives_bytes_per_s: 0,
            served_since: None,
            is_stalled: false,
        }
    }

    fn unknown(key: u64, gives_bytes_per_s: u64) -> Candidate {
        Candidate { is_known: false, gives_bytes_per_s, ..peer(key) }
    }

    fn chosen(count: usize, candidates: &[Candidate]) -> Vec<u64> {
        let keys = Slots::new(1).choose(Time::ZERO, count, candidates);
        keys.into_iter().map(|key| key.0).collect()
    }

    #[test]
    fn known_peers_get_slots_by_need() {
        let peers = [
            Candidate { need: Need::new(3, 100), ..peer(1) },
            Candidate { need: Need::new(0, 1), ..peer(2) },
            Candidate { need: Need::new(0, 5), ..peer(3) },
            Candidate { need: Need::new(1, 900), ..peer(4) },
        ];
        assert_eq!(chosen(2, &peers), [3, 2]);
        assert_eq!(chosen(9, &peers), [3, 2, 4, 1]);
        // Among equals whoever got least.
        let peers =
            [Candidate { sent_bytes: 9, ..peer(1) }, Candidate { sent_bytes: 8, ..peer(2) }];
        assert_eq!(chosen(1, &peers), [2]);
        // Whoever takes nothing loses its slot to any other.
        let peers = [Candidate { is_stalled: true, need: Need::new(0, 5), ..peer(1) }, peer(2)];
        assert_eq!(chosen(1, &peers), [2]);
    }

    #[test]
    fn a_slot_is_not_taken_at_once() {
        let now = Time::from_millis(100_000);
        let served = |seconds| Some(now - Duration::from_secs(seconds));
        let urgent = Candidate { need: Need::new(0, 9), ..peer(1) };
        for (since, wanted) in [(5, 2), (30, 1)] {
            let other = Candidate { served_since: served(since), ..peer(2) };
            assert_eq!(Slots::new(1).choose(now, 1, &[urgent, other]), [PeerKey(wanted)]);
        }
    }

    #[test]
    fn unknown_peers_get_slots_for_what_they_give() {
        let peers = [unknown(1, 10), unknown(2, 30), unknown(3, 20), unknown(4, 0)];
        let mut served = peers;
        // Only the last one waits: the optimistic slot is its own.
        served[..3].iter_mut().for_each(|peer| peer.served_since = Some(Time::ZERO));
        assert_eq!(chosen(3, &served), [4, 2, 3]);
        assert_eq!(chosen(1, &[peer(9), unknown(1, 50)]), [9]);
        assert_eq!(chosen(2, &[peer(9), peer(8), unknown(1, 50)]), [1, 8]);
        assert!(chosen(0, &peers).is_empty());
    }

    #[test]
    fn the_optimistic_slot_goes_round() {
        let mut slots = Slots::new(7);
        let peers: Vec<_> = (0..6).map(|key| unknown(key, 0)).collect();
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..60 {
            let now = Time::from_millis(round * 10_000);
            let first = slots.choose(now, 1, &peers)[0];
            assert_eq!(slots.choose(now, 1, &peers), [first], "it lasts");
            seen.insert(first);
        }
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn the_number_of_slots_follows_the_rate() {
        assert_eq!([0, 12 << 20, u64::MAX].map(slot_count), [8, 12, 128]);
    }
}
