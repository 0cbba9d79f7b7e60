//! Equal chunks, the next one when a source is free; when no chunk is left, idle sources ask for
//! the chunks that are still being downloaded (Rodriguez & Biersack, "Dynamic parallel access to
//! replicated content in the Internet", IEEE/ACM ToN 2002). The baseline called static chunking
//! in the MDTP paper.

use super::{LaneView, Policy, PolicyCapabilities, WholeView};

/// The `fixed` policy.
pub(super) struct Fixed {
    /// Size of each chunk in bytes.
    pub chunk_bytes: u64,
}

impl Policy for Fixed {
    fn capabilities(&self) -> PolicyCapabilities {
        PolicyCapabilities {
            rebalances: false,
            repeats_chunks: true,
            tunes_lanes: false,
            watches_silence: false,
            one_source: false,
        }
    }

    fn next(&mut self, lane: &LaneView, _whole: &WholeView) -> Option<u64> {
        (lane.queued == 0).then_some(self.chunk_bytes)
    }
}
