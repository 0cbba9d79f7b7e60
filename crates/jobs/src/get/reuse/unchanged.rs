//! Which bytes of a new version an old one has too, and where.

use std::collections::HashMap;
use std::sync::Arc;

use swath_formats::torrent::Metainfo;
use swath_model::pieces::Pieces;
use swath_model::{PieceMap, Range};

/// Bytes of the new version that the old one has too. Both count in bytes of their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unchanged {
    /// Where they lie in the new version.
    pub new: Range,
    /// Where they begin in the old one.
    pub old_start: u64,
}

impl Unchanged {
    /// Returns where they lie in the old version.
    pub fn old(&self) -> Range {
        Range::of_len(self.old_start, self.new.len())
    }
}

/// Returns the unchanged bytes, in the order of the new version: whole pieces of it. They may have moved. If the piece
/// length has changed, only whole files of v2 torrents are found.
pub fn unchanged(old: &Metainfo, new: &Metainfo) -> Vec<Unchanged> {
    let has_v2 = [old, new].iter().all(|it| it.info.kind().has_v2() && it.has_piece_layers());
    let is_same_length = old.info.piece_bytes() == new.info.piece_bytes();
    match (has_v2, is_same_length) {
        (true, true) => of_pieces(old.proof(), new.proof()),
        (true, false) => of_files(old, new),
        (false, true) => of_pieces(pieces_v1(old), pieces_v1(new)),
        (false, false) => Vec::new(),
    }
}

fn pieces_v1(of: &Metainfo) -> Option<Pieces> {
    let pieces = of.info.pieces_v1()?;
    Some(pieces.clone().padded(Arc::new(of.piece_map())))
}

fn of_pieces(old: Option<Pieces>, new: Option<Pieces>) -> Vec<Unchanged> {
    let (Some(old), Some(new)) = (old, new) else { return Vec::new() };
    let mut places: HashMap<(&[u8], u64), u64> = HashMap::new();
    for (digest, range) in listed(&old) {
        places.entry((digest, range.len())).or_insert(range.start);
    }
    let mut old_pieces = listed(&old).peekable();
    let mut found = Vec::new();
    for (digest, range) in listed(&new) {
        // Of equal pieces, the one behind the last match: it keeps reads long.
        let next = found.last().map_or(0, |last: &Unchanged| last.old().end);
        while old_pieces.next_if(|(_, range)| range.start < next).is_some() {}
        let follows = old_pieces
            .peek()
            .filter(|(other, at)| *other == digest && at.len() == range.len() && at.start == next);
        let place = follows.map(|(_, at)| at.start);
        if let Some(start) = place.or_else(|| places.get(&(digest, range.len())).copied()) {
            add(&mut found, Unchanged { new: range, old_start: start });
        }
    }
    found
}

/// Returns the pieces that have content.
fn listed(pieces: &Pieces) -> impl Iterator<Item = (&[u8], Range)> {
    let digests = pieces.packed().chunks_exact(pieces.algorithm().digest_bytes());
    (0..).zip(digests).filter_map(|(piece, digest)| {
        let range = pieces.range_of(piece, u64::MAX).filter(|range| !range.is_empty())?;
        Some((digest, range))
    })
}

fn of_files(old: &Metainfo, new: &Metainfo) -> Vec<Unchanged> {
    let (old_map, new_map) = (old.piece_map(), new.piece_map());
    let places: HashMap<_, u64> =
        rooted(old, &old_map).map(|(root, range)| ((root, range.len()), range.start)).collect();
    let mut found = Vec::new();
    for (root, range) in rooted(new, &new_map) {
        if let Some(&old_start) = places.get(&(root, range.len())) {
            add(&mut found, Unchanged { new: range, old_start });
        }
    }
    found
}

/// Returns the roots of the files that have bytes, with their content.
fn rooted<'a>(of: &'a Metainfo, map: &'a PieceMap) -> impl Iterator<Item = ([u8; 32], Range)> + 'a {
    let wanted = of.content().into_iter().filter(|it| it.is_wanted && !it.range.is_empty());
    wanted.filter_map(|part| {
        let file = &of.info.files()[part.file];
        Some((file.pieces_root?, map.to_content(Range::of_len(file.offset, file.length_bytes))))
    })
}

/// Adds a part, as one with the part before it if they follow each other in both versions.
fn add(found: &mut Vec<Unchanged>, part: Unchanged) {
    match found.last_mut() {
        Some(last) if last.new.end == part.new.start && last.old().end == part.old_start => {
            last.new.end = part.new.end;
        }
        _ => found.push(part),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Files, torrent};
    use super::*;
    use swath_formats::torrent::metainfo::Kind;

    const PIECE: u64 = 16 << 10;

    fn bytes(seed: u64, count: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        std::iter::repeat_with(|| random.u8(..)).take(count).collect()
    }

    /// Each part is equal in both contents; returns how many bytes were found.
    fn found(kind: Kind, old: &Files, new: &Files) -> u64 {
        let parts = unchanged(&torrent(kind, PIECE, old), &torrent(kind, PIECE, new));
        let content = |files: &Files, kind| {
            let mut files = files.clone();
            if kind != Kind::V1 {
                files.sort();
            }
            files.into_iter().flat_map(|(_, bytes)| bytes).collect::<Vec<u8>>()
        };
        let (old, new) = (content(old, kind), content(new, kind));
        for part in &parts {
            let at = |range: Range| range.start as usize..range.end as usize;
            assert!(new[at(part.new)] == old[at(part.old())], "{kind:?} {part:?}");
        }
        assert!(parts.windows(2).all(|pair| pair[0].new.end <= pair[1].new.start));
        parts.iter().map(|part| part.new.len()).sum()
    }

    #[test]
    fn changed_pieces_are_left_out_and_moved_ones_are_found() {
        let a = bytes(1, 10 * PIECE as usize + 5);
        let old: Files = vec![("a".to_owned(), a.clone()), ("b".to_owned(), bytes(2, 70_000))];
        let total = (a.len() + 70_000) as u64;
        for kind in [Kind::V1, Kind::V2, Kind::Hybrid] {
            assert_eq!(found(kind, &old, &old), total);
            let mut new = old.clone();
            new[0].1[3 * PIECE as usize + 7] ^= 1;
            assert_eq!(found(kind, &old, &new), total - PIECE);
            // A piece was inserted before all others.
            new = old.clone();
            new[0].1.splice(0..0, bytes(3, PIECE as usize));
            assert!(found(kind, &old, &new) >= total - PIECE, "{kind:?}");
            // Everything has shifted within the pieces of that file.
            new = old.clone();
            new[0].1.insert(0, 7);
            let expected = if kind == Kind::V1 { 0 } else { 70_000 };
            assert_eq!(found(kind, &old, &new), expected, "{kind:?}");
        }
        // A renamed file, which comes first now.
        let mut new = old.clone();
        new[1].0 = "0".to_owned();
        for kind in [Kind::V2, Kind::Hybrid] {
            assert_eq!(found(kind, &old, &new), total);
        }
    }

    #[test]
    fn equal_pieces_are_read_in_a_row() {
        let zeros: Files = vec![("a".to_owned(), vec![0; 100 * PIECE as usize])];
        let torrent = torrent(Kind::V2, PIECE, &zeros);
        assert_eq!(
            unchanged(&torrent, &torrent),
            [Unchanged { new: Range::new(0, 100 * PIECE), old_start: 0 }]
        );
    }

    #[test]
    fn files_are_found_by_their_roots_if_the_piece_length_has_changed() {
        let old: Files = vec![("a".to_owned(), bytes(1, 300_000)), ("b".to_owned(), bytes(2, 500))];
        let mut new = old.clone();
        new[1].1[0] ^= 1;
        for kind in [Kind::V1, Kind::V2, Kind::Hybrid] {
            let parts = unchanged(&torrent(kind, PIECE, &old), &torrent(kind, 2 * PIECE, &new));
            let expected = Unchanged { new: Range::new(0, 300_000), old_start: 0 };
            let expected = if kind == Kind::V1 { vec![] } else { vec![expected] };
            assert_eq!(parts, expected, "{kind:?}");
        }
    }
}
