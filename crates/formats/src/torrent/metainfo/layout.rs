//! Where files lie in the virtual file of a torrent.
//!
//! In v1 files follow each other in the order given. In v2 and in hybrid torrents the order is that
//! of the file tree (BEP 52: names sorted as bytes, folder by folder), and each file that is not
//! empty begins at a new piece. A hybrid torrent fills the gaps with pad files (BEP 47). As
//! libtorrent since 2.0.4 and the reference implementation of BEP 52 do, a pad file follows each
//! file that ends within a piece, the last one too, unless there is only one file: then equal files
//! get equal info-hashes, whoever creates the torrent.

use std::cmp::Ordering;

use swath_model::path::SafePath;

use super::{Kind, MetainfoError, PIECE_BYTES_MAX, PIECES_MAX, TOTAL_BYTES_MAX};
use crate::torrent::metainfo::is_piece_length;

/// The order, the offsets and the padding of a torrent's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Files and padding, in order, without gaps.
    pub entries: Vec<Entry>,
    /// The length of the virtual file, which v1 pieces cover.
    pub total_bytes: u64,
    /// The number of pieces.
    pub pieces: u64,
}

/// A file or padding in the virtual file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub what: What,
    /// Its first byte in the virtual file.
    pub offset: u64,
    /// Its length; 0 for an empty file and for a link.
    pub length_bytes: u64,
}

/// What stands in a part of the virtual file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The file with this number in the list that was laid out.
    File(usize),
    /// Zeros: a pad file in a hybrid torrent, a gap in a v2 torrent.
    Padding,
}

impl Layout {
    /// Lays out files, given with their lengths; a link has the length 0.
    ///
    /// # Errors
    /// [`MetainfoError`] if there are no files, the piece length is not allowed, two paths are the
    /// same, or they are too large altogether.
    pub fn new<'a>(
        kind: Kind,
        piece_bytes: u64,
        files: impl IntoIterator<Item = (&'a SafePath, u64)>,
    ) -> Result<Layout, MetainfoError> {
        let files: Vec<(&SafePath, u64)> = files.into_iter().collect();
        if !is_piece_length(piece_bytes, kind.has_v2()) {
            let found = i64::try_from(piece_bytes).unwrap_or(i64::MAX);
            return Err(MetainfoError::PieceLength { found, is_v2: kind.has_v2() });
        }
        if files.is_empty() {
            return Err(MetainfoError::NoFiles);
        }
        let sorted = sorted_paths(files.len(), |file| files[file].0.as_str())?;
        let order = if kind.has_v2() { sorted } else { (0..files.len()).collect() };
        let mut entries = Vec::new();
        let mut total_bytes = 0u64;
        for number in order {
            let (path, length_bytes) = files[number];
            entries.push(Entry { what: What::File(number), offset: total_bytes, length_bytes });
            total_bytes = added(total_bytes, length_bytes, || path.to_string())?;
            let padding = total_bytes.next_multiple_of(piece_bytes) - total_bytes;
            if kind.has_v2() && files.len() > 1 && padding > 0 {
                let offset = total_bytes;
                entries.push(Entry { what: What::Padding, offset, length_bytes: padding });
                total_bytes += padding;
            }
        }
        // A v2 torrent has no pad files: nothing stands behind its last file.
        if kind == Kind::V2 {
            let is_padding = |entry: &Entry| entry.what == What::Padding;
            let last = entries.iter().rposition(is_padding);
            let empty_behind =
                |last: usize| entries[last + 1..].iter().all(|it| it.length_bytes == 0);
            if let Some(last) = last.filter(|last| empty_behind(*last)) {
                let padding = entries.remove(last);
                total_bytes -= padding.length_bytes;
                entries[last..].iter_mut().for_each(|entry| entry.offset = total_bytes);
            }
        }
        let pieces = total_bytes.div_ceil(piece_bytes);
        if pieces > PIECES_MAX {
            return Err(MetainfoError::TooManyPieces { pieces });
        }
        Ok(Layout { entries, total_bytes, pieces })
    }
}

/// Returns the numbers of `count` files, in the order of their paths.
///
/// # Errors
/// [`MetainfoError::Duplicate`] or [`MetainfoError::FileAndFolder`].
pub(super) fn sorted_paths<'a>(
    count: usize,
    path: impl Fn(usize) -> &'a str,
) -> Result<Vec<usize>, MetainfoError> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| tree_order(path(*a), path(*b)));
    // A file that is a folder stands right before the first path below it.
    for pair in order.windows(2) {
        let (first, second) = (path(pair[0]), path(pair[1]));
        if let Some(rest) = second.strip_prefix(first) {
            if rest.is_empty() {
                return Err(MetainfoError::Duplicate { path: first.to_owned() });
            }
            if rest.starts_with('/') {
                return Err(MetainfoError::FileAndFolder { path: first.to_owned() });
            }
        }
    }
    Ok(order)
}

/// The order of a file tree: names are compared as bytes, one after the other.
fn tree_order(a: &str, b: &str) -> Ordering {
    a.split('/').cmp(b.split('/'))
}

/// Adds lengths, below the limit.
pub(super) fn added(
    total_bytes: u64,
    length_bytes: u64,
    at: impl Fn() -> String,
) -> Result<u64, MetainfoError> {
    let sum = total_bytes.checked_add(length_bytes).filter(|sum| *sum <= TOTAL_BYTES_MAX);
    sum.ok_or_else(|| MetainfoError::TotalLength { at: at() })
}

// The sum of a length and its padding fits.
const _: () = assert!(TOTAL_BYTES_MAX < u64::MAX - PIECE_BYTES_MAX);
