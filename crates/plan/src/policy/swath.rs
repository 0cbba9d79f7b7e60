//! swath's own policy: size by time, no idle round trip, everything ends together.
//!
//! A lane gets more as soon as its backlog would last less than its round trip plus a margin. The
//! amount is its rate times a time that is short enough to react to changes and shrinks as the end
//! nears (guided self-scheduling), and never more than its share of what is left.

use super::{LaneView, Policy, PolicyCapabilities, WholeView};

/// The `swath` policy.
pub(super) struct Swath;

impl Policy for Swath {
    fn capabilities(&self) -> PolicyCapabilities {
        PolicyCapabilities {
            rebalances: true,
            repeats_chunks: false,
            tunes_lanes: true,
            watches_silence: true,
            one_source: false,
        }
    }

    fn next(&mut self, lane: &LaneView, whole: &WholeView) -> Option<u64> {
        let grid = whole.grid_bytes;
        if lane.on_probation {
            return (lane.queued == 0).then_some(PROBATION_GRIDS * grid);
        }
        // In slow start a sender doubles what it sends each round trip. It must not run out before
        // its rate is known.
        let runs_out = lane.pipelines
            && lane.queued < DEPTH_MAX
            && (lane.ramping || lane.rate_bytes_per_s.is_none())
            && lane.backlog_bytes < (FIRST_AHEAD * lane.brought_bytes).min(FIRST_MAX_BYTES);
        let Some(rate) = lane.rate_bytes_per_s else {
            // Another lane of a known source is asked for about what one lane brings at a time; a
            // source's first lane for a part of the whole.
            let share = if lane.peer_rate_bytes_per_s > 0.0 {
                (FIRST_S.max(3.0 * lane.rtt_s) * lane.peer_rate_bytes_per_s) as u64
            } else {
                whole.undelivered_bytes / (16 * whole.sources.max(1) as u64)
            };
            let mut first = share.clamp(FIRST_MIN_BYTES, FIRST_MAX_BYTES);
            if lane.peer_rate_bytes_per_s > 0.0 && whole.time_left_s.is_finite() && !whole.in_order
            {
                // Here too, what this lane cannot bring before the end is left to others.
                let useful = lane.peer_rate_bytes_per_s * (whole.time_left_s - lane.rtt_s);
                if useful * HOPELESS < grid as f64 {
                    return None;
                }
                first = first.min((useful as u64).max(grid));
            }
            // If bytes come too fast to measure, ask for as many again.
            let most = (SWATH_MAX_BYTES as u64)
                .min(whole.undelivered_bytes / (GUIDE as u64 * whole.sources.max(1) as u64));
            return (lane.queued == 0 || runs_out)
                .then_some(first.max(lane.brought_bytes.min(most)));
        };
        if lane.queued > 0 && (!lane.pipelines || lane.queued >= DEPTH_MAX) {
            return None;
        }
        let lasts = lane.backlog_s >= AHEAD_ROUND_TRIPS * lane.rtt_s + AHEAD_S;
        if lane.queued > 0 && lasts && !runs_out {
            return None;
        }
        // In slow start the rate doubles within a round trip.
        let haste = if lane.ramping { 2.0 } else { 1.0 };
        // All lanes end together `time_left_s` from now; this is what this lane can use of that.
        // Before its answer there is a round trip, partly covered by bytes in flight. And if losses
        // stop the lane at times, its last bytes may come that much later.
        let idle_s = (lane.rtt_s - lane.backlog_s).max(0.0) + lane.stop_s;
        let share = haste * rate * (whole.time_left_s - idle_s) - lane.backlog_bytes as f64;
        // What a lane cannot bring in time is left to others. If no other lane may have it, the
        // planner assigns it anyway.
        if share <= 0.0 || share * HOPELESS < grid as f64 {
            return None;
        }
        if lane.paced {
            // Each answer begins with a burst that the server's owner did not mean to give.
            let whole_share = (PACED_PART * share).max(share.min(rate)) as u64;
            return Some(whole_share.max(lane.answer_least_bytes).max(grid));
        }
        let longest_s = if lane.requests_max.is_some_and(|max| max <= SINGLE_REQUESTS) {
            // Each answer costs a connection and its slow start; trimming it costs nothing more.
            f64::INFINITY
        } else if lane.requests_max.is_some_and(|max| max < FEW_REQUESTS) {
            SWATH_LONG_S
        } else if lane.pipelines {
            SWATH_S
        } else {
            (10.0 * lane.rtt_s).clamp(SWATH_S, SWATH_LONG_S)
        };
        let swath_s = (whole.time_left_s / GUIDE).min(longest_s);
        let young_bytes = if runs_out { lane.brought_bytes as f64 } else { 0.0 };
        let bytes = (haste * rate * swath_s).max(young_bytes).min(share).min(SWATH_MAX_BYTES);
        Some((bytes as u64).max(lane.answer_least_bytes).max(grid))
    }
}

/// The next request leaves when the backlog is shorter than this many round trips …
const AHEAD_ROUND_TRIPS: f64 = 1.5;
/// … plus this, for delays at the server and here.
const AHEAD_S: f64 = 0.04;
/// A lane gets nothing if a grid cell is more than this many times its share.
const HOPELESS: f64 = 8.0;
/// Longest swath in the steady state. Pipelining makes short swaths free, and long ones bind us
/// when the rate falls.
const SWATH_S: f64 = 0.3;
/// Longest swath if each request costs more (no pipelining, few requests per connection).
const SWATH_LONG_S: f64 = 2.0;
/// With fewer requests per connection than this, swaths become longer.
const FEW_REQUESTS: u32 = 200;
/// With no more than this, they are as long as guided self-scheduling allows.
const SINGLE_REQUESTS: u32 = 2;
/// If each answer is limited, this part of the share is requested at once; the rest corrects the
/// forecast for the others.
const PACED_PART: f64 = 0.9;
/// Each swath takes this part of the time left.
const GUIDE: f64 = 3.0;
/// Largest swath, so that one lane on a very fast path does not run far ahead of the others.
const SWATH_MAX_BYTES: f64 = (64u64 << 20) as f64;
/// Most requests waiting on one lane.
const DEPTH_MAX: usize = 8;
/// First request on another lane of a source, in time (but at least three round trips).
const FIRST_S: f64 = 0.5;
/// First request on a lane of unknown rate: enough that a fast lane does not idle for a round trip,
/// little enough that a slow one does not hold up the end.
const FIRST_MIN_BYTES: u64 = 256 << 10;
const FIRST_MAX_BYTES: u64 = 4 << 20;
/// While a lane comes up to speed, this many times the bytes it brought are requested ahead.
const FIRST_AHEAD: u64 = 2;
/// Size of a request to a source on probation, in grid units.
const PROBATION_GRIDS: u64 = 4;
