//! Who decides *which* range is asked for next; how much of it, and on which lane, is the policy's
//! business.
//!
//! All pickers answer the start of a run of open bytes that the source may be asked for; the
//! planner cuts it to length.

mod random;
mod rarest;
mod sequential;

use swath_model::{Range, RangeSet};

use crate::config::{Config, PickerKind};
use crate::holds::Holds;

/// A way to choose what is fetched next.
pub(crate) trait Picker: Send {
    /// A run of `open` bytes before `limit` that `holds` allows; `None` if there is none.
    fn pick(&mut self, open: &RangeSet, holds: &Holds, limit: u64) -> Option<Range>;

    /// One source fewer (`more` is false) or more has `range` from now on. Sources that have all of
    /// the file are never mentioned.
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

/// Returns the first run from `from` on and before `limit`.
fn first(open: &RangeSet, holds: &Holds, from: u64, limit: u64) -> Option<Range> {
    holds.first_of(open, from).filter(|run| run.start < limit)
}

/// Returns where some cell of the grid begins, no later than the last open byte.
fn any_cell(rng: &mut fastrand::Rng, grid_bytes: u64, open: &RangeSet, limit: u64) -> Option<u64> {
    let end = open.last()?.end.min(limit);
    Some(rng.u64(..=end / grid_bytes) * grid_bytes)
}
