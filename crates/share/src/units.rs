//! The units in which a content is shared: what is claimed, hashed and told of as one.

use swath_model::{Range, RangeSet};
use swath_transfer::BLOCK_BYTES_MAX;

/// The number of a unit, from 0.
pub type Unit = u32;

/// How a content is cut into units. All nodes come to the same from its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    size_bytes: u64,
    unit_bytes: u64,
}

impl Units {
    /// Cuts a content of this size.
    pub fn of(size_bytes: u64) -> Units {
        let even = size_bytes.div_ceil(UNITS_WANTED).max(1).next_power_of_two();
        Units { size_bytes, unit_bytes: even.clamp(UNIT_BYTES_MIN, BLOCK_BYTES_MAX) }
    }

    /// Cuts a content that is verified in pieces of this size: a unit has whole ones. `None` if they are
    /// too large.
    pub fn of_pieces(size_bytes: u64, piece_bytes: u64) -> Option<Units> {
        let Units { unit_bytes, .. } = Units::of(size_bytes);
        let unit_bytes = unit_bytes.checked_next_multiple_of(piece_bytes)?;
        (unit_bytes <= UNIT_BYTES_MAX).then_some(Units { size_bytes, unit_bytes })
    }

    /// Returns the size of the content in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the size in bytes of each unit but the last.
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Returns the number of units; `None` for a content that has too many.
    pub fn count(&self) -> Option<Unit> {
        u32::try_from(self.size_bytes.div_ceil(self.unit_bytes))
            .ok()
            .filter(|&count| count <= UNITS_MAX)
    }

    /// Returns the bytes of a unit.
    pub fn range(&self, unit: Unit) -> Range {
        let start = (u64::from(unit) * self.unit_bytes).min(self.size_bytes);
        Range::new(start, (start + self.unit_bytes).min(self.size_bytes))
    }

    /// Returns the bytes of these units, which are in ascending order.
    pub fn ranges(&self, units: impl Iterator<Item = Unit>) -> RangeSet {
        let mut all = RangeSet::new();
        let mut run: Option<Range> = None;
        for range in units.map(|unit| self.range(unit)) {
            run = match run {
                Some(run) if run.end == range.start => Some(Range::new(run.start, range.end)),
                Some(run) => {
                    all.insert(run);
                    Some(range)
                }
                None => Some(range),
            };
        }
        run.into_iter().for_each(|run| _ = all.insert(run));
        all
    }

    /// Returns the units that have any of these bytes.
    pub fn around(&self, range: Range) -> impl Iterator<Item = Unit> + use<> {
        let first = range.start / self.unit_bytes;
        let end = range.end.min(self.size_bytes).div_ceil(self.unit_bytes);
        (first..end).filter_map(|unit| u32::try_from(unit).ok())
    }
}

/// Enough for many nodes to fetch different ones, few enough to tell of each.
const UNITS_WANTED: u64 = 4096;
/// Smaller ones are not worth a request.
const UNIT_BYTES_MIN: u64 = 256 << 10;
/// A unit is held in memory while it is hashed.
const UNIT_BYTES_MAX: u64 = 64 << 20;
/// A content of 16 TiB. The books of a larger one would take too much memory.
pub const UNITS_MAX: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_grow_with_the_content_and_cover_it() {
        for (size_bytes, unit_bytes, count) in [
            (0, 256 << 10, Some(0)),
            (1, 256 << 10, Some(1)),
            (1 << 30, 256 << 10, Some(4096)),
            ((1 << 30) + 1, 512 << 10, Some(2049)),
            (1 << 40, 16 << 20, Some(65_536)),
            (1 << 50, 16 << 20, None),
        ] {
            let units = Units::of(size_bytes);
            assert_eq!((units.unit_bytes(), units.count()), (unit_bytes, count));
            let Some(count) = count else { continue };
            assert_eq!(units.ranges(0..count).total_bytes(), size_bytes);
        }
        let of_pieces = |piece| Units::of_pieces(16 << 20, piece).map(|units| units.unit_bytes());
        assert_eq!(of_pieces(64 << 10), Some(256 << 10));
        assert_eq!(of_pieces(1 << 20), Some(1 << 20));
        assert_eq!(of_pieces(100_000), Some(300_000));
        assert_eq!(of_pieces(65 << 20), None);
        let units = Units::of((1 << 20) + 5);
        assert_eq!(units.range(4), Range::new(1 << 20, (1 << 20) + 5));
        assert_eq!(units.around(Range::new(1, 1 << 18)).collect::<Vec<_>>(), [0]);
        assert_eq!(units.around(Range::new(1, u64::MAX)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let some = units.ranges([0, 1, 3].into_iter());
        let runs: Vec<Range> = some.iter().collect();
        assert_eq!(runs, [Range::new(0, 2 << 18), Range::new(3 << 18, 4 << 18)]);
    }
}
