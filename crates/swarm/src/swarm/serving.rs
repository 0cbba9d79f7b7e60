//! Whom a torrent serves, and with what: slots for peers, offers while it super-seeds.

use std::collections::{BTreeMap, HashSet};

use swath_formats::peer::{Bitfield, PieceIndex};
use swath_model::Time;

use super::connected::Connected;
use crate::slots::{Candidate, Need, PeerKey, Slots, slot_count};
use crate::super_seeding::SuperSeeding;

pub(super) struct Serving {
    /// How many connections have each piece.
    holders: Vec<u16>,
    slots: Slots,
    /// Connections of one peer are one peer here: the key of the first of them.
    seeding: Option<SuperSeeding>,
    /// What all connections have been sent while we super-seed, in bytes, and when that was.
    sent_bytes: u64,
    looked_at: Time,
    limit_bytes_per_s: Option<u64>,
    sent_bytes_per_s: f64,
    /// The same over the last moments, while we super-seed: it finds the rate sooner.
    lately_bytes_per_s: f64,
}

impl Serving {
    pub fn new(
        pieces: u32,
        seeding: Option<SuperSeeding>,
        limit_bytes_per_s: Option<u64>,
        seed: u64,
    ) -> Serving {
        Serving {
            holders: vec![0; pieces as usize],
            slots: Slots::new(seed),
            seeding,
            sent_bytes: 0,
            looked_at: Time::ZERO,
            limit_bytes_per_s,
            sent_bytes_per_s: 0.0,
            lately_bytes_per_s: 0.0,
        }
    }

    /// Returns whether each peer is shown pieces of its own.
    pub fn super_seeds(&self) -> bool {
        self.seeding.is_some()
    }

    /// The first connection of a peer has come.
    pub fn joined(&mut self, group: PeerKey, now: Time) {
        if let Some(seeding) = &mut self.seeding {
            seeding.join(group, Bitfield::none(self.holders.len() as u32), now);
        }
    }

    /// A connection has said that its peer has got and lost pieces.
    pub fn changed(
        &mut self,
        group: PeerKey,
        gained: &[PieceIndex],
        lost: &[PieceIndex],
        now: Time,
    ) {
        for piece in gained {
            self.count(*piece, 1);
            if let Some(seeding) = &mut self.seeding {
                seeding.gained(group, *piece, now);
            }
        }
        lost.iter().for_each(|piece| self.count(*piece, -1));
    }

    /// A connection has ended; `is_last` if it was the last of its peer.
    pub fn left(&mut self, group: PeerKey, seen: &Bitfield, is_last: bool) {
        seen.iter().for_each(|piece| self.count(piece, -1));
        if let Some(seeding) = self.seeding.as_mut().filter(|_| is_last) {
            seeding.leave(group);
        }
    }

    /// Notes the bytes that were sent in the last `seconds`.
    pub fn note_sent(&mut self, bytes: u64, seconds: f64) {
        let now = bytes as f64 / seconds;
        // Up at once, down slowly: pauses say nothing of the link.
        let share = if now > self.sent_bytes_per_s { 0.7 } else { 0.1 };
        self.sent_bytes_per_s += share * (now - self.sent_bytes_per_s);
    }

    /// Returns what our link carries, as far as known.
    fn rate(&self) -> u64 {
        self.limit_bytes_per_s.unwrap_or(self.sent_bytes_per_s as u64)
    }

    /// Gives the slots to the peers that should have them now; all connections of a peer share one.
    pub fn choose(&mut self, have: &Bitfield, peers: &mut BTreeMap<PeerKey, Connected>, now: Time) {
        let count = slot_count(self.rate());
        let wanting = peers.values().filter(|peer| peer.wants(now)).map(|peer| peer.group);
        let wanting: HashSet<PeerKey> = wanting.collect();
        let chosen = match wanting.len() <= count {
            true => wanting,
            false => {
                let candidates = self.candidates(have, peers, now);
                self.slots.choose(now, count, &candidates).into_iter().collect()
            }
        };
        for peer in peers.values_mut() {
            match (chosen.contains(&peer.group) && peer.wants(now), peer.served_since) {
                (true, None) => {
                    peer.peer.unchoke();
                    peer.served_since = Some(now);
                }
                (false, Some(_)) => {
                    peer.peer.choke();
                    peer.served_since = None;
                }
                _ => {}
            }
        }
        if let Some(seeding) = &mut self.seeding {
            for peer in peers.values() {
                seeding.serve(peer.group, chosen.contains(&peer.group), now);
            }
        }
    }

    /// Returns the peers that want a slot, with all their connections.
    fn candidates(
        &self,
        have: &Bitfield,
        peers: &BTreeMap<PeerKey, Connected>,
        now: Time,
    ) -> Vec<Candidate> {
        let mut wanting: BTreeMap<PeerKey, Candidate> = BTreeMap::new();
        for peer in peers.values().filter(|peer| peer.wants(now)) {
            let candidate = wanting.entry(peer.group).or_insert_with(|| Candidate {
                key: peer.group,
                is_known: peer.is_known,
                need: self.need(have, &peer.seen),
                sent_bytes: 0,
                gives_bytes_per_s: 0,
                served_since: None,
                is_stalled: true,
            });
            candidate.sent_bytes += peer.sent_bytes();
            candidate.gives_bytes_per_s += peer.gives_bytes_per_s();
            candidate.served_since = candidate.served_since.or(peer.served_since);
            candidate.is_stalled &= peer.is_stalled(now);
        }
        wanting.into_values().collect()
    }

    /// Returns whether a peer that has just become interested can have a slot without anybody losing
    /// one.
    pub fn has_room(&self, peers: &BTreeMap<PeerKey, Connected>) -> bool {
        let served = peers.values().filter(|peer| peer.served_since.is_some());
        let served: HashSet<PeerKey> = served.map(|peer| peer.group).collect();
        served.len() < slot_count(self.rate())
    }

    /// Shows peers the pieces that they are to get next; everything to everybody once another peer
    /// has everything, and returns true then.
    pub fn offer(
        &mut self,
        have: &Bitfield,
        peers: &mut BTreeMap<PeerKey, Connected>,
        now: Time,
    ) -> bool {
        let rate = self.rate().max(self.lately_bytes_per_s as u64);
        let Some(seeding) = &mut self.seeding else { return false };
        if seeding.is_over() {
            self.stop_super_seeding(have, peers);
            return true;
        }
        let sent_bytes: u64 = peers.values().map(|peer| peer.peer.uploaded_bytes()).sum();
        // Connections that have ended take their bytes along.
        let sent_now = sent_bytes.saturating_sub(self.sent_bytes);
        seeding.sent(sent_now);
        self.sent_bytes = sent_bytes;
        let seconds = now.secs_since(self.looked_at);
        self.looked_at = now;
        if seconds > 0.0 {
            let share = (seconds / LATELY_S).min(1.0);
            self.lately_bytes_per_s +=
                share * (sent_now as f64 / seconds - self.lately_bytes_per_s);
        }
        let shown_to = |group| {
            let connections = peers.values().filter(move |peer| peer.group == group);
            connections.filter_map(|peer| peer.shown.as_ref())
        };
        for (group, piece) in seeding.offers(rate, now) {
            let show = |all: &mut Bitfield| {
                let is_new = all.insert(piece);
                // libtorrent disconnects from a seeder if the message about its last piece comes while
                // libtorrent is not interested. The message before makes it interested.
                if is_new && all.count() + 1 == have.count() {
                    all.clone_from(have);
                }
                is_new
            };
            shown_to(group).for_each(|it| _ = it.send_if_modified(show));
        }
        let mut without_use: Vec<PeerKey> = seeding.without_use().collect();
        // A slow peer is one that takes something.
        without_use.retain(|group| {
            let mut connections = peers.values().filter(|peer| peer.group == *group);
            connections.all(|peer| peer.takes_nothing(now))
        });
        let declining = peers.values_mut().filter_map(|it| it.declines(now).then_some(it.group));
        without_use.extend(declining);
        without_use.retain(|group| !seeding.sees_all(*group));
        for group in without_use {
            let connections = peers.values().filter(|peer| peer.group == group);
            for shown in connections.filter_map(|peer| peer.shown.as_ref()) {
                shown.send_replace(have.clone());
            }
            seeding.show_all(group);
        }
        // Others wait for these slots.
        if peers.values().any(|peer| peer.served_since.is_some() && !peer.wants(now)) {
            self.choose(have, peers, now);
        }
        false
    }

    /// Shows everything to everybody from now on.
    pub fn stop_super_seeding(&mut self, have: &Bitfield, peers: &BTreeMap<PeerKey, Connected>) {
        if self.seeding.take().is_some() {
            for shown in peers.values().filter_map(|peer| peer.shown.as_ref()) {
                shown.send_replace(have.clone());
            }
        }
    }

    /// Returns what a peer lacks of our pieces.
    fn need(&self, have: &Bitfield, seen: &Bitfield) -> Need {
        let (mut rarest, mut count) = (u32::MAX, 0);
        for piece in have.iter().filter(|piece| !seen.contains(*piece)) {
            let holders = u32::from(self.holders[piece.0 as usize]);
            if holders < rarest {
                (rarest, count) = (holders, 0);
            }
            count += u32::from(holders == rarest);
        }
        Need::new(rarest, count)
    }

    fn count(&mut self, piece: PieceIndex, by: i16) {
        if let Some(holders) = self.holders.get_mut(piece.0 as usize) {
            *holders = holders.saturating_add_signed(by);
        }
    }
}

/// Longer than a round trip on most routes, in seconds: peers ask in bursts.
const LATELY_S: f64 = 0.2;
