//! One source, one stream: what `curl` does, with this program's resume and verification.

use super::{LaneView, Policy, PolicyCapabilities, WholeView};

/// The `single` policy.
pub(super) struct Single;

impl Policy for Single {
    fn capabilities(&self) -> PolicyCapabilities {
        PolicyCapabilities {
            rebalances: false,
            repeats_chunks: false,
            tunes_lanes: false,
            watches_silence: false,
            one_source: true,
        }
    }

    fn next(&mut self, lane: &LaneView, whole: &WholeView) -> Option<u64> {
        // The rest of the file follows the probe without a pause.
        (lane.queued <= 1 && (lane.pipelines || lane.queued == 0))
            .then_some(whole.size_bytes.max(1))
    }
}
