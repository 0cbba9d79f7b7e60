//! The digests of a file's equal pieces, as Metalink and torrents list them.
//!
//! Pieces cover the file from its first byte; all have one length except the last, which may be
//! shorter. Their digests are packed: 20 or 32 bytes each and no more, because there may be
//! hundreds of thousands.

use std::sync::Arc;

use crate::digest::{Algorithm, Digest};
use crate::range::Range;

/// Piece digests of one file, all of one algorithm; cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Pieces {
    algorithm: Algorithm,
    length_bytes: u64,
    /// The digests in a row; shared, because they may be tens of megabytes.
    packed: Arc<[u8]>,
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
        Ok(Pieces { algorithm, length_bytes, packed: packed.into() })
    }

    /// Returns the algorithm of the digests.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the length of every piece except the last.
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

    /// Returns the piece of the byte at `offset`, which may be past the last.
    pub fn piece_at(&self, offset: u64) -> u64 {
        offset / self.length_bytes
    }

    /// Returns the bytes of piece `piece` in a file of `size_bytes`, `None` if there are none.
    pub fn range_of(&self, piece: u64, size_bytes: u64) -> Option<Range> {
        let start = piece.checked_mul(self.length_bytes)?;
        let end = start.saturating_add(self.length_bytes).min(size_bytes);
        (piece < self.count() && start < end).then(|| Range::new(start, end))
    }

    /// Checks that there are as many pieces as a file of `size_bytes` has.
    ///
    /// # Errors
    /// [`PiecesError::Count`].
    pub fn check(&self, size_bytes: u64) -> Result<(), PiecesError> {
        let expected = size_bytes.div_ceil(self.length_bytes);
        if self.count() == expected {
            return Ok(());
        }
        let Pieces { length_bytes, .. } = *self;
        Err(PiecesError::Count { size_bytes, length_bytes, expected, actual: self.count() })
    }
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
