//! A compact set of pieces: one bit a piece, in the order of the wire (BEP 3).
//!
//! The first piece is the highest bit of the first byte. Spare bits behind the last piece are
//! always zero. The number of pieces in the set is kept, so that asking for it is free.

use swath_model::{Range, RangeSet};
use thiserror::Error;

use super::layout::{PieceIndex, PieceLayout};

/// A set of the pieces of one torrent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitfield {
    bytes: Vec<u8>,
    pieces: u32,
    count: u32,
}

impl Bitfield {
    /// Returns the empty set for a torrent of `pieces` pieces.
    pub fn none(pieces: u32) -> Bitfield {
        Bitfield { bytes: vec![0; Self::wire_bytes(pieces)], pieces, count: 0 }
    }

    /// Returns the set of all of `pieces` pieces.
    pub fn all(pieces: u32) -> Bitfield {
        let mut bytes = vec![0xff; Self::wire_bytes(pieces)];
        if let Some(last) = bytes.last_mut() {
            *last &= !spare_bits(pieces);
        }
        Bitfield { bytes, pieces, count: pieces }
    }

    /// Reads the payload of a `bitfield` message for a torrent of `pieces` pieces.
    ///
    /// # Errors
    /// [`BitfieldError`] if the length is wrong or a spare bit is set.
    pub fn from_wire(wire: &[u8], pieces: u32) -> Result<Bitfield, BitfieldError> {
        if wire.len() != Self::wire_bytes(pieces) {
            return Err(BitfieldError::Length { bytes: wire.len(), pieces });
        }
        if wire.last().is_some_and(|last| last & spare_bits(pieces) != 0) {
            return Err(BitfieldError::SpareBits);
        }
        let count = wire.iter().map(|byte| byte.count_ones()).sum();
        Ok(Bitfield { bytes: wire.to_vec(), pieces, count })
    }

    /// Returns the payload of a `bitfield` message.
    pub fn as_wire(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the length of the payload of a `bitfield` message.
    pub fn wire_bytes(pieces: u32) -> usize {
        pieces.div_ceil(8) as usize
    }

    /// Returns the pieces that lie wholly in `ranges`.
    pub fn from_ranges(ranges: &RangeSet, layout: PieceLayout) -> Bitfield {
        let mut set = Bitfield::none(layout.count());
        let piece_bytes = u64::from(layout.piece_bytes());
        for range in ranges.iter() {
            let first = range.start.div_ceil(piece_bytes);
            // The last piece may be shorter than the others.
            let end = match range.end >= layout.total_bytes() {
                true => u64::from(layout.count()),
                false => range.end / piece_bytes,
            };
            for piece in first..end {
                set.insert(PieceIndex(piece as u32));
            }
        }
        set
    }

    /// Returns the bytes of all pieces in the set.
    pub fn to_ranges(&self, layout: PieceLayout) -> RangeSet {
        let offset = |piece| u64::from(piece) * u64::from(layout.piece_bytes());
        self.runs()
            .map(|run| Range::new(offset(run.start), offset(run.end).min(layout.total_bytes())))
            .collect()
    }

    /// Returns the number of pieces that the torrent has.
    pub fn pieces(&self) -> u32 {
        self.pieces
    }

    /// Returns the number of pieces in the set.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether no piece is in the set.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether all pieces are in the set.
    pub fn is_full(&self) -> bool {
        self.count == self.pieces
    }

    /// Returns whether the piece is in the set; false past the last piece.
    pub fn contains(&self, piece: PieceIndex) -> bool {
        piece.0 < self.pieces && self.bytes[(piece.0 / 8) as usize] & bit(piece.0) != 0
    }

    /// Adds a piece; returns whether it was new. Ignores a piece past the last.
    pub fn insert(&mut self, piece: PieceIndex) -> bool {
        let is_new = piece.0 < self.pieces && !self.contains(piece);
        if is_new {
            self.bytes[(piece.0 / 8) as usize] |= bit(piece.0);
            self.count += 1;
        }
        is_new
    }

    /// Removes a piece; returns whether it was there.
    pub fn remove(&mut self, piece: PieceIndex) -> bool {
        let was_there = self.contains(piece);
        if was_there {
            self.bytes[(piece.0 / 8) as usize] &= !bit(piece.0);
            self.count -= 1;
        }
        was_there
    }

    /// Returns the pieces in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = PieceIndex> + '_ {
        self.runs().flatten().map(PieceIndex)
    }

    /// Returns the runs of consecutive pieces in the set, in order.
    pub fn runs(&self) -> impl Iterator<Item = std::ops::Range<u32>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, true)?;
            at = self.next(start, false).unwrap_or(self.pieces);
            Some(start..at)
        })
    }

    /// Returns the first piece from `from` on that is (not) in the set.
    fn next(&self, from: u32, is_in: bool) -> Option<u32> {
        let flip = if is_in { 0 } else { 0xff };
        let first = (from / 8) as usize;
        let masked = (self.bytes.get(first)? ^ flip) & (0xff >> (from % 8));
        let (byte, bits) = match masked {
            0 => {
                let rest = &self.bytes[first + 1..];
                let skipped = rest.iter().position(|&byte| byte != flip)?;
                (first + 1 + skipped, rest[skipped] ^ flip)
            }
            bits => (first, bits),
        };
        let piece = byte as u32 * 8 + bits.leading_zeros();
        (piece < self.pieces).then_some(piece)
    }
}

fn bit(piece: u32) -> u8 {
    0x80 >> (piece % 8)
}

/// Returns the bits of the last byte that belong to no piece.
fn spare_bits(pieces: u32) -> u8 {
    if pieces.is_multiple_of(8) { 0 } else { 0xff >> (pieces % 8) }
}

/// A payload of a `bitfield` message that does not fit the torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BitfieldError {
    /// Not one bit a piece.
    #[error("{bytes} bytes for {pieces} pieces")]
    Length {
        /// Length of the payload.
        bytes: usize,
        /// Pieces of the torrent.
        pieces: u32,
    },
    /// A bit behind the last piece is set.
    #[error("a bit behind the last piece is set")]
    SpareBits,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_piece_is_the_highest_bit() {
        let mut set = Bitfield::none(10);
        assert!(set.insert(PieceIndex(0)) && set.insert(PieceIndex(9)));
        assert!(!set.insert(PieceIndex(9)) && !set.insert(PieceIndex(10)));
        assert_eq!(set.as_wire(), [0x80, 0x40]);
        assert_eq!(Bitfield::from_wire(&[0x80, 0x40], 10), Ok(set));
        assert_eq!(Bitfield::from_wire(&[0x80, 0x20], 10), Err(BitfieldError::SpareBits));
        assert_eq!(Bitfield::from_wire(&[0xff], 8), Ok(Bitfield::all(8)));
        for wire in [&[][..], &[0], &[0; 3]] {
            let length = BitfieldError::Length { bytes: wire.len(), pieces: 10 };
            assert_eq!(Bitfield::from_wire(wire, 10), Err(length));
        }
        assert!(!Bitfield::all(3).contains(PieceIndex(3)));
        assert!(Bitfield::none(0).is_full() && Bitfield::none(0).runs().next().is_none());
    }

    proptest! {
        #[test]
        fn agrees_with_one_flag_a_piece(
            mut flags in prop::collection::vec(any::<bool>(), 0..70),
            fill in 0usize..4,
            changes in prop::collection::vec((any::<bool>(), 0u32..80), 0..40),
            piece_bytes in 1u32..9,
            last_bytes in 1u32..9,
        ) {
            // Long runs, too.
            let middle = flags.len() / 4..flags.len() / 4 * 3;
            match fill {
                0 => flags[middle].fill(true),
                1 => flags[middle].fill(false),
                _ => {}
            }
            let pieces = flags.len() as u32;
            let mut set = Bitfield::none(pieces);
            for (piece, _) in flags.iter().enumerate().filter(|it| *it.1) {
                set.insert(PieceIndex(piece as u32));
            }
            for (add, piece) in changes {
                let had = flags.get(piece as usize).copied();
                let changed = match add {
                    true => set.insert(PieceIndex(piece)),
                    false => set.remove(PieceIndex(piece)),
                };
                prop_assert_eq!(changed, had == Some(!add));
                if let Some(flag) = flags.get_mut(piece as usize) {
                    *flag = add;
                }
            }
            let expected: Vec<PieceIndex> =
                (0..pieces).filter(|&piece| flags[piece as usize]).map(PieceIndex).collect();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected);
            prop_assert_eq!(set.count() as usize, flags.iter().filter(|flag| **flag).count());
            prop_assert_eq!(Bitfield::from_wire(set.as_wire(), pieces), Ok(set.clone()));
            let all = Bitfield::all(pieces);
            prop_assert_eq!(all.iter().count() as u32, pieces);
            prop_assert!(Bitfield::from_wire(all.as_wire(), pieces).is_ok());

            if pieces > 0 {
                let total = u64::from(piece_bytes) * u64::from(pieces - 1)
                    + u64::from(last_bytes.min(piece_bytes));
                let layout = PieceLayout::new(piece_bytes, total).unwrap();
                let ranges = set.to_ranges(layout);
                for offset in 0..total {
                    let piece = (offset / u64::from(piece_bytes)) as usize;
                    prop_assert_eq!(ranges.contains(offset), flags[piece]);
                }
                prop_assert!(ranges.last().is_none_or(|last| last.end <= total));
                prop_assert_eq!(Bitfield::from_ranges(&ranges, layout), set);
            }
        }

        #[test]
        fn a_piece_counts_only_if_all_of_it_is_there(
            parts in prop::collection::vec((0u64..60, 0u64..20), 0..8),
        ) {
            let layout = PieceLayout::new(7, 52).unwrap();
            let ranges: RangeSet = parts.iter().map(|&(start, len)| Range::of_len(start, len)).collect();
            let set = Bitfield::from_ranges(&ranges, layout);
            for piece in 0..layout.count() {
                let range = layout.range_of(PieceIndex(piece)).unwrap();
                prop_assert_eq!(set.contains(PieceIndex(piece)), ranges.covers(range));
            }
        }
    }
}
