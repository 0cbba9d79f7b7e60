//! The digests of a file's pieces, as Metalink and torrents list them.
//!
//! Pieces cover the file from its first byte. All have one length except the last, which may be
//! shorter; those of a torrent with padding follow its [`PieceMap`]. Their digests are packed: 20 or 32
//! bytes each and no more, because there may be hundreds of thousands.

use std::sync::Arc;

use crate::digest::sha256_tree::{self, LEAF_BYTES};
use crate::digest::{Algorithm, Digest, Hasher, Sha256Tree};
use crate::piece_map::PieceMap;
use crate::range::Range;

/// Piece digests of one file or dataset, all of one kind; cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Pieces {
    algorithm: Algorithm,
    length_bytes: u64,
    /// The digests in a row; shared, because they may be tens of megabytes.
    packed: Arc<[u8]>,
    torrent: Option<TorrentPieces>,
}

/// How the pieces of a torrent differ from others.
#[derive(Clone, PartialEq, Eq)]
struct TorrentPieces {
    map: Arc<PieceMap>,
    /// The digests are hashes of SHA-256 trees (BEP 52), else digests with padding (BEP 3).
    are_trees: bool,
}

impl Pieces {
    /// Returns pieces of `length_bytes` with their packed digests.
    ///
    /// # Errors
    /// [`PiecesError::LengthZero`], or [`PiecesError::Packed`] if `packed` is not a whole number of
    /// digests.
    pub fn new(
        algorithm: Algorithm,
        length_bytes: u64,
        packed: Vec<u8>,
    ) -> Result<Pieces, PiecesError> {
        if length_bytes == 0 {
            return Err(PiecesError::LengthZero);
        }
        if !packed.len().is_multiple_of(algorithm.digest_bytes()) {
            return Err(PiecesError::Packed { algorithm, packed_bytes: packed.len() });
        }
        Ok(Pieces { algorithm, length_bytes, packed: packed.into(), torrent: None })
    }

    /// Returns the same pieces as those of a torrent whose content lies in them like this. Padding is
    /// hashed as zeros.
    #[must_use]
    pub fn padded(self, map: Arc<PieceMap>) -> Pieces {
        Pieces { torrent: Some(TorrentPieces { map, are_trees: false }), ..self }
    }

    /// Returns the pieces of a v2 torrent: each has a hash of the SHA-256 tree of its file, and none
    /// reaches into another file.
    ///
    /// # Errors
    /// [`PiecesError::Packed`] as [`Pieces::new`], [`PiecesError::Length`] if the piece length is not
    /// one of BEP 52.
    pub fn of_trees(map: Arc<PieceMap>, packed: Vec<u8>) -> Result<Pieces, PiecesError> {
        let length_bytes = map.piece_bytes();
        if !length_bytes.is_power_of_two() || length_bytes < LEAF_BYTES {
            return Err(PiecesError::Length { length_bytes });
        }
        let pieces = Pieces::new(Algorithm::Sha256, length_bytes, packed)?;
        Ok(Pieces { torrent: Some(TorrentPieces { map, are_trees: true }), ..pieces })
    }

    /// Returns the algorithm of the digests.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the length of the longest piece.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Returns the number of pieces.
    pub fn count(&self) -> u64 {
        (self.packed.len() / self.algorithm.digest_bytes()) as u64
    }

    /// Returns the packed digests.
    pub fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// Returns the digest that piece `piece` must have, `None` past the last.
    pub fn digest(&self, piece: u64) -> Option<Digest> {
        let each = self.algorithm.digest_bytes();
        let start = usize::try_from(piece).ok()?.checked_mul(each)?;
        let bytes = self.packed.get(start..start.checked_add(each)?)?;
        Digest::new(self.algorithm, bytes).ok()
    }

    /// Returns a hasher for the bytes of piece `piece`.
    pub fn hasher(&self, piece: u64) -> PieceHasher {
        match &self.torrent {
            None => PieceHasher::plain(self.algorithm, Vec::new()),
            Some(TorrentPieces { map, are_trees: false }) => {
                PieceHasher::plain(self.algorithm, padding_of(map, piece))
            }
            Some(TorrentPieces { map, .. }) => {
                let content = map.range_of(piece);
                let file = content.and_then(|range| map.file_at(range.start));
                let file_bytes = file.map_or(0, Range::len);
                let is_small = file_bytes <= map.piece_bytes();
                let height = match is_small {
                    true => sha256_tree::root_height(file_bytes.max(1)),
                    false => sha256_tree::piece_height(map.piece_bytes()),
                };
                PieceHasher(Kind::Tree {
                    tree: Box::new(Sha256Tree::new(LEAF_BYTES << height)),
                    height,
                })
            }
        }
    }

    /// Returns the piece of the byte at `offset`, which may be past the last.
    pub fn piece_at(&self, offset: u64) -> u64 {
        match &self.torrent {
            Some(torrent) => torrent.map.piece_at(offset),
            None => offset / self.length_bytes,
        }
    }

    /// Returns the bytes of piece `piece` in a file of `size_bytes`, `None` if there are none.
    pub fn range_of(&self, piece: u64, size_bytes: u64) -> Option<Range> {
        if piece >= self.count() {
            return None;
        }
        if let Some(torrent) = &self.torrent {
            return torrent.map.range_of(piece)?.intersect(Range::new(0, size_bytes));
        }
        let start = piece.checked_mul(self.length_bytes)?;
        let end = start.saturating_add(self.length_bytes).min(size_bytes);
        (start < end).then(|| Range::new(start, end))
    }

    /// Checks that there are as many pieces as a file of `size_bytes` has.
    ///
    /// # Errors
    /// [`PiecesError::Count`], [`PiecesError::Size`] if a torrent has another size.
    pub fn check(&self, size_bytes: u64) -> Result<(), PiecesError> {
        let Pieces { length_bytes, .. } = *self;
        let expected = match &self.torrent {
            None => size_bytes.div_ceil(length_bytes),
            Some(torrent) if torrent.map.content_bytes() != size_bytes => {
                let torrent_bytes = torrent.map.content_bytes();
                return Err(PiecesError::Size { size_bytes, torrent_bytes });
            }
            Some(torrent) => torrent.map.piece_count(),
        };
        if self.count() == expected {
            return Ok(());
        }
        Err(PiecesError::Count { size_bytes, length_bytes, expected, actual: self.count() })
    }
}

/// Computes the digest of one piece, front to back.
#[derive(Clone, Debug)]
pub struct PieceHasher(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Plain {
        hasher: Box<Hasher>,
        /// Padding that is to come, the last one first.
        padding: Vec<Padding>,
        bytes: u64,
    },
    Tree {
        tree: Box<Sha256Tree>,
        height: u32,
    },
}

/// Zeros in a piece.
#[derive(Clone, Copy, Debug)]
struct Padding {
    /// Bytes of content before it.
    after: u64,
    bytes: u64,
}

impl PieceHasher {
    fn plain(algorithm: Algorithm, mut padding: Vec<Padding>) -> PieceHasher {
        padding.reverse();
        PieceHasher(Kind::Plain { hasher: Box::new(Hasher::new(algorithm)), padding, bytes: 0 })
    }

    /// Takes in the next bytes of the content.
    pub fn update(&mut self, mut data: &[u8]) {
        match &mut self.0 {
            Kind::Tree { tree, .. } => tree.update(data),
            Kind::Plain { hasher, padding, bytes } => {
                while let Some(next) = padding.last().copied()
                    && let Some(before) = next.after.checked_sub(*bytes)
                    && before < data.len() as u64
                {
                    let (now, later) = data.split_at(before as usize);
                    hasher.update(now);
                    update_zeros(hasher, next.bytes);
                    *bytes += before;
                    data = later;
                    padding.pop();
                }
                hasher.update(data);
                *bytes += data.len() as u64;
            }
        }
    }

    /// Returns the digest.
    pub fn finish(self) -> Digest {
        match self.0 {
            Kind::Plain { mut hasher, mut padding, .. } => {
                while let Some(next) = padding.pop() {
                    update_zeros(&mut hasher, next.bytes);
                }
                hasher.finish()
            }
            Kind::Tree { tree, height } => {
                Digest::new(Algorithm::Sha256, &tree.root_at(height)).expect("32 bytes")
            }
        }
    }
}

fn update_zeros(hasher: &mut Hasher, mut bytes: u64) {
    const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
    while bytes > 0 {
        let now = bytes.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..now as usize]);
        bytes -= now;
    }
}

/// Returns the padding within a piece.
fn padding_of(map: &PieceMap, piece: u64) -> Vec<Padding> {
    let space = map.space_of(piece);
    let content = map.to_content(space);
    let mut padding = Vec::new();
    let mut add = |after, from: u64, to: u64| {
        if from < to {
            padding.push(Padding { after, bytes: to - from });
        }
    };
    let mut at = space.start;
    for (part, place) in map.to_space(content) {
        add(part.start - content.start, at, place.start);
        at = place.end;
    }
    add(content.len(), at, space.end);
    padding
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pieces({} × {} bytes, {})", self.count(), self.length_bytes, self.algorithm)
    }
}

/// Why piece digests cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PiecesError {
    /// The piece length is 0.
    #[error("the piece length is 0")]
    LengthZero,
    /// A piece length that v2 torrents do not have.
    #[error("v2 torrents have no pieces of {length_bytes} bytes")]
    Length {
        /// The piece length.
        length_bytes: u64,
    },
    /// A torrent of another file.
    #[error("the file has {size_bytes} bytes, that of the torrent {torrent_bytes}")]
    Size {
        /// The file's size.
        size_bytes: u64,
        /// The size of the torrent's content.
        torrent_bytes: u64,
    },
    /// Not a whole number of digests.
    #[error("{packed_bytes} bytes are not a whole number of {algorithm} digests")]
    Packed {
        /// The algorithm.
        algorithm: Algorithm,
        /// Bytes given.
        packed_bytes: usize,
    },
    /// The number of digests does not match the file's size.
    #[error(
        "{size_bytes} bytes in pieces of {length_bytes} need {expected} piece digests, there are {actual}"
    )]
    Count {
        /// The file's size.
        size_bytes: u64,
        /// The piece length.
        length_bytes: u64,
        /// Digests that are needed.
        expected: u64,
        /// Digests that there are.
        actual: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(length_bytes: u64, count: usize) -> Pieces {
        let packed = (0..count * 20).map(|i| (i / 20) as u8).collect();
        Pieces::new(Algorithm::Sha1, length_bytes, packed).unwrap()
    }

    #[test]
    fn digests_are_told_apart() {
        let pieces = pieces(10, 3);
        assert_eq!(pieces.digest(2).unwrap().as_bytes(), &[2; 20]);
        assert_eq!(pieces.digest(3), None);
        assert_eq!(pieces.digest(u64::MAX), None);
    }

    #[test]
    fn wrong_numbers_are_refused() {
        assert_eq!(Pieces::new(Algorithm::Md5, 0, vec![]), Err(PiecesError::LengthZero));
        assert!(Pieces::new(Algorithm::Md5, 1, vec![0; 17]).is_err());
        let error = pieces(10, 3).check(31).unwrap_err();
        assert_eq!(error.to_string(), "31 bytes in pieces of 10 need 4 piece digests, there are 3");
        assert!(pieces(10, 0).check(0).is_ok());
        assert!(pieces(u64::MAX, 1).check(u64::MAX).is_ok());
    }

    #[test]
    fn padding_is_hashed_as_zeros() {
        // Files of 5, 20 and 3 bytes in pieces of 10, with padding behind the first and the last.
        let files = [Range::new(0, 5), Range::new(10, 30), Range::new(30, 33)];
        let map = Arc::new(PieceMap::new(10, 40, files).unwrap());
        let content: Vec<u8> = (1..=28).collect();
        let mut space = [0; 40];
        space[..5].copy_from_slice(&content[..5]);
        space[10..33].copy_from_slice(&content[5..]);
        let packed = space
            .chunks(10)
            .flat_map(|piece| Hasher::digest(Algorithm::Sha1, piece).as_bytes().to_vec());
        let pieces = Pieces::new(Algorithm::Sha1, 10, packed.collect()).unwrap().padded(map);
        assert!(pieces.check(28).is_ok());
        assert!(matches!(pieces.check(40), Err(PiecesError::Size { torrent_bytes: 28, .. })));
        for piece in 0..4 {
            let range = pieces.range_of(piece, 28).unwrap();
            for step in 1..10 {
                let mut hasher = pieces.hasher(piece);
                content[range.start as usize..range.end as usize]
                    .chunks(step)
                    .for_each(|part| hasher.update(part));
                assert_eq!(Some(hasher.finish()), pieces.digest(piece), "{piece} {step}");
            }
        }
    }

    #[test]
    fn padding_before_and_between_files_of_a_piece_is_hashed_too() {
        let files = [Range::new(2, 4), Range::new(5, 7), Range::new(9, 12)];
        let map = Arc::new(PieceMap::new(20, 20, files).unwrap());
        let mut space = [0; 20];
        let content: Vec<u8> = (1..=7).collect();
        space[2..4].copy_from_slice(&content[..2]);
        space[5..7].copy_from_slice(&content[2..4]);
        space[9..12].copy_from_slice(&content[4..]);
        let packed = Hasher::digest(Algorithm::Sha1, &space).as_bytes().to_vec();
        let pieces = Pieces::new(Algorithm::Sha1, 20, packed).unwrap().padded(map);
        let mut hasher = pieces.hasher(0);
        content.chunks(3).for_each(|part| hasher.update(part));
        assert_eq!(Some(hasher.finish()), pieces.digest(0));
    }

    #[test]
    fn pieces_of_trees_are_those_of_their_files() {
        let piece_bytes = 4 * LEAF_BYTES;
        for file_bytes in [
            1,
            LEAF_BYTES - 1,
            LEAF_BYTES,
            3 * LEAF_BYTES,
            piece_bytes,
            piece_bytes + 1,
            2 * piece_bytes,
            3 * piece_bytes - 7,
        ] {
            let content: Vec<u8> = (0..file_bytes).map(|at| (at % 251) as u8).collect();
            let mut tree = Sha256Tree::new(piece_bytes);
            tree.update(&content);
            let hashes = tree.finish().unwrap();
            let layer =
                if hashes.piece_layer.is_empty() { vec![hashes.root] } else { hashes.piece_layer };
            // A small file of its own stands before it.
            let files = [Range::new(0, 9), Range::of_len(piece_bytes, file_bytes)];
            let map = PieceMap::new(piece_bytes, piece_bytes + file_bytes, files).unwrap();
            let first = sha256_tree::file_root(&[7; 9]).unwrap();
            let packed: Vec<u8> = [first].into_iter().chain(layer).flatten().collect();
            let pieces = Pieces::of_trees(Arc::new(map), packed).unwrap();
            assert!(pieces.check(9 + file_bytes).is_ok());
            for piece in 0..pieces.count() {
                let range = pieces.range_of(piece, u64::MAX).unwrap();
                let all: Vec<u8> = [7; 9].into_iter().chain(content.iter().copied()).collect();
                let mut hasher = pieces.hasher(piece);
                all[range.start as usize..range.end as usize]
                    .chunks(10_000)
                    .for_each(|part| hasher.update(part));
                assert_eq!(Some(hasher.finish()), pieces.digest(piece), "{file_bytes} {piece}");
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_tile_the_file(length in 1..50u64, size in 0..500u64) {
            let pieces = pieces(length, size.div_ceil(length) as usize);
            prop_assert!(pieces.check(size).is_ok());
            let mut at = 0;
            for piece in 0..pieces.count() {
                let range = pieces.range_of(piece, size).unwrap();
                prop_assert_eq!(range.start, at);
                prop_assert!((range.start..range.end).all(|offset| pieces.piece_at(offset) == piece));
                at = range.end;
            }
            prop_assert_eq!(at, size);
            prop_assert_eq!(pieces.range_of(pieces.count(), size), None);
        }
    }
}
