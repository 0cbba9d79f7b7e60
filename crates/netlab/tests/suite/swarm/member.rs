//! One member of a swarm: its planner, what it asked of whom, and what others may ask of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use swath_model::{LaneId, Range, RangeSet, Requests, SourceId, SwathId, Time};
use swath_plan::{Action, Config, Event, Loss, Planner};

/// A member. The origin is one whose planner has nothing to do.
pub(super) struct Member {
    pub planner: Planner,
    /// What it may be asked for.
    pub serves: RangeSet,
    /// Whom it knows, and who knows it.
    pub known: BTreeSet<u32>,
    pub lanes: BTreeMap<LaneId, Lane>,
    pub uplink_bytes_per_s: f64,
    pub came_at: Time,
    /// When it had everything.
    pub done_at: Option<Time>,
    /// When it leaves, done or not.
    pub leaves_at: Time,
    piece_bytes: u64,
    /// Bytes of it, each once.
    have: RangeSet,
}

/// A connection to another member.
pub(super) struct Lane {
    pub to: u32,
    asked: VecDeque<(SwathId, Range)>,
    total_bytes: u64,
}

impl Lane {
    /// Returns whether its other end has something to send.
    pub fn is_busy(&self) -> bool {
        !self.asked.is_empty()
    }
}

impl Member {
    pub fn new(config: Config, size_bytes: u64, serves: RangeSet, piece_bytes: u64) -> Self {
        let missing: RangeSet = serves.gaps_within(Range::new(0, size_bytes)).into_iter().collect();
        let is_done = missing.is_empty();
        let mut planner = Planner::new(config);
        planner.handle(Event::Layout { size_bytes, missing }, Time::ZERO);
        Self {
            planner,
            have: serves.clone(),
            serves,
            known: BTreeSet::new(),
            lanes: BTreeMap::new(),
            uplink_bytes_per_s: 0.0,
            came_at: Time::ZERO,
            done_at: is_done.then_some(Time::ZERO),
            leaves_at: Time::MAX,
            piece_bytes,
        }
    }

    /// It hears of another member, and what that one has.
    pub fn meet(&mut self, other: u32, serves: &RangeSet, now: Time) {
        let source = SourceId(other);
        self.known.insert(other);
        self.planner.handle(Event::SourceAdded { source, max_lanes: None }, now);
        self.planner.handle(Event::Lacks { source, range: Range::new(0, u64::MAX) }, now);
        for range in serves.iter() {
            self.planner.handle(Event::Has { source, range }, now);
        }
    }

    /// Another member has these bytes from now on.
    pub fn has(&mut self, other: u32, range: Range, now: Time) {
        self.planner.handle(Event::Has { source: SourceId(other), range }, now);
    }

    /// Another member has left.
    pub fn part(&mut self, other: u32, now: Time) {
        self.known.remove(&other);
        let lost: Vec<LaneId> =
            self.lanes.iter().filter(|(_, lane)| lane.to == other).map(|(&id, _)| id).collect();
        for lane in lost {
            self.lanes.remove(&lane);
            self.planner.handle(Event::LaneLost { lane, loss: Loss::Broken }, now);
        }
        self.planner.handle(Event::SourceLeft { source: SourceId(other) }, now);
    }

    /// Another member does not have these bytes any more: it answers no request for them.
    pub fn refused(&mut self, other: u32, range: Range, now: Time) {
        self.planner.handle(Event::Lacks { source: SourceId(other), range }, now);
        for lane in self.lanes.values_mut().filter(|lane| lane.to == other) {
            let mut refused = Vec::new();
            lane.asked.retain(|&(swath, asked)| {
                let keeps = asked.intersect(range).is_none();
                refused.extend((!keeps).then_some(swath));
                keeps
            });
            for swath in refused {
                self.planner.handle(Event::SwathFailed { swath, loss: Loss::Clean }, now);
            }
        }
    }

    /// Every lane brings what its other end can send in a step. Returns how much came over each
    /// and which pieces are whole now.
    pub fn receive(
        &mut self,
        shares: &BTreeMap<u32, u64>,
        now: Time,
    ) -> (Vec<(u32, u64)>, Vec<Range>) {
        let (mut came, mut whole) = (Vec::new(), Vec::new());
        for (&id, lane) in &mut self.lanes {
            let mut bytes = shares.get(&lane.to).copied().unwrap_or(0);
            let mut parts = Vec::new();
            while bytes > 0
                && let Some((swath, range)) = lane.asked.pop_front()
            {
                let part = Range::of_len(range.start, bytes.min(range.len()));
                bytes -= part.len();
                lane.total_bytes += part.len();
                parts.push((swath, part, part == range));
                if part != range {
                    lane.asked.push_front((swath, Range::new(part.end, range.end)));
                }
            }
            if parts.is_empty() {
                continue;
            }
            came.push((lane.to, parts.iter().map(|part| part.1.len()).sum()));
            self.planner.handle(Event::Arrived { lane: id, total_bytes: lane.total_bytes }, now);
            for (swath, range, is_done) in parts {
                for range in self.have.gaps_within(range) {
                    self.have.insert(range);
                    self.planner.handle(Event::Delivered { swath, range }, now);
                    whole.push(range);
                }
                if is_done {
                    self.planner.handle(Event::SwathDone { swath }, now);
                }
            }
        }
        let pieces: BTreeSet<u64> = whole
            .iter()
            .flat_map(|it| it.start / self.piece_bytes..it.end.div_ceil(self.piece_bytes))
            .collect();
        let pieces =
            pieces.into_iter().map(|at| Range::of_len(at * self.piece_bytes, self.piece_bytes));
        (came, pieces.filter(|&piece| self.have.covers(piece)).collect())
    }

    /// Does what the planner wants. Returns what was asked of whom.
    pub fn act(&mut self, now: Time) -> Vec<(u32, Range)> {
        let mut requests = Vec::new();
        while let Some(action) = self.planner.poll(now) {
            match action {
                Action::OpenLane { source, lane } => {
                    let new = Lane { to: source.0, asked: VecDeque::new(), total_bytes: 0 };
                    self.lanes.insert(lane, new);
                    self.planner
                        .handle(Event::LaneUp { lane, rtt: RTT, requests: Requests::Blocks }, now);
                }
                Action::Fetch { lane, swath, range } => {
                    if let Some(lane) = self.lanes.get_mut(&lane) {
                        lane.asked.push_back((swath, range));
                        requests.push((lane.to, range));
                    }
                }
                Action::Trim { lane: id, swath, end, .. } => {
                    let Some(lane) = self.lanes.get_mut(&id) else { continue };
                    let asked = lane.asked.iter_mut().find(|asked| asked.0 == swath);
                    let Some((_, range)) = asked else { continue };
                    range.end = range.end.min(end.max(range.start));
                    if range.is_empty() {
                        lane.asked.retain(|asked| asked.0 != swath);
                        self.planner.handle(Event::SwathDone { swath }, now);
                    }
                }
                Action::CloseLane { lane } => {
                    self.lanes.remove(&lane);
                    self.planner.handle(Event::LaneLost { lane, loss: Loss::Clean }, now);
                }
                Action::Finished => self.done_at = Some(now),
                Action::Exhausted => {}
            }
        }
        requests
    }
}

/// Between any two members.
const RTT: Duration = Duration::from_millis(20);
