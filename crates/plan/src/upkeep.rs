//! What is looked at once a tick: rates, silence, lanes to open and to close, the number of lanes.

use swath_model::{LaneId, Range, RangeSet, SourceId, Time};

use crate::config::Lanes;
use crate::event::Action;
use crate::lane::{Lane, LaneState};
use crate::planner::{FLEETING_REQUESTS, Planner};
use crate::source::Source;
use crate::tuner::Reading;
use crate::view::SourceStatus;

impl Planner {
    pub(crate) fn tick(&mut self, now: Time) {
        self.next_tick = now.plus_secs(TICK_S);
        self.refresh_rates(now);
        self.follow_pace();
        self.watch_silence(now);
        self.close_dropped();
        if now.secs_since(self.heard_at) > HASTE_AFTER_S {
            self.sources.iter_mut().for_each(Source::make_haste);
        }
        self.forecast(now);
        if self.manners.rebalances && self.size_bytes.is_some() {
            self.rebalance(now);
            self.stop_drains(now);
            self.hedge(now);
        }
        self.tune_lanes(now);
        self.open_lanes(now);
        self.unstick(now);
        self.all_hungry();
        self.check_exhausted();
    }

    fn refresh_rates(&mut self, now: Time) {
        for source in &mut self.sources {
            source.rate = 0.0;
        }
        self.rate = 0.0;
        let mut serving = vec![0; self.sources.len()];
        let work = !self.open.is_empty();
        for lane in self.lanes.values_mut() {
            lane.refresh_rate(now);
            if work
                && lane.waits()
                && let Some(source) = self.sources.get_mut(lane.source.index())
            {
                source.waited_s += TICK_S;
            }
            if lane.is_up() && !lane.silent && !lane.queue.is_empty() {
                let rate = lane.rate.unwrap_or(0.0);
                self.rate += rate;
                if lane.was_answered()
                    && let Some(count) = serving.get_mut(lane.source.index())
                {
                    *count += 1;
                }
                if let Some(source) = self.sources.get_mut(lane.source.index()) {
                    source.rate += rate;
                }
            }
        }
        self.usable_sources = self.sources.iter().filter(|source| source.is_promising()).count();
        for (source, serving) in self.sources.iter_mut().zip(serving) {
            source.served_most = source.served_most.max(serving);
            source.best_rate = source.best_rate.max(source.rate);
        }
    }

    /// Lanes that owe bytes and bring none are silent: what they owe becomes doubtful. Those that
    /// stay silent are closed and their source goes on probation.
    fn watch_silence(&mut self, now: Time) {
        let mut given_up = Vec::new();
        let mut fell_silent = Vec::new();
        let watches = self.manners.watches_silence;
        let somebody_delivers =
            self.lanes.values().any(|lane| lane.is_up() && !lane.silent && lane.was_answered());
        for lane in self.lanes.values_mut() {
            // A silent lane may owe nothing any more, and still drain nothing.
            if !lane.is_up() || (lane.queue.is_empty() && !lane.silent) {
                continue;
            }
            let Some(source) = self.sources.get(lane.source.index()) else { continue };
            let waited_s = now.secs_since(lane.heard_at);
            let awaits_answer = lane.awaits_answer();
            let mut silence_s = if watches { lane.silence_s() } else { PATIENCE_PLAIN_S };
            let mut patience_s = GIVE_UP_S + 4.0 * silence_s;
            if awaits_answer {
                silence_s = silence_s.max(ANSWER_SPREAD * source.answer_s());
                patience_s = if watches { source.patience_s } else { patience_s };
                patience_s = patience_s.max(silence_s);
            }
            if waited_s > silence_s && !lane.silent {
                lane.silent = true;
                fell_silent.extend(lane.undelivered());
            }
            // An answer that is late may come yet. What comes of it is more than nothing.
            let last_hope = awaits_answer && !lane.was_answered() && !somebody_delivers;
            if waited_s > patience_s && !last_hope {
                given_up.push((lane.id, lane.source, awaits_answer));
            }
        }
        if self.size_bytes.is_some() {
            for range in fell_silent {
                self.doubt(range);
            }
        }
        for (lane, source, unanswered) in given_up {
            self.close(lane);
            let jitter = self.rng.f64();
            let Some(source) = self.sources.get_mut(source.index()) else { continue };
            // One stuck lane of several says nothing of its source, several at once say it once.
            let mut others = source.lanes.iter().filter_map(|id| self.lanes.get(id));
            if others.all(|lane| lane.silent || lane.state == LaneState::Closing)
                && source.retry_at <= now
            {
                source.tuner.reset(now);
                source.fell_silent(now, jitter);
                if unanswered {
                    source.unanswered();
                }
            }
        }
        for source in &mut self.sources {
            if !source.is_usable() {
                continue;
            }
            let mut owing = source
                .lanes
                .iter()
                .filter_map(|id| self.lanes.get(id))
                .filter(|lane| !lane.queue.is_empty());
            let silent =
                owing.next().is_some_and(|lane| lane.silent) && owing.all(|lane| lane.silent);
            source.status = match source.status {
                SourceStatus::Running | SourceStatus::Probing if silent => SourceStatus::Silent,
                SourceStatus::Running if source.on_probation() => SourceStatus::Silent,
                SourceStatus::Silent if !silent && !source.on_probation() => SourceStatus::Running,
                other => other,
            };
        }
    }

    /// A lane that was to end behind a trimmed swath, and has nothing left to bring, has no more
    /// use, whether its connection has met that point or not.
    fn close_dropped(&mut self) {
        let done: Vec<LaneId> = self
            .lanes
            .values()
            .filter(|lane| lane.is_up() && lane.dropping && lane.queue.is_empty())
            .map(|lane| lane.id)
            .collect();
        for id in done {
            self.close(id);
        }
    }

    /// `range` is owed by a silent lane: doubtful, as far as no lively one brings it.
    fn doubt(&mut self, range: Range) {
        let mut doubtful: RangeSet = self.undelivered.within(range).collect();
        if self.shared.bytes_within(range) > 0 {
            for lane in self.lanes.values().filter(|lane| !lane.silent) {
                for asked in lane.undelivered() {
                    doubtful.remove(asked);
                }
            }
        }
        self.doubtful.union_with(&doubtful);
    }

    fn tune_lanes(&mut self, now: Time) {
        let time_left_s = self.time_left_s(now).unwrap_or(0.0);
        let has_work = !self.open.is_empty();
        for at in 0..self.sources.len() {
            let source = &self.sources[at];
            if !source.is_usable() {
                continue;
            }
            if source.rests {
                self.fit_lanes(SourceId(at as u32), now);
                continue;
            }
            let lanes: Vec<&Lane> =
                source.lanes.iter().filter_map(|id| self.lanes.get(id)).collect();
            let lanes_up = lanes
                .iter()
                .filter(|lane| lane.is_up() && !lane.parked && lane.first_byte_at.is_some())
                .count();
            let goal = match self.config.lanes {
                Lanes::Fixed(count) if self.manners.tunes_lanes => {
                    count.min(source.max_lanes).min(source.tuner.allowed(now))
                }
                Lanes::Auto { .. } if self.manners.tunes_lanes && source.pace.is_some() => {
                    self.paced_goal(SourceId(at as u32), now).unwrap_or(1)
                }
                Lanes::Auto { .. } if self.manners.tunes_lanes => {
                    let reading = Reading {
                        now,
                        rate: source.rate,
                        paused_s: source.waited_s
                            + lanes.iter().map(|lane| lane.paused_s).sum::<f64>(),
                        rtt_s: source.rtt_s.unwrap_or(0.1),
                        lanes_up: lanes_up as u32,
                        lanes_max: source.max_lanes,
                        time_left_s,
                        has_work,
                    };
                    let suspects = lanes.iter().any(|lane| lane.suspects_pace());
                    let tunable =
                        source.status == SourceStatus::Running && !source.stream_only && !suspects;
                    let source = &mut self.sources[at];
                    if tunable {
                        source.tuner.tick(reading);
                    }
                    source.tuner.goal.min(source.max_lanes).min(source.tuner.allowed(now))
                }
                _ => 1,
            };
            self.sources[at].tuner.goal = goal;
            self.fit_lanes(SourceId(at as u32), now);
        }
    }

    /// Park the newest lanes above the goal, take parked ones back below it, close parked ones
    /// that have nothing left to deliver. Tell all of them their windows.
    fn fit_lanes(&mut self, source: SourceId, now: Time) {
        let mut active = 0;
        let mut idle_parked = Vec::new();
        let Some(source) = self.sources.get_mut(source.index()) else { return };
        let goal =
            if source.rests { 0 } else { source.tuner.lanes().min(source.max_lanes) as usize };
        let window_bytes = source.tuner.window_bytes();
        let mut ids = source.lanes.clone();
        // Those that are up before those that are still to connect.
        ids.sort_by_key(|id| self.lanes.get(id).is_none_or(|lane| !lane.is_up()));
        for id in ids {
            let Some(lane) = self.lanes.get(&id) else { continue };
            if lane.state == LaneState::Closing || self.is_spent(lane, now) {
                continue;
            }
            active += 1;
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            if lane.window_bytes != window_bytes {
                lane.window_bytes = window_bytes;
                self.actions.push_back(Action::Window { lane: id, bytes: window_bytes });
            }
            lane.parked = active > goal;
            if lane.parked && lane.queue.is_empty() && lane.is_up() {
                idle_parked.push(id);
            }
        }
        for id in idle_parked {
            self.close(id);
        }
    }

    fn open_lanes(&mut self, now: Time) {
        let wanted = self.size_bytes.is_none()
            || self.grows
            || !self.open.is_empty()
            || !self.doubtful.is_empty();
        if !wanted {
            // Once everything is asked for, only a lane that could take a share is worth opening.
            let far = self.time_left_s(now).is_some_and(|left| left > OPEN_WORTH_S);
            if !far {
                return;
            }
        }
        let mut in_use =
            self.sources.iter().filter(|source| self.takes_a_place(source, now)).count();
        let limit = self.places();
        // Those that failed lately come after those that have not.
        let (failing, fresh): (Vec<usize>, Vec<usize>) =
            (0..self.sources.len()).partition(|&at| self.sources[at].has_failed());
        for at in fresh.into_iter().chain(failing) {
            let source = &self.sources[at];
            if source.retry_at > now || !self.is_of_use(source) {
                continue;
            }
            if source.lanes.is_empty() {
                if in_use >= limit {
                    continue;
                }
                in_use += 1;
            }
            let goal = if source.on_probation() || source.status == SourceStatus::Silent {
                1
            } else {
                source.tuner.lanes()
            };
            let lanes = source.lanes.iter().filter_map(|id| self.lanes.get(id));
            let spent = lanes.filter(|lane| self.is_spent(lane, now)).count() as u32;
            let have = source.lanes.len() as u32;
            // The successor of a lane that is about to end comes up meanwhile.
            let allowed = source.max_lanes.min(source.tuner.allowed(now)).max(1);
            let most = (goal.max(1) + spent.min(goal.max(1))).min(allowed);
            let most =
                if self.is_late_for(source, now) { most.min(1 + spent.min(1)) } else { most };
            for _ in have..most {
                let lane = LaneId(self.next_lane);
                self.next_lane += 1;
                let mut new = Lane::new(lane, SourceId(at as u32), now);
                let source = &mut self.sources[at];
                new.window_bytes = source.tuner.window_bytes();
                let window = new.window_bytes.map(|it| Action::Window { lane, bytes: Some(it) });
                self.lanes.insert(lane, new);
                source.lanes.push(lane);
                if source.status == SourceStatus::Spare {
                    source.status = SourceStatus::Probing;
                }
                self.actions.push_back(Action::OpenLane { source: source.id, lane });
                self.actions.extend(window);
            }
            if !self.config.eager && self.stay_with_few(now) {
                break;
            }
        }
    }

    /// Whether a further lane of this source would come too late to bring anything.
    fn is_late_for(&self, source: &Source, now: Time) -> bool {
        // Each of its lanes brings one answer or a few: the next one is needed to go on at all.
        let is_fleeting = source.request_limit.is_some_and(|limit| limit <= FLEETING_REQUESTS);
        let needs_s = LANE_ROUND_TRIPS * source.rtt_s.unwrap_or(0.0);
        !is_fleeting && self.time_left_s(now).is_some_and(|left_s| left_s < needs_s)
    }

    /// How many sources may be in use at once.
    pub(crate) fn places(&self) -> usize {
        if self.manners.one_source { 1 } else { self.config.max_sources.max(1) }
    }

    /// Whether a source counts as in use. One that waits for its next try or asked for patience
    /// leaves its place to a spare, and so does one that cannot be connected to; a silent one keeps
    /// its lanes besides.
    pub(crate) fn takes_a_place(&self, source: &Source, now: Time) -> bool {
        let connecting = |lane: &Lane| {
            lane.state == LaneState::Opening && now.secs_since(lane.since) > CONNECTS_S
        };
        source.status != SourceStatus::Silent
            && source.quiet_until <= now
            && source.lanes.iter().filter_map(|id| self.lanes.get(id)).any(|it| !connecting(it))
            && self.is_of_use(source)
    }

    /// Whether a lane has no future, so that another one of its source is opened beside it: it is
    /// about to end, or it is kept only because nobody else delivers.
    fn is_spent(&self, lane: &Lane, now: Time) -> bool {
        let source = self.sources.get(lane.source.index());
        let overdue = lane.is_up()
            && !lane.was_answered()
            && lane.awaits_answer()
            && source.is_some_and(|it| now.secs_since(lane.last_progress) > it.patience_s);
        // A server that limits each answer may limit their number too.
        let ends = lane.dropping && source.is_some_and(|it| it.pace.is_none());
        self.manners.tunes_lanes && (ends || overdue)
    }

    /// For lists of small files: whether the sources contacted so far will do.
    fn stay_with_few(&self, now: Time) -> bool {
        let small = self.size_bytes.is_none() || self.undelivered.total_bytes() < SMALL_BYTES;
        let lively = self.lanes.values().any(|lane| match lane.state {
            LaneState::Up => !lane.silent,
            LaneState::Opening => now.secs_since(lane.since) < NEXT_SOURCE_S,
            LaneState::Closing => false,
        });
        small && lively
    }

    /// Policies leave a slow lane idle when faster ones will be done sooner. Those may be unable to
    /// take what is left (it is forbidden to them, or they wait), so when everything has come to
    /// rest, any lane that may must take it.
    fn unstick(&mut self, now: Time) {
        let open = !self.open.is_empty() || !self.doubtful.is_empty();
        let lost = !open && self.size_bytes.is_some() && !self.undelivered.is_empty();
        if !(open || lost) || self.lanes.values().any(|lane| !lane.silent && !lane.queue.is_empty())
        {
            self.ticks_at_rest = 0;
            return;
        }
        self.ticks_at_rest += 1;
        if self.ticks_at_rest < REST_TICKS {
            return;
        }
        if lost {
            // Nobody owes these bytes, and nobody has brought them. The books do not allow that
            // (see `audit`); if it happens all the same, they are fetched rather than waited for.
            self.give_back(Range::new(0, u64::MAX));
        }
        // A whole-file answer is the last resort: it may be far from what is left.
        let mut ids: Vec<(bool, LaneId)> =
            self.lanes.values().map(|lane| (lane.streams, lane.id)).collect();
        ids.sort();
        for (_, id) in ids {
            if self.feed_anyhow(id, now) {
                return;
            }
        }
    }

    fn check_exhausted(&mut self) {
        let missing = self.size_bytes.is_none() || self.misses_something();
        if self.ended
            || self.sources.is_empty()
            || !missing
            || self.sources.iter().any(|source| self.is_of_use(source))
        {
            return;
        }
        // What was asked for before it was forbidden may still come.
        if self.lanes.values().all(|lane| lane.queue.is_empty()) {
            self.ended = true;
            self.actions.push_back(Action::Exhausted);
        }
    }

    /// Whether a source may be asked for any of what is missing, now or later.
    pub(crate) fn is_of_use(&self, source: &Source) -> bool {
        source.is_usable()
            && !source.rests
            && (source.forbidden.is_empty()
                || self.grows
                // Nobody knows yet what is missing.
                || (self.size_bytes.is_none() && !source.forbidden.covers(ALL))
                || self.undelivered.iter().any(|range| !source.forbidden.covers(range)))
    }
}

/// Beyond every file.
const ALL: Range = Range { start: 0, end: u64::MAX };
/// How often everything is looked at. Also the executor's pace for reading the lanes' meters.
pub(crate) const TICK_S: f64 = 0.02;
/// When nothing has come from anybody for so long, back-offs are cut short.
const HASTE_AFTER_S: f64 = 1.0;
/// A source that has not connected after this long leaves its place to others.
const CONNECTS_S: f64 = 1.0;
/// Answers that commonly take long are given this many times that before they count as late.
const ANSWER_SPREAD: f64 = 1.5;
/// A silent lane is closed after this long and four times its patience.
const GIVE_UP_S: f64 = 1.0;
/// Policies that do not watch for silence give a lane up only after a plain time-out.
const PATIENCE_PLAIN_S: f64 = 10.0;
/// So many looks in a row find every lane at rest before one is given work against its policy.
const REST_TICKS: u32 = 3;
/// With everything asked for and less than this to go, a new lane would come too late.
const OPEN_WORTH_S: f64 = 0.5;
/// With less than so many round trips to go, a further lane of a source would come too late: it
/// connects in one, its answer takes another, and in the third it brings next to nothing.
const LANE_ROUND_TRIPS: f64 = 3.0;
/// Up to this size a file of a list is left to one source.
const SMALL_BYTES: u64 = 4 << 20;
/// A source of a list that has not connected after this long is not waited for.
const NEXT_SOURCE_S: f64 = 0.3;
