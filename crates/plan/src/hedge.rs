//! Requests the last ranges twice if that brings the end nearer.

use swath_model::{LaneId, Range, RangeSet};

use crate::config::Config;
use crate::coverage::unit_at;
use crate::feeder::FEED_MAX;
use crate::lane::Lane;
use crate::ledger::Ledger;
use crate::rebalance::in_time_s;

/// What was requested a second time to shorten the end.
#[derive(Default)]
pub(crate) struct Hedges {
    /// Bytes so far.
    pub bytes: u64,
}

impl Hedges {
    /// Hedges the last ranges: a lane that is idle, or soon will be, also requests what another
    /// lane is late with, within the waste budget. The first copy wins. Everything should end
    /// `left_s` from now.
    pub fn hedge(&mut self, ledger: &mut Ledger, left_s: f64) {
        let (config, coverage) = (&ledger.config, &ledger.coverage);
        let reach = coverage.reach(config);
        let more = |set: &RangeSet| set.first().is_some_and(|first| first.start < reach);
        let total = config.waste_budget_bytes(coverage.size_bytes.unwrap_or(0));
        let mut budget = total.saturating_sub(self.bytes);
        if coverage.grows
            || more(&coverage.open)
            || more(&coverage.doubtful)
            || coverage.undelivered.is_empty()
            || budget == 0
        {
            return;
        }
        let helpers = helpers(ledger);
        if helpers.is_empty() {
            return;
        }
        let owed: Vec<Due> = ledger.lanes.iter().flat_map(|lane| owed(lane, ledger)).collect();
        let mut tails: Vec<(&[Due], f64)> = owed
            .chunk_by(|one, next| one.lane == next.lane)
            .filter_map(|of_one| Some((of_one, of_one.last()?.due_s)))
            .collect();
        // Hedges of this tick count as owed too.
        let mut all = owed.clone();
        tails.sort_by(|a, b| b.1.total_cmp(&a.1));
        for id in helpers {
            let Some(helper) = ledger.lanes.get(id) else { continue };
            let start_s = helper.speed.trip_s().max(helper.busy_s(ledger.now));
            let hedge = tails
                .iter()
                .take_while(|(_, late_s)| start_s < HEDGE_GAIN * late_s)
                .take(TAILS_MAX)
                .map(|(tail, late_s)| {
                    let reserve = if *late_s < URGENT_S { total / 4 } else { 0 };
                    let budget = budget.saturating_sub(reserve);
                    hedge_of(tail, helper, (start_s, left_s), budget, &all, ledger)
                })
                .find(|hedge| !hedge.is_empty());
            let Some(hedge) = hedge else { continue };
            for due in &hedge {
                budget -= due.range.len();
                self.bytes += due.range.len();
                ledger.ask_again(id, due.range);
            }
            all.extend(hedge);
        }
    }
}

/// Returns lanes that are idle, or will be before an answer could come, the fastest first. Nothing
/// else is left to request, so the others may be asked as well.
fn helpers(ledger: &Ledger) -> Vec<LaneId> {
    let now = ledger.now;
    let mut helpers: Vec<(LaneId, f64)> = ledger
        .lanes
        .iter()
        .filter(|lane| {
            lane.is_free() && !lane.pipe.streams && lane.busy_s(now) <= lane.speed.trip_s()
        })
        .filter(|lane| {
            ledger.source_of(lane).is_some_and(|it| it.is_usable() && it.backoff.quiet_until <= now)
        })
        .filter_map(|lane| Some((lane.id, lane.speed.rate?)))
        .collect();
    helpers.sort_by(|a, b| b.1.total_cmp(&a.1));
    helpers.into_iter().map(|(id, _)| id).take(HELPERS_MAX).collect()
}

/// Returns the undelivered ranges that a lane owes, in order.
fn owed(lane: &Lane, ledger: &Ledger) -> Vec<Due> {
    let now = ledger.now;
    let overdue_s = lane.overdue_s(now);
    let mut bytes = lane.pipe.coming_bytes();
    let mut owed: Vec<Due> = Vec::with_capacity(lane.pipe.queue.len());
    for (slot, at) in lane.pipe.positions().collect::<Vec<_>>().into_iter().rev() {
        let own_s = lane.speed.may_need_s(bytes, now).unwrap_or(bytes as f64 + lane.speed.rtt_s);
        let due_s = own_s.max(lane.hole_s(now)) + overdue_s;
        let at = unit_at(at, &ledger.config);
        let left = ledger.coverage.undelivered.within(Range::new(at, slot.end.max(at))).last();
        owed.extend(left.map(|range| Due { lane: lane.id, range, due_s }));
        bytes = bytes.saturating_sub(slot.asked_end - slot.start + slot.trailing_bytes);
    }
    owed.reverse();
    owed
}

/// Returns the ranges from the end of `tail` (what one lane owes) that `helper` would bring enough
/// sooner to pay for the second request: at most `budget` bytes, starting `start_s` from now, if
/// everything ends `left_s` from now. Behind a loss that may be all of it, as all arrives with the
/// lost packet; otherwise it is the last range.
fn hedge_of(
    tail: &[Due],
    helper: &Lane,
    (start_s, left_s): (f64, f64),
    mut budget: u64,
    all: &[Due],
    ledger: &Ledger,
) -> Vec<Due> {
    let rate = helper.speed.rate.unwrap_or(1.0).max(1.0);
    let holds = ledger.holds(helper);
    let held_up = tail
        .first()
        .and_then(|due| ledger.lanes.get(due.lane))
        .is_some_and(|lane| lane.pipe.out_of_order_bytes() > 0);
    let most = if helper.pipe.pipelines { FEED_MAX } else { 1 };
    let most = most.saturating_sub(helper.pipe.queue.len()).min(if held_up { FEED_MAX } else { 1 });
    // More than it brings in time would be taken from it at the next tick and waste the budget,
    // while others take the rest meanwhile.
    let in_time = helper.speed.brings_bytes(in_time_s(left_s), ledger.now) as u64;
    let most_bytes = if held_up { u64::MAX } else { in_time.max(ledger.config.grid_bytes) };
    let mut own_s = start_s;
    let mut hedge: Vec<Due> = Vec::new();
    for due in tail.iter().rev().filter(|due| due.lane != helper.id) {
        let range = affordable(due.range, budget.min(most_bytes), &ledger.config);
        let done_s = own_s + range.len() as f64 / rate;
        if hedge.len() >= most || range.is_empty() || done_s >= HEDGE_GAIN * due.due_s {
            break;
        }
        let may = holds.is_none_or(|holds| holds.may_all(range));
        // Whether no other lane is about to bring it.
        let alone = ledger.coverage.shared.bytes_within(range) == 0
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

/// Returns as much of a range's end as `budget` bytes pay for.
fn affordable(range: Range, budget: u64, config: &Config) -> Range {
    let Range { start, end } = range;
    if range.len() <= budget {
        return range;
    }
    let grid = config.grid_bytes.max(1);
    Range::new((end - budget).next_multiple_of(grid).clamp(start, end), end)
}

/// A range that a lane owes, and the time until its last byte, with a penalty for a pause in
/// progress.
#[derive(Clone, Copy, Debug)]
struct Due {
    lane: LaneId,
    range: Range,
    due_s: f64,
}

/// Tails later than this may use the whole waste budget.
const URGENT_S: f64 = 0.5;
/// Most lanes, the fastest first, that are asked to help in one tick …
const HELPERS_MAX: usize = 64;
/// … each with one of this many latest tails; the next tick comes soon.
const TAILS_MAX: usize = 16;
/// A hedge must end within this part of the time that the first copy needs.
const HEDGE_GAIN: f64 = 0.7;
