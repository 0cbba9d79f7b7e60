//! A value for every byte of some ranges, for example its source.
//!
//! Invariant: entries are non-empty, ordered and disjoint, and neighbours with equal values are
//! merged. Setting a range overwrites earlier values.

use std::collections::BTreeMap;

use crate::Range;

/// Maps ranges to values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeMap<V> {
    /// start → (end, value)
    map: BTreeMap<u64, (u64, V)>,
}

impl<V: Copy + Eq> RangeMap<V> {
    /// Returns an empty map.
    pub fn new() -> Self {
        Self { map: BTreeMap::new() }
    }

    /// Gives every byte of `range` the value `value`.
    pub fn set(&mut self, range: Range, value: V) {
        if range.is_empty() {
            return;
        }
        self.clear(range);
        let mut merged = range;
        if let Some((&start, &(end, before))) = self.map.range(..range.start).next_back()
            && end == range.start
            && before == value
        {
            merged.start = start;
        }
        if let Some(&(end, after)) = self.map.get(&range.end)
            && after == value
        {
            merged.end = end;
            self.map.remove(&range.end);
        }
        self.map.insert(merged.start, (merged.end, value));
    }

    /// Removes the values of every byte of `range`.
    pub fn clear(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        if let Some((&start, &(end, value))) = self.map.range(..range.start).next_back()
            && end > range.start
        {
            self.map.insert(start, (range.start, value));
            if end > range.end {
                self.map.insert(range.end, (end, value));
            }
        }
        while let Some((&start, &(end, value))) = self.map.range(range.start..range.end).next() {
            self.map.remove(&start);
            if end > range.end {
                self.map.insert(range.end, (end, value));
            }
        }
    }

    /// Returns the entries that overlap `range`, cut to it, in order.
    pub fn within(&self, range: Range) -> Vec<(Range, V)> {
        let mut out = Vec::new();
        if range.is_empty() {
            return out;
        }
        if let Some((&start, &(end, value))) = self.map.range(..range.start).next_back()
            && let Some(part) = Range::new(start, end).intersect(range)
        {
            out.push((part, value));
        }
        for (&start, &(end, value)) in self.map.range(range.start..range.end) {
            if let Some(part) = Range::new(start, end).intersect(range) {
                out.push((part, value));
            }
        }
        out
    }

    /// Returns all entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (Range, V)> + '_ {
        self.map.iter().map(|(&start, &(end, value))| (Range::new(start, end), value))
    }

    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.map.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_one_value_a_byte(steps in proptest::collection::vec((proptest::option::of(0u8..3), 0u64..48, 0u64..48), 0..50)) {
            let mut map = RangeMap::new();
            let mut flat = [None; 48];
            for (value, a, b) in steps {
                let range = Range::new(a.min(b), a.max(b));
                flat[range.start as usize..range.end as usize].fill(value);
                match value {
                    Some(value) => map.set(range, value),
                    None => map.clear(range),
                }
            }
            let mut seen = [None; 48];
            let mut last: Option<(Range, u8)> = None;
            for (range, value) in map.iter() {
                seen[range.start as usize..range.end as usize].fill(Some(value));
                if let Some((before, v)) = last {
                    prop_assert!(before.end < range.start || (before.end == range.start && v != value));
                }
                last = Some((range, value));
            }
            prop_assert_eq!(seen, flat);
            let window = Range::new(10, 30);
            let inside: u64 = map.within(window).iter().map(|(range, _)| range.len()).sum();
            prop_assert_eq!(inside, flat[10..30].iter().filter(|v| v.is_some()).count() as u64);
        }
    }
}
