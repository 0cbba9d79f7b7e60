//! The open lanes of a transfer, and the swaths requested on them.

use std::collections::{BTreeMap, BTreeSet};

use swath_model::{LaneId, Range, SwathId, Time};
use swath_source::{Lane, LaneEvent};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::observe::Outcome;

/// The open lanes.
pub(super) struct Lanes {
    pub open: BTreeMap<LaneId, LaneEntry>,
    /// Requested swaths that have not ended.
    pub swaths: BTreeMap<SwathId, SwathEntry>,
    /// Receives their events.
    pub events: UnboundedReceiver<LaneEvent>,
    /// Sends their events.
    pub sender: UnboundedSender<LaneEvent>,
    /// When their counters were last read.
    pub read_at: Time,
}

impl Default for Lanes {
    fn default() -> Self {
        let (sender, events) = unbounded_channel();
        let (open, swaths) = (BTreeMap::new(), BTreeMap::new());
        Self { open, swaths, events, sender, read_at: Time::ZERO }
    }
}

impl Lanes {
    /// Returns the source of an open lane.
    pub fn source_of(&self, lane: LaneId) -> Option<usize> {
        self.open.get(&lane).map(|entry| entry.source)
    }

    /// Returns the lanes of a source.
    pub fn of_source(&self, source: usize) -> impl Iterator<Item = (LaneId, &LaneEntry)> {
        self.open.iter().filter(move |(_, lane)| lane.source == source).map(|(&id, it)| (id, it))
    }

    /// Returns the swaths requested on a lane.
    pub fn swaths_of(&self, lane: LaneId) -> Vec<SwathId> {
        self.swaths.iter().filter(|(_, swath)| swath.lane == lane).map(|(&id, _)| id).collect()
    }

    /// Notes that the first swath of each of these lanes has its first byte. A slow lane hands its
    /// first buffer over much later.
    pub fn begun(&mut self, lanes: &BTreeSet<LaneId>, now: Time) {
        let mut foremost: BTreeMap<LaneId, SwathId> = BTreeMap::new();
        for (&id, swath) in self.swaths.iter().filter(|(_, swath)| lanes.contains(&swath.lane)) {
            let first = foremost.entry(swath.lane).or_insert(id);
            *first = id.min(*first);
        }
        for id in foremost.values() {
            if let Some(swath) = self.swaths.get_mut(id) {
                swath.first_byte_at.get_or_insert(now);
            }
        }
    }

    /// Drops late events of closed lanes, so that they are not taken for those of later lanes.
    pub fn forget_events(&mut self) {
        (self.sender, self.events) = unbounded_channel();
    }
}

/// One open lane.
pub(super) struct LaneEntry {
    pub lane: Box<dyn Lane>,
    pub source: usize,
    /// Whether it is connected, or was.
    pub up: bool,
    pub seen_bytes: u64,
    pub seen_holds: u64,
    /// Whether this side held it up at the last look, or since the look before.
    pub held_up: bool,
    pub opened_at: Time,
    /// When its last bytes were seen.
    pub heard_at: Time,
    /// Whether it brought anything useful.
    pub brought: bool,
    /// Whether bytes that still come on it are ignored.
    pub is_void: bool,
}

impl LaneEntry {
    pub fn new(lane: Box<dyn Lane>, source: usize, now: Time) -> Self {
        Self {
            lane,
            source,
            up: false,
            seen_bytes: 0,
            seen_holds: 0,
            held_up: false,
            opened_at: now,
            heard_at: now,
            brought: false,
            is_void: false,
        }
    }

    /// Looks whether this side holds it up; a hold in progress has an odd count.
    pub fn look_for_holds(&mut self) -> bool {
        let holds = self.lane.meter().holds();
        self.held_up = holds != self.seen_holds || holds % 2 == 1;
        self.seen_holds = holds;
        self.held_up
    }
}

/// One requested swath.
#[derive(Clone)]
pub(super) struct SwathEntry {
    pub lane: LaneId,
    pub source: usize,
    pub range: Range,
    pub asked_at: Time,
    pub first_byte_at: Option<Time>,
    pub delivered_to: u64,
    pub outcome: Option<Outcome>,
}
