//! From front to back: what consumers of streams, digests of whole files and disks like best.

use swath_model::{Range, RangeSet};

use super::{Picker, first};
use crate::holds::Holds;

/// The `sequential` picker.
pub(super) struct Sequential;

impl Picker for Sequential {
    fn pick(&mut self, open: &RangeSet, holds: &Holds, limit: u64) -> Option<Range> {
        first(open, holds, 0, limit)
    }
}
