//! Long files that a torrent lists as several files, their *segments*.
//!
//! With `segment length` in the info dictionary, a folder can stand for a file. If a folder `NAME` has
//! the files `NAME.000`, `NAME.001` and so on and nothing else, and all of them but the last have this
//! length, then it is one file `NAME` here. If that folder is all of the torrent, the torrent is a
//! single file. Other clients see ordinary files in a folder.
//!
//! The folder has the name of the file, so no other file is in it, and in the order of a file tree nothing
//! comes between segments. They are whole pieces, so there is no padding between them either: a joined
//! file is one range of the virtual file.

#[cfg(test)]
mod tests;

use std::iter;

use swath_model::digest::sha256_tree::{FileHashes, root_of_layer};
use swath_model::path::SafePath;

use super::layout::sorted_paths;
use super::read_info::{name_error, not};
use super::{Builder, Entry, File, Info, Layout, MetainfoError, NewFile, PIECES_MAX, What};

/// The files of a torrent some of whose files are segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    files: Vec<File>,
    /// For each of them, the number of the listed file behind its last segment.
    ends: Vec<usize>,
    is_single_file: bool,
}

impl Info {
    /// Returns the files and links as users have them, in the order of the virtual file; at least one.
    /// A file that is listed in segments is one file here, without a root.
    pub fn files(&self) -> &[File] {
        self.joined.as_ref().map_or(&self.files, |joined| &joined.files)
    }

    /// Returns the files and links as the torrent lists them, which is what other clients have.
    pub fn listed_files(&self) -> &[File] {
        &self.files
    }

    /// Returns the listed files that make up file number `file` of [`Info::files`]: its segments end to
    /// end, or the file itself.
    pub fn segments(&self, file: usize) -> &[File] {
        let Some(joined) = &self.joined else { return &self.files[file..=file] };
        let start = file.checked_sub(1).map_or(0, |before| joined.ends[before]);
        &self.files[start..joined.ends[file]]
    }

    /// Returns whether some files are listed as segments.
    pub fn has_segments(&self) -> bool {
        self.joined.is_some()
    }

    /// Returns the length of segments, `None` if the torrent has none.
    pub fn segment_bytes(&self) -> Option<u64> {
        self.segment_bytes
    }

    /// Returns whether it is a file without a folder, as users have it.
    pub fn is_single_file(&self) -> bool {
        self.joined.as_ref().map_or(self.is_single_file, |joined| joined.is_single_file)
    }

    /// Joins the segments among the listed files.
    ///
    /// # Errors
    /// [`MetainfoError::FileAndFolder`] if other files are in the folder of segments.
    pub(super) fn join_segments(&mut self, segment_bytes: u64) -> Result<(), MetainfoError> {
        let (mut files, mut ends) = (Vec::new(), Vec::new());
        let mut at = 0;
        while let Some(first) = self.files.get(at) {
            let count = self.segments_at(at, segment_bytes);
            let end = at + count;
            let file = match count {
                1 => first.clone(),
                _ => File {
                    path: first.path.parent().unwrap_or_else(|| self.name.clone()),
                    length_bytes: self.files[at..end].iter().map(|it| it.length_bytes).sum(),
                    pieces_root: None,
                    ..first.clone()
                },
            };
            files.push(file);
            ends.push(end);
            at = end;
        }
        if files.len() == self.files.len() {
            return Ok(());
        }
        sorted_paths(files.len(), |file| files[file].path.as_str())?;
        let is_single_file = self.files[0].path.parent().is_none() && files.len() == 1;
        self.segment_bytes = Some(segment_bytes);
        self.joined = Some(Joined { files, ends, is_single_file });
        Ok(())
    }

    /// Returns how many listed files from number `at` on are segments of one file; 1 if it has none.
    fn segments_at(&self, at: usize, segment_bytes: u64) -> usize {
        let listed = &self.files[at..];
        let folder = listed[0].path.parent();
        let stem = folder.as_ref().unwrap_or(&self.name).file_name();
        let zeros = listed[0].path.file_name().strip_prefix(stem);
        let Some(zeros) = zeros.and_then(|rest| rest.strip_prefix('.')) else { return 1 };
        if zeros.len() < DIGITS_MIN || zeros.bytes().any(|digit| digit != b'0') {
            return 1;
        }
        let follows = |(number, pair): (usize, &[File])| {
            let [before, file] = pair else { return false };
            let name = format!("{stem}.{:0width$}", number + 1, width = zeros.len());
            before.length_bytes == segment_bytes
                && (1..=segment_bytes).contains(&file.length_bytes)
                && file.offset == before.offset + segment_bytes
                && before.symlink.is_none()
                && file.symlink.is_none()
                && file.path.parent() == folder
                && file.path.file_name() == name
        };
        let count = 1 + listed.windows(2).enumerate().take_while(|it| follows(*it)).count();
        let digits = (count - 1).to_string().len().max(DIGITS_MIN);
        // The folder of the torrent can be a file only if that is all of it.
        let is_more = folder.is_none() && count < self.files.len();
        if is_more || zeros.len() != digits { 1 } else { count }
    }
}

impl Builder {
    /// Lays out the files, which lie where their segments do.
    pub(super) fn segmented_layout(&self, segment_bytes: u64) -> Result<Layout, MetainfoError> {
        let (mut listed, mut whole) = (Vec::new(), Vec::new());
        for (number, file) in self.files.iter().enumerate() {
            listed.extend(self.segments_of(file, segment_bytes)?);
            whole.resize(listed.len(), number);
        }
        let paths = listed.iter().map(|(path, bytes)| (path, *bytes));
        let mut layout = Layout::new(self.kind, self.piece_bytes, paths)?;
        let mut entries: Vec<Entry> = Vec::new();
        for entry in layout.entries {
            let what = match entry.what {
                What::File(segment) => What::File(whole[segment]),
                What::Padding => What::Padding,
            };
            match entries.last_mut() {
                Some(last) if last.what == what => last.length_bytes += entry.length_bytes,
                _ => entries.push(Entry { what, ..entry }),
            }
        }
        layout.entries = entries;
        Ok(layout)
    }

    /// Returns the torrent that lists the segments as its files; `None` if no file is longer than one.
    pub(super) fn split(&self) -> Result<Option<Builder>, MetainfoError> {
        let Some(segment_bytes) = self.segment_bytes else { return Ok(None) };
        let mut listed = Vec::new();
        for file in &self.files {
            let segments = self.segments_of(file, segment_bytes)?;
            if segments.len() == 1 {
                listed.push(file.clone());
                continue;
            }
            let layer = file.hashes.as_ref().map(|hashes| &hashes.piece_layer[..]);
            // Hashes that are missing are found out later.
            let layers =
                layer.unwrap_or_default().chunks((segment_bytes / self.piece_bytes) as usize);
            let hashes = layers.map(|layer| match layer {
                [only] => FileHashes { root: *only, piece_layer: Vec::new() },
                _ => FileHashes {
                    root: root_of_layer(layer, self.piece_bytes),
                    piece_layer: layer.to_vec(),
                },
            });
            let hashes = hashes.map(Some).chain(iter::repeat(None));
            listed.extend(segments.into_iter().zip(hashes).map(
                |((path, length_bytes), hashes)| NewFile {
                    path,
                    length_bytes,
                    hashes,
                    ..file.clone()
                },
            ));
        }
        let is_split = listed.len() > self.files.len();
        Ok(is_split.then(|| Builder { files: listed, is_single_file: false, ..self.clone() }))
    }

    /// Returns paths and lengths of the segments of a file, or of the file if it is not longer than one.
    fn segments_of(
        &self,
        file: &NewFile,
        segment_bytes: u64,
    ) -> Result<Vec<(SafePath, u64)>, MetainfoError> {
        if segment_bytes == 0 || !segment_bytes.is_multiple_of(self.piece_bytes) {
            return Err(segment_length_error());
        }
        if file.length_bytes <= segment_bytes {
            return Ok(vec![(file.path.clone(), file.length_bytes)]);
        }
        let count = file.length_bytes.div_ceil(segment_bytes);
        if count > PIECES_MAX {
            return Err(MetainfoError::TooManyPieces { pieces: count });
        }
        // As many digits as the last one has, so that names sort like numbers.
        let width = (count - 1).to_string().len().max(DIGITS_MIN);
        let below = if self.is_single_file { String::new() } else { format!("{}/", file.path) };
        let segment = |number: u64| {
            let path = format!("{below}{}.{number:0width$}", file.path.file_name());
            let path = SafePath::new(&path).map_err(|why| name_error(&path, why))?;
            Ok((path, segment_bytes.min(file.length_bytes - number * segment_bytes)))
        };
        (0..count).map(segment).collect()
    }
}

pub(super) fn segment_length_error() -> MetainfoError {
    not("segment length", "a multiple of the piece length")
}

/// `NAME.000`.
const DIGITS_MIN: usize = 3;
