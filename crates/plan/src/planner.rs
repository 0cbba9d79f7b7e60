//! The planner's two calls, and its tick fifty times a second.

use swath_model::{Range, RangeSet, SourceId, SwathId, Time};

use crate::config::Config;
use crate::connections::{self, lanes_max};
use crate::event::{Action, Event};
use crate::failure;
use crate::feeder::{Feeder, feed_anyhow};
use crate::hedge::Hedges;
use crate::lane::Lane;
use crate::ledger::Ledger;
use crate::outlook::Outlook;
use crate::paced;
use crate::rebalance;
use crate::silence;
use crate::source::Source;
use crate::view::SourceView;

/// Decides every swath of one transfer.
pub struct Planner {
    pub(crate) ledger: Ledger,
    feeder: Feeder,
    outlook: Outlook,
    hedges: Hedges,
    next_tick: Time,
    /// Ticks in a row at which no lane worked although there was work.
    ticks_at_rest: u32,
    ended: bool,
}

impl Planner {
    /// Returns a planner that knows no source and no size yet.
    pub fn new(config: Config) -> Self {
        let feeder = Feeder::new(&config);
        Self {
            ledger: Ledger::new(config, feeder.policy.capabilities()),
            feeder,
            outlook: Outlook::default(),
            hedges: Hedges::default(),
            next_tick: Time::ZERO,
            ticks_at_rest: 0,
            ended: false,
        }
    }

    /// Sets the range of the first request while the size is unknown: what an earlier run left
    /// missing comes first.
    pub fn begin_within(&mut self, gap: Range) {
        self.ledger.coverage.first_gap = gap;
    }

    /// Handles an event at `now`; times never go backwards.
    pub fn handle(&mut self, event: Event, now: Time) {
        self.ledger.now = now;
        let ledger = &mut self.ledger;
        match event {
            Event::SourceAdded { source, max_lanes } => {
                let most = lanes_max(&ledger.config, max_lanes);
                let goal = connections::first_goal(&ledger.config, ledger.capabilities);
                ledger.sources.add(source, |key| Source::new(key, most, goal));
                // A new replica may continue where all others failed.
                self.goes_on();
            }
            Event::SourceLeft { source } => self.source_left(source),
            Event::Layout { size_bytes, missing } => {
                ledger.lay_out(size_bytes, missing);
                for key in ledger.sources.all() {
                    connections::first_lanes(ledger, key);
                }
                self.next_tick = now;
            }
            Event::Grown { size_bytes, missing, more } => {
                ledger.coverage.grow(size_bytes, &missing, more);
                ledger.more_is_missing();
                self.ended = false;
            }
            Event::LaneUp { lane, rtt, requests } => {
                if connections::lane_up(ledger, lane, rtt.as_secs_f64(), requests) {
                    // Open the source's other lanes at once, not at the next tick.
                    self.next_tick = now;
                }
            }
            Event::Arrived { lane, total_bytes } => ledger.arrived(lane, total_bytes),
            Event::OutOfOrder { lane, bytes } => {
                if ledger.lanes.get_mut(lane).is_some_and(|lane| lane.out_of_order(now, bytes)) {
                    ledger.heard_at = now;
                    ledger.speaks(lane);
                }
            }
            Event::Paused { lane, total } => {
                if let Some(lane) = ledger.lanes.get_mut(lane) {
                    lane.paused(now, total.as_secs_f64());
                }
            }
            Event::RoundTrip { lane, rtt } => {
                if let Some(lane) = ledger.lanes.get_mut(lane) {
                    lane.speed.note_rtt(rtt.as_secs_f64());
                }
            }
            Event::HeldUp { lane } => {
                if let Some(lane) = ledger.lanes.get_mut(lane) {
                    lane.pauses.heard(now);
                }
                ledger.speaks(lane);
            }
            Event::Awoke => ledger.sources.change_all(|source| source.backoff.awoke(now)),
            Event::Delivered { swath, range } => ledger.delivered(swath, range),
            Event::SwathDone { swath } => self.swath_done(swath),
            Event::SwathFailed { swath, loss } => {
                failure::swath_failed(ledger, swath, loss);
                self.next_tick = now;
            }
            Event::LaneLost { lane, loss } => {
                failure::lane_lost(ledger, lane, loss);
                self.next_tick = now;
            }
            Event::Reopened { range } => {
                ledger.reopen(range);
                self.ended = false;
            }
            Event::Forbidden { source, range } => {
                self.change(source, |source| source.holds.bar(range));
            }
            Event::Allowed { source, range } => {
                self.change(source, |source| source.holds.allow(range));
                self.ended = false;
            }
            Event::Lacks { source, range } => {
                let lost = self.change(source, |source| source.holds.lose(range));
                let lost = lost.unwrap_or_default();
                if let Some(key) = self.ledger.sources.key(source) {
                    lost.iter().for_each(|&range| self.ledger.take_back(key, range));
                }
                self.feeder.lost(lost);
            }
            Event::Has { source, range } => self.has(source, range),
            Event::StreamOnly { source } => self.stream_only(source),
            Event::RequestLimit { source, requests } => {
                self.change(source, |source| source.usage.request_limit = Some(requests));
            }
            Event::SourceRests { source, rests } => {
                self.change(source, |source| source.usage.rests = rests);
                self.ended &= rests || !self.ledger.coverage.misses_something();
                self.next_tick = now;
            }
            Event::LaneLimit { source, lanes } => {
                let most = lanes_max(&ledger.config, lanes);
                self.change(source, |source| {
                    source.usage.max_lanes =
                        if source.usage.stream_only { source.usage.max_lanes } else { most };
                });
                self.next_tick = now;
            }
            Event::SourceBad { source } => {
                if let Some(key) = ledger.sources.key(source) {
                    failure::source_bad(ledger, key);
                    self.next_tick = now;
                }
            }
            Event::SourceAgain { source } => {
                let is_out = |it: &Source| !it.is_usable() || it.backoff.has_failed();
                let key = ledger.sources.key(source);
                let key = key.filter(|&key| ledger.sources.get(key).is_some_and(is_out));
                let Some(key) = key else { return };
                ledger.sources.change(key, Source::again);
                self.goes_on();
            }
            Event::Consumed { up_to } => {
                ledger.coverage.consumed = ledger.coverage.consumed.max(up_to);
                ledger.lanes.all_hungry();
            }
        }
    }

    /// Returns what to do next at `now`, or `None` if there is nothing before the next event or
    /// [`Planner::poll_timeout`].
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        self.ledger.now = now;
        if let Some(action) = self.ledger.actions.pop_front() {
            return Some(action);
        }
        if self.ended {
            return None;
        }
        if now >= self.next_tick {
            self.tick();
        }
        while let Some(lane) = self.ledger.lanes.next_hungry() {
            self.feeder.feed(lane, &mut self.ledger, &self.outlook, &mut self.hedges);
            if !self.ledger.actions.is_empty() {
                break;
            }
        }
        if self.ledger.actions.is_empty() && self.ledger.coverage.is_complete() {
            self.ended = true;
            self.ledger.actions.push_back(Action::Finished);
        }
        self.ledger.actions.pop_front()
    }

    /// Returns when [`Planner::poll`] wants to be called again even if nothing happens.
    pub fn poll_timeout(&self) -> Option<Time> {
        (!self.ended).then_some(self.next_tick)
    }

    /// Returns the bytes still to be delivered.
    pub fn undelivered(&self) -> &RangeSet {
        &self.ledger.coverage.undelivered
    }

    /// Returns the seconds until the end at the present rates, `None` while unknown.
    pub fn time_left_s(&self, now: Time) -> Option<f64> {
        self.outlook.time_left_s(now)
    }

    /// Returns how many bytes were requested a second time so far to shorten the end.
    pub fn hedged_bytes(&self) -> u64 {
        self.hedges.bytes
    }

    /// Returns the state of one source, for display.
    pub fn source(&self, source: SourceId) -> Option<SourceView> {
        let it = self.ledger.sources.get(self.ledger.sources.key(source)?)?;
        Some(it.view(self.ledger.lanes_of(it).any(|lane| !lane.is_idle())))
    }

    /// Returns the number of a source's connections, if its server limits the rate of each answer;
    /// otherwise 0.
    pub fn paced_lanes(&self, source: SourceId) -> usize {
        let is_paced = |lane: &&Lane| lane.is_up() && lane.speed.pace.found().is_some();
        let key = self.ledger.sources.key(source);
        let source = key.and_then(|key| self.ledger.sources.get(key));
        source.map_or(0, |source| self.ledger.lanes_of(source).filter(is_paced).count())
    }

    /// Changes a source, if it is known.
    fn change<R>(&mut self, source: SourceId, how: impl FnOnce(&mut Source) -> R) -> Option<R> {
        let key = self.ledger.sources.key(source)?;
        self.ledger.sources.change(key, how)
    }

    /// Resumes after a source became useful, unless everything is complete.
    fn goes_on(&mut self) {
        let coverage = &self.ledger.coverage;
        self.ended &= coverage.is_complete();
        self.next_tick = self.ledger.now;
    }

    fn has(&mut self, source: SourceId, range: Range) {
        let Some(key) = self.ledger.sources.key(source) else { return };
        let gained = self.ledger.sources.change(key, |source| source.holds.gain(range));
        self.feeder.gained(gained.into_iter().flatten());
        self.goes_on();
        let lanes = self.ledger.sources.get(key).map_or(Vec::new(), |it| it.lanes.clone());
        lanes.into_iter().for_each(|lane| self.ledger.lanes.make_hungry(lane));
    }

    fn source_left(&mut self, source: SourceId) {
        let Some(key) = self.ledger.sources.key(source) else { return };
        if let Some(source) = self.ledger.sources.get(key) {
            self.feeder.gained(source.holds.lacks().iter());
        }
        self.ledger.close_all(key);
        self.ledger.sources.leave(key);
        // All others may have been useless, so check now.
        self.goes_on();
    }

    fn stream_only(&mut self, source: SourceId) {
        let lanes = self.change(source, |source| {
            source.usage.stream_only = true;
            source.usage.max_lanes = 1;
            source.lanes.clone()
        });
        for id in lanes.into_iter().flatten() {
            if let Some(lane) = self.ledger.lanes.get_mut(id) {
                lane.pipe.streams = true;
                lane.pipe.pipelines = false;
            }
        }
    }

    fn swath_done(&mut self, swath: SwathId) {
        let ledger = &mut self.ledger;
        let Some(id) = ledger.lanes.forget(swath) else { return };
        let Some(lane) = ledger.lanes.get_mut(id) else { return };
        let Some(slot) = lane.finish(swath) else { return };
        let (source, took_s) = (lane.source.id, ledger.now.secs_since(slot.asked_at));
        self.feeder.policy.swath_ended(source, slot.asked_end - slot.start, took_s);
        // Return undelivered bytes of a short answer to the work.
        ledger.give_back(Range::new(slot.delivered_to, slot.end));
        ledger.lanes.make_hungry(id);
    }

    /// Runs the periodic work of all parts.
    fn tick(&mut self) {
        let ledger = &mut self.ledger;
        let now = ledger.now;
        self.next_tick = now.plus_secs(TICK_S);
        self.outlook.rate = connections::refresh_rates(ledger);
        self.outlook.usable_sources = ledger.sources.promising();
        paced::follow(ledger);
        silence::watch(ledger);
        connections::close_dropped(ledger);
        if now.secs_since(ledger.heard_at) > HASTE_AFTER_S {
            ledger.sources.make_haste();
        }
        self.outlook.look(ledger);
        if ledger.capabilities.rebalances && ledger.coverage.size_bytes.is_some() {
            let left_s = self.outlook.horizon_s(&ledger.config, now);
            if let Some(left_s) = left_s {
                rebalance::rebalance(ledger, left_s);
            }
            rebalance::stop_drains(ledger);
            self.hedges.hedge(ledger, left_s.unwrap_or(f64::INFINITY));
        }
        let time_left_s = self.outlook.time_left_s(now);
        connections::tune(ledger, time_left_s);
        connections::open(ledger, time_left_s);
        self.unstick();
        self.ledger.lanes.all_hungry();
        self.check_exhausted();
    }

    /// Gives work to any lane that may take it when everything is idle. Policies leave a slow lane
    /// idle if faster ones finish sooner, but those may be unable to take what is left (it is
    /// forbidden to them, or they wait).
    fn unstick(&mut self) {
        let ledger = &mut self.ledger;
        let open = ledger.coverage.has_work();
        let lost = !open
            && ledger.coverage.size_bytes.is_some()
            && !ledger.coverage.undelivered.is_empty();
        let works = |lane: &Lane| !lane.silent && !lane.is_idle();
        if !(open || lost) || ledger.lanes.iter().any(works) {
            self.ticks_at_rest = 0;
            return;
        }
        self.ticks_at_rest += 1;
        if self.ticks_at_rest < REST_TICKS {
            return;
        }
        if lost {
            // No lane owes these bytes and none has brought them. `audit` rules that out; if it
            // happens anyway, fetch them instead of waiting forever.
            ledger.give_back(Range::new(0, u64::MAX));
        }
        // Use a whole-file answer last: it may be far from what is left.
        let mut ids: Vec<_> =
            ledger.lanes.iter().map(|lane| (lane.pipe.streams, lane.id)).collect();
        ids.sort();
        for (_, id) in ids {
            if feed_anyhow(id, ledger) {
                return;
            }
        }
    }

    fn check_exhausted(&mut self) {
        if self.ended
            || self.ledger.coverage.is_complete()
            || !self.ledger.sources.were_any()
            || self.is_any_of_use()
        {
            return;
        }
        // Requests from before a range was forbidden may still deliver it.
        if self.ledger.lanes.iter().all(|lane| lane.is_idle()) {
            self.ended = true;
            self.ledger.actions.push_back(Action::Exhausted);
        }
    }

    /// Returns whether any source has something of what is missing. Sources that have nothing are
    /// skipped until that changes.
    fn is_any_of_use(&mut self) -> bool {
        let ledger = &mut self.ledger;
        if ledger.sources.engaged().any(|source| ledger.is_of_use(source)) {
            return true;
        }
        while let Some(key) = ledger.sources.first_waiting() {
            if ledger.sources.get(key).is_some_and(|source| ledger.is_of_use(source)) {
                return true;
            }
            ledger.sources.set_useless(key);
        }
        false
    }
}

/// Interval of the planner's tick, and of the executor's readings of the lanes' meters.
pub(crate) const TICK_S: f64 = 0.02;
/// Back-offs are cut short if no source has delivered for this long.
const HASTE_AFTER_S: f64 = 1.0;
/// Idle ticks in a row before a lane is given work against the policy.
const REST_TICKS: u32 = 3;
