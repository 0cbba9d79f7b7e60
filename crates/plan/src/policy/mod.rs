//! Policies decide how much a lane is asked for next.
//!
//! The planner keeps the books, handles failures and assigns ranges. A policy only implements
//! [`Policy::next`] and says which of the planner's abilities it wants ([`PolicyCapabilities`]).

mod fixed;
mod mdtp;
mod single;
mod swath;

use swath_model::SourceId;

use crate::config::{Config, PolicyKind};
pub use crate::view::{LaneView, WholeView};

/// A way to cut a file into swaths.
pub trait Policy: Send {
    /// Returns which of the planner's abilities it uses.
    fn capabilities(&self) -> PolicyCapabilities;

    /// Returns how many bytes to request on this lane now, behind its earlier requests, or `None`
    /// to leave it alone for the moment.
    fn next(&mut self, lane: &LaneView, whole: &WholeView) -> Option<u64>;

    /// Records that a swath of `bytes` bytes ended `took_s` seconds after its request.
    fn swath_ended(&mut self, source: SourceId, bytes: u64, took_s: f64) {
        let _ = (source, bytes, took_s);
    }
}

/// Which of the planner's abilities a policy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyCapabilities {
    /// Gives tails of late lanes to others, and requests the last ranges twice if that is faster.
    pub rebalances: bool,
    /// Lets an idle source request again what others are still fetching (end game of the `fixed`
    /// policy), one whole chunk each.
    pub repeats_chunks: bool,
    /// Adds and closes lanes by measured gain.
    pub tunes_lanes: bool,
    /// Reacts to silence after a few round trips, not only after many seconds.
    pub watches_silence: bool,
    /// Uses only one source at a time.
    pub one_source: bool,
}

/// Returns the policy of this configuration.
pub(crate) fn of(config: &Config) -> Box<dyn Policy> {
    match config.policy {
        PolicyKind::Swath => Box::new(swath::Swath),
        PolicyKind::Mdtp => {
            Box::new(mdtp::Mdtp::new(config.initial_chunk_bytes, config.large_chunk_bytes))
        }
        PolicyKind::Fixed => Box::new(fixed::Fixed { chunk_bytes: config.chunk_bytes }),
        PolicyKind::Single => Box::new(single::Single),
    }
}
