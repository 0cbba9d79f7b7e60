//! Random order, drawn from the planner's seed.

use swath_model::{Range, RangeSet};

use super::{Picker, any_cell, first};
use crate::config::Config;
use crate::holds::Holds;

/// The `random` picker.
pub(super) struct Random {
    rng: fastrand::Rng,
    grid_bytes: u64,
}

impl Random {
    pub(super) fn new(config: &Config) -> Self {
        Self { rng: fastrand::Rng::with_seed(config.seed), grid_bytes: config.grid_bytes.max(1) }
    }
}

impl Picker for Random {
    fn pick(&mut self, open: &RangeSet, holds: &Holds, limit: u64) -> Option<Range> {
        let from = any_cell(&mut self.rng, self.grid_bytes, open, limit)?;
        first(open, holds, from, limit).or_else(|| first(open, holds, 0, limit))
    }
}
