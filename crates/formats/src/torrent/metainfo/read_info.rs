//! Reads an info dictionary, alone or as a part of a metafile.

use std::fmt::Display;
use std::sync::Arc;

use swath_model::digest::Algorithm;
use swath_model::path::PathError;
use swath_model::pieces::Pieces;
use url::Url;

use super::odd_names::OddNames;
use super::read::check_size;
use super::read_files::{joined, merged, v1_files, v2_files};
use super::segments::segment_length_error;
use super::{Info, Kind, MetainfoError, PIECES_MAX, is_piece_length};
use crate::torrent::bencode::{self, Value};
use crate::torrent::{InfoHash, InfoHashV1, InfoHashV2};

impl Info {
    /// Reads an info dictionary, given as it stands in the metafile. Whoever got it from a peer
    /// compares its info-hash.
    ///
    /// # Errors
    /// [`MetainfoError`] with the field and the problem.
    pub fn read(raw: &[u8]) -> Result<Info, MetainfoError> {
        check_size(raw)?;
        let parsed = bencode::read(raw)?;
        let dict = parsed.value;
        // Checked first, so that a torrent of a newer version is not called broken.
        let version = optional_int(dict.get(b"meta version"), &"meta version")?;
        let is_v2 = match version {
            None => false,
            Some(2) => true,
            Some(other) => return Err(MetainfoError::Version(other)),
        };
        if let (true, Some(deviation)) = (is_v2, parsed.deviation) {
            return Err(MetainfoError::NotCanonical(deviation));
        }
        if !parsed.rest.is_empty() {
            return Err(not("info", "a single dictionary"));
        }
        let [_, name, name_utf8, piece_length, pieces, length, files, file_tree, private, source] =
            fields(dict, &"info", INNER)?;
        let [similar, collections, update_url, segment_length] =
            fields(dict, &"info", [b"similar", b"collections", b"update-url", b"segment length"])?;
        match (file_tree, files, length) {
            (None, _, _) if is_v2 => return Err(missing("file tree")),
            (Some(_), _, _) if !is_v2 => return Err(missing("meta version")),
            (_, Some(_), Some(_)) => {
                return Err(MetainfoError::Beside { at: "files", beside: "length" });
            }
            (None, None, None) => return Err(missing("files")),
            (Some(_), None, None) if pieces.is_some() => return Err(missing("files")),
            (_, None, None) => {}
            _ if pieces.is_none() => return Err(missing("pieces")),
            _ => {}
        }
        let kind = match (is_v2, pieces.is_some()) {
            (false, _) => Kind::V1,
            (true, false) => Kind::V2,
            (true, true) => Kind::Hybrid,
        };
        let piece_length = required_int(piece_length, &"piece length")?;
        let piece_bytes = u64::try_from(piece_length).unwrap_or(0);
        if !is_piece_length(piece_bytes, is_v2) {
            return Err(MetainfoError::PieceLength { found: piece_length, is_v2 });
        }
        let mut odd_names = OddNames::default();
        let name = match name_utf8.and_then(Value::text) {
            Some(name) => name.into(),
            None => odd_names.read(required(name, &"name")?, &"name")?,
        };
        let name = joined([Ok(name)], &"name")?;
        let path_budget = raw.len();
        let v1 = kind.has_v1().then(|| v1_files(dict, files, &name, path_budget, &mut odd_names));
        let v1 = v1.transpose()?;
        let v2 = match file_tree {
            Some(tree) => Some(v2_files(tree, path_budget)?),
            None => None,
        };
        let is_single_file = match (&v1, &v2) {
            (Some(_), _) => files.is_none(),
            (None, Some(files)) => matches!(&files[..], [only] if only.path.parent().is_none()),
            (None, None) => false,
        };
        let (files, total_bytes) = merged(v1, v2, piece_bytes)?;
        let piece_count = total_bytes.div_ceil(piece_bytes);
        if piece_count > PIECES_MAX {
            return Err(MetainfoError::TooManyPieces { pieces: piece_count });
        }
        let pieces_v1 = match pieces {
            None => None,
            Some(pieces) => Some(pieces_v1(pieces, piece_bytes, total_bytes)?),
        };
        let (mut own_similar, mut own_collections) = (Vec::new(), Vec::new());
        hints(similar, collections, &mut own_similar, &mut own_collections);
        let mut info = Info {
            raw: Arc::from(raw),
            kind,
            // A v2 torrent of one file has the file's name in its tree; that of the torrent is for
            // showing.
            name: match &files[..] {
                [only] if is_single_file => only.path.clone(),
                _ => name,
            },
            is_single_file,
            odd_names,
            files,
            joined: None,
            segment_bytes: None,
            piece_bytes,
            total_bytes,
            pieces_v1,
            is_private: private.and_then(Value::int).is_some_and(|private| private != 0),
            source: source.and_then(lossy),
            update_url: update_url.and_then(|url| Url::parse(url.text()?).ok()),
            similar: own_similar,
            collections: own_collections,
            hash_v1: kind.has_v1().then(|| InfoHashV1::of(raw)),
            hash_v2: kind.has_v2().then(|| InfoHashV2::of(raw)),
        };
        if let Some(length) = segment_length {
            let length = length.int().and_then(|length| u64::try_from(length).ok());
            let is_right = |length: &u64| *length > 0 && length.is_multiple_of(piece_bytes);
            info.join_segments(length.filter(is_right).ok_or_else(segment_length_error)?)?;
        }
        Ok(info)
    }
}

fn pieces_v1(
    pieces: Value<'_>,
    piece_bytes: u64,
    total_bytes: u64,
) -> Result<Pieces, MetainfoError> {
    let hashes = pieces.bytes().filter(|hashes| hashes.len().is_multiple_of(20));
    let hashes = hashes.ok_or_else(|| not("pieces", "a string of hashes of 20 bytes each"))?;
    let found = hashes.len() as u64 / 20;
    let expected = total_bytes.div_ceil(piece_bytes);
    let pieces = Pieces::new(Algorithm::Sha1, piece_bytes, hashes.to_vec());
    match pieces {
        Ok(pieces) if found == expected => Ok(pieces),
        _ => Err(MetainfoError::PieceCount { total_bytes, piece_bytes, expected, found }),
    }
}

/// Returns the fields of a dictionary with these names. Others may stand there as they like.
///
/// # Errors
/// [`MetainfoError`] if it is no dictionary, or has one of them twice.
pub(super) fn fields<'a, const N: usize>(
    dict: Value<'a>,
    at: &dyn Display,
    names: [&[u8]; N],
) -> Result<[Option<Value<'a>>; N], MetainfoError> {
    let mut found = [None; N];
    for (key, value) in dict.dict().ok_or_else(|| not(at, "a dictionary"))? {
        if let Some(number) = names.iter().position(|name| *name == key)
            && found[number].replace(value).is_some()
        {
            let at = format!("{at}.{}", String::from_utf8_lossy(key));
            return Err(MetainfoError::Twice { at });
        }
    }
    Ok(found)
}

pub(super) fn required<'a>(
    value: Option<Value<'a>>,
    at: &dyn Display,
) -> Result<Value<'a>, MetainfoError> {
    value.ok_or_else(|| missing(at))
}

pub(super) fn required_int(
    value: Option<Value<'_>>,
    at: &dyn Display,
) -> Result<i64, MetainfoError> {
    required(value, at)?.int().ok_or_else(|| not(at, "a number"))
}

pub(super) fn optional_int(
    value: Option<Value<'_>>,
    at: &dyn Display,
) -> Result<Option<i64>, MetainfoError> {
    value.map(|value| value.int().ok_or_else(|| not(at, "a number"))).transpose()
}

/// Returns a remark, which need not be UTF-8.
pub(super) fn lossy(value: Value<'_>) -> Option<String> {
    let bytes = value.bytes()?;
    let bytes = &bytes[..bytes.len().min(REMARK_BYTES_MAX)];
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// Adds the hints of BEP 38 to those known.
pub(super) fn hints(
    similar: Option<Value<'_>>,
    collections: Option<Value<'_>>,
    to_similar: &mut Vec<InfoHash>,
    to_collections: &mut Vec<String>,
) {
    for hash in similar.and_then(Value::list).into_iter().flatten().take(HINTS_MAX) {
        if let Some(hash) = hash.bytes().and_then(InfoHash::from_bytes)
            && !to_similar.contains(&hash)
        {
            to_similar.push(hash);
        }
    }
    for name in collections.and_then(Value::list).into_iter().flatten().take(HINTS_MAX) {
        if let Some(name) = lossy(name)
            && !to_collections.contains(&name)
        {
            to_collections.push(name);
        }
    }
}

pub(super) fn missing(at: impl Display) -> MetainfoError {
    MetainfoError::Missing { at: at.to_string() }
}

pub(super) fn not(at: impl Display, expected: &'static str) -> MetainfoError {
    MetainfoError::Not { at: at.to_string(), expected }
}

pub(super) fn name_error(at: impl Display, why: PathError) -> MetainfoError {
    MetainfoError::Name { at: at.to_string(), why: why.into() }
}

const INNER: [&[u8]; 10] = [
    b"meta version",
    b"name",
    b"name.utf-8",
    b"piece length",
    b"pieces",
    b"length",
    b"files",
    b"file tree",
    b"private",
    b"source",
];

/// Far more than is useful.
const HINTS_MAX: usize = 1_000;
const REMARK_BYTES_MAX: usize = 64 * 1024;
