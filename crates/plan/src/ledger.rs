//! The planner's state: the delivered bytes, the lanes and sources, the actions that are due.
//!
//! This file makes every change that concerns more than one of them, so that they stay consistent
//! ([`Ledger::audit`] checks it). It decides nothing.

use std::collections::VecDeque;

use swath_model::{LaneId, Range, RangeSet, SwathId, Time};

use crate::config::Config;
use crate::coverage::Coverage;
use crate::event::Action;
use crate::holds::Holds;
use crate::lane::{Lane, LaneState};
use crate::lane_table::LaneTable;
use crate::policy::PolicyCapabilities;
use crate::source::Source;
use crate::source_table::{SourceKey, SourceTable};
use crate::view::SourceStatus;

/// Everything that the planner knows.
pub(crate) struct Ledger {
    pub config: Config,
    pub capabilities: PolicyCapabilities,
    pub coverage: Coverage,
    pub lanes: LaneTable,
    pub sources: SourceTable,
    pub actions: VecDeque<Action>,
    /// Draws the jitter of back-offs.
    pub rng: fastrand::Rng,
    /// The time of the current call.
    pub now: Time,
    /// When bytes last arrived from any source.
    pub heard_at: Time,
}

impl Ledger {
    /// Returns an empty ledger.
    pub fn new(config: Config, capabilities: PolicyCapabilities) -> Self {
        Self {
            capabilities,
            coverage: Coverage::new(),
            lanes: LaneTable::default(),
            sources: SourceTable::default(),
            actions: VecDeque::new(),
            rng: fastrand::Rng::with_seed(config.seed),
            now: Time::ZERO,
            heard_at: Time::ZERO,
            config,
        }
    }

    /// Returns the source of a lane.
    pub fn source_of(&self, lane: &Lane) -> Option<&Source> {
        self.sources.get(lane.source)
    }

    /// Returns the lanes of a source.
    pub fn lanes_of<'a>(&'a self, source: &'a Source) -> impl Iterator<Item = &'a Lane> {
        self.lanes.of(&source.lanes)
    }

    /// Returns whether a source may be asked for any of what is missing, now or later.
    pub fn is_of_use(&self, source: &Source) -> bool {
        source.is_usable() && !source.usage.rests && self.coverage.needs_any_of(&source.holds)
    }

    /// Returns whether a source may be asked for something now.
    pub fn may_be_asked(&self, source: &Source) -> bool {
        source.is_usable() && !source.usage.rests && source.backoff.quiet_until <= self.now
    }

    /// Returns how many sources may be in use at once.
    pub fn places(&self) -> usize {
        if self.capabilities.one_source { 1 } else { self.config.max_sources.max(1) }
    }

    /// Returns whether a source counts as in use. A source that waits for its next try, asked for
    /// patience, or does not connect leaves its place to a spare. So does a silent one, but it
    /// keeps its lanes.
    pub fn takes_a_place(&self, source: &Source) -> bool {
        let connecting = |lane: &Lane| {
            lane.state == LaneState::Opening && self.now.secs_since(lane.since) > CONNECTS_S
        };
        source.status != SourceStatus::Silent
            && source.backoff.quiet_until <= self.now
            && self.lanes_of(source).any(|it| !connecting(it))
            && self.is_of_use(source)
    }

    /// Returns whether a lane has no future, so that another one of its source should be opened: it
    /// is about to end, or is kept only because nobody else delivers.
    pub fn is_spent(&self, lane: &Lane) -> bool {
        let source = self.source_of(lane);
        let overdue = lane.is_up()
            && !lane.was_answered()
            && lane.pipe.awaits_answer()
            && source.is_some_and(|it| {
                self.now.secs_since(lane.pauses.last_progress) > it.answers.patience_s
            });
        // A server that limits each answer may limit their number, too.
        let ends = lane.duty.dropping && source.is_some_and(|it| it.record.pace.is_none());
        self.capabilities.tunes_lanes && (ends || overdue)
    }

    /// Sets the size and the missing ranges.
    pub fn lay_out(&mut self, size_bytes: u64, missing: RangeSet) {
        // Probe requests are on their way; clip them to the file.
        let mut asked = Vec::new();
        for slot in self.lanes.iter_mut().flat_map(|lane| &mut lane.pipe.queue) {
            slot.end = slot.end.min(size_bytes);
            slot.asked_end = slot.asked_end.min(size_bytes).max(slot.start);
            asked.push(Range::new(slot.start.min(size_bytes), slot.end));
        }
        self.coverage.lay_out(size_bytes, missing, &asked);
        self.more_is_missing();
    }

    /// Wakes sources and lanes because more is missing than before.
    pub fn more_is_missing(&mut self) {
        self.sources.reconsider();
        self.lanes.all_hungry();
    }

    /// Opens another lane to a source.
    pub fn open(&mut self, key: SourceKey) {
        let id = self.lanes.open(key, self.now).id;
        self.sources.lane_opened(key, id);
        self.actions.push_back(Action::OpenLane { source: key.id, lane: id });
    }

    /// Requests `range` on a lane.
    pub fn assign(&mut self, id: LaneId, range: Range) {
        let Some(swath) = self.lanes.push(id, range, self.now) else { return };
        if let Some(key) = self.lanes.get(id).map(|lane| lane.source)
            && let Some(source) = self.sources.get_mut(key)
        {
            source.asked();
        }
        self.actions.push_back(Action::Fetch { lane: id, swath, range });
    }

    /// Requests a range that is open or doubtful.
    pub fn take(&mut self, id: LaneId, range: Range) {
        self.coverage.take(range);
        self.assign(id, range);
    }

    /// Requests a range that another lane owes as well.
    pub fn ask_again(&mut self, id: LaneId, range: Range) {
        self.coverage.shared.insert(range);
        self.assign(id, range);
    }

    /// Ends a lane's silence: it alone owes its ranges again, except those that another lane took.
    pub fn speaks(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        if std::mem::replace(&mut lane.silent, false) {
            for range in lane.pipe.undelivered() {
                self.coverage.doubtful.remove(range);
            }
        }
    }

    /// Records a reading of a lane's meter.
    pub fn arrived(&mut self, id: LaneId, total_bytes: u64) {
        let now = self.now;
        let Some(lane) = self.lanes.get_mut(id) else { return };
        if lane.arrived(now, total_bytes) == 0 {
            return;
        }
        self.heard_at = now;
        lane.refresh_rate(now);
        let (source, took_s) = (lane.source, lane.pipe.answer_took_s(now));
        if let Some(source) = self.sources.get_mut(source)
            && let Some(took_s) = took_s
        {
            source.answers.began(took_s);
        }
        self.sources.delivered(source, 0);
        self.speaks(id);
        self.lanes.make_hungry(id);
    }

    /// Records that `range` was delivered.
    pub fn delivered(&mut self, swath: SwathId, range: Range) {
        let new_bytes = self.coverage.deliver(range);
        // Bytes of a closed lane, or behind a trimmed end, may be requested elsewhere.
        let mut unexpected = true;
        let mut skipped = None;
        if let Some(id) = self.lanes.lane_of(swath)
            && let Some(lane) = self.lanes.get_mut(id)
        {
            self.heard_at = self.now;
            if let Some(slot) = lane.pipe.slot_mut(swath) {
                skipped = (slot.delivered_to < range.start)
                    .then(|| Range::new(slot.delivered_to, range.start.min(slot.end)));
                slot.delivered_to = slot.delivered_to.max(range.end.min(slot.asked_end));
                unexpected = range.end > slot.end;
            }
            let is_first = !lane.was_answered();
            lane.speed.first_byte_at.get_or_insert(self.now);
            // Meters are read periodically, so the first byte may show here first.
            let (key, took_s) = (lane.source, lane.pipe.answer_took_s(self.now));
            if let Some(source) = self.sources.get_mut(key) {
                if is_first {
                    source.backoff.let_in();
                }
                if let Some(took_s) = took_s {
                    source.answers.began(took_s);
                }
            }
            self.sources.delivered(key, new_bytes);
        }
        if let Some(skipped) = skipped {
            // A lane's bytes come in order: it will not bring what it passed over.
            self.give_back(skipped);
        }
        if self.coverage.shared.remove(range) > 0 || unexpected {
            self.release_others(swath, range);
        }
    }

    /// Trims other swaths that fetch `range`, because its first copy is here.
    fn release_others(&mut self, winner: SwathId, range: Range) {
        let mut trims = Vec::new();
        for lane in self.lanes.iter() {
            for (slot, at) in lane.pipe.positions() {
                let left = Range::new(at, slot.end);
                if slot.swath == winner || left.intersect(range).is_none() {
                    continue;
                }
                let end = self.coverage.undelivered.within(left).last().map_or(at, |it| it.end);
                if end < slot.end {
                    trims.push((lane.id, slot.swath, end));
                }
            }
        }
        for (lane, swath, end) in trims {
            self.trim(lane, swath, end);
        }
    }

    /// Releases a range from its lane: missing parts that no other lane fetches are open again.
    pub fn give_back(&mut self, range: Range) {
        if self.coverage.give_back(range, &self.lanes) {
            self.lanes.all_hungry();
        }
    }

    /// Marks delivered bytes as missing again.
    pub fn reopen(&mut self, range: Range) {
        self.coverage.undelivered.insert(range);
        if self.coverage.reopen(range, &self.lanes) {
            self.lanes.all_hungry();
        }
        self.sources.reconsider();
    }

    /// A source no longer has this range: what it was asked for from there on goes to others.
    pub fn take_back(&mut self, source: SourceKey, range: Range) {
        let mut cuts = Vec::new();
        for lane in self.lanes.iter().filter(|lane| lane.source == source) {
            for (slot, at) in lane.pipe.positions() {
                let rest = Range::new(at.min(slot.end), slot.end);
                if rest.intersect(range).is_some() {
                    let cut = rest.start.max(range.start);
                    cuts.push((lane.id, slot.swath, Range::new(cut, slot.end)));
                }
            }
        }
        for &(lane, swath, tail) in &cuts {
            let slot = self.lanes.get_mut(lane).and_then(|lane| lane.pipe.slot_mut(swath));
            slot.into_iter().for_each(|slot| slot.end = tail.start);
            self.give_back(tail);
        }
        for (lane, swath, tail) in cuts {
            self.trim(lane, swath, tail.start);
        }
    }

    /// Makes a swath end at `end`; the caller handles the bytes behind it.
    pub fn trim(&mut self, id: LaneId, swath: SwathId, end: u64) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        let reopen_s = DROP_ROUND_TRIPS * lane.speed.rtt_s + DROP_S;
        let Some(slot) = lane.pipe.slot_mut(swath) else { return };
        let end = end.max(slot.start);
        slot.end = slot.end.min(end);
        let surplus_bytes = slot.asked_end - slot.end;
        let drain_s = lane.speed.needs_s(surplus_bytes, self.now).unwrap_or(0.0);
        let needed = !self.coverage.open.is_empty();
        // Near the end nothing more will be requested on this lane, so draining costs nothing. A
        // whole-file answer waits at the new end and can continue from there.
        let drop_lane = !lane.pipe.streams && needed && drain_s > reopen_s;
        lane.duty.dropping |= drop_lane;
        self.actions.push_back(Action::Trim { lane: id, swath, end, drop_lane });
    }

    /// Closes a lane; what it owes goes to others at once, not when the loss is confirmed.
    pub fn close(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        if lane.state == LaneState::Closing {
            return;
        }
        lane.state = LaneState::Closing;
        let queue = std::mem::take(&mut lane.pipe.queue);
        if !queue.is_empty() {
            let (key, now) = (lane.source, self.now);
            self.sources.change(key, |source| source.cut_short(now));
        }
        for slot in queue {
            self.lanes.forget(slot.swath);
            self.give_back(Range::new(slot.delivered_to, slot.end));
        }
        self.actions.push_back(Action::CloseLane { lane: id });
    }

    /// Closes all lanes of a source that is out.
    pub fn close_all(&mut self, key: SourceKey) {
        let lanes = self.sources.get(key).map_or(Vec::new(), |source| source.lanes.clone());
        for lane in lanes {
            self.close(lane);
        }
    }

    /// Returns the ranges that a lane may be asked for.
    pub fn holds(&self, lane: &Lane) -> Option<&Holds> {
        self.source_of(lane).map(|source| &source.holds)
    }
}

/// A source that takes longer than this to connect leaves its place to others.
const CONNECTS_S: f64 = 1.0;
/// A trimmed body is drained if that takes less than this many round trips (the cost of a new
/// connection: handshake, request and several steps of slow start) …
const DROP_ROUND_TRIPS: f64 = 5.0;
/// … plus this.
const DROP_S: f64 = 0.02;
