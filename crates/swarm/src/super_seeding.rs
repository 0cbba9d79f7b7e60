//! Super-seeding (BEP 16 in spirit): the only seeder sends about one copy, without clock and sockets.
//!
//! While nobody else has all pieces, each piece is offered to one peer only, and the others get it
//! from there. At every time only so much is offered and not yet sent as keeps our link busy, because
//! pieces that arrive one after the other can be passed on earlier than those that arrive together. The
//! next offer goes to the peer that has least to pass on of what it got: all are busy, and peers get as
//! much as they spread.
//!
//! When each piece was sent once, spare rate helps the swarm to its end, for at most a quarter of
//! another copy. A peer whom nobody else serves is not left alone: it gets whatever it lacks. A peer
//! that cannot use offers is shown all pieces: some clients look only at the rarest pieces first, of
//! which nobody may have any.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use swath_formats::peer::{Bitfield, PieceIndex};
use swath_model::Time;

use crate::slots::PeerKey;

/// What was offered to whom, and what became of it.
#[derive(Debug)]
pub struct SuperSeeding {
    /// How many peers have each piece.
    holders: Vec<u16>,
    /// Pieces that nobody has and that are on their way to nobody, the next one last. Some may have
    /// come to somebody meanwhile.
    fresh: Vec<u32>,
    /// Who was offered each piece, and has it or fetches it.
    offers: HashMap<u32, PeerKey>,
    /// Offers that are under way, in the order of their times.
    under_way: VecDeque<UnderWay>,
    peers: BTreeMap<PeerKey, Peer>,
    /// How many pieces may still be sent a second time.
    extra: u32,
    piece_bytes: u64,
    /// Bytes that were offered and not sent yet, as far as known.
    unsent_bytes: u64,
    /// The shortest time from an offer until the peer said that it has the piece.
    fetched_within: Option<Duration>,
    /// Since when no more than one peer is served.
    lone_since: Option<Time>,
    random: fastrand::Rng,
}

#[derive(Debug)]
struct UnderWay {
    piece: u32,
    to: PeerKey,
    since: Time,
}

#[derive(Debug)]
struct Peer {
    holds: Bitfield,
    /// Wants pieces of ours, and has a slot.
    is_served: bool,
    /// Pieces that it was offered.
    given: u32,
    /// What it has to pass on of the pieces that it was offered, in thousandths of a piece.
    load: u64,
    /// Offers to it that are under way.
    under_way: usize,
    /// Offers that it did not fetch in time, since it last got a piece.
    missed: u32,
    /// When it last got a piece of somebody else.
    fed_at: Time,
    /// It is shown all pieces, and gets no offers.
    sees_all: bool,
}

impl SuperSeeding {
    /// Returns the state of a torrent of `pieces` pieces of which nothing was offered.
    pub fn new(pieces: u32, piece_bytes: u64, seed: u64) -> SuperSeeding {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut fresh: Vec<u32> = (0..pieces).collect();
        random.shuffle(&mut fresh);
        SuperSeeding {
            holders: vec![0; pieces as usize],
            fresh,
            offers: HashMap::new(),
            under_way: VecDeque::new(),
            peers: BTreeMap::new(),
            extra: pieces / EXTRA_SHARE,
            piece_bytes: piece_bytes.max(1),
            unsent_bytes: 0,
            fetched_within: None,
            lone_since: None,
            random,
        }
    }

    /// Returns whether another peer has everything: then there is nothing to save any more.
    pub fn is_over(&self) -> bool {
        self.peers.values().any(|peer| peer.holds.is_full())
    }

    /// A peer has come that has these pieces.
    pub fn join(&mut self, key: PeerKey, holds: Bitfield, now: Time) {
        for piece in holds.iter() {
            self.count(piece.0, 1);
        }
        let peer = Peer {
            holds,
            is_served: false,
            given: 0,
            load: 0,
            under_way: 0,
            missed: 0,
            fed_at: now,
            sees_all: false,
        };
        self.peers.insert(key, peer);
        self.weigh();
    }

    /// A peer has left: what only it had must be offered again.
    pub fn leave(&mut self, key: PeerKey) {
        let Some(peer) = self.peers.remove(&key) else { return };
        self.under_way.retain(|offer| offer.to != key);
        self.offers.retain(|_, to| *to != key);
        for piece in peer.holds.iter() {
            self.count(piece.0, -1);
        }
        self.weigh();
        let fresh = (0..self.holders.len() as u32).filter(|piece| self.is_fresh(*piece));
        self.fresh = fresh.collect();
        self.random.shuffle(&mut self.fresh);
    }

    /// Whether a peer wants pieces of ours and has a slot.
    pub fn serve(&mut self, key: PeerKey, is_served: bool, now: Time) {
        if let Some(peer) = self.peers.get_mut(&key)
            && peer.is_served != is_served
        {
            peer.is_served = is_served;
            peer.fed_at = now;
        }
    }

    /// A peer has got a piece.
    pub fn gained(&mut self, key: PeerKey, piece: PieceIndex, now: Time) {
        let Some(peer) = self.peers.get_mut(&key) else { return };
        if piece.0 as usize >= self.holders.len() || !peer.holds.insert(piece) {
            return;
        }
        peer.missed = 0;
        let was_ours = self.under_way.iter().position(|it| it.piece == piece.0 && it.to == key);
        match was_ours {
            Some(at) => {
                peer.under_way = peer.under_way.saturating_sub(1);
                if let Some(offer) = self.under_way.remove(at) {
                    let took = now.since(offer.since);
                    let least = self.fetched_within.map_or(took, |least| least.min(took));
                    self.fetched_within = Some(least);
                }
            }
            None => peer.fed_at = now,
        }
        let before = self.share(piece.0);
        self.count(piece.0, 1);
        let after = self.share(piece.0);
        if let Some(giver) = self.offers.get(&piece.0).and_then(|to| self.peers.get_mut(to)) {
            giver.load = giver.load.saturating_sub(before - after);
        }
    }

    /// So many bytes were sent since the last call.
    pub fn sent(&mut self, bytes: u64) {
        self.unsent_bytes = self.unsent_bytes.saturating_sub(bytes);
    }

    /// Returns what to offer to whom next, so that a link of this rate always has something to send.
    /// Call it many times a second.
    pub fn offers(&mut self, bytes_per_s: u64, now: Time) -> Vec<(PeerKey, PieceIndex)> {
        // A lying peer has pieces at once.
        let ahead = self.fetched_within.unwrap_or_default().max(AHEAD_MIN);
        let served = self.peers.values().filter(|peer| peer.is_served).count();
        // Nobody waits for what a lone peer gets, but the others of a swarm may be about to come.
        let ahead = match served {
            0 | 1 if now.since(*self.lone_since.get_or_insert(now)) > LONE_AFTER => {
                ahead.max(LONE_AHEAD)
            }
            0 | 1 => ahead,
            _ => {
                self.lone_since = None;
                ahead
            }
        };
        let pieces_per_s = bytes_per_s as f64 / self.piece_bytes as f64;
        let pieces_in = |time: Duration| pieces_per_s * time.as_secs_f64();
        let for_busy = served.min(BUSY_PEERS).min(pieces_in(BUSY_WITHIN) as usize);
        self.fill((pieces_in(ahead).ceil() as usize).max(UNSENT_MIN) + for_busy, now)
    }

    /// Offers until so many pieces are to be sent.
    fn fill(&mut self, unsent_pieces: usize, now: Time) -> Vec<(PeerKey, PieceIndex)> {
        self.expire(now);
        // What has come to somebody was sent, whoever sent it.
        let most_bytes = self.under_way.len() as u64 * self.piece_bytes;
        self.unsent_bytes = self.unsent_bytes.min(most_bytes);
        let wanted_bytes = unsent_pieces as u64 * self.piece_bytes;
        let mut offers = Vec::new();
        while self.unsent_bytes < wanted_bytes && self.under_way.len() < UNDER_WAY_MAX {
            let Some((key, piece)) = self.next(unsent_pieces, now) else { break };
            if let Some(peer) = self.peers.get_mut(&key) {
                peer.given += 1;
                peer.under_way += 1;
            }
            self.under_way.push_back(UnderWay { piece, to: key, since: now });
            self.unsent_bytes += self.piece_bytes;
            offers.push((key, PieceIndex(piece)));
        }
        offers
    }

    /// Chooses a peer and a piece.
    fn next(&mut self, unsent_pieces: usize, now: Time) -> Option<(PeerKey, u32)> {
        let served = self.peers.values().filter(|peer| peer.is_served).count();
        // As many again were sent, and the peer has not said yet that it has them.
        let each_max = (2 * unsent_pieces).div_ceil(served.max(1)) + 1;
        let mut ready: Vec<(u64, u32, PeerKey)> = Vec::new();
        for (key, peer) in self.peers.iter().filter(|(_, peer)| peer.is_served) {
            let takes_offers = peer.missed < MISSED_MAX && !peer.holds.is_full();
            if takes_offers && !peer.sees_all && peer.under_way < each_max {
                let late = u64::from(peer.missed) * LATE_COUNTS * self.share_of(1);
                ready.push((peer.load + late, peer.given, *key));
            }
        }
        ready.sort_unstable();
        let &(_, _, first) = ready.first()?;
        while let Some(piece) = self.fresh.pop() {
            if self.is_fresh(piece) {
                self.offers.insert(piece, first);
                let share = self.share(piece);
                if let Some(peer) = self.peers.get_mut(&first) {
                    peer.load += share;
                }
                return Some((first, piece));
            }
        }
        let alone_after = ALONE_AFTER.max(self.fetched_within.unwrap_or_default() * FETCH_PATIENCE);
        for (_, _, key) in ready {
            let is_alone =
                self.peers.get(&key).is_some_and(|it| now.since(it.fed_at) > alone_after);
            if (self.extra > 0 || is_alone)
                && let Some(piece) = self.rarest(key)
            {
                self.extra = self.extra.saturating_sub(1);
                return Some((key, piece));
            }
        }
        None
    }

    /// Returns the rarest piece that a peer lacks and that is on its way to nobody.
    fn rarest(&mut self, key: PeerKey) -> Option<u32> {
        let peer = self.peers.get(&key)?;
        let count = self.holders.len() as u32;
        let from = self.random.u32(0..count.max(1));
        let under_way: HashSet<u32> = self.under_way.iter().map(|it| it.piece).collect();
        let lacking = (from..count)
            .chain(0..from)
            .filter(|piece| !peer.holds.contains(PieceIndex(*piece)) && !under_way.contains(piece));
        lacking.min_by_key(|piece| self.holders[*piece as usize])
    }

    /// Returns the peers that have fetched nothing of what they were offered last, in time.
    pub fn without_use(&self) -> impl Iterator<Item = PeerKey> + '_ {
        let is_one = |peer: &Peer| peer.is_served && !peer.sees_all && peer.missed >= MISSED_MAX;
        self.peers.iter().filter(move |(_, peer)| is_one(peer)).map(|(key, _)| *key)
    }

    /// Returns whether a peer is shown all pieces.
    pub fn sees_all(&self, key: PeerKey) -> bool {
        self.peers.get(&key).is_some_and(|peer| peer.sees_all)
    }

    /// Shows this peer all pieces from now on. Offers to it that are still under way go to other peers.
    pub fn show_all(&mut self, key: PeerKey) {
        let (given_up, kept) = self.under_way.drain(..).partition(|offer| offer.to == key);
        self.under_way = kept;
        self.give_up(given_up);
        if let Some(peer) = self.peers.get_mut(&key) {
            peer.sees_all = true;
        }
    }

    /// Gives up offers that were not fetched in time: a peer that takes nothing must not keep others
    /// waiting.
    fn expire(&mut self, now: Time) {
        let patience = match self.fetched_within {
            Some(least) => (least * FETCH_PATIENCE).clamp(PATIENCE_MIN, PATIENCE_MAX),
            None => PATIENCE_FIRST,
        };
        let late = |offer: &UnderWay| now.since(offer.since) > patience;
        let count = self.under_way.iter().take_while(|offer| late(offer)).count();
        let late = self.under_way.drain(..count).collect();
        self.give_up(late);
    }

    fn give_up(&mut self, offers: VecDeque<UnderWay>) {
        for UnderWay { piece, to, .. } in offers {
            let was_its_own = self.offers.get(&piece) == Some(&to);
            let share = if was_its_own { self.share(piece) } else { 0 };
            if let Some(peer) = self.peers.get_mut(&to) {
                peer.under_way = peer.under_way.saturating_sub(1);
                peer.load = peer.load.saturating_sub(share);
                peer.missed += 1;
            }
            if was_its_own {
                self.offers.remove(&piece);
            }
            if self.is_fresh(piece) {
                self.fresh.push(piece);
            }
        }
    }

    /// Returns whether nobody has a piece, and nobody is about to get it.
    fn is_fresh(&self, piece: u32) -> bool {
        self.holders[piece as usize] == 0 && !self.offers.contains_key(&piece)
    }

    /// Returns how much of a piece each of its holders has to send to others, if they share the work
    /// evenly, in thousandths. Whoever was offered it will hold it.
    fn share(&self, piece: u32) -> u64 {
        self.share_of(u64::from(self.holders[piece as usize]).max(1))
    }

    fn share_of(&self, holders: u64) -> u64 {
        1000 * (self.peers.len() as u64).saturating_sub(holders) / holders
    }

    /// Adds up anew what each peer has to pass on: there are more or fewer peers.
    fn weigh(&mut self) {
        self.peers.values_mut().for_each(|peer| peer.load = 0);
        let offers = std::mem::take(&mut self.offers);
        for (piece, to) in &offers {
            let share = self.share(*piece);
            if let Some(peer) = self.peers.get_mut(to) {
                peer.load += share;
            }
        }
        self.offers = offers;
    }

    fn count(&mut self, piece: u32, by: i16) {
        let holders = &mut self.holders[piece as usize];
        *holders = holders.saturating_add_signed(by);
    }
}

/// The part of another copy that may be sent when all pieces were sent once: 1 / 4.
const EXTRA_SHARE: u32 = 4;
/// A peer to which nobody has sent a piece for this long, and for as long as an offer is waited for,
/// gets all from us.
const ALONE_AFTER: Duration = Duration::from_secs(5);
/// An offer is given up after so many times the shortest fetch, because slower peers are still to be
/// served by us alone, …
const FETCH_PATIENCE: u32 = 4;
/// … but not at once, …
const PATIENCE_MIN: Duration = Duration::from_secs(5);
/// … and not never. …
const PATIENCE_MAX: Duration = Duration::from_secs(120);
/// … This is before the first fetch.
const PATIENCE_FIRST: Duration = Duration::from_secs(10);
/// From an offer to the request for it a round trip passes, and the time until we look again.
const AHEAD_MIN: Duration = Duration::from_millis(250);
/// A peer that has been alone for this long …
const LONE_AFTER: Duration = Duration::from_secs(1);
/// … is offered more, and not all, because another may come.
const LONE_AHEAD: Duration = Duration::from_secs(1);
/// An offer that was not fetched in time counts as so many that were not passed on: others come first.
const LATE_COUNTS: u64 = 2;
/// A peer that has missed so many offers in a row gets no more, until it has got a piece.
const MISSED_MAX: u32 = 2;
/// So that several peers have something to pass on.
const UNSENT_MIN: usize = 4;
/// A peer whose link is busy with what other peers send takes ours slowly. With one piece more for
/// each of so many peers, they fill our link together; …
const BUSY_PEERS: usize = 8;
/// … but no more than we send in this time.
const BUSY_WITHIN: Duration = Duration::from_millis(750);
/// More are looked through too often.
const UNDER_WAY_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1000)
    }

    fn with_peers(pieces: u32, peers: u64) -> SuperSeeding {
        let mut seeding = SuperSeeding::new(pieces, 1 << 18, 1);
        for key in 0..peers {
            seeding.join(PeerKey(key), Bitfield::none(pieces), at(0));
            seeding.serve(PeerKey(key), true, at(0));
        }
        seeding
    }

    #[test]
    fn each_piece_is_offered_once_and_evenly() {
        let mut seeding = with_peers(12, 3);
        let mut given = [0; 3];
        let mut seen = Bitfield::none(12);
        for _ in 0..3 {
            for (key, piece) in seeding.fill(4, at(1)) {
                given[key.0 as usize] += 1;
                assert!(seen.insert(piece), "{piece} is offered twice");
                seeding.gained(key, piece, at(1));
            }
        }
        assert_eq!((given, seen.is_full()), ([4; 3], true));
    }

    #[test]
    fn offers_follow_what_peers_pass_on() {
        let mut seeding = with_peers(100, 2);
        let mut given = [0; 2];
        for _ in 0..10 {
            for (key, piece) in seeding.fill(2, at(1)) {
                given[key.0 as usize] += 1;
                seeding.gained(key, piece, at(1));
                // Only the first one passes on what it gets.
                if key.0 == 0 {
                    seeding.gained(PeerKey(1), piece, at(1));
                }
            }
        }
        assert!(given[0] > 3 * given[1] && given[1] > 0, "{given:?}");
    }

    #[test]
    fn what_a_peer_took_along_is_offered_again() {
        let mut seeding = with_peers(4, 2);
        let offers = seeding.fill(4, at(1));
        assert_eq!(offers.len(), 4);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for (key, piece) in offers {
            if key.0 == 0 { first.push(piece) } else { second.push(piece) }
        }
        // One piece has arrived, one has not, and both leave with the peer.
        seeding.gained(PeerKey(0), first[0], at(2));
        seeding.leave(PeerKey(0));
        second.iter().for_each(|piece| seeding.gained(PeerKey(1), *piece, at(2)));
        let mut again: Vec<_> = seeding.fill(4, at(3)).into_iter().map(|it| it.1).collect();
        again.sort_unstable();
        first.sort_unstable();
        assert_eq!(again, first);
    }

    #[test]
    fn an_offer_that_is_not_fetched_goes_to_another() {
        let mut seeding = with_peers(2, 2);
        let offers = seeding.fill(2, at(0));
        assert_eq!(offers.len(), 2);
        seeding.gained(offers[1].0, offers[1].1, at(1));
        assert_eq!(seeding.fill(1, at(5)), []);
        assert_eq!(seeding.fill(1, at(6)), [(offers[1].0, offers[0].1)]);
    }

    #[test]
    fn a_peer_that_fetches_nothing_it_is_offered_may_be_shown_all() {
        let mut seeding = with_peers(40, 2);
        for (key, piece) in seeding.fill(8, at(0)) {
            // The second peer takes offers, the first one does not.
            if key.0 == 1 {
                seeding.gained(key, piece, at(0));
            }
        }
        assert_eq!(seeding.without_use().count(), 0);
        seeding.fill(8, at(20));
        assert_eq!(seeding.without_use().collect::<Vec<_>>(), [PeerKey(0)]);
        seeding.show_all(PeerKey(0));
        assert_eq!(seeding.without_use().count(), 0);
        // What it was offered goes to others at once, although it fetches now.
        seeding.gained(PeerKey(0), PieceIndex(0), at(21));
        assert!(seeding.fill(20, at(21)).iter().all(|it| it.0 == PeerKey(1)));
    }

    #[test]
    fn only_peers_with_a_slot_get_offers() {
        let mut seeding = with_peers(8, 2);
        seeding.serve(PeerKey(0), false, at(0));
        assert!(seeding.fill(8, at(1)).iter().all(|it| it.0 == PeerKey(1)));
        seeding.serve(PeerKey(1), false, at(1));
        assert_eq!(seeding.fill(20, at(1)), []);
    }

    #[test]
    fn peers_that_cannot_reach_each_other_get_everything_here() {
        let mut seeding = with_peers(40, 2);
        let mut sent = 0;
        for second in 1..100 {
            for (key, piece) in seeding.fill(4, at(second)) {
                sent += 1;
                seeding.gained(key, piece, at(second));
            }
        }
        assert_eq!((sent, seeding.is_over()), (80, true));
    }

    #[test]
    fn another_seeder_ends_it() {
        let mut seeding = with_peers(3, 1);
        assert!(!seeding.is_over());
        seeding.join(PeerKey(7), Bitfield::all(3), at(0));
        assert!(seeding.is_over());
        seeding.leave(PeerKey(7));
        assert_eq!(seeding.fill(9, at(1)).len(), 3);
    }
}
