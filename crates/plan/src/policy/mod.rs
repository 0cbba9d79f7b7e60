//! Who decides how much a lane is asked for next.
//!
//! The planner keeps the books, reacts to failures and carries ranges; a policy only answers
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

    /// How many bytes to ask for on this lane now, behind what it is already asked for; `None`
    /// to leave it alone for the moment.
    fn next(&mut self, lane: &LaneView, whole: &WholeView) -> Option<u64>;

    /// A swath of `bytes` bytes ended `took_s` seconds after it was asked for.
    fn swath_ended(&mut self, source: SourceId, bytes: u64, took_s: f64) {
        let _ = (source, bytes, took_s);
    }
}

/// Which of the planner's abilities a policy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyCapabilities {
    /// Tails of late lanes go to others, and the last ranges are asked for twice if that is faster.
    pub rebalances: bool,
    /// An idle source asks again for what others are still fetching (end game of the `fixed`
    /// policy), one whole chunk each.
    pub repeats_chunks: bool,
    /// Lanes are added and taken away by measured gain.
    pub tunes_lanes: bool,
    /// Silence is a signal after a few round trips, not only after many seconds.
    pub watches_silence: bool,
    /// Only one source at a time.
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
