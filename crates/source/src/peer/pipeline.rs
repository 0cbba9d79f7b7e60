//! How many requests are outstanding on a connection: as many as keep it busy for a round trip.
//!
//! The rate is measured while requests are outstanding. The pipeline has twice what that rate needs, and
//! while the rate grows four times: the sender is ahead of what has come by a round trip, and must
//! have more to send all the time, or its congestion control stops growing.

use std::time::Duration;

use swath_formats::peer::BLOCK_BYTES;
use tokio::time::Instant;

/// The depth of one connection's pipeline, in requests of a block.
#[derive(Debug)]
pub(super) struct Pipeline {
    depth: usize,
    /// A peer needs so long to answer, beside the round trip.
    answer: Duration,
    window_begin: Instant,
    window_bytes: u64,
    /// The rate of the last window.
    bytes_per_s: f64,
}

impl Pipeline {
    /// Returns the pipeline to a peer that answers within this time, beside the round trip.
    pub fn new(answer: Duration, now: Instant) -> Pipeline {
        Pipeline { depth: FIRST, answer, window_begin: now, window_bytes: 0, bytes_per_s: 0.0 }
    }

    /// Returns how many requests may be outstanding.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Begins to measure anew: nothing was outstanding until now.
    pub fn restart(&mut self, now: Instant) {
        (self.window_begin, self.window_bytes) = (now, 0);
    }

    /// Counts what came, and fits the depth to the rate at the end of a window.
    pub fn came(&mut self, bytes: u64, rtt: Duration, now: Instant) {
        self.window_bytes += bytes;
        let window = now.duration_since(self.window_begin);
        if window < rtt.max(WINDOW_MIN).max(self.answer / 4) {
            return;
        }
        let rate_bytes_per_s = self.window_bytes as f64 / window.as_secs_f64();
        let under_way_bytes = rate_bytes_per_s * rtt.max(self.answer).as_secs_f64();
        let grows = rate_bytes_per_s > GROWS * self.bytes_per_s;
        let headroom = if grows { GROWING_HEADROOM } else { HEADROOM };
        self.bytes_per_s = rate_bytes_per_s;
        let wanted = (headroom * under_way_bytes / f64::from(BLOCK_BYTES)) as usize;
        // One slow window says little; a full pipeline is quickly rebuilt anyway.
        self.depth = wanted.max(self.depth / 2).clamp(LEAST, MOST);
        self.restart(now);
    }
}

/// So that a rate may grow.
const HEADROOM: f64 = 2.0;
/// So that a rate that grows may double in each round trip.
const GROWING_HEADROOM: f64 = 4.0;
/// A rate of so many times the last one grows.
const GROWS: f64 = 1.2;
/// Half a mebibyte: what a slow peer answers within seconds, and enough to show a fast one.
const FIRST: usize = 32;
/// Peers answer a few requests at a time, however near they are.
const LEAST: usize = 16;
/// As many as any peer queues, and 128 MiB: enough for 10 Gbit/s over 100 ms.
const MOST: usize = 8192;
/// Rates are measured over at least so long.
const WINDOW_MIN: Duration = Duration::from_millis(50);
/// swath reads from its disk …
pub(super) const ANSWER_OF_SWATH: Duration = Duration::from_millis(10);
/// … and others answer at intervals, transmission twice a second: with fewer requests it brought half a
/// megabyte per second.
pub(super) const ANSWER_OF_OTHERS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that carries `rate` bytes/s with a round trip of `rtt_ms`; the depth after
    /// twenty round trips, or three seconds.
    fn depth_at(rate: f64, rtt_ms: u64) -> usize {
        let rtt = Duration::from_millis(rtt_ms);
        let mut now = Instant::now();
        let mut pipeline = Pipeline::new(ANSWER_OF_SWATH, now);
        let step = Duration::from_millis(5);
        for _ in 0..(20 * rtt_ms / 5).max(600) {
            now += step;
            let limit = pipeline.depth() as f64 * f64::from(BLOCK_BYTES)
                / (rtt.max(Duration::from_millis(1))).as_secs_f64();
            pipeline.came((rate.min(limit) * step.as_secs_f64()) as u64, rtt, now);
        }
        pipeline.depth()
    }

    #[test]
    fn the_depth_follows_rate_and_round_trip() {
        // 1 Gbit/s over 100 ms has 763 blocks under way, over 200 ms twice as many.
        assert!((1400..1700).contains(&depth_at(125e6, 100)), "{}", depth_at(125e6, 100));
        assert!((2900..3300).contains(&depth_at(125e6, 200)), "{}", depth_at(125e6, 200));
        assert_eq!(depth_at(1e6, 20), LEAST, "slow");
        assert_eq!(depth_at(0.0, 100), LEAST, "a peer that stalls");
        assert_eq!(depth_at(1e12, 1000), MOST);
    }

    /// Returns how many eighths of a round trip a sender in slow start needs until all that it sends in a
    /// round trip is `wanted` bytes; `limits` is whether the pipeline limits what is requested.
    fn slow_start(wanted: u64, limits: bool) -> usize {
        const HALF: usize = 4;
        let rtt = Duration::from_millis(200);
        let mut now = Instant::now();
        let mut pipeline = Pipeline::new(ANSWER_OF_SWATH, now);
        let (mut requests, mut data) = (vec![0; HALF], vec![0; HALF]);
        let mut acknowledged = vec![0; HALF];
        let (mut window, mut unacknowledged, mut waiting, mut outstanding) = (15_000, 0, 0, 0);
        for step in 0.. {
            now += rtt / 8;
            let came = data.remove(0);
            outstanding -= came;
            acknowledged.push(came);
            pipeline.came(came, rtt, now);
            let most = if limits { pipeline.depth() as u64 } else { 1 << 30 };
            let more = (most * u64::from(BLOCK_BYTES)).saturating_sub(outstanding);
            outstanding += more;
            requests.push(more);
            waiting += requests.remove(0);
            let confirmed = acknowledged.remove(0);
            unacknowledged -= confirmed;
            // Only a sender that had enough to send may send more.
            window += if waiting > 0 { confirmed } else { 0 };
            let sent = waiting.min((window - unacknowledged).div_ceil(2));
            (waiting, unacknowledged) = (waiting - sent, unacknowledged + sent);
            data.push(sent);
            if unacknowledged >= wanted {
                return step;
            }
        }
        unreachable!()
    }

    #[test]
    fn a_peer_that_answers_twice_a_second_is_kept_busy() {
        let mut now = Instant::now();
        let mut pipeline = Pipeline::new(ANSWER_OF_OTHERS, now);
        let mut bytes = 0;
        for _ in 0..10 {
            // All that was asked for comes at once, as far as the link carries it.
            now += Duration::from_millis(500);
            bytes = (pipeline.depth() as u64 * u64::from(BLOCK_BYTES)).min(6_000_000);
            pipeline.came(bytes, Duration::from_millis(1), now);
        }
        assert_eq!(bytes, 6_000_000);
    }

    #[test]
    fn a_sender_in_slow_start_is_not_held_back() {
        let (free, limited) = (slow_start(4 << 20, false), slow_start(4 << 20, true));
        assert!(limited <= free + 8, "{limited} eighths of a round trip instead of {free}");
    }
}
