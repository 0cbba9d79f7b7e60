//! The part of a torrent's content that is wanted.
//!
//! Only whole pieces can be verified. So the wanted content is the wanted files and, in v1 torrents
//! whose files follow each other within pieces, the bytes of their neighbours in the same pieces. In
//! v2 and hybrid torrents each file has pieces of its own, and there are no such bytes.

use swath_model::{PieceMap, Range, RangeSet};

use super::{File, Metainfo};

/// A part of the content, which consists of all of them end to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentPart {
    /// The number of its file in [`Info::files`](super::Info::files).
    pub file: usize,
    /// Its bytes in the file.
    pub range: Range,
    /// Whether the file is wanted, which is then all of the file. Otherwise these bytes only help to verify a
    /// piece.
    pub is_wanted: bool,
}

/// The content of a torrent, reduced to some of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    parts: Vec<ContentPart>,
    map: PieceMap,
}

impl Metainfo {
    /// Reduces the content to the files that `is_wanted` chooses; returns how many these are. Files and
    /// pieces keep their numbers, and the pieces of other files have no content.
    pub fn select(&mut self, is_wanted: impl Fn(&File) -> bool) -> usize {
        self.reduce(self.info.files().iter().map(is_wanted).collect())
    }

    /// Reduces the content in the same way to the files with these numbers in the torrent, as links have them
    /// (BEP 53).
    pub fn select_numbers(&mut self, numbers: &RangeSet) -> usize {
        let has = |file: &File| {
            let number = u64::from(file.number);
            numbers.covers(Range::new(number, number + 1))
        };
        let files = 0..self.info.files().len();
        self.reduce(files.map(|file| self.info.segments(file).iter().any(has)).collect())
    }

    fn reduce(&mut self, wanted: Vec<bool>) -> usize {
        let info = &self.info;
        let place = |file: &File| Range::of_len(file.offset, file.length_bytes);
        let mut space = RangeSet::new();
        for (file, _) in info.files().iter().zip(&wanted).filter(|it| *it.1) {
            let Range { start, end } = place(file);
            if start < end {
                let piece_bytes = info.piece_bytes();
                let start = start - start % piece_bytes;
                space.insert(Range::new(start, end.next_multiple_of(piece_bytes)));
            }
        }
        let mut parts = Vec::new();
        for (number, (file, &is_wanted)) in info.files().iter().zip(&wanted).enumerate() {
            if is_wanted {
                let range = Range::new(0, file.length_bytes);
                parts.push(ContentPart { file: number, range, is_wanted });
                continue;
            }
            for part in space.within(place(file)) {
                let range = Range::new(part.start - file.offset, part.end - file.offset);
                parts.push(ContentPart { file: number, range, is_wanted });
            }
        }
        let places = parts.iter().flat_map(|part| {
            let offset = info.files()[part.file].offset;
            let range = Range::new(offset + part.range.start, offset + part.range.end);
            info.segments(part.file).iter().filter_map(move |file| place(file).intersect(range))
        });
        let map = PieceMap::new(info.piece_bytes(), info.total_bytes(), places);
        // Parts of what an `Info` holds, which was checked.
        let map = map.expect("files in order");
        self.selection = Some(Selection { parts, map });
        wanted.into_iter().filter(|is_wanted| *is_wanted).count()
    }

    /// Returns the parts of the content, in order: all files, or after [`Metainfo::select`] those that are
    /// wanted with what is needed to verify them.
    pub fn content(&self) -> Vec<ContentPart> {
        let whole = |(number, file): (usize, &File)| {
            let range = Range::new(0, file.length_bytes);
            ContentPart { file: number, range, is_wanted: true }
        };
        match &self.selection {
            Some(selection) => selection.parts.clone(),
            None => self.info.files().iter().enumerate().map(whole).collect(),
        }
    }

    /// Returns where the content lies in the pieces.
    pub fn piece_map(&self) -> PieceMap {
        match &self.selection {
            Some(selection) => selection.map.clone(),
            None => self.info.piece_map(),
        }
    }

    /// Returns whether some files are not wanted.
    pub fn is_reduced(&self) -> bool {
        self.selection.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use swath_model::digest::{Algorithm, Hasher, Sha256Tree};
    use swath_model::path::SafePath;

    use super::super::{Builder, Kind, NewFile, What};
    use super::*;

    const PIECE: u64 = 16 << 10;

    /// A torrent of files with these lengths, and the content of each.
    fn torrent(kind: Kind, lengths: &[u64]) -> (Metainfo, Vec<Vec<u8>>) {
        let contents: Vec<Vec<u8>> = (1..)
            .zip(lengths)
            .map(|(seed, &bytes)| (0..bytes).map(|at| (at * seed % 251) as u8).collect())
            .collect();
        let mut builder = Builder::new(kind, SafePath::new("set").unwrap(), PIECE);
        let file = |(number, content): (usize, &Vec<u8>)| {
            let mut tree = Sha256Tree::new(PIECE);
            tree.update(content);
            let hashes = tree.finish().filter(|_| kind.has_v2());
            let path = SafePath::new(&format!("{number:03}")).unwrap();
            NewFile { hashes, ..NewFile::new(path, content.len() as u64) }
        };
        builder.files = contents.iter().enumerate().map(file).collect();
        let mut space = Vec::new();
        for entry in builder.layout().unwrap().entries {
            match entry.what {
                What::File(number) => space.extend_from_slice(&contents[number]),
                What::Padding => space.resize(space.len() + entry.length_bytes as usize, 0),
            }
        }
        if kind.has_v1() {
            let digest = |piece: &[u8]| Hasher::digest(Algorithm::Sha1, piece).as_bytes().to_vec();
            builder.pieces_v1 = space.chunks(PIECE as usize).flat_map(digest).collect();
        }
        (builder.build().unwrap(), contents)
    }

    #[test]
    fn neighbours_in_the_same_pieces_come_too_in_v1_only() {
        // The last 4 KiB of the first file and the first 8 KiB of the last one share the pieces.
        let lengths = [5 * PIECE - 4096, 8192, 0, PIECE - 4096, 3 * PIECE];
        let part = |file, start, end, is_wanted| ContentPart {
            file,
            range: Range::new(start, end),
            is_wanted,
        };
        for kind in [Kind::V1, Kind::V2, Kind::Hybrid] {
            let (mut torrent, _) = torrent(kind, &lengths);
            assert!(!torrent.is_reduced());
            assert_eq!(torrent.content().len(), 5);
            assert_eq!(torrent.select(|file| file.path.as_str() == "001"), 1);
            assert!(torrent.is_reduced());
            let wanted = part(1, 0, 8192, true);
            let expected = match kind {
                Kind::V1 => vec![
                    part(0, 4 * PIECE, 5 * PIECE - 4096, false),
                    wanted,
                    part(3, 0, PIECE - 4096, false),
                ],
                _ => vec![wanted],
            };
            assert_eq!(torrent.content(), expected, "{kind:?}");
            let bytes: u64 = expected.iter().map(|it| it.range.len()).sum();
            assert_eq!(torrent.piece_map().content_bytes(), bytes);
            assert_eq!(torrent.piece_map().piece_count(), torrent.info.piece_count());
            assert!(torrent.proof().unwrap().check(bytes).is_ok());
            // Without bytes there is no piece.
            assert_eq!(torrent.select(|file| file.length_bytes == 0), 1);
            assert_eq!(torrent.piece_map().content_bytes(), 0);
            assert_eq!(torrent.content(), [part(2, 0, 0, true)]);
            assert_eq!(torrent.select(|_| false), 0);
            assert_eq!(torrent.content(), []);
        }
    }

    proptest! {
        #[test]
        fn every_piece_of_a_selection_can_be_verified(
            lengths in proptest::collection::vec(0..5 * PIECE, 1..7),
            choice in proptest::collection::vec(any::<bool>(), 7),
            kind in prop_oneof![Just(Kind::V1), Just(Kind::V2), Just(Kind::Hybrid)],
        ) {
            let (mut torrent, contents) = torrent(kind, &lengths);
            let number = |file: &File| file.path.as_str().parse::<usize>().unwrap();
            torrent.select(|file| choice[number(file)]);
            let mut content = Vec::new();
            let mut covered = vec![0; lengths.len()];
            for part in torrent.content() {
                let file = &torrent.info.files()[part.file];
                let bytes = &contents[number(file)];
                content.extend_from_slice(&bytes[part.range.start as usize..part.range.end as usize]);
                prop_assert_eq!(part.is_wanted, choice[number(file)]);
                if part.is_wanted {
                    covered[number(file)] += part.range.len();
                }
            }
            for (number, &bytes) in lengths.iter().enumerate() {
                prop_assert_eq!(covered[number], if choice[number] { bytes } else { 0 });
            }
            let size = content.len() as u64;
            prop_assert_eq!(torrent.piece_map().content_bytes(), size);
            let Some(pieces) = torrent.proof() else { return Ok(()) };
            prop_assert!(pieces.check(size).is_ok());
            let mut at = 0;
            for piece in 0..pieces.count() {
                let Some(range) = pieces.range_of(piece, size) else { continue };
                prop_assert_eq!(range.start, at, "pieces tile the content");
                at = range.end;
                let mut hasher = pieces.hasher(piece);
                hasher.update(&content[range.start as usize..range.end as usize]);
                prop_assert_eq!(Some(hasher.finish()), pieces.digest(piece));
            }
            prop_assert_eq!(at, size);
        }
    }
}
