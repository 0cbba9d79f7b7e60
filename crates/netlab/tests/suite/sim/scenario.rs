//! Everything that determines a simulated transfer, as data.

use swath_model::{Range, RangeSet};
use swath_plan::Config;

use super::server::{Change, SourceSpec};

/// A transfer to simulate. Two runs of equal scenarios are equal in every step.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// What an earlier run left missing; everything if `None`.
    pub missing: Option<RangeSet>,
    /// How the planner is set.
    pub config: Config,
    /// The sources, in the order in which they become known.
    pub sources: Vec<SourceSpec>,
    /// What changes, when (seconds) and at which source, in the order of time.
    pub changes: Vec<(f64, usize, Change)>,
    /// Whether the size is known before the first answer.
    pub size_known: bool,
    /// How fast an ordered consumer takes what has come, bytes per second; only with a window.
    pub consumer_bytes_per_s: f64,
    /// Whether the executor hands over what it has received beyond a trimmed end.
    pub keeps_surplus: bool,
    /// Most virtual seconds that it may take.
    pub limit_s: f64,
    /// Length of a step in seconds.
    pub step_s: f64,
    /// Whether the oracle is to be computed as well.
    pub wants_oracle: bool,
    /// Seed of every random draw.
    pub seed: u64,
}

impl Scenario {
    /// Returns what is to be fetched.
    pub fn missing(&self) -> RangeSet {
        self.missing.clone().unwrap_or_else(|| RangeSet::from(Range::new(0, self.size_bytes)))
    }

    /// Returns how much that is.
    pub fn missing_bytes(&self) -> u64 {
        self.missing.as_ref().map_or(self.size_bytes, RangeSet::total_bytes)
    }
}
