//! A set of bytes kept as disjoint ranges.
//!
//! Invariant: the ranges are non-empty, ordered, disjoint and not adjacent (adjacent ones are
//! merged), so two sets of the same bytes compare equal. Insertion and removal cost O((1 + k) log
//! n) with k the ranges touched; the total is kept, so [`RangeSet::total_bytes`] is free.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops::Bound;

use crate::Range;

/// A set of bytes of the virtual file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// start → end
    map: BTreeMap<u64, u64>,
    total_bytes: u64,
}

impl RangeSet {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the set of every byte of a file of `size_bytes`.
    pub fn full(size_bytes: u64) -> Self {
        Self::from(Range::new(0, size_bytes))
    }

    /// Returns how many bytes are in the set.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Returns the number of disjoint ranges in the set.
    pub fn count(&self) -> usize {
        self.map.len()
    }

    /// Returns whether no byte is in the set.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Adds every byte of `range`; returns how many bytes were new.
    pub fn insert(&mut self, range: Range) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let mut merged = range;
        let mut covered_bytes = 0;
        // The neighbour that starts before the new range and touches or overlaps it.
        if let Some((&start, &end)) = self.map.range(..=range.start).next_back()
            && end >= range.start
        {
            merged.start = start;
            merged.end = merged.end.max(end);
            covered_bytes += end - start;
            self.map.remove(&start);
        }
        // Every range that starts inside it or just at its end.
        while let Some((&start, &end)) = self.map.range(range.start..=merged.end).next() {
            merged.end = merged.end.max(end);
            covered_bytes += end - start;
            self.map.remove(&start);
        }
        self.map.insert(merged.start, merged.end);
        let new_bytes = merged.len() - covered_bytes;
        self.total_bytes += new_bytes;
        new_bytes
    }

    /// Removes every byte of `range`; returns how many bytes were there.
    pub fn remove(&mut self, range: Range) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let mut removed_bytes = 0;
        if let Some((&start, &end)) = self.map.range(..range.start).next_back()
            && end > range.start
        {
            self.map.insert(start, range.start);
            removed_bytes += end.min(range.end) - range.start;
            if end > range.end {
                self.map.insert(range.end, end);
            }
        }
        while let Some((&start, &end)) = self.map.range(range.start..range.end).next() {
            self.map.remove(&start);
            removed_bytes += end.min(range.end) - start;
            if end > range.end {
                self.map.insert(range.end, end);
            }
        }
        self.total_bytes -= removed_bytes;
        removed_bytes
    }

    /// Returns whether every byte of `range` is in the set (true for an empty range).
    pub fn covers(&self, range: Range) -> bool {
        range.is_empty()
            || self.map.range(..=range.start).next_back().is_some_and(|(_, &end)| end >= range.end)
    }

    /// Returns whether the byte at `offset` is in the set.
    pub fn contains(&self, offset: u64) -> bool {
        self.map.range(..=offset).next_back().is_some_and(|(_, &end)| end > offset)
    }

    /// Returns the first run of bytes at or after `from`, cut at `from` if it starts before.
    pub fn first_from(&self, from: u64) -> Option<Range> {
        if let Some((_, &end)) = self.map.range(..=from).next_back()
            && end > from
        {
            return Some(Range::new(from, end));
        }
        self.map.range(from..).next().map(|(&start, &end)| Range::new(start, end))
    }

    /// Returns a search that only moves forward, which costs less than one from the start each time.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { set: self, at: None, ahead: btree_map::Range::default() }
    }

    /// Returns the first range of the set.
    pub fn first(&self) -> Option<Range> {
        self.map.first_key_value().map(|(&start, &end)| Range::new(start, end))
    }

    /// Returns the last range of the set.
    pub fn last(&self) -> Option<Range> {
        self.map.last_key_value().map(|(&start, &end)| Range::new(start, end))
    }

    /// Returns the ranges in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        self.map.iter().map(|(&start, &end)| Range::new(start, end))
    }

    /// Returns the parts of `range` that are in the set, in order.
    pub fn within(&self, range: Range) -> impl Iterator<Item = Range> + '_ {
        let first = self
            .map
            .range(..range.start)
            .next_back()
            .and_then(|(&start, &end)| Range::new(start, end).intersect(range));
        let rest =
            if range.is_empty() { None } else { Some(self.map.range(range.start..range.end)) };
        first.into_iter().chain(
            rest.into_iter()
                .flatten()
                .filter_map(move |(&start, &end)| Range::new(start, end).intersect(range)),
        )
    }

    /// Returns the parts of `range` that are not in the set, in order.
    pub fn gaps_within(&self, range: Range) -> Vec<Range> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for held in self.within(range) {
            if held.start > at {
                gaps.push(Range::new(at, held.start));
            }
            at = held.end;
        }
        if at < range.end {
            gaps.push(Range::new(at, range.end));
        }
        gaps
    }

    /// Returns how many bytes of `range` are in the set.
    pub fn bytes_within(&self, range: Range) -> u64 {
        self.within(range).map(Range::len).sum()
    }

    /// Adds every byte of another set.
    pub fn union_with(&mut self, other: &RangeSet) {
        for range in other.iter() {
            self.insert(range);
        }
    }

    /// Removes every byte of another set.
    pub fn subtract(&mut self, other: &RangeSet) {
        for range in other.iter() {
            self.remove(range);
        }
    }
}

/// Finds ranges of a set from ever greater offsets on. Neighbours are reached by steps, what is
/// farther away by a new search.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    set: &'a RangeSet,
    /// The range found last; none before the first search.
    at: Option<Range>,
    ahead: btree_map::Range<'a, u64, u64>,
}

impl Cursor<'_> {
    /// Returns what [`RangeSet::first_from`] returns. `from` must not be less than in the call before.
    pub fn first_from(&mut self, from: u64) -> Option<Range> {
        for _ in 0..CURSOR_STEPS {
            let Some(at) = self.at else { break };
            if at.end > from {
                return Some(Range::new(at.start.max(from), at.end));
            }
            self.at = self.ahead.next().map(|(&start, &end)| Range::new(start, end));
        }
        // It is far away, or behind all others; or this is the first search.
        let found = self.set.first_from(from)?;
        self.at = Some(found);
        self.ahead = self.set.map.range((Bound::Excluded(found.start), Bound::Unbounded));
        Some(found)
    }
}

/// About as many steps cost as much as a search.
const CURSOR_STEPS: usize = 8;

impl From<Range> for RangeSet {
    fn from(range: Range) -> Self {
        let mut set = RangeSet::new();
        set.insert(range);
        set
    }
}

impl FromIterator<Range> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut set = RangeSet::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

impl fmt::Debug for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 64;

    /// The naive oracle: one flag a byte.
    fn ranges_of(flags: &[bool]) -> Vec<Range> {
        let mut out = Vec::new();
        let mut start = None;
        for (i, &on) in flags.iter().chain([&false]).enumerate() {
            match (on, start) {
                (true, None) => start = Some(i as u64),
                (false, Some(s)) => {
                    out.push(Range::new(s, i as u64));
                    start = None;
                }
                _ => {}
            }
        }
        out
    }

    proptest! {
        #[test]
        fn agrees_with_one_flag_a_byte(steps in proptest::collection::vec((any::<bool>(), 0..SIZE, 0..SIZE), 0..60)) {
            let mut set = RangeSet::new();
            let mut flags = vec![false; SIZE as usize];
            for (add, a, b) in steps {
                let range = Range::new(a.min(b), a.max(b));
                let slice = &mut flags[range.start as usize..range.end as usize];
                let differing = slice.iter().filter(|&&on| on != add).count() as u64;
                slice.fill(add);
                let changed = if add { set.insert(range) } else { set.remove(range) };
                prop_assert_eq!(changed, differing);
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), ranges_of(&flags));
                prop_assert_eq!(set.total_bytes(), flags.iter().filter(|&&on| on).count() as u64);
            }
            for step in [1, 7, 30] {
                let mut cursor = set.cursor();
                for from in (0..SIZE).step_by(step) {
                    prop_assert_eq!(cursor.first_from(from), set.first_from(from));
                }
            }
            for a in 0..SIZE {
                prop_assert_eq!(set.contains(a), flags[a as usize]);
                for b in a..=SIZE {
                    let range = Range::new(a, b);
                    let slice = &flags[a as usize..b as usize];
                    prop_assert_eq!(set.covers(range), slice.iter().all(|&on| on));
                    prop_assert_eq!(set.bytes_within(range), slice.iter().filter(|&&on| on).count() as u64);
                    let gaps: u64 = set.gaps_within(range).iter().map(|gap| gap.len()).sum();
                    prop_assert_eq!(gaps, slice.iter().filter(|&&on| !on).count() as u64);
                }
                let next = (a..SIZE).find(|&i| flags[i as usize]);
                prop_assert_eq!(set.first_from(a).map(|range| range.start), next);
            }
        }
    }
}
