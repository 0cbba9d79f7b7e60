//! Gives tails of late lanes to others, and closes lanes that would drain for too long.

use swath_model::{LaneId, Range, SwathId};

use crate::ledger::Ledger;
use crate::planner::TICK_S;

/// Takes the tails of lanes that would end later than the rest.
pub(crate) fn rebalance(ledger: &mut Ledger, left_s: f64) {
    let (config, now) = (&ledger.config, ledger.now);
    let grid = config.grid_bytes.max(1);
    let alone = ledger.sources.usable() < 2;
    let mut cuts: Vec<(LaneId, Vec<Cut>)> = Vec::new();
    let helpers = ledger
        .lanes
        .iter()
        .filter(|lane| lane.is_up() && !lane.silent && !lane.duty.parked)
        .count();
    if helpers < 2 {
        return;
    }
    for lane in ledger.lanes.iter() {
        if !lane.is_up() || lane.silent || lane.is_idle() {
            continue;
        }
        let Some(own_s) = lane.speed.may_need_s(lane.pipe.coming_bytes(), now) else { continue };
        // Before its first byte, the server's response time is unknown.
        let overdue_s = lane.speed.first_byte_at.map_or(0.0, |_| lane.overdue_s(now));
        let exchange_s = if alone { ALONE_ROUND_TRIPS * lane.speed.trip_s() } else { 0.0 };
        // If each answer is limited, one burst more or less does not matter, but each exchange
        // costs the server a burst.
        let bursts_s = LATE_PERIODS * lane.speed.pace.pause_s();
        if own_s + overdue_s <= in_time_s(left_s) + exchange_s + bursts_s {
            continue;
        }
        // What arrives before the next tick is not worth taking. And if no other source may have
        // the range, taking all of it each time would never end.
        let least_s = if overdue_s > 0.0 { 0.0 } else { TICK_S };
        let keep_s = (left_s - overdue_s - lane.pauses.stop_s).max(least_s);
        let mut brings_bytes = lane.speed.brings_bytes(keep_s, now) as u64;
        // The next burst comes as a whole.
        brings_bytes = brings_bytes.next_multiple_of(lane.speed.pace.burst_bytes().max(1));
        let mut keep_bytes = brings_bytes
            .saturating_sub(lane.pipe.ahead_bytes())
            .saturating_add(lane.pipe.wanted_out_of_order_bytes());
        let cell_bytes = if lane.pipe.ahead_bytes() > brings_bytes {
            // It will not even have begun by then: give away all of it, however little.
            config.unit_bytes.max(1)
        } else if config.window_bytes.is_none()
            && lane.speed.rate.is_some_and(|rate| rate * CELL_S < grid as f64)
        {
            // A lane that needs long for a grid cell is cut finer, if the consumer allows.
            FINE_BYTES.max(config.unit_bytes).min(grid)
        } else {
            grid
        };
        let mut lane_cuts = Vec::new();
        for (slot, at) in lane.pipe.positions() {
            let left = Range::new(at, slot.end);
            if keep_bytes >= left.len() {
                keep_bytes -= left.len();
                continue;
            }
            let cut = (at + keep_bytes).next_multiple_of(cell_bytes).min(slot.end);
            keep_bytes = 0;
            let tail = Range::new(cut, slot.end);
            if tail.len() >= cell_bytes || (!tail.is_empty() && slot.end - slot.start < cell_bytes)
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
            if let Some(slot) =
                ledger.lanes.get_mut(lane).and_then(|lane| lane.pipe.slot_mut(*swath))
            {
                slot.end = *cut;
            }
            ledger.give_back(*tail);
        }
        for (swath, cut, _) in lane_cuts {
            ledger.trim(lane, swath, cut);
        }
    }
}

/// Closes lanes whose link lost its rate and that would have to drain for long; what they still owe
/// goes to others.
pub(crate) fn stop_drains(ledger: &mut Ledger) {
    let (open, now) = (!ledger.coverage.open.is_empty(), ledger.now);
    let stuck: Vec<LaneId> = ledger
        .lanes
        .iter()
        .filter(|lane| {
            lane.is_up()
                && !lane.silent
                && !lane.pipe.streams
                && !lane.duty.dropping
                && !lane.speed.ramping(now)
        })
        .filter(|lane| {
            let drain_bytes = lane.pipe.drain_bytes();
            drain_bytes > 0
                && (open || lane.pipe.wanted_bytes() > 0)
                && lane
                    .speed
                    .may_need_s(drain_bytes, now)
                    .is_some_and(|drain_s| drain_s > DRAIN_ROUND_TRIPS * lane.speed.rtt_s + DRAIN_S)
        })
        .map(|lane| lane.id)
        .collect();
    for id in stuck {
        ledger.close(id);
    }
}

/// Returns how late a lane may end and still be in time if everything ends `left_s` from now.
pub(crate) fn in_time_s(left_s: f64) -> f64 {
    LATE * left_s + LATE_S
}

/// A swath's new end and the tail behind it.
type Cut = (SwathId, u64, Range);

/// A lane may end this many times later than the rest …
const LATE: f64 = 1.1;
/// … plus this, before its tail is taken. Below that the exchange costs more than it gains.
const LATE_S: f64 = 0.03;
/// Round trips that a lane may end later than the rest if there is no other source. Lanes of one
/// source share its link: when one ends the others get faster, and a lane that takes a tail waits
/// for a round trip.
const ALONE_ROUND_TRIPS: f64 = 2.0;
/// If each answer is limited, a lane may end this many periods later than the rest.
const LATE_PERIODS: f64 = 2.0;
/// A lane that needs longer than this for a grid cell is cut finer …
const CELL_S: f64 = 0.5;
/// … down to the size that disks write past their cache.
const FINE_BYTES: u64 = 4096;
/// Longest drain, in round trips (twice the cost of a new connection) …
const DRAIN_ROUND_TRIPS: f64 = 10.0;
/// … plus this.
const DRAIN_S: f64 = 0.5;
