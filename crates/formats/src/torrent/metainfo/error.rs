//! Why a metafile is refused.

use swath_model::path::PathError;

use crate::torrent::bencode::{BencodeError, Deviation};

/// Why a metafile or an info dictionary is refused: where and what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetainfoError {
    /// Larger than any real metafile.
    #[error("the torrent file has {bytes} bytes; at most {max_bytes} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// Not bencoded.
    #[error("this is no torrent file: {0}")]
    Bencode(#[from] BencodeError),
    /// A field that must be there.
    #[error("{at}: it is missing")]
    Missing {
        /// The field.
        at: String,
    },
    /// A field of another type or length than it must have.
    #[error("{at}: it is not {expected}")]
    Not {
        /// The field.
        at: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A key that stands twice in a dictionary, so that its value is unclear.
    #[error("{at}: it stands there twice")]
    Twice {
        /// The field.
        at: String,
    },
    /// Not canonical, where BEP 52 demands it.
    #[error("info, {0}: a v2 torrent must be canonical")]
    NotCanonical(Deviation),
    /// A version of the format that does not exist yet.
    #[error("meta version: version {0} is unknown (known: 2)")]
    Version(i64),
    /// Both forms of the list of files, or a part of one version without the rest.
    #[error("{at}: it must not stand beside {beside}")]
    Beside {
        /// The field.
        at: &'static str,
        /// The other.
        beside: &'static str,
    },
    /// A piece length that the version does not allow.
    #[error("piece length: {found} is not {}", piece_length_expected(.is_v2))]
    PieceLength {
        /// The length found.
        found: i64,
        /// Whether it must be a power of two.
        is_v2: bool,
    },
    /// A dangerous or impossible name.
    #[error("{at}: {why}")]
    Name {
        /// The field.
        at: String,
        /// The reason.
        why: NameError,
    },
    /// Two files with one path.
    #[error("files: {path:?} occurs twice")]
    Duplicate {
        /// The path.
        path: String,
    },
    /// A path that is a file and a folder.
    #[error("files: {path:?} is a file and a folder")]
    FileAndFolder {
        /// The path.
        path: String,
    },
    /// Files that would be read as the segments of another one.
    #[error("files: those in {path:?} have the names and lengths of segments")]
    LikeSegments {
        /// Their folder.
        path: String,
    },
    /// A file length below zero, or one that must be zero.
    #[error("{at}: {found} is not allowed")]
    Length {
        /// The field.
        at: String,
        /// The length.
        found: i64,
    },
    /// All files together are larger than possible.
    #[error("{at}: all files together are too large")]
    TotalLength {
        /// The field with which the limit was passed.
        at: String,
    },
    /// More pieces than a peer can handle.
    #[error("piece length: {pieces} pieces are too many")]
    TooManyPieces {
        /// How many there would be.
        pieces: u64,
    },
    /// The number of piece hashes does not match the length of the files.
    #[error(
        "pieces: {total_bytes} bytes in pieces of {piece_bytes} need {expected} hashes, there are {found}"
    )]
    PieceCount {
        /// Bytes of all files and padding.
        total_bytes: u64,
        /// The piece length.
        piece_bytes: u64,
        /// Hashes that are needed.
        expected: u64,
        /// Hashes that there are.
        found: u64,
    },
    /// There are no files.
    #[error("there are no files in it")]
    NoFiles,
    /// The paths would need much more memory than the metafile.
    #[error("{at}: the paths are too long altogether")]
    Paths {
        /// The field with which the limit was passed.
        at: String,
    },
    /// The v1 and the v2 part of a hybrid torrent describe different files.
    #[error("{at}: the v1 and the v2 part differ in {what}")]
    Hybrid {
        /// The file.
        at: String,
        /// What differs.
        what: &'static str,
    },
    /// A piece layer that is missing or wrong.
    #[error("piece layers: that of {path:?} {why}")]
    PieceLayer {
        /// The file.
        path: String,
        /// The reason.
        why: PieceLayerError,
    },
}

/// Why a name cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is dangerous, as a path of one or several names.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A name with a `/` inside.
    #[error("a name must not contain '/'")]
    Slash,
    /// Not UTF-8.
    #[error("it is not UTF-8")]
    NotText,
}

/// What is wrong with a piece layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PieceLayerError {
    /// There is none.
    #[error("is missing")]
    Missing,
    /// It has the wrong number of hashes.
    #[error("has the wrong length")]
    Length,
    /// Its hashes are not those under the root.
    #[error("does not match the root")]
    Root,
}

fn piece_length_expected(is_v2: &bool) -> &'static str {
    if *is_v2 {
        "a power of two from 16 KiB to 1 GiB, as v2 demands"
    } else {
        "between 1 byte and 1 GiB"
    }
}
