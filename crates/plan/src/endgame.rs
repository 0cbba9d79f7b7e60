//! Everything ends together: the forecast of the end, tails that go to others, hedges.

use swath_model::{LaneId, Range, RangeSet, SwathId, Time};

use crate::feed::FEED_MAX;
use crate::lane::Lane;
use crate::planner::Planner;
use crate::upkeep::TICK_S;

impl Planner {
    /// When everything would end if each lane went on at its rate and all ended together: the
    /// `T` for which `Σ rate_i · (T − idle_i)` is what is left to fetch, where `idle_i` is the
    /// round trip that a lane without work loses first, and what a loss may cost it last.
    pub(crate) fn forecast(&mut self, now: Time) {
        let mut left_bytes = self.open.total_bytes() as f64 + self.doubtful.total_bytes() as f64;
        let mut lanes: Vec<(f64, f64)> = Vec::with_capacity(self.lanes.len());
        let mut untried: Vec<f64> = Vec::new();
        for lane in self.lanes.values() {
            // A lane about to end brings what it keeps, and helps with nothing else.
            if !lane.is_up() || lane.silent || lane.parked || lane.dropping {
                continue;
            }
            left_bytes += lane.wanted_bytes().saturating_sub(lane.wanted_behind_bytes()) as f64;
            let idle = lane.queue.is_empty();
            // Who may not be asked for anything that is missing will not help to the end.
            if idle
                && self
                    .sources
                    .get(lane.source.index())
                    .is_none_or(|source| source.quiet_until > now || !self.is_of_use(source))
            {
                continue;
            }
            match lane.rate.filter(|&rate| rate > 1.0) {
                Some(rate) => {
                    let skip_bytes = if lane.streams { self.skip_bytes(lane) } else { 0 };
                    let idle_s = lane.trip_s() + skip_bytes as f64 / rate;
                    lanes.push((if idle { idle_s } else { 0.0 } + lane.stop_s, rate));
                }
                None if idle && !lane.streams => untried.push(lane.trip_s()),
                None => {}
            }
        }
        if lanes.is_empty() {
            self.end_at = None;
            return;
        }
        // A lane that nothing is left for, and that was never tried, counts as an average one:
        // whoever has taken everything is late then, and gives some of it back.
        if self.open.is_empty() && !untried.is_empty() {
            let mean = lanes.iter().map(|&(_, rate)| rate).sum::<f64>() / lanes.len() as f64;
            lanes.extend(untried.into_iter().map(|idle_s| (idle_s, mean)));
        }
        self.able_rate = lanes.iter().map(|&(_, rate)| rate).sum();
        lanes.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Water-filling: lanes join in the order of their idle time until the rest no longer pays.
        let (mut rate_sum, mut idle_sum) = (0.0, 0.0);
        let mut end_s = f64::INFINITY;
        for (idle_s, rate) in lanes {
            if idle_s >= end_s {
                break;
            }
            rate_sum += rate;
            idle_sum += rate * idle_s;
            end_s = (left_bytes + idle_sum) / rate_sum;
        }
        // What may yet be told keeps everybody busy for who knows how long.
        let end_s = if self.grows { end_s.max(GROWS_S) } else { end_s };
        self.end_at = Some(now.plus_secs(end_s));
    }

    /// Where everything must end together: the end of the file, or of an ordered consumer's window.
    pub(crate) fn horizon_s(&self, now: Time) -> Option<f64> {
        let left_s = self.time_left_s(now)?;
        match self.config.window_bytes {
            // Lanes that rest because the window is full count: what takes longer than they need
            // for a window is what they rest for.
            Some(window) if self.able_rate > 0.0 => {
                Some(left_s.min(window as f64 / self.able_rate))
            }
            _ => Some(left_s),
        }
    }

    /// What must pass on an idle lane with a whole-file answer before anything missing comes.
    fn skip_bytes(&self, lane: &Lane) -> u64 {
        let at = lane.stream_at();
        match self.undelivered.first_from(at) {
            Some(ahead) => ahead.start.saturating_sub(at),
            // From the beginning then, with a new request.
            None => self.undelivered.first().map_or(0, |first| first.start),
        }
    }

    /// A lane that would end later than the rest gives its tail back.
    pub(crate) fn rebalance(&mut self, now: Time) {
        let Some(left_s) = self.horizon_s(now) else { return };
        let grid = self.config.grid_bytes.max(1);
        let alone = self.sources.iter().filter(|source| source.is_usable()).count() < 2;
        let mut cuts: Vec<(LaneId, Vec<Cut>)> = Vec::new();
        let helpers =
            self.lanes.values().filter(|lane| lane.is_up() && !lane.silent && !lane.parked).count();
        if helpers < 2 {
            return;
        }
        for lane in self.lanes.values() {
            if !lane.is_up() || lane.silent || lane.queue.is_empty() {
                continue;
            }
            let Some(own_s) = lane.may_need_s(lane.coming_bytes(), now) else { continue };
            // Before its first byte nothing is known of how long its server thinks.
            let overdue_s = lane.first_byte_at.map_or(0.0, |_| overdue_s(lane, now));
            let exchange_s = if alone { ALONE_ROUND_TRIPS * lane.trip_s() } else { 0.0 };
            // Where each answer is limited, one burst more or less is nothing, and each exchange costs the
            // server one.
            let bursts_s = LATE_PERIODS * lane.pause_s();
            if own_s + overdue_s <= LATE * left_s + LATE_S + exchange_s + bursts_s {
                continue;
            }
            // What comes until the next look is not worth taking. Besides, where nobody else may
            // have it, taking everything each time would never end.
            let least_s = if overdue_s > 0.0 { 0.0 } else { TICK_S };
            let keep_s = (left_s - overdue_s - lane.stop_s).max(least_s);
            let mut brings_bytes = lane.brings_bytes(keep_s, now) as u64;
            // The burst that comes next comes as a whole.
            brings_bytes = brings_bytes.next_multiple_of(lane.burst_bytes().max(1));
            let mut keep_bytes = brings_bytes
                .saturating_sub(lane.ahead_bytes())
                .saturating_add(lane.wanted_behind_bytes());
            let cell_bytes = if lane.ahead_bytes() > brings_bytes {
                // It will not even have begun with it: however little that is, it is for others.
                self.config.unit_bytes.max(1)
            } else if self.config.window_bytes.is_none()
                && lane.rate.is_some_and(|rate| rate * CELL_S < grid as f64)
            {
                // A lane for which a grid cell is long work is cut finer, if the consumer allows.
                FINE_BYTES.max(self.config.unit_bytes).min(grid)
            } else {
                grid
            };
            let mut lane_cuts = Vec::new();
            for (slot, at) in lane.positions() {
                let left = Range::new(at, slot.end);
                if keep_bytes >= left.len() {
                    keep_bytes -= left.len();
                    continue;
                }
                let cut = (at + keep_bytes).next_multiple_of(cell_bytes).min(slot.end);
                keep_bytes = 0;
                let tail = Range::new(cut, slot.end);
                if tail.len() >= cell_bytes
                    || (!tail.is_empty() && slot.end - slot.start < cell_bytes)
                {
                    lane_cuts.push((slot.swath, cut, tail));
                }
            }
            if !lane_cuts.is_empty() {
                cuts.push((lane.id, lane_cuts));
            }
        }
        for (lane, lane_cuts) in cuts {
            for (swath, cut, tail) in &lane_cuts {
                if let Some(slot) = self.lanes.get_mut(&lane).and_then(|lane| lane.slot_mut(*swath))
                {
                    slot.end = *cut;
                }
                self.give_back(*tail);
            }
            for (swath, cut, _) in lane_cuts {
                self.trim(lane, swath, cut);
            }
        }
    }

    /// The last ranges may be asked for twice: a lane that has nothing to do, or soon will have,
    /// takes what another one is late with, within the waste budget; the first copy wins.
    pub(crate) fn hedge(&mut self, now: Time) {
        let reach = self.reach();
        let more = |set: &RangeSet| set.first().is_some_and(|first| first.start < reach);
        let total = self.config.waste_budget_bytes(self.size_bytes.unwrap_or(0));
        let mut budget = total.saturating_sub(self.hedged_bytes);
        if self.grows
            || more(&self.open)
            || more(&self.doubtful)
            || self.undelivered.is_empty()
            || budget == 0
        {
            return;
        }
        let helpers = self.helpers(now);
        if helpers.is_empty() {
            return;
        }
        let owed: Vec<Due> = self.lanes.values().flat_map(|lane| self.owed(lane, now)).collect();
        let mut tails: Vec<(&[Due], f64)> = owed
            .chunk_by(|one, next| one.lane == next.lane)
            .filter_map(|of_one| Some((of_one, of_one.last()?.due_s)))
            .collect();
        // What is asked for at this look counts as owed too.
        let mut all = owed.clone();
        tails.sort_by(|a, b| b.1.total_cmp(&a.1));
        for id in helpers {
            let Some(helper) = self.lanes.get(&id) else { continue };
            let start_s = helper.trip_s().max(helper.busy_s(now));
            let hedge = tails
                .iter()
                .take_while(|(_, late_s)| start_s < HEDGE_GAIN * late_s)
                .take(TAILS_MAX)
                .map(|(tail, late_s)| {
                    let reserve = if *late_s < URGENT_S { total / 4 } else { 0 };
                    self.hedge_of(tail, helper, start_s, budget.saturating_sub(reserve), &all)
                })
                .find(|hedge| !hedge.is_empty());
            let Some(hedge) = hedge else { continue };
            for due in &hedge {
                budget -= due.range.len();
                self.hedged_bytes += due.range.len();
                self.shared.insert(due.range);
                self.assign(id, due.range, now);
            }
            all.extend(hedge);
        }
    }

    /// Lanes that have nothing to do, or will have nothing before an answer could come: the fastest
    /// first. Nothing else is left to ask for, so the others may be asked as well.
    fn helpers(&self, now: Time) -> Vec<LaneId> {
        let mut helpers: Vec<(LaneId, f64)> = self
            .lanes
            .values()
            .filter(|lane| {
                lane.is_up()
                    && !lane.parked
                    && !lane.dropping
                    && !lane.streams
                    && !lane.silent
                    && lane.busy_s(now) <= lane.trip_s()
            })
            .filter(|lane| {
                self.sources
                    .get(lane.source.index())
                    .is_some_and(|it| it.is_usable() && it.quiet_until <= now)
            })
            .filter_map(|lane| Some((lane.id, lane.rate?)))
            .collect();
        helpers.sort_by(|a, b| b.1.total_cmp(&a.1));
        helpers.into_iter().map(|(id, _)| id).take(HELPERS_MAX).collect()
    }

    /// What a lane owes that nobody has delivered, in order.
    fn owed(&self, lane: &Lane, now: Time) -> Vec<Due> {
        let overdue_s = overdue_s(lane, now);
        let mut bytes = lane.coming_bytes();
        let mut owed: Vec<Due> = Vec::with_capacity(lane.queue.len());
        for (slot, at) in lane.positions().collect::<Vec<_>>().into_iter().rev() {
            let own_s = lane.may_need_s(bytes, now).unwrap_or(bytes as f64 + lane.rtt_s);
            let due_s = own_s.max(lane.hole_s(now)) + overdue_s;
            let at = self.unit_at(at);
            let left = self.undelivered.within(Range::new(at, slot.end.max(at))).last();
            owed.extend(left.map(|range| Due { lane: lane.id, range, due_s }));
            bytes = bytes.saturating_sub(slot.asked_end - slot.start + slot.trailing_bytes);
        }
        owed.reverse();
        owed
    }

    /// What of the end of `tail`, which is what one lane owes, the lane `helper` would bring so much
    /// sooner that asking for it twice pays, for `budget` bytes and beginning `start_s` from now.
    /// Behind a loss that may be all of it, because all comes when the lost packet has come; else
    /// it is the last range.
    fn hedge_of(
        &self,
        tail: &[Due],
        helper: &Lane,
        start_s: f64,
        mut budget: u64,
        all: &[Due],
    ) -> Vec<Due> {
        let rate = helper.rate.unwrap_or(1.0).max(1.0);
        let forbidden = self.sources.get(helper.source.index()).map(|source| &source.forbidden);
        let held_up = tail
            .first()
            .and_then(|due| self.lanes.get(&due.lane))
            .is_some_and(|lane| lane.behind_bytes() > 0);
        let most = if helper.pipelines { FEED_MAX } else { 1 };
        let most = most.saturating_sub(helper.queue.len()).min(if held_up { FEED_MAX } else { 1 });
        let mut own_s = start_s;
        let mut hedge: Vec<Due> = Vec::new();
        for due in tail.iter().rev().filter(|due| due.lane != helper.id) {
            let range = self.affordable(due.range, budget);
            let done_s = own_s + range.len() as f64 / rate;
            if hedge.len() >= most || range.is_empty() || done_s >= HEDGE_GAIN * due.due_s {
                break;
            }
            let may = forbidden.is_none_or(|set| set.bytes_within(range) == 0);
            // Is nobody else about to bring it?
            let alone = self.shared.bytes_within(range) == 0
                || all
                    .iter()
                    .filter(|other| other.range.intersect(range).is_some())
                    .all(|other| other.lane != helper.id && done_s < HEDGE_GAIN * other.due_s);
            if may && alone {
                budget -= range.len();
                own_s = done_s;
                hedge.push(Due { lane: helper.id, range, due_s: done_s });
            } else if !held_up {
                break;
            }
        }
        hedge
    }

    /// Where the unit that holds the byte at `offset` begins.
    pub(crate) fn unit_at(&self, offset: u64) -> u64 {
        offset - offset % self.config.unit_bytes.max(1)
    }

    /// As much of the end of a range as `budget` bytes pay for.
    fn affordable(&self, range: Range, budget: u64) -> Range {
        let Range { start, end } = range;
        if range.len() <= budget {
            return range;
        }
        let grid = self.config.grid_bytes.max(1);
        Range::new((end - budget).next_multiple_of(grid).clamp(start, end), end)
    }

    /// A lane whose link lost its rate may have to drain for long what was taken from it when it
    /// was fast: it is closed then, and what it still owes goes to others.
    pub(crate) fn stop_drains(&mut self, now: Time) {
        let open = !self.open.is_empty();
        let stuck: Vec<LaneId> = self
            .lanes
            .values()
            .filter(|lane| {
                lane.is_up()
                    && !lane.silent
                    && !lane.streams
                    && !lane.dropping
                    && !lane.ramping(now)
            })
            .filter(|lane| {
                let drain_bytes = lane.drain_bytes();
                drain_bytes > 0
                    && (open || lane.wanted_bytes() > 0)
                    && lane
                        .may_need_s(drain_bytes, now)
                        .is_some_and(|drain_s| drain_s > DRAIN_ROUND_TRIPS * lane.rtt_s + DRAIN_S)
            })
            .map(|lane| lane.id)
            .collect();
        for id in stuck {
            self.close(id);
        }
    }
}

/// A range that a lane owes, and how long its last byte will take, counting a pause that the lane
/// is in against it.
#[derive(Clone, Copy, Debug)]
struct Due {
    lane: LaneId,
    range: Range,
    due_s: f64,
}

/// A swath's new end and the tail behind it.
type Cut = (SwathId, u64, Range);

/// What a pause that a lane is in counts against it.
fn overdue_s(lane: &Lane, now: Time) -> f64 {
    let paused_s = now.secs_since(lane.heard_at);
    // Where each answer is limited there is a pause in each period.
    let usual_s = lane.trip_s().max(lane.pause_s());
    if paused_s > OVERDUE_ROUND_TRIPS * usual_s + OVERDUE_S { 2.0 * paused_s } else { 0.0 }
}

/// A lane may end this many times later than the rest …
const LATE: f64 = 1.1;
/// … and this much, before its tail is taken: below it the exchange costs more than it brings.
const LATE_S: f64 = 0.03;
/// Lanes of one source share its link: when one ends, the others get faster, and whoever takes a
/// tail waits for a round trip. Where there is no other source, a lane must be this many round
/// trips later than the rest.
const ALONE_ROUND_TRIPS: f64 = 2.0;
/// Where each answer is limited, a lane must be this many periods later than the rest.
const LATE_PERIODS: f64 = 2.0;
/// Data comes in bursts up to a round trip apart; a pause beyond this many …
const OVERDUE_ROUND_TRIPS: f64 = 1.2;
/// … and this counts against a lane.
const OVERDUE_S: f64 = 0.02;
/// A lane that needs longer than this for a grid cell is cut finer …
const CELL_S: f64 = 0.5;
/// … down to what disks write past their cache.
const FINE_BYTES: u64 = 4096;
/// A file that may still grow counts as not over for this long at least.
const GROWS_S: f64 = 3.0;
/// What delays everything by this much may use the whole waste budget.
const URGENT_S: f64 = 0.5;
/// Longer than this many round trips (twice what a new connection costs) …
const DRAIN_ROUND_TRIPS: f64 = 10.0;
/// … and this nothing is drained.
const DRAIN_S: f64 = 0.5;
/// At one look the fastest so many lanes are asked to help …
const HELPERS_MAX: usize = 64;
/// … each with one of the latest so many tails: the next look is near.
const TAILS_MAX: usize = 16;
/// A hedge must promise to end before this part of the time the first copy needs.
const HEDGE_GAIN: f64 = 0.7;
