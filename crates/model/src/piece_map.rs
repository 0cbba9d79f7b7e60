//! Where the bytes of a dataset lie in the pieces of a torrent.
//!
//! A torrent numbers its bytes in *piece space*: piece `i` begins at `i × piece length`. There, padding
//! may follow a file, so that the next one begins at a new piece (BEP 47, BEP 52). The *content* is
//! without padding: all files end to end.

use crate::range::Range;

/// Maps the content of a torrent to piece space, and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceMap {
    piece_bytes: u64,
    /// The end of piece space.
    total_bytes: u64,
    content_bytes: u64,
    /// The first byte of each file that is not empty, in order.
    files: Vec<Place>,
}

/// A byte in both numberings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    content: u64,
    space: u64,
}

impl PieceMap {
    /// Returns the map of `files`, given as ranges of piece space, in their order. `None` if they
    /// overlap or reach behind `total_bytes`, or if the piece length is 0.
    pub fn new(
        piece_bytes: u64,
        total_bytes: u64,
        files: impl IntoIterator<Item = Range>,
    ) -> Option<PieceMap> {
        let mut map = PieceMap { piece_bytes, total_bytes, content_bytes: 0, files: Vec::new() };
        let mut end = 0;
        for file in files.into_iter().filter(|file| !file.is_empty()) {
            if file.start < end {
                return None;
            }
            map.files.push(Place { content: map.content_bytes, space: file.start });
            map.content_bytes += file.len();
            end = file.end;
        }
        (piece_bytes > 0 && end <= total_bytes).then_some(map)
    }

    /// Returns the length of every piece except the last.
    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// Returns the number of pieces.
    pub fn piece_count(&self) -> u64 {
        self.total_bytes.div_ceil(self.piece_bytes)
    }

    /// Returns the length of the content.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Returns a piece in piece space; empty past the last.
    pub fn space_of(&self, piece: u64) -> Range {
        let start = piece.saturating_mul(self.piece_bytes).min(self.total_bytes);
        Range::new(start, start.saturating_add(self.piece_bytes).min(self.total_bytes))
    }

    /// Returns the content of a piece, `None` if it has none.
    pub fn range_of(&self, piece: u64) -> Option<Range> {
        Some(self.to_content(self.space_of(piece))).filter(|range| !range.is_empty())
    }

    /// Returns the piece of a byte of the content, which may lie behind its end.
    pub fn piece_at(&self, offset: u64) -> u64 {
        let place = self.files[..self.files.partition_point(|it| it.content <= offset)].last();
        let space = place.map_or(offset, |it| it.space.saturating_add(offset - it.content));
        space / self.piece_bytes
    }

    /// Returns the content of a range of piece space; empty if that is padding.
    pub fn to_content(&self, space: Range) -> Range {
        let start = self.content_at(space.start);
        Range::new(start, self.content_at(space.end).max(start))
    }

    /// Returns the parts of a range of the content, in order, each with its place in piece space.
    pub fn to_space(&self, content: Range) -> impl Iterator<Item = (Range, Range)> + '_ {
        let mut at = content.start;
        let end = content.end.min(self.content_bytes);
        let mut file = self.files.partition_point(|it| it.content <= at).saturating_sub(1);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let first = self.files.get(file)?;
            let space = first.space + (at - first.content);
            let start = at;
            // Files without padding between them are one part.
            loop {
                at = self.end_of(file).min(end);
                file += 1;
                let is_next = |it: &Place| at < end && it.space - space == it.content - start;
                if !self.files.get(file).is_some_and(is_next) {
                    break;
                }
            }
            Some((Range::new(start, at), Range::of_len(space, at - start)))
        })
    }

    /// Returns the content of the file that begins with the byte at `offset`, or holds it.
    pub fn file_at(&self, offset: u64) -> Option<Range> {
        let behind = self.files.partition_point(|it| it.content <= offset);
        let file = behind.checked_sub(1).filter(|_| offset < self.content_bytes)?;
        Some(Range::new(self.files[file].content, self.end_of(file)))
    }

    /// Returns the end of the content of file number `file` in the list.
    fn end_of(&self, file: usize) -> u64 {
        self.files.get(file + 1).map_or(self.content_bytes, |next| next.content)
    }

    /// Returns the first byte of the content at or behind a place in piece space.
    fn content_at(&self, space: u64) -> u64 {
        let behind = self.files.partition_point(|it| it.space <= space);
        let Some(file) = behind.checked_sub(1) else { return 0 };
        let place = self.files[file];
        place.content.saturating_add(space - place.space).min(self.end_of(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn padding_is_no_content() {
        // Files of 5, 20 and 10 bytes in pieces of 10, with padding behind the first.
        let files = [Range::new(0, 5), Range::new(10, 30), Range::new(30, 30), Range::new(30, 40)];
        let map = PieceMap::new(10, 40, files).unwrap();
        assert_eq!((map.content_bytes(), map.piece_count()), (35, 4));
        let ranges: Vec<_> = (0..5).map(|piece| map.range_of(piece)).collect();
        let expected = [(0, 5), (5, 15), (15, 25), (25, 35)].map(|it| Some(Range::new(it.0, it.1)));
        assert_eq!(ranges[..4], expected);
        assert_eq!(ranges[4], None);
        assert_eq!([0, 4, 5, 14, 15, 34].map(|at| map.piece_at(at)), [0, 0, 1, 1, 2, 3]);
        let parts: Vec<_> = map.to_space(Range::new(3, 33)).collect();
        let (first, second) = ((3, 5, 3, 5), (5, 33, 10, 38));
        let parts: Vec<_> =
            parts.iter().map(|it| (it.0.start, it.0.end, it.1.start, it.1.end)).collect();
        assert_eq!(parts, [first, second]);
        assert_eq!(map.to_content(Range::new(5, 10)), Range::new(5, 5));
        assert_eq!(map.file_at(6), Some(Range::new(5, 25)));
        assert_eq!(map.file_at(35), None);
    }

    #[test]
    fn impossible_files_are_refused() {
        assert!(PieceMap::new(0, 40, [Range::new(0, 40)]).is_none());
        assert!(PieceMap::new(10, 39, [Range::new(0, 40)]).is_none());
        assert!(PieceMap::new(10, 40, [Range::new(0, 10), Range::new(9, 12)]).is_none());
    }

    proptest! {
        #[test]
        fn both_numberings_tell_the_same_bytes(
            piece_bytes in 1..20u64,
            files in proptest::collection::vec((0..30u64, 0..8u64), 0..8),
            from in 0..200u64,
            len in 0..200u64,
        ) {
            let mut end = 0;
            let mut ranges = Vec::new();
            // The place of every byte of the content.
            let mut space = Vec::new();
            for (length, padding) in files {
                ranges.push(Range::of_len(end, length));
                space.extend(end..end + length);
                end += length + padding;
            }
            let map = PieceMap::new(piece_bytes, end, ranges).unwrap();
            prop_assert_eq!(map.content_bytes(), space.len() as u64);
            for (at, place) in space.iter().enumerate() {
                let piece = map.piece_at(at as u64);
                prop_assert_eq!(piece, place / piece_bytes);
                prop_assert!(map.range_of(piece).unwrap().contains(at as u64));
                prop_assert_eq!(map.to_content(Range::of_len(*place, 1)), Range::of_len(at as u64, 1));
            }
            let mut expected = space.iter().skip(from as usize).take(len as usize);
            for (content, part) in map.to_space(Range::of_len(from, len)) {
                prop_assert_eq!(content.len(), part.len());
                for place in part.start..part.end {
                    prop_assert_eq!(Some(&place), expected.next());
                }
            }
            prop_assert_eq!(expected.next(), None);
        }
    }
}
