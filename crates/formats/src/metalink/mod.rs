//! Metalink: files, their sizes and digests, and the addresses of their replicas.
//!
//! Metalink 4 (RFC 5854) is read and written; Metalink 3 is read too. Reading is lenient where real
//! catalogues need it: Rucio's extra elements and attributes, Adler-32. Unsupported addresses and
//! digests are skipped, and each skip is reported with its reason. A file with a dangerous name is
//! refused, and the others stay. Reading is strict where it protects: names are checked, document
//! types and custom entities are refused, and every size has a limit.
//!
//! `Reader` yields one file at a time from any buffered input; `parse` collects them all.

mod draft;
mod encoding;
mod guard;
mod reader;
mod tags;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;

use swath_model::RangeSet;
use swath_model::digest::{Algorithm, Digest, DigestError};
use swath_model::path::{PathError, SafePath};
use swath_model::pieces::{Pieces, PiecesError};
use url::Url;

use crate::mirror_url::MirrorUrlError;

pub use guard::Limit;
pub use reader::{Options, Reader, parse, parse_with};
pub use writer::{to_string, write};

/// The media type of Metalink 4.
pub const MEDIA_TYPE: &str = "application/metalink4+xml";
/// The media type of Metalink 3.
pub const MEDIA_TYPE_3: &str = "application/metalink+xml";
/// The namespace of Metalink 4.
pub const NAMESPACE: &str = "urn:ietf:params:xml:ns:metalink";

/// The namespace of swath's additions to Metalink 4, which others skip.
pub const NAMESPACE_OWN: &str = "urn:x-swath:metalink";

/// Returns whether a `Content-Type` value stands for a Metalink.
pub fn is_media_type(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(MEDIA_TYPE) || essence.eq_ignore_ascii_case(MEDIA_TYPE_3)
}

/// Returns whether a path ends like those of Metalinks.
pub fn is_file_name(path: &str) -> bool {
    let end = path.rsplit('.').next().unwrap_or_default();
    path.contains('.')
        && (end.eq_ignore_ascii_case("meta4") || end.eq_ignore_ascii_case("metalink"))
}

/// A whole Metalink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metalink {
    /// Facts about the document itself.
    pub header: Header,
    /// The files, in order.
    pub files: Vec<File>,
    /// Files that were skipped, in order.
    pub refused: Vec<Refused>,
}

impl Metalink {
    /// Returns how often each reason for skipping occurred, the most frequent first: one line for
    /// the user where there may be a hundred thousand skips.
    pub fn skipped_summary(&self) -> Vec<(String, usize)> {
        let mut counts = BTreeMap::new();
        for skipped in self.files.iter().flat_map(|file| &file.skipped) {
            *counts.entry(skipped.reason.to_string()).or_insert(0) += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }
}

/// A file of a Metalink that is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name, shortened and without control characters; empty if it has none.
    pub name: String,
    /// Its line.
    pub line: u64,
    /// Why it is skipped.
    pub why: RefusedWhy,
}

/// Why a file of a Metalink is skipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedWhy {
    /// It has no name.
    #[error("it has no name")]
    NoName,
    /// Its name has bytes that are not text in the document's encoding.
    #[error("its name is not text in the document's encoding")]
    NotText,
    /// Its name is dangerous.
    #[error("its name is refused: {0}")]
    Name(#[from] PathError),
    /// Its description exceeds a limit.
    #[error("too large: {0}")]
    Limit(Limit),
}

/// Facts about a Metalink itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The program that wrote it.
    pub generator: Option<String>,
    /// Where it came from.
    pub origin: Option<Origin>,
}

/// Where a Metalink came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its address.
    pub url: Url,
    /// Whether a newer version may be found there.
    pub dynamic: bool,
}

/// One file of a Metalink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path below the chosen folder.
    pub name: SafePath,
    /// Its size, if given.
    pub size_bytes: Option<u64>,
    /// Digests of the whole file.
    pub digests: Vec<Digest>,
    /// Digests of its pieces; their number matches the size.
    pub pieces: Option<Pieces>,
    /// Its replicas, the best first.
    pub mirrors: Vec<Mirror>,
    /// Addresses that have only some of its ranges.
    pub held: Vec<Held>,
    /// Other documents that describe it: torrents, nested Metalinks.
    pub metaurls: Vec<Metaurl>,
    /// Its name in a catalogue (`scope:name` in Rucio).
    pub identity: Option<String>,
    /// Parts that were skipped, and why.
    pub skipped: Vec<Skipped>,
}

impl File {
    /// Returns a file with a name and nothing else.
    pub fn new(name: SafePath) -> File {
        File {
            name,
            size_bytes: None,
            digests: Vec::new(),
            pieces: None,
            mirrors: Vec::new(),
            held: Vec::new(),
            metaurls: Vec::new(),
            identity: None,
            skipped: Vec::new(),
        }
    }

    /// Returns why listed piece digests cannot be used, if no others can.
    pub fn unusable_pieces(&self) -> Option<&SkipReason> {
        let of_pieces = |skipped: &&Skipped| &*skipped.what == WHAT_PIECES;
        self.skipped.iter().find(of_pieces).filter(|_| self.pieces.is_none()).map(|one| &one.reason)
    }

    /// Returns why a listed digest of the whole cannot be used, if no other one can. Unknown
    /// algorithms do not count.
    pub fn unusable_digest(&self) -> Option<&SkipReason> {
        let is_broken = |skipped: &&Skipped| match &skipped.reason {
            SkipReason::Digest(error) => {
                &*skipped.what != WHAT_PIECES && !matches!(error, DigestError::Algorithm(_))
            }
            _ => false,
        };
        self.skipped.iter().find(is_broken).filter(|_| self.digests.is_empty()).map(|it| &it.reason)
    }

    /// Returns whether it lists an unreadable size.
    pub fn has_unusable_size(&self) -> bool {
        let is_size = |skipped: &Skipped| skipped.reason == SkipReason::Size;
        self.size_bytes.is_none() && self.skipped.iter().any(is_size)
    }
}

/// A replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Its address, `http` or `https`.
    pub url: Url,
    /// 1 is best; 999,999 is worst and stands for an unknown priority.
    pub priority: u32,
    /// Its country: two lower-case letters.
    pub location: Option<[u8; 2]>,
    /// Its name in the catalogue (the storage element in Rucio).
    pub name: Option<Box<str>>,
}

impl Mirror {
    /// Returns a replica with an address and nothing else.
    pub fn new(url: Url) -> Mirror {
        Mirror { url, priority: PRIORITY_WORST, location: None, name: None }
    }
}

/// An address that has only some ranges of the file, in the file's own offsets. RFC 5854 has no
/// such element: it is one of [`NAMESPACE_OWN`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its address, `http` or `https`.
    pub url: Url,
    /// The ranges it has; not empty.
    pub ranges: RangeSet,
    /// As for mirrors.
    pub priority: u32,
}

/// The address of another document that describes the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metaurl {
    /// Its address, `http` or `https`.
    pub url: Url,
    /// Its type: `torrent`, or a media type.
    pub media_type: String,
    /// As for mirrors.
    pub priority: u32,
    /// The file of that document.
    pub name: Option<SafePath>,
}

/// A part that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The text, shortened and without control characters.
    pub what: Box<str>,
    /// Its last line.
    pub line: u64,
    /// Why it was skipped.
    pub reason: SkipReason,
}

/// Why a part was skipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// An address that cannot be fetched.
    #[error("address: {0}")]
    Url(#[from] MirrorUrlError),
    /// A digest that is unknown or malformed.
    #[error("digest: {0}")]
    Digest(#[from] DigestError),
    /// A second digest of the same algorithm that contradicts the first.
    #[error("digest: there is another {0} digest before it")]
    DigestTwice(Algorithm),
    /// Piece digests that do not fit.
    #[error("pieces: {0}")]
    Pieces(#[from] PiecesError),
    /// Piece digests without a readable length.
    #[error("pieces: the length is not a number")]
    PieceLength,
    /// Piece digests out of order.
    #[error("pieces: they are out of order")]
    PieceOrder,
    /// Piece digests of a weaker algorithm than others.
    #[error("pieces: there are stronger ones")]
    PiecesWeaker,
    /// A size that is not a number.
    #[error("size: it is not a number")]
    Size,
    /// Invalid ranges, or ranges behind the file's end.
    #[error("held: its ranges cannot be those of the file")]
    Held,
    /// The name inside another document is not safe.
    #[error("name: {0}")]
    Name(#[from] PathError),
}

/// Why a Metalink cannot be read at all, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} (byte {byte}){}: {problem}", in_element(.element))]
pub struct MetalinkError {
    /// Line of the input, from 1.
    pub line: u64,
    /// Byte of the input, from 0.
    pub byte: u64,
    /// The innermost element that was open, empty outside the root.
    pub element: &'static str,
    /// The problem.
    pub problem: Problem,
}

fn in_element(element: &str) -> String {
    if element.is_empty() { String::new() } else { format!(" in <{element}>") }
}

/// The problem that makes a Metalink unreadable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not a Metalink.
    #[error("this is not a Metalink: {0}")]
    NotMetalink(String),
    /// It ends before its root element does.
    #[error("it ends in the middle")]
    Truncated,
    /// Not well-formed.
    #[error("malformed XML: {0}")]
    Xml(String),
    /// The input could not be read.
    #[error("cannot be read: {0}")]
    Read(String),
    /// A document type, which could define entities.
    #[error("a document type (DOCTYPE) is refused")]
    DocumentType,
    /// Written in an unknown encoding.
    #[error("unknown encoding {0:?} (known: UTF-8, UTF-16, ISO-8859-1)")]
    Encoding(String),
    /// Larger than allowed.
    #[error("too large: {0}")]
    Limit(Limit),
}

/// The value of [`Skipped::what`] for piece digests.
const WHAT_PIECES: &str = "pieces";
/// Priority of a replica without one, by RFC 5854.
pub const PRIORITY_WORST: u32 = 999_999;
