//! How contents are cut into units: all nodes come to the same, and every byte is in one.

use proptest::prelude::*;
use swath_model::Range;
use swath_share::units::{UNITS_MAX, Units};

#[test]
fn a_content_without_bytes_has_no_units() {
    let units = Units::of(0);
    assert_eq!((units.count(), units.size_bytes()), (Some(0), 0));
    assert!(units.range(0).is_empty() && units.around(Range::new(0, 10)).next().is_none());
}

#[test]
fn the_largest_content_that_can_be_shared_has_16_tib() {
    let largest = 16 << 40;
    assert_eq!(Units::of(largest).count(), Some(UNITS_MAX));
    assert_eq!(Units::of(largest + 1).count(), None);
    assert_eq!(Units::of(u64::MAX).count(), None);
}

#[test]
fn units_have_whole_pieces_or_there_are_none() {
    for (piece_bytes, unit_bytes) in [
        (1, Some(256 << 10)),
        (16 << 10, Some(256 << 10)),
        (256 << 10, Some(256 << 10)),
        ((256 << 10) + 1, Some((256 << 10) + 1)),
        (64 << 20, Some(64 << 20)),
        ((64 << 20) + 1, None),
        (u64::MAX, None),
    ] {
        let units = Units::of_pieces(100 << 20, piece_bytes);
        assert_eq!(units.map(|units| units.unit_bytes()), unit_bytes, "{piece_bytes}");
    }
}

#[test]
fn neighbours_are_told_as_one_range() {
    let units = Units::of(1 << 20);
    let ranges = units.ranges([0, 1, 3].into_iter());
    let unit = units.unit_bytes();
    let wanted = [Range::new(0, 2 * unit), Range::new(3 * unit, 4 * unit)];
    assert_eq!(ranges.iter().collect::<Vec<_>>(), wanted);
    assert!(units.ranges(std::iter::empty()).is_empty());
}

proptest! {
    #[test]
    fn every_byte_is_in_the_unit_around_it(
        size_bytes in 1..200_000_000_u64,
        piece_bytes in 1..3_000_000_u64,
        at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(size_bytes as usize) as u64;
        for units in [Some(Units::of(size_bytes)), Units::of_pieces(size_bytes, piece_bytes)] {
            let units = units.expect("pieces are short");
            let count = units.count().expect("it is small");
            let around: Vec<u32> = units.around(Range::of_len(at, 1)).collect();
            prop_assert_eq!(around.len(), 1);
            let range = units.range(around[0]);
            prop_assert!(range.start <= at && at < range.end && around[0] < count);
            prop_assert_eq!(units.ranges(0..count).total_bytes(), size_bytes);
            // Behind the last there is nothing.
            prop_assert!(units.range(count).is_empty());
        }
        let units = Units::of_pieces(size_bytes, piece_bytes).expect("pieces are short");
        prop_assert_eq!(units.unit_bytes() % piece_bytes, 0);
    }
}
