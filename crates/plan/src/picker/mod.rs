//! Pickers decide *which* range is requested next; the policy decides how much of it, on which
//! lane.
//!
//! A picker returns a run of open bytes that the source may be asked for; the planner cuts it to
//! length.

mod random;
mod rarest;
mod sequential;

use swath_model::{Range, RangeSet};

use crate::config::{Config, PickerKind};
use crate::holds::Holds;

/// A way to choose what is fetched next.
pub(crate) trait Picker: Send {
    /// Returns a run of `open` bytes before `limit` that `holds` allows, or `None`.
    fn pick(&mut self, open: &RangeSet, holds: &Holds, limit: u64) -> Option<Range>;

    /// Records that one source more (or fewer, if `more` is false) has `range` from now on. Not
    /// called for sources that have the whole file.
    fn count(&mut self, range: Range, more: bool) {
        let _ = (range, more);
    }
}

/// Returns the picker of this configuration.
pub(crate) fn of(config: &Config) -> Box<dyn Picker> {
    match config.picker {
        PickerKind::Sequential => Box::new(sequential::Sequential),
        PickerKind::Random => Box::new(random::Random::new(config)),
        PickerKind::RarestFirst => Box::new(rarest::RarestFirst::new(config)),
    }
}

/// Returns the first run at or after `from` that starts before `limit`.
fn first(open: &RangeSet, holds: &Holds, from: u64, limit: u64) -> Option<Range> {
    holds.first_of(open, from).filter(|run| run.start < limit)
}

/// Returns the start of a random cell of the grid, no later than the last open byte.
fn any_cell(rng: &mut fastrand::Rng, grid_bytes: u64, open: &RangeSet, limit: u64) -> Option<u64> {
    let end = open.last()?.end.min(limit);
    Some(rng.u64(..=end / grid_bytes) * grid_bytes)
}
