//! Pieces and blocks: where they lie in the bytes of a torrent.
//!
//! Offsets are those of the torrent's piece space: piece `i` begins at `i × piece length`. For v1
//! and hybrid torrents these are the files laid end to end, padding files included (BEP 47). A
//! v2-only torrent (BEP 52) starts every file at a piece of its own, so that the space behind a
//! file's end up to the next piece belongs to no file; the caller maps files and never asks for it.

use std::fmt;

use swath_model::Range;

/// The number of a piece, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceIndex(pub u32);

impl fmt::Display for PieceIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "piece {}", self.0)
    }
}

/// A part of a piece, as `request`, `piece`, `cancel` and `reject request` name it (BEP 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    /// The piece.
    pub piece: PieceIndex,
    /// Offset of the first byte in the piece.
    pub begin: u32,
    /// Length in bytes.
    pub length: u32,
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {} of {}", self.length, self.begin, self.piece)
    }
}

/// How a torrent is cut into pieces. There is at least one piece, and all piece numbers fit in 32
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceLayout {
    piece_bytes: u32,
    total_bytes: u64,
}

impl PieceLayout {
    /// Returns the layout of `total_bytes` in pieces of `piece_bytes`; `None` if either is 0, or if
    /// there are more than [`PIECES_MAX`] pieces.
    pub fn new(piece_bytes: u32, total_bytes: u64) -> Option<PieceLayout> {
        let is_possible = piece_bytes > 0
            && total_bytes > 0
            && total_bytes.div_ceil(u64::from(piece_bytes)) <= u64::from(PIECES_MAX);
        is_possible.then_some(PieceLayout { piece_bytes, total_bytes })
    }

    /// Returns the length of every piece except the last.
    pub fn piece_bytes(self) -> u32 {
        self.piece_bytes
    }

    /// Returns the length of all pieces together.
    pub fn total_bytes(self) -> u64 {
        self.total_bytes
    }

    /// Returns the number of pieces.
    pub fn count(self) -> u32 {
        self.total_bytes.div_ceil(u64::from(self.piece_bytes)) as u32
    }

    /// Returns the bytes of a piece, `None` past the last.
    pub fn range_of(self, piece: PieceIndex) -> Option<Range> {
        let start = u64::from(piece.0) * u64::from(self.piece_bytes);
        let end = (start + u64::from(self.piece_bytes)).min(self.total_bytes);
        (start < end).then_some(Range { start, end })
    }

    /// Returns the bytes of a block, `None` if it is empty or not within one piece.
    pub fn range_of_block(self, block: Block) -> Option<Range> {
        let piece = self.range_of(block.piece)?;
        let range = Range::of_len(piece.start + u64::from(block.begin), u64::from(block.length));
        (!range.is_empty() && piece.covers(range)).then_some(range)
    }

    /// Returns the bytes of a block that a peer asks for, `None` if it is empty or not within one
    /// piece. They may end behind the last byte: libtorrent 2.0 takes the last piece of a v2 torrent
    /// for one as long as the others, and expects zeros there.
    pub fn range_of_request(self, block: Block) -> Option<Range> {
        let piece = self.range_of(block.piece)?;
        let padded = Range::of_len(piece.start, u64::from(self.piece_bytes));
        let range = Range::of_len(piece.start + u64::from(block.begin), u64::from(block.length));
        (!range.is_empty() && padded.covers(range)).then_some(range)
    }

    /// Returns the first block of `range`: it ends where a piece, a multiple of [`BLOCK_BYTES`] in
    /// the piece, or the range ends. `None` if no byte of the range is in the torrent.
    pub fn first_block(self, range: Range) -> Option<Block> {
        let range = range.intersect(Range::new(0, self.total_bytes))?;
        let piece_bytes = u64::from(self.piece_bytes);
        let begin = (range.start % piece_bytes) as u32;
        let length = (BLOCK_BYTES - begin % BLOCK_BYTES).min(self.piece_bytes - begin);
        Some(Block {
            piece: PieceIndex((range.start / piece_bytes) as u32),
            begin,
            length: u64::from(length).min(range.len()) as u32,
        })
    }
}

/// The length of blocks that every client serves (BEP 3); several refuse longer ones.
pub const BLOCK_BYTES: u32 = 16 << 10;
/// Most pieces of a torrent: their bitfield has 2 MiB, their SHA-1 digests 320 MiB. Metafiles of
/// others are far smaller.
pub const PIECES_MAX: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn impossible_layouts_are_refused() {
        assert_eq!(PieceLayout::new(0, 1), None);
        assert_eq!(PieceLayout::new(1, 0), None);
        assert_eq!(PieceLayout::new(1, u64::from(PIECES_MAX) + 1), None);
        assert_eq!(PieceLayout::new(u32::MAX, u64::MAX), None);
        assert_eq!(PieceLayout::new(1, u64::from(PIECES_MAX)).unwrap().count(), PIECES_MAX);
    }

    #[test]
    fn a_block_must_lie_within_its_piece() {
        let layout = PieceLayout::new(100, 250).unwrap();
        let range = |piece, begin, length| {
            layout.range_of_block(Block { piece: PieceIndex(piece), begin, length })
        };
        assert_eq!(layout.count(), 3);
        assert_eq!(range(1, 10, 90), Some(Range::new(110, 200)));
        assert_eq!(range(2, 0, 50), Some(Range::new(200, 250)));
        for (piece, begin, length) in [
            (1, 10, 91),
            (2, 0, 51),
            (3, 0, 1),
            (0, 0, 0),
            (0, 100, 0),
            (u32::MAX, u32::MAX, u32::MAX),
            (0, u32::MAX, 1),
        ] {
            assert_eq!(range(piece, begin, length), None, "{piece} {begin} {length}");
        }
    }

    #[test]
    fn a_request_may_reach_behind_the_last_byte() {
        let layout = PieceLayout::new(100, 250).unwrap();
        let range = |piece, begin, length| {
            layout.range_of_request(Block { piece: PieceIndex(piece), begin, length })
        };
        assert_eq!(range(1, 10, 90), Some(Range::new(110, 200)));
        assert_eq!(range(2, 0, 100), Some(Range::new(200, 300)));
        assert_eq!(range(2, 60, 40), Some(Range::new(260, 300)));
        for (piece, begin, length) in
            [(1, 10, 91), (2, 0, 101), (3, 0, 1), (2, 100, 0), (0, u32::MAX, 1)]
        {
            assert_eq!(range(piece, begin, length), None, "{piece} {begin} {length}");
        }
    }

    proptest! {
        #[test]
        fn blocks_cover_a_range_in_order(
            piece_bytes in 1u32..100_000,
            total_bytes in 1u64..400_000,
            start in 0u64..500_000,
            len in 0u64..500_000,
        ) {
            let layout = PieceLayout::new(piece_bytes, total_bytes).unwrap();
            let inside = Range::of_len(start, len).intersect(Range::new(0, total_bytes));
            let mut left = Range::of_len(start, len);
            let mut at = start;
            while let Some(block) = layout.first_block(left) {
                let range = layout.range_of_block(block).unwrap();
                prop_assert_eq!(range.start, at);
                let whole = block.begin.is_multiple_of(BLOCK_BYTES);
                prop_assert!(block.length <= BLOCK_BYTES && (whole || block.begin / BLOCK_BYTES == (block.begin + block.length - 1) / BLOCK_BYTES));
                at = range.end;
                left = Range::new(range.end, left.end);
            }
            prop_assert_eq!(at, inside.map_or(start, |inside| inside.end));
        }
    }
}
