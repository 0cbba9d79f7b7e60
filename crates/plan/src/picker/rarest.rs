//! Rarest first: what the fewest sources have, a random one among equals (Legout, Urvoy-Keller and
//! Michiardi, "Rarest first and choke algorithms are enough", IMC 2006).
//!
//! Invariant: `levels` is the inverse of `lacking`: each level is the set of bytes lacked by that
//! many sources. A pick searches the levels from the rarest on and ends at the first hit.

use std::collections::BTreeMap;

use swath_model::{Range, RangeSet};

use super::{Picker, any_cell, first};
use crate::config::Config;
use crate::holds::Holds;

/// The `rarest-first` picker.
pub(super) struct RarestFirst {
    rng: fastrand::Rng,
    grid_bytes: u64,
    /// How many sources lack the bytes from this offset on, up to the next entry.
    lacking: BTreeMap<u64, u32>,
    /// The bytes lacked by this many sources. Level 0 is left out.
    levels: BTreeMap<u32, RangeSet>,
}

impl RarestFirst {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(config.seed),
            grid_bytes: config.grid_bytes.max(1),
            lacking: BTreeMap::from([(0, 0)]),
            levels: BTreeMap::new(),
        }
    }

    fn lacking_at(&self, offset: u64) -> u32 {
        self.lacking.range(..=offset).next_back().map_or(0, |(_, &count)| count)
    }

    /// Makes a segment begin at `offset`.
    fn split(&mut self, offset: u64) {
        let count = self.lacking_at(offset);
        self.lacking.entry(offset).or_insert(count);
    }

    /// Merges the segment at `offset` with the one before it if their counts are equal.
    fn merge(&mut self, offset: u64) {
        let before = self.lacking.range(..offset).next_back().map(|(_, &count)| count);
        if before.is_some() && before == self.lacking.get(&offset).copied() {
            self.lacking.remove(&offset);
        }
    }

    fn enter(&mut self, segment: Range, count: u32, is_in: bool) {
        if count == 0 {
            return;
        }
        let level = self.levels.entry(count).or_default();
        match is_in {
            true => level.insert(segment),
            false => level.remove(segment),
        };
        if level.is_empty() {
            self.levels.remove(&count);
        }
    }
}

/// Returns the first open and allowed run of this level from `from` on, starting before `limit`.
fn first_common(
    open: &RangeSet,
    level: &RangeSet,
    holds: &Holds,
    from: u64,
    limit: u64,
) -> Option<Range> {
    let (mut open, mut level, mut free) = (open.cursor(), level.cursor(), holds.free());
    let mut at = from;
    loop {
        let open = open.first_from(at)?;
        let level = level.first_from(open.start)?;
        let free = free.first_from(level.start)?;
        if free.start >= limit {
            return None;
        }
        let common = open.intersect(level).and_then(|part| part.intersect(free));
        if common.is_some() {
            return common;
        }
        at = free.start;
    }
}

impl Picker for RarestFirst {
    fn pick(&mut self, open: &RangeSet, holds: &Holds, limit: u64) -> Option<Range> {
        let from = any_cell(&mut self.rng, self.grid_bytes, open, limit)?;
        // Most picks are in vain: then the levels need not be searched.
        let lowest = first(open, holds, 0, limit)?;
        let on_level = |level| {
            let behind = first_common(open, level, holds, from.max(lowest.start), limit);
            behind.or_else(|| first_common(open, level, holds, lowest.start, limit.min(from)))
        };
        let rare = self.levels.values().rev().find_map(on_level);
        // Bytes that every source has are on no level.
        rare.or_else(|| first(open, holds, from, limit)).or(Some(lowest))
    }

    fn count(&mut self, range: Range, more: bool) {
        self.split(range.start);
        self.split(range.end);
        let bounds: Vec<u64> =
            self.lacking.range(range.start..=range.end).map(|it| *it.0).collect();
        for pair in bounds.windows(2) {
            let segment = Range::new(pair[0], pair[1]);
            let before = self.lacking_at(segment.start);
            let after = if more { before.saturating_sub(1) } else { before.saturating_add(1) };
            self.lacking.insert(segment.start, after);
            self.enter(segment, before, false);
            self.enter(segment, after, true);
        }
        for bound in bounds {
            self.merge(bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 32;

    proptest! {
        /// Sources that gain, lose, come and go, against a count a byte.
        #[test]
        fn the_rarest_byte_is_picked(
            steps in prop::collection::vec((0usize..5, any::<bool>(), 0..SIZE, 0..=SIZE), 0..40),
            open in prop::collection::vec((0..SIZE, 0..=SIZE), 1..6),
            seed in any::<u64>(),
        ) {
            let config = Config { grid_bytes: 1, seed, ..Config::default() };
            let mut picker = RarestFirst::new(&config);
            let mut sources = vec![Holds::default(); 5];
            for (at, gains, a, b) in steps {
                let range = Range::new(a.min(b), a.max(b));
                let parts = match gains {
                    true => sources[at].gain(range),
                    false => sources[at].lose(range),
                };
                parts.into_iter().for_each(|part| picker.count(part, gains));
            }
            let open: RangeSet =
                open.into_iter().map(|(a, b)| Range::new(a.min(b), a.max(b))).collect();
            let lacking =
                |at: u64| sources.iter().filter(|source| source.lacks().contains(at)).count();
            for own in &sources {
                let may = (0..SIZE).filter(|&at| open.contains(at) && !own.lacks().contains(at));
                let rarest = may.map(lacking).max();
                let picked = picker.pick(&open, own, u64::MAX);
                prop_assert_eq!(picked.map(|run| lacking(run.start)), rarest);
                for at in picked.into_iter().flat_map(|run| run.start..run.end) {
                    prop_assert!(open.contains(at) && !own.lacks().contains(at));
                }
            }
            // Nothing is left of sources that are gone.
            for source in &sources {
                source.lacks().iter().for_each(|part| picker.count(part, true));
            }
            prop_assert_eq!((picker.lacking.len(), picker.levels.len()), (1, 0));
        }
    }
}
