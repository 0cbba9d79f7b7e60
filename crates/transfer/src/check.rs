//! Checks a file on the disk against its known size, digests and pieces.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use swath_model::RangeSet;
use swath_model::digest::{Digest, Hasher};
use swath_model::pieces::{PieceHasher, Pieces};

use crate::request::Request;

/// The expected size and digests of a file.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Its size in bytes, if known.
    pub size_bytes: Option<u64>,
    /// Digests of the whole; all of them must match.
    pub digests: Vec<Digest>,
    /// Digests of its pieces.
    pub pieces: Option<Pieces>,
    /// Bytes that are not compared, nor are the pieces that hold some of them.
    pub absent: RangeSet,
}

/// The actual digests of a file.
pub struct Found {
    /// A digest for each one wanted, in the same order.
    pub digests: Vec<Digest>,
    /// Numbers of wrong or missing pieces.
    pub bad_pieces: Vec<u64>,
}

impl Wanted {
    /// Returns what is known of the file of a request.
    pub(crate) fn of(request: &Request) -> Wanted {
        Wanted {
            size_bytes: request.size_bytes,
            digests: request.known_digests().collect(),
            pieces: request.pieces.clone(),
            absent: RangeSet::new(),
        }
    }

    /// Returns whether any digest is known.
    pub fn proves(&self) -> bool {
        !self.digests.is_empty() || self.pieces.is_some()
    }

    /// Returns in words how a file of this size and content differs from the wanted one; `None` if it does not, as far as
    /// known. `stopped` is polled now and then and ends it with [`io::ErrorKind::Interrupted`].
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn contradiction(
        &self,
        size: u64,
        content: impl Read,
        stopped: &dyn Fn() -> bool,
    ) -> io::Result<Option<String>> {
        if let Some(wanted) = self.size_bytes.filter(|&wanted| wanted != size) {
            return Ok(Some(format!("it has {}", other_size(size, wanted))));
        }
        if !self.proves() {
            return Ok(None);
        }
        // With a digest of the whole, those of the pieces add nothing.
        let pieces = self.pieces.as_ref().filter(|_| self.digests.is_empty());
        let mut found = hash(content, &self.digests, pieces, stopped)?;
        if let Some(pieces) = pieces {
            let range = |piece| pieces.range_of(piece, u64::MAX);
            let is_absent =
                |piece| range(piece).is_some_and(|range| self.absent.bytes_within(range) > 0);
            found.bad_pieces.retain(|&piece| !is_absent(piece));
        }
        if let Some((wanted, actual)) =
            self.digests.iter().zip(&found.digests).find(|(wanted, actual)| wanted != actual)
        {
            return Ok(Some(format!(
                "its {} is {}, {} is expected",
                wanted.algorithm(),
                actual.to_hex(),
                wanted.to_hex()
            )));
        }
        Ok((!found.bad_pieces.is_empty()).then(|| match found.bad_pieces.len() {
            1 => "one of its pieces is wrong".to_owned(),
            more => format!("{more} of its pieces are wrong"),
        }))
    }
}

/// Opens a regular file for reading; refuses devices and pipes, which may never end.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(path)?;
    if kind.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if !kind.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    File::open(path)
}

/// Computes all digests in one pass over the content of a file.
///
/// # Errors
/// The file cannot be read, or `stopped` returned true ([`io::ErrorKind::Interrupted`]).
pub fn hash(
    mut file: impl Read,
    wanted: &[Digest],
    pieces: Option<&Pieces>,
    stopped: &dyn Fn() -> bool,
) -> io::Result<Found> {
    let mut hashers: Vec<Hasher> =
        wanted.iter().map(|digest| Hasher::new(digest.algorithm())).collect();
    let mut checked = pieces.map(CheckedPieces::new);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let got = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        for hasher in &mut hashers {
            hasher.update(&buffer[..got]);
        }
        if let Some(checked) = &mut checked {
            checked.update(&buffer[..got]);
        }
    }
    let bad_pieces = checked.map(CheckedPieces::finish).unwrap_or_default();
    Ok(Found { digests: hashers.iter().map(Hasher::finish).collect(), bad_pieces })
}

/// Checks pieces one behind the other.
struct CheckedPieces<'a> {
    pieces: &'a Pieces,
    /// Bytes taken in.
    at: u64,
    /// The piece that has begun.
    open: Option<(u64, PieceHasher)>,
    bad: Vec<u64>,
}

impl<'a> CheckedPieces<'a> {
    fn new(pieces: &'a Pieces) -> CheckedPieces<'a> {
        CheckedPieces { pieces, at: 0, open: None, bad: Vec::new() }
    }

    fn update(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let number = self.pieces.piece_at(self.at);
            let Some(range) = self.pieces.range_of(number, u64::MAX) else {
                // Bytes behind the last piece.
                if self.bad.last() != Some(&number) {
                    self.bad.push(number);
                }
                self.at += data.len() as u64;
                return;
            };
            let left = usize::try_from(range.end - self.at).unwrap_or(usize::MAX);
            let (now, later) = data.split_at(data.len().min(left));
            let new = || (number, self.pieces.hasher(number));
            self.open.get_or_insert_with(new).1.update(now);
            self.at += now.len() as u64;
            data = later;
            if self.at == range.end {
                self.end_piece();
            }
        }
    }

    fn end_piece(&mut self) {
        if let Some((number, hasher)) = self.open.take()
            && self.pieces.digest(number) != Some(hasher.finish())
        {
            self.bad.push(number);
        }
    }

    /// Returns the wrong and the missing pieces.
    fn finish(mut self) -> Vec<u64> {
        self.end_piece();
        let pieces = self.pieces;
        let is_missing = |&piece: &u64| {
            pieces.range_of(piece, u64::MAX).is_some_and(|range| range.start >= self.at)
        };
        let first = pieces.piece_at(self.at.saturating_sub(1));
        self.bad.extend((first..pieces.count()).filter(is_missing));
        self.bad
    }
}

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;

/// Returns words for a size and the expected one.
pub fn other_size(bytes: u64, expected: u64) -> String {
    let are = if expected == 1 { "is" } else { "are" };
    format!("{}, {expected} {are} expected", swath_model::counted(bytes, "byte"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use swath_model::Range;
    use swath_model::digest::Algorithm;

    fn file(data: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(data).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        file
    }

    #[test]
    fn wrong_missing_and_right_pieces_are_told_apart() {
        let data: Vec<u8> = (0..2500u32).map(|i| i as u8).collect();
        let packed = data
            .chunks(1000)
            .flat_map(|p| Hasher::digest(Algorithm::Sha256, p).as_bytes().to_vec())
            .collect();
        let pieces = Pieces::new(Algorithm::Sha256, 1000, packed).unwrap();
        let check =
            |data: &[u8]| hash(file(data), &[], Some(&pieces), &|| false).unwrap().bad_pieces;
        assert_eq!(check(&data), Vec::<u64>::new());
        assert_eq!(check(&data[..1500]), [1, 2]);
        let mut wrong = data.clone();
        wrong[2400] ^= 1;
        assert_eq!(check(&wrong), [2]);
        let mut wanted = Wanted { pieces: Some(pieces), ..Wanted::default() };
        let words = |data: &[u8]| wanted.contradiction(data.len() as u64, data, &|| false).unwrap();
        assert_eq!(words(&data), None);
        assert_eq!(words(&wrong).as_deref(), Some("one of its pieces is wrong"));
        wanted.absent.insert(Range::new(2499, 2500));
        let words = |data: &[u8]| wanted.contradiction(data.len() as u64, data, &|| false).unwrap();
        assert_eq!(words(&wrong), None, "the last piece is not compared");
        wrong[1000] ^= 1;
        assert!(words(&wrong).is_some());
    }

    #[test]
    fn size_and_digests_are_held_against_a_file() {
        let right = Hasher::digest(Algorithm::Md5, b"data");
        let wanted = |size, digest| Wanted {
            size_bytes: Some(size),
            digests: vec![digest],
            ..Wanted::default()
        };
        let check = |wanted: Wanted| wanted.contradiction(4, &b"data"[..], &|| false).unwrap();
        assert_eq!(check(wanted(4, right)), None);
        assert_eq!(check(wanted(5, right)).as_deref(), Some("it has 4 bytes, 5 are expected"));
        let other = Hasher::digest(Algorithm::Md5, b"date");
        assert!(check(wanted(4, other)).unwrap().starts_with("its md5 is "));
        let stopped = wanted(4, right).contradiction(4, &b"data"[..], &|| true).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }
}
