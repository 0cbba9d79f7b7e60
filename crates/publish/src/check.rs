//! Checks files on the disk against a torrent or an index, with the hashing of a publication.
//!
//! A file that is missing or has another length is not read. Pieces that a v1 torrent shares between
//! such a file and others prove nothing, and are not counted as wrong.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::slice;

use swath_formats::torrent::metainfo::File;
use swath_formats::torrent::{Info, Metainfo};
use swath_model::digest::{Algorithm, sha256_tree};
use swath_store::tree::Filter;

use crate::content::{Content, ContentFile};
use crate::hash::{HashError, Hashes, Places, Progress, Wanted, hash};
use crate::index::Index;

/// What the files of a torrent or an index are on this disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// How many files there should be; one in segments counts once.
    pub files: u64,
    /// How many of them do not match.
    pub wrong_files: u64,
    /// Their length altogether.
    pub bytes: u64,
    /// Files and segments that do not match, in order, with their paths below the dataset's folder.
    pub wrong: Vec<(Vec<u8>, WrongFile)>,
    /// Pieces that could not be checked, because they reach into files that are missing.
    pub unchecked_pieces: u64,
    /// Paths of files that are on the disk, but not expected.
    pub others: Vec<Vec<u8>>,
}

/// How a file does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongFile {
    /// It is not there.
    Missing,
    /// It has another length, in bytes.
    Length {
        /// The length on the disk.
        found: u64,
        /// The right one.
        expected: u64,
    },
    /// Some of its pieces have other hashes.
    Pieces {
        /// How many.
        wrong: u64,
        /// How many pieces it has.
        of: u64,
        /// The first byte of the first wrong one in the file.
        first: u64,
    },
    /// Its digest is another one.
    Content,
    /// It is there as segments, which an index does not know.
    InSegments,
}

/// Why files cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The folder or file cannot be listed.
    #[error("cannot read {path}")]
    List {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// A file cannot be read, or changes.
    #[error(transparent)]
    Hash(#[from] HashError),
}

/// The files of a torrent or an index, before they are looked for.
struct Expected<'a> {
    /// The name of the dataset's folder, or of its only file.
    name: &'a [u8],
    /// Whether the dataset may be a file without a folder.
    is_single: bool,
    /// Paths below the folder, and lengths.
    files: Vec<(&'a [u8], u64)>,
}

/// Checks the files of a torrent. They are in `place/NAME`, or `place` is that folder or that file. A
/// file may be there as its segments.
///
/// # Errors
/// [`CheckError`] if the check could not be finished. Files that do not match are no error.
pub fn check_torrent(
    place: &Path,
    torrent: &Metainfo,
    progress: &Progress,
) -> Result<Checked, CheckError> {
    let info = &torrent.info;
    // Links have no content.
    let files: Vec<OnDisk<'_>> =
        files_at(place, info).into_iter().filter(|it| it.file.symlink.is_none()).collect();
    let expected = Expected {
        name: info.name().as_str().as_bytes(),
        is_single: matches!(&files[..], [only] if info.is_single_file() && only.is_whole),
        files: files
            .iter()
            .map(|it| (it.file.path.as_str().as_bytes(), it.file.length_bytes))
            .collect(),
    };
    let (content, mut checked) = expected.find(place)?;
    let present: Vec<OnDisk<'_>> = present(&checked, &expected).map(|at| files[at]).collect();
    let places = Places {
        piece_bytes: info.piece_bytes(),
        offsets: present.iter().map(|it| it.file.offset).collect(),
        total_bytes: info.total_bytes(),
        segment_bytes: info.segment_bytes().unwrap_or(u64::MAX),
    };
    let wanted = Wanted { v1: info.kind().has_v1(), v2: info.kind().has_v2(), ..Wanted::default() };
    let hashes = hash(&content, &places, &wanted, progress)?;

    let absent: HashSet<&[u8]> = checked.wrong.iter().map(|(path, _)| &path[..]).collect();
    let is_absent = |it: &&OnDisk<'_>| absent.contains(it.file.path.as_str().as_bytes());
    let mut unknown: Vec<u64> = Vec::new();
    for OnDisk { file, .. } in files.iter().filter(is_absent) {
        let pieces = pieces_of(file, info.piece_bytes());
        unknown.extend([pieces.start, pieces.end.saturating_sub(1)].iter().take(pieces.count()));
    }
    unknown.sort_unstable();
    unknown.dedup();
    let mut wrong_v1 = wrong_pieces_v1(torrent, &hashes);
    wrong_v1.retain(|piece| unknown.binary_search(piece).is_err());
    let mut touched: HashSet<u64> = HashSet::new();
    let mut wrong: BTreeMap<usize, WrongFile> = BTreeMap::new();
    for (number, OnDisk { file, listed, .. }) in present.iter().enumerate() {
        let pieces = pieces_of(file, info.piece_bytes());
        touched.extend(
            [pieces.start, pieces.end.saturating_sub(1)].iter().take(pieces.clone().count()),
        );
        let range = wrong_v1.partition_point(|&piece| piece < pieces.start)
            ..wrong_v1.partition_point(|&piece| piece < pieces.end);
        let mut bad: Vec<u64> = wrong_v1[range].to_vec();
        match wrong_pieces_v2(torrent, listed, &hashes.files[number].v2_pieces) {
            Some(numbers) => bad.extend(numbers.into_iter().map(|number| pieces.start + number)),
            None => {
                wrong.insert(number, WrongFile::Content);
                continue;
            }
        }
        bad.sort_unstable();
        bad.dedup();
        if let Some(&first) = bad.first() {
            let first = (first * info.piece_bytes()).saturating_sub(file.offset);
            let (wrong_count, of) = (bad.len() as u64, pieces.end - pieces.start);
            wrong.insert(number, WrongFile::Pieces { wrong: wrong_count, of, first });
        }
    }
    if info.kind().has_v1() {
        checked.unchecked_pieces = unknown.iter().filter(|it| touched.contains(it)).count() as u64;
    }
    let found =
        wrong.into_iter().map(|(at, it)| (present[at].file.path.as_str().as_bytes().to_vec(), it));
    checked.add(found, &expected);
    // Segments of one file follow each other.
    let numbers = |is_counted: &dyn Fn(&OnDisk<'_>) -> bool| {
        let mut numbers: Vec<usize> =
            files.iter().filter(|it| is_counted(it)).map(|it| it.number).collect();
        numbers.dedup();
        numbers.len() as u64
    };
    let wrong: HashSet<&[u8]> = checked.wrong.iter().map(|(path, _)| &path[..]).collect();
    let wrong_files = numbers(&|it| wrong.contains(it.file.path.as_str().as_bytes()));
    checked = Checked { files: numbers(&|_| true), wrong_files, ..checked };
    Ok(checked)
}

/// Checks the files of an index. They are in `place/NAME`, or `place` is that folder or that file.
///
/// # Errors
/// [`CheckError`] if the check could not be finished. Files that do not match are no error.
pub fn check_index(
    place: &Path,
    index: &Index,
    progress: &Progress,
) -> Result<Checked, CheckError> {
    let files: Vec<(&[u8], u64)> =
        index.files.iter().map(|file| (&file.path[..], file.bytes)).collect();
    // The index does not tell a file from a folder with one file.
    let only = files.first().filter(|(path, _)| files.len() == 1 && !path.contains(&b'/'));
    let is_file = |path: &&[u8]| place.is_file() || place.join(OsStr::from_bytes(path)).is_file();
    let single = only.map(|(path, _)| *path).filter(is_file);
    let name = single.unwrap_or(index.name.as_bytes());
    let expected = Expected { name, is_single: single.is_some(), files };
    let (content, mut checked) = expected.find(place)?;
    let mut total_bytes = 0;
    let offset = |file: &ContentFile| {
        let offset = total_bytes;
        total_bytes += file.bytes;
        offset
    };
    let offsets = content.files.iter().map(offset).collect();
    let places = Places { piece_bytes: PIECE_BYTES, offsets, total_bytes, segment_bytes: u64::MAX };
    let wanted = Wanted { whole: vec![Algorithm::Blake3], ..Wanted::default() };
    let hashes = hash(&content, &places, &wanted, progress)?;
    let present: Vec<usize> = present(&checked, &expected).collect();
    let wrong = present.into_iter().zip(&hashes.files).filter_map(|(at, found)| {
        let file = &index.files[at];
        let is_right = found.whole.first() == Some(&file.digest);
        (!is_right).then(|| (file.path.clone(), WrongFile::Content))
    });
    let wrong: Vec<_> = wrong.collect();
    checked.add(wrong, &expected);
    checked.find_segments();
    checked.wrong_files = checked.wrong.len() as u64;
    Ok(checked)
}

/// A file of a torrent, as the disk has it.
#[derive(Clone, Copy)]
struct OnDisk<'a> {
    /// The number of the dataset's file.
    number: usize,
    file: &'a File,
    /// How the torrent lists it.
    listed: &'a [File],
    /// Whether it is one of the dataset's files, and not a segment.
    is_whole: bool,
}

/// Returns the files of a torrent: each that the torrent lists as segments as these, if the disk has
/// any of them.
fn files_at<'a>(place: &Path, info: &'a Info) -> Vec<OnDisk<'a>> {
    let named = place.join(info.name().as_path());
    let is_only_file = info.is_single_file() && (named.is_file() || place.is_file());
    let is_there = |folder: &Path, segments: &[File]| {
        segments.iter().any(|it| folder.join(it.path.as_path()).is_file())
    };
    let mut all = Vec::new();
    for (number, file) in info.files().iter().enumerate() {
        let listed = info.segments(number);
        let is_split = !is_only_file
            && listed.len() > 1
            && (is_there(&named, listed) || is_there(place, listed));
        match is_split {
            true => all.extend(listed.iter().map(|file| OnDisk {
                number,
                file,
                listed: slice::from_ref(file),
                is_whole: false,
            })),
            false => all.push(OnDisk { number, file, listed, is_whole: true }),
        }
    }
    all
}

impl Checked {
    /// Adds wrong files, and puts all in the order of the dataset.
    fn add(
        &mut self,
        wrong: impl IntoIterator<Item = (Vec<u8>, WrongFile)>,
        expected: &Expected<'_>,
    ) {
        self.wrong.extend(wrong);
        let order: HashMap<&[u8], usize> =
            expected.files.iter().enumerate().map(|(at, (path, _))| (*path, at)).collect();
        self.wrong.sort_by_key(|(path, _)| order.get(&path[..]).copied());
    }
}

impl Checked {
    /// Tells missing files whose segments are there from others.
    fn find_segments(&mut self) {
        let Checked { wrong, others, .. } = self;
        for (path, what) in wrong.iter_mut().filter(|(_, what)| *what == WrongFile::Missing) {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            // The place of a dataset of one file may be their folder.
            let in_folder = [path, &b"/"[..], name].concat();
            let is_segment = |other: &Vec<u8>| {
                let number = other.strip_prefix(&in_folder[..]).or(other.strip_prefix(&path[..]));
                let number = number.and_then(|rest| rest.strip_prefix(b"."));
                number.is_some_and(|it| it.len() >= 3 && it.iter().all(u8::is_ascii_digit))
            };
            let before = others.len();
            others.retain(|other| !is_segment(other));
            if others.len() < before {
                *what = WrongFile::InSegments;
            }
        }
    }
}

impl Expected<'_> {
    /// Lists the files on the disk. The content has those with the right length, in the order
    /// expected; the others are wrong.
    fn find(&self, place: &Path) -> Result<(Content, Checked), CheckError> {
        let path = self.place(place);
        let mut checked = Checked {
            files: self.files.len() as u64,
            bytes: self.files.iter().map(|(_, bytes)| bytes).sum(),
            ..Checked::default()
        };
        let mut content = Content::list(&path, Filter::default())
            .map_err(|error| CheckError::List { path, error })?;
        let listed = std::mem::take(&mut content.files).into_iter();
        // A single file may have been renamed.
        let is_renamed = self.is_single && content.is_single();
        let named = |file: ContentFile| match is_renamed {
            true => (self.files[0].0.to_vec(), file),
            false => (file.path.clone(), file),
        };
        let mut listed: HashMap<Vec<u8>, ContentFile> = listed.map(named).collect();
        for (path, expected) in &self.files {
            match listed.remove(*path) {
                Some(file) if file.bytes == *expected => content.files.push(file),
                Some(file) => {
                    let wrong = WrongFile::Length { found: file.bytes, expected: *expected };
                    checked.wrong.push((path.to_vec(), wrong));
                }
                None => checked.wrong.push((path.to_vec(), WrongFile::Missing)),
            }
        }
        if !self.is_single {
            checked.others = listed.into_keys().collect();
            checked.others.sort_unstable();
        }
        Ok((content, checked))
    }

    /// Returns the dataset's folder or file: `place/NAME`, unless `place` has more of the files.
    fn place(&self, place: &Path) -> PathBuf {
        let below = place.join(OsStr::from_bytes(self.name));
        if self.is_single {
            return if below.is_file() { below } else { place.to_owned() };
        }
        let count = |folder: &Path| {
            let some = self.files.iter().take(FILES_TRIED);
            some.filter(|(path, _)| folder.join(OsStr::from_bytes(path)).exists()).count()
        };
        let is_below = below.is_dir() && count(&below) >= count(place);
        if is_below { below } else { place.to_owned() }
    }
}

/// Returns the numbers of the expected files that are there with the right length.
fn present<'a>(
    checked: &Checked,
    expected: &'a Expected<'_>,
) -> impl Iterator<Item = usize> + use<'a> {
    let absent: HashSet<Vec<u8>> = checked.wrong.iter().map(|(path, _)| path.clone()).collect();
    (0..expected.files.len()).filter(move |&at| !absent.contains(expected.files[at].0))
}

/// Returns the pieces of the virtual file that have bytes of this file.
fn pieces_of(file: &File, piece_bytes: u64) -> std::ops::Range<u64> {
    match file.length_bytes {
        0 => 0..0,
        bytes => file.offset / piece_bytes..(file.offset + bytes).div_ceil(piece_bytes),
    }
}

/// Returns the wrong pieces, sorted.
fn wrong_pieces_v1(torrent: &Metainfo, hashes: &Hashes) -> Vec<u64> {
    let Some(pieces) = torrent.info.pieces_v1() else { return Vec::new() };
    let found = hashes.v1_pieces.chunks(20);
    let wrong = (0u64..).zip(found).filter(|(number, found)| {
        pieces.digest(*number).is_none_or(|digest| digest.as_bytes() != *found)
    });
    wrong.map(|(number, _)| number).collect()
}

/// Returns the numbers of the wrong pieces of a file, which the torrent lists so; `None` if it is wrong,
/// but the torrent does not tell where.
fn wrong_pieces_v2(torrent: &Metainfo, listed: &[File], found: &[[u8; 32]]) -> Option<Vec<u64>> {
    let piece_bytes = torrent.info.piece_bytes();
    let (mut wrong, mut first) = (Vec::new(), 0);
    for file in listed {
        let Some(root) = file.pieces_root else { continue };
        let pieces = file.length_bytes.div_ceil(piece_bytes);
        let found = found.get(first as usize..(first + pieces) as usize)?;
        let layer = match (torrent.info.needs_piece_layer(file), torrent.piece_layer(file)) {
            (true, Some(layer)) => &layer[..],
            (true, None) if sha256_tree::root_of_layer(found, piece_bytes) == root => found,
            (true, None) => return None,
            (false, _) => &[root],
        };
        let pairs = (first..).zip(layer.iter().zip(found));
        wrong.extend(pairs.filter(|(_, (hash, found))| hash != found).map(|(at, _)| at));
        first += pieces;
    }
    Some(wrong)
}

/// For an index, which has no pieces: units of hashing need some length.
const PIECE_BYTES: u64 = 2 << 20;
/// Files that tell which folder is meant.
const FILES_TRIED: usize = 16;
