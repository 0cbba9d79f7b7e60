//! A half-open range of bytes in the virtual file.

use std::fmt;

/// The bytes from `start` up to, but not including, `end`. `start <= end` always holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset just after the last byte.
    pub end: u64,
}

impl Range {
    /// Returns `[start, end)`; an `end` before `start` gives the empty range at `start`.
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// Returns the range of `len` bytes from `start`, saturating at the largest offset.
    pub const fn of_len(start: u64, len: u64) -> Self {
        Self { start, end: start.saturating_add(len) }
    }

    /// Returns the length in bytes.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns whether it has no byte.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Returns whether the byte at `offset` lies in it.
    pub const fn contains(self, offset: u64) -> bool {
        self.start <= offset && offset < self.end
    }

    /// Returns whether all of `other` lies in it.
    pub const fn covers(self, other: Range) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// Returns the bytes in both, `None` if there are none.
    pub fn intersect(self, other: Range) -> Option<Range> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(Range { start, end })
    }

    /// Cuts at `offset` (clamped into the range): the part before it and the part from it on.
    pub fn split_at(self, offset: u64) -> (Range, Range) {
        let cut = offset.clamp(self.start, self.end);
        (Range::new(self.start, cut), Range::new(cut, self.end))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
