//! The open lanes of a transfer, and the swaths that they were asked for.

use std::collections::{BTreeMap, BTreeSet};

use swath_model::{LaneId, Range, SwathId, Time};
use swath_source::{Lane, LaneEvent};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::observe::Outcome;

/// The open lanes.
pub(super) struct Lanes {
    pub open: BTreeMap<LaneId, LaneEntry>,
    /// What they were asked for and is not over.
    pub swaths: BTreeMap<SwathId, SwathEntry>,
    /// What they report.
    pub events: UnboundedReceiver<LaneEvent>,
    /// By which they report.
    pub sender: UnboundedSender<LaneEvent>,
    /// When their counters were read last.
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
    /// The source of an open lane.
    pub fn source_of(&self, lane: LaneId) -> Option<usize> {
        self.open.get(&lane).map(|entry| entry.source)
    }

    /// The lanes of this source.
    pub fn of_source(&self, source: usize) -> impl Iterator<Item = (LaneId, &LaneEntry)> {
        self.open.iter().filter(move |(_, lane)| lane.source == source).map(|(&id, it)| (id, it))
    }

    /// The swaths that this lane was asked for.
    pub fn swaths_of(&self, lane: LaneId) -> Vec<SwathId> {
        self.swaths.iter().filter(|(_, swath)| swath.lane == lane).map(|(&id, _)| id).collect()
    }

    /// The foremost swath of each of these lanes has had its first byte by now. A slow lane hands
    /// its first buffer over much later.
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

    /// Late events of the lanes so far must not be taken for those of lanes to come.
    pub fn forget_events(&mut self) {
        (self.sender, self.events) = unbounded_channel();
    }
}

/// One open lane.
pub(super) struct LaneEntry {
    pub lane: Box<dyn Lane>,
    pub source: usize,
    /// It is connected, or was.
    pub up: bool,
    pub seen_bytes: u64,
    pub seen_holds: u64,
    /// We held it up ourselves at the last look, or since the one before.
    pub held_up: bool,
    pub opened_at: Time,
    /// When the last of its bytes were seen.
    pub heard_at: Time,
    /// Something of use came of it.
    pub brought: bool,
    /// Nothing that still comes of it counts.
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

    /// Look whether we hold it up; a hold in progress has an odd count.
    pub fn look_for_holds(&mut self) -> bool {
        let holds = self.lane.meter().holds();
        self.held_up = holds != self.seen_holds || holds % 2 == 1;
        self.seen_holds = holds;
        self.held_up
    }
}

/// One swath that is asked for.
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
