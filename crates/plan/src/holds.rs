//! What a source may be asked for: what it has, minus what it is barred from.
//!
//! Both are kept as the ranges left out, so that a source with the whole file costs nothing. They
//! are separate: a source that is allowed a range again may still lack it, and one that gains a
//! range may still be barred from it.

use std::cell::Cell;

use swath_model::{Cursor, Range, RangeSet};

use crate::coverage::Chances;

/// The ranges that one source has, and those it is barred from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    lacks: RangeSet,
    barred: RangeSet,
    /// It could be asked for nothing when the chances were these.
    had_nothing: Option<Chances>,
    /// A byte of the last search for anything: it is the first to be looked at in the next one.
    likely: Cell<u64>,
}

impl Holds {
    /// Records that the source has `range` from now on; returns the parts that are new.
    pub fn gain(&mut self, range: Range) -> Vec<Range> {
        self.had_nothing = None;
        let gained = self.lacks.within(range).collect();
        self.lacks.remove(range);
        gained
    }

    /// Records that the source does not have `range`, or no longer; returns the parts it had.
    pub fn lose(&mut self, range: Range) -> Vec<Range> {
        let lost = self.lacks.gaps_within(range);
        self.lacks.insert(range);
        lost
    }

    /// Bars the source from `range`, whether it has it or not.
    pub fn bar(&mut self, range: Range) {
        self.barred.insert(range);
    }

    /// Allows `range` again, as far as the source has it.
    pub fn allow(&mut self, range: Range) {
        self.had_nothing = None;
        self.barred.remove(range);
    }

    /// Records that it can be asked for nothing while the chances are these.
    pub fn note_nothing(&mut self, chances: Chances) {
        self.had_nothing = Some(chances);
    }

    /// Returns whether it is known that it can be asked for nothing.
    pub fn has_nothing(&self, chances: Chances) -> bool {
        self.had_nothing == Some(chances)
    }

    /// Returns the ranges that it does not have.
    pub fn lacks(&self) -> &RangeSet {
        &self.lacks
    }

    /// Returns whether it may be asked for everything.
    pub fn is_whole(&self) -> bool {
        self.lacks.is_empty() && self.barred.is_empty()
    }

    /// Returns whether it may be asked for every byte of `range`.
    pub fn may_all(&self, range: Range) -> bool {
        self.lacks.within(range).next().is_none() && self.barred.within(range).next().is_none()
    }

    /// Returns whether it may be asked for any byte at all.
    pub fn may_any(&self) -> bool {
        self.free_from(0).is_some()
    }

    /// Returns whether it may be asked for any of the `wanted` bytes.
    pub fn may_any_of(&self, wanted: &RangeSet) -> bool {
        let at = self.likely.get();
        if wanted.contains(at) && !self.lacks.contains(at) && !self.barred.contains(at) {
            return true;
        }
        let found = self.first_of(wanted, 0);
        found.inspect(|run| self.likely.set(run.start)).is_some()
    }

    /// Returns the first run of `wanted` bytes at or after `from` that it may be asked for. Skips
    /// from gap to gap, so the cost is the smaller number of runs of either side.
    pub fn first_of(&self, wanted: &RangeSet, from: u64) -> Option<Range> {
        let (mut wanted, mut free) = (wanted.cursor(), self.free());
        let mut run = wanted.first_from(from)?;
        loop {
            let free = free.first_from(run.start)?;
            if free.start < run.end {
                return Range::new(free.start, run.end).intersect(free);
            }
            run = wanted.first_from(free.start)?;
        }
    }

    /// Returns a search that only moves forward for what it may be asked for.
    pub fn free(&self) -> Free<'_> {
        Free { lacks: self.lacks.cursor(), barred: self.barred.cursor() }
    }

    /// Returns the first run at or after `from` that it may be asked for.
    pub fn free_from(&self, from: u64) -> Option<Range> {
        self.free().first_from(from)
    }

    /// Returns the first run that it has, barred or not.
    pub fn first_held(&self) -> Option<Range> {
        self.lacks.gaps_within(Range::new(0, u64::MAX)).into_iter().next()
    }
}

/// Finds what a source may be asked for from ever greater offsets on.
pub(crate) struct Free<'a> {
    lacks: Cursor<'a>,
    barred: Cursor<'a>,
}

impl Free<'_> {
    /// Returns what [`Holds::free_from`] returns. `from` must not be less than in the call before.
    pub fn first_from(&mut self, from: u64) -> Option<Range> {
        let mut at = from;
        while at < u64::MAX {
            let (lacked, barred) = (self.lacks.first_from(at), self.barred.first_from(at));
            let closed = |set: Option<Range>| set.filter(|run| run.start == at).map(|run| run.end);
            match closed(lacked).or(closed(barred)) {
                Some(end) => at = end,
                None => {
                    let next = |set: Option<Range>| set.map_or(u64::MAX, |run| run.start);
                    return Some(Range::new(at, next(lacked).min(next(barred))));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 32;

    /// A naive source: one flag a byte.
    #[derive(Default)]
    struct Oracle {
        lacks: [bool; SIZE as usize],
        barred: [bool; SIZE as usize],
    }

    impl Oracle {
        fn may(&self, at: u64) -> bool {
            at >= SIZE || !(self.lacks[at as usize] || self.barred[at as usize])
        }

        fn set(flags: &mut [bool], range: Range, to: bool) -> u64 {
            let part = &mut flags[range.start as usize..range.end as usize];
            let changed = part.iter().filter(|&&flag| flag != to).count() as u64;
            part.fill(to);
            changed
        }

        fn first_of(&self, wanted: &RangeSet, from: u64) -> Option<Range> {
            let is_it = |&at: &u64| wanted.contains(at) && self.may(at);
            let start = (from..SIZE).find(is_it)?;
            let end = (start..SIZE).find(|at| !is_it(at)).unwrap_or(SIZE);
            Some(Range::new(start, end))
        }
    }

    fn range() -> impl Strategy<Value = Range> {
        (0..=SIZE, 0..=SIZE).prop_map(|(a, b)| Range::new(a.min(b), a.max(b)))
    }

    proptest! {
        #[test]
        fn gains_and_losses_agree_with_a_flag_a_byte(
            steps in prop::collection::vec((0u8..4, range()), 0..40),
            wanted in prop::collection::vec(range(), 0..8),
            asked in range(),
        ) {
            let (mut holds, mut oracle) = (Holds::default(), Oracle::default());
            for (kind, range) in steps {
                let bytes = |parts: Vec<Range>| parts.into_iter().map(Range::len).sum::<u64>();
                match kind {
                    0 => {
                        let changed = Oracle::set(&mut oracle.lacks, range, false);
                        prop_assert_eq!(bytes(holds.gain(range)), changed);
                    }
                    1 => {
                        let changed = Oracle::set(&mut oracle.lacks, range, true);
                        prop_assert_eq!(bytes(holds.lose(range)), changed);
                    }
                    2 => {
                        Oracle::set(&mut oracle.barred, range, true);
                        holds.bar(range);
                    }
                    _ => {
                        Oracle::set(&mut oracle.barred, range, false);
                        holds.allow(range);
                    }
                }
                for from in 0..SIZE {
                    let wanted: RangeSet = wanted.iter().copied().collect();
                    prop_assert_eq!(
                        holds.first_of(&wanted, from),
                        oracle.first_of(&wanted, from)
                    );
                }
                let any = wanted.iter().any(|run| (run.start..run.end).any(|at| oracle.may(at)));
                prop_assert_eq!(holds.may_any_of(&wanted.iter().copied().collect()), any);
                let may_all = (asked.start..asked.end).all(|at| oracle.may(at));
                prop_assert_eq!(holds.may_all(asked), may_all);
            }
        }
    }
}
