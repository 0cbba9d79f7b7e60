//! What a torrent keeps of a connected peer.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use swath_formats::peer::{Bitfield, PieceIndex};
use swath_model::Time;
use swath_source::peer::Peer;
use tokio::sync::watch;

use super::places::Place;
use super::shared::Arrived;
use crate::slots::PeerKey;

pub(super) struct Connected {
    pub peer: Peer,
    /// The key of the first connection of the same peer.
    pub group: PeerKey,
    /// What the peer is shown, if that is its own.
    pub shown: Option<watch::Sender<Bitfield>>,
    pub is_known: bool,
    /// Where it accepts connections, as far as known.
    pub listens_at: Option<SocketAddr>,
    /// The pieces that it had when it was last looked at.
    pub seen: Bitfield,
    /// It says that it wants pieces of ours.
    says_interested: bool,
    /// It has said which pieces it has.
    has_spoken: bool,
    /// It will never want anything.
    pub is_upload_only: bool,
    /// Since when it has a slot.
    pub served_since: Option<Time>,
    /// The addresses that it was told.
    pub told: HashSet<SocketAddr>,
    sent: Rate,
    received: Rate,
    came_at: Time,
    /// When it last took something of us.
    took_at: Time,
    /// Since when it wants none of the pieces that it lacks and is shown.
    declines_since: Option<Time>,
    _place: Option<Place>,
}

/// Bytes counted over time.
#[derive(Debug, Default)]
struct Rate {
    bytes: u64,
    bytes_per_s: f64,
}

impl Rate {
    /// Notes how many bytes there are after another `seconds`; returns how many were added.
    fn note(&mut self, bytes: u64, seconds: f64) -> u64 {
        let added = bytes.saturating_sub(self.bytes);
        self.bytes = bytes;
        let share = (seconds / SMOOTHED_S).min(1.0);
        self.bytes_per_s += share * (added as f64 / seconds - self.bytes_per_s);
        added
    }
}

impl Connected {
    pub fn new(arrived: Arrived, group: PeerKey, is_known: bool, now: Time) -> Connected {
        let Arrived { peer, shown, place } = arrived;
        let pieces = peer.pieces().borrow().pieces();
        Connected {
            listens_at: peer.listens_at(),
            peer,
            group,
            shown,
            is_known,
            seen: Bitfield::none(pieces),
            says_interested: false,
            has_spoken: false,
            is_upload_only: false,
            served_since: None,
            told: HashSet::new(),
            sent: Rate::default(),
            received: Rate::default(),
            came_at: now,
            took_at: now,
            declines_since: None,
            _place: place,
        }
    }

    /// Looks at what the peer says now. Returns the pieces that it has got and lost.
    pub fn look(&mut self) -> (Vec<PieceIndex>, Vec<PieceIndex>) {
        let status = self.peer.status();
        self.says_interested = status.is_interested;
        self.has_spoken = status.are_pieces_known;
        self.is_upload_only = status.is_upload_only;
        self.listens_at = self.peer.listens_at();
        let pieces = self.peer.pieces().borrow().clone();
        let (gained, lost) = differences(&self.seen, &pieces);
        self.seen = pieces;
        (gained, lost)
    }

    /// Counts what was moved in the last `seconds`; returns the bytes sent and received.
    pub fn count(&mut self, seconds: f64, now: Time) -> (u64, u64) {
        let sent = self.sent.note(self.peer.uploaded_bytes(), seconds);
        let received = self.received.note(self.peer.downloaded_bytes(), seconds);
        if sent > 0 {
            self.took_at = now;
        }
        (sent, received)
    }

    pub fn sent_bytes(&self) -> u64 {
        self.sent.bytes
    }

    pub fn gives_bytes_per_s(&self) -> u64 {
        self.received.bytes_per_s as u64
    }

    /// Returns whether it wants pieces of ours, or has only just come and said nothing yet: most peers come
    /// for that, and are spared a round trip.
    pub fn is_interested(&self, now: Time) -> bool {
        self.says_interested || (!self.has_spoken && now.since(self.came_at) < SPEAKS_WITHIN)
    }

    /// Returns whether it may have a slot. Nobody is interested in pieces that it is not shown, but whoever
    /// is shown some and ignores them keeps others waiting.
    pub fn wants(&self, now: Time) -> bool {
        let ignores = self.declines_since.is_some_and(|since| now.since(since) > IGNORES_AFTER);
        let is_interested = self.is_interested(now) || (self.shown.is_some() && !ignores);
        is_interested && !self.is_upload_only && !self.seen.is_full()
    }

    /// Returns whether it has taken nothing of us for some seconds, if ever.
    pub fn takes_nothing(&self, now: Time) -> bool {
        now.since(self.took_at) > IDLE_AFTER
    }

    /// Returns whether it has wanted none of the pieces that it is shown for a while, although it lacks
    /// some: it fetches only some of the files.
    pub fn declines(&mut self, now: Time) -> bool {
        let is_offered = |shown: &watch::Sender<Bitfield>| {
            shown.borrow().iter().any(|piece| !self.seen.contains(piece))
        };
        let declines = !self.is_interested(now) && self.shown.as_ref().is_some_and(is_offered);
        self.declines_since = self.declines_since.filter(|_| declines).or(declines.then_some(now));
        self.declines_since.is_some_and(|since| now.since(since) > DECLINES_AFTER)
    }

    /// Returns whether it has had a slot for a while without taking anything.
    pub fn is_stalled(&self, now: Time) -> bool {
        self.served_since.is_some_and(|since| now.since(since.max(self.took_at)) > STALLED_AFTER)
    }
}

/// Returns the pieces that are in `after` only, and those in `before` only.
fn differences(before: &Bitfield, after: &Bitfield) -> (Vec<PieceIndex>, Vec<PieceIndex>) {
    let (mut gained, mut lost) = (Vec::new(), Vec::new());
    let bytes = before.as_wire().iter().zip(after.as_wire());
    for (at, (old, new)) in (0..).zip(bytes).filter(|(_, (old, new))| old != new) {
        for bit in 0..8 {
            let piece = PieceIndex(8 * at + bit);
            let mask = 0x80 >> bit;
            match (old & mask != 0, new & mask != 0) {
                (false, true) => gained.push(piece),
                (true, false) => lost.push(piece),
                _ => {}
            }
        }
    }
    (gained, lost)
}

/// Rates follow changes within this time.
const SMOOTHED_S: f64 = 5.0;
/// Even a slow peer takes a block in this time.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// Longer than it takes to say that a piece is wanted.
const DECLINES_AFTER: Duration = Duration::from_secs(1);
/// Even a slow link brings an answer to a piece that is shown in this time.
const IGNORES_AFTER: Duration = Duration::from_secs(3);
/// An honest peer says which pieces it has as soon as it has come.
const SPEAKS_WITHIN: Duration = Duration::from_secs(3);
/// Longer than any pause of a disk or a link.
const STALLED_AFTER: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_in_every_byte() {
        let set = |pieces: &[u32]| {
            let mut set = Bitfield::none(20);
            pieces.iter().for_each(|piece| _ = set.insert(PieceIndex(*piece)));
            set
        };
        let (gained, lost) = differences(&set(&[0, 7, 9]), &set(&[0, 8, 9, 19]));
        let numbers = |pieces: Vec<PieceIndex>| pieces.iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!((numbers(gained), numbers(lost)), (vec![8, 19], vec![7]));
    }

    #[test]
    fn rates_follow_what_is_moved() {
        let mut rate = Rate::default();
        for second in 1..60 {
            rate.note(1_000 * second, 1.0);
        }
        assert!((rate.bytes_per_s - 1_000.0).abs() < 1.0, "{rate:?}");
        assert_eq!(rate.note(59_000, 1.0), 0);
    }
}
