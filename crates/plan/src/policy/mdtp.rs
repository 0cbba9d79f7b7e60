//! MDTP as published: Algorithm 1 and the geometric-mean rule of Abdollah, Partridge and
//! Shannigrahi, "MDTP: An Adaptive Multi-Source Data Transfer Protocol" (arXiv 2505.09597).
//!
//! | paper | here |
//! | --- | --- |
//! | initial chunk `C` for every server in round 1 | [`Mdtp::initial_bytes`], until a server's first throughput is known |
//! | `th_i`, throughput of server *i*, renewed after every chunk | [`Mdtp::throughput`], chunk bytes over the time from request to last byte |
//! | `GM = (Π th_i)^(1/N)` | [`Mdtp::geometric_mean`] |
//! | fast servers: `th_i ≥ GM`; the fastest of them takes `L` | `next`, first branch |
//! | `T = L / th_fastest`, every other server `round(T · th_i)` | `next`, second branch |
//! | a free server takes its next chunk at once from the global offset | the planner hands out from the front |
//!
//! One connection per server, every range requested once, the next request only after the last
//! byte of the one before: what the paper's prototype does, idle round trip included. There is no
//! end game in the paper and none here.

use std::collections::BTreeMap;

use swath_model::SourceId;

use super::{LaneView, Policy, PolicyCapabilities, WholeView};

/// The `mdtp` policy.
pub(super) struct Mdtp {
    /// The paper's `C` in bytes.
    initial_bytes: u64,
    /// The paper's `L` in bytes.
    large_bytes: u64,
    /// Last observed throughput of each server, bytes per second.
    throughput: BTreeMap<SourceId, f64>,
}

impl Mdtp {
    pub(super) fn new(initial_bytes: u64, large_bytes: u64) -> Self {
        Self {
            initial_bytes: initial_bytes.max(1),
            large_bytes: large_bytes.max(1),
            throughput: BTreeMap::new(),
        }
    }

    /// Returns the geometric mean of all known throughputs, computed through logarithms so that no
    /// product overflows.
    fn geometric_mean(&self) -> f64 {
        let sum: f64 = self.throughput.values().map(|th| th.ln()).sum();
        (sum / self.throughput.len().max(1) as f64).exp()
    }
}

impl Policy for Mdtp {
    fn capabilities(&self) -> PolicyCapabilities {
        PolicyCapabilities {
            rebalances: false,
            repeats_chunks: false,
            tunes_lanes: false,
            watches_silence: false,
            one_source: false,
        }
    }

    fn next(&mut self, lane: &LaneView, _whole: &WholeView) -> Option<u64> {
        if lane.queued > 0 {
            return None;
        }
        let Some(&own) = self.throughput.get(&lane.source) else { return Some(self.initial_bytes) };
        let mean = self.geometric_mean();
        // The mean never exceeds the maximum, so there is always a fast server; rounding in the
        // logarithm must not lose it.
        let fastest = self
            .throughput
            .values()
            .copied()
            .filter(|&th| th >= mean * (1.0 - 1e-9))
            .fold(own, f64::max);
        if own >= fastest {
            return Some(self.large_bytes);
        }
        let round_s = self.large_bytes as f64 / fastest;
        Some(((round_s * own).round() as u64).max(1))
    }

    fn swath_ended(&mut self, source: SourceId, bytes: u64, took_s: f64) {
        if bytes > 0 && took_s > 0.0 {
            self.throughput.insert(source, bytes as f64 / took_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(source: u32) -> LaneView {
        LaneView {
            source: SourceId(source),
            rate_bytes_per_s: None,
            brought_bytes: 0,
            peer_rate_bytes_per_s: 0.0,
            rtt_s: 0.05,
            stop_s: 0.0,
            queued: 0,
            backlog_bytes: 0,
            backlog_s: 0.0,
            pipelines: true,
            ramping: false,
            on_probation: false,
            requests_max: None,
            paced: false,
            answer_least_bytes: 0,
        }
    }

    #[test]
    fn sizes_follow_the_published_rule() {
        let mut mdtp = Mdtp::new(4_000_000, 40_000_000);
        let whole = WholeView::default();
        assert_eq!(mdtp.next(&lane(0), &whole), Some(4_000_000));
        mdtp.swath_ended(SourceId(0), 4_000_000, 1.0);
        mdtp.swath_ended(SourceId(1), 4_000_000, 0.25);
        mdtp.swath_ended(SourceId(2), 4_000_000, 0.5);
        assert_eq!(mdtp.next(&lane(1), &whole), Some(40_000_000), "the fastest takes L");
        assert_eq!(mdtp.next(&lane(0), &whole), Some(10_000_000), "T = 2.5 s at 4 MB/s");
        assert_eq!(mdtp.next(&lane(2), &whole), Some(20_000_000));
        assert!((mdtp.geometric_mean() / 8e6 - 1.0).abs() < 1e-9);
        let busy = LaneView { queued: 1, ..lane(1) };
        assert_eq!(mdtp.next(&busy, &whole), None, "no request before the last byte");
    }
}
