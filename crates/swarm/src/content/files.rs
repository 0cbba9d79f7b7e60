//! The files of a torrent below a folder.
//!
//! Files are opened when they are first read. Links are followed if they lead to something below the
//! folder; nothing outside of it can be read. A file that is changed after it was first seen is not read
//! any more: what it holds was not verified.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use swath_formats::torrent::Info;
use swath_model::Range;
use swath_store::tree::Root;

use super::OpenFiles;

/// Why content cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// The folder cannot be opened.
    #[error("cannot open the folder")]
    Folder(#[source] io::Error),
    /// A file cannot be opened or read.
    #[error("cannot read {path}")]
    Read {
        /// Its path below the folder.
        path: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// A file has another length than in the torrent.
    #[error("{path} has {has_bytes} bytes instead of {wanted_bytes}")]
    Length {
        /// Its path below the folder.
        path: String,
        /// Its length.
        has_bytes: u64,
        /// Its length in the torrent.
        wanted_bytes: u64,
    },
    /// A file was changed after it was first seen.
    #[error("{path} has been changed")]
    Changed {
        /// Its path below the folder.
        path: String,
    },
}

/// The files of one torrent.
#[derive(Debug)]
pub struct TorrentFiles {
    root: Root,
    files: Vec<Placed>,
    open: Arc<OpenFiles>,
    torrent: u64,
    lengths: Lengths,
    /// Time and inode of each file that was opened.
    seen: Mutex<HashMap<usize, Stamp>>,
}

/// Which lengths files may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    /// Those in the torrent.
    Listed,
    /// Any. Zeros are read where a file is too short.
    Any,
}

/// A file that has bytes.
#[derive(Debug)]
struct Placed {
    /// Its bytes in the piece space.
    range: Range,
    path: String,
}

/// What tells a file from a later one of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    mtime: (i64, i64),
    inode: u64,
}

impl TorrentFiles {
    /// Finds the files of a torrent below `data`: in the folder with the torrent's name there, or
    /// in `data` itself, which may also be the only file. A file may be there whole, or as its segments
    /// in the folder of its name.
    ///
    /// # Errors
    /// [`ContentError::Folder`].
    pub fn find(info: &Info, data: &Path, open: Arc<OpenFiles>) -> Result<Self, ContentError> {
        let named = data.join(info.name().as_path());
        let parent = data.parent().filter(|parent| *parent != Path::new(""));
        let is_in_segments = |folder: &Path| match info.has_segments() && info.is_single_file() {
            true => info.segments(0).iter().any(|it| folder.join(it.path.as_path()).is_file()),
            false => false,
        };
        let is_split = !named.is_file() && (is_in_segments(&named) || is_in_segments(data));
        let (folder, only) = match info.is_single_file() && !is_split {
            true if data.is_file() => (parent.unwrap_or(Path::new(".")), data.file_name()),
            true => (data, None),
            false if named.is_dir() => (&*named, None),
            false => (data, None),
        };
        let root = Root::open(folder).map_err(ContentError::Folder)?;
        let only = only.and_then(|name| name.to_str()).map(str::to_owned);
        let all = info.files().iter().enumerate().flat_map(|(number, file)| {
            let is_folder = || info.has_segments() && folder.join(file.path.as_path()).is_dir();
            match is_split || is_folder() {
                true => info.segments(number),
                false => slice::from_ref(file),
            }
        });
        let files = all.filter(|file| file.length_bytes > 0).map(|file| Placed {
            range: Range::of_len(file.offset, file.length_bytes),
            path: only.clone().unwrap_or_else(|| file.path.as_str().to_owned()),
        });
        Ok(TorrentFiles::new(root, files.collect(), open))
    }

    /// Also reads files of other lengths than in the torrent, as if those that are too short ended with
    /// zeros: for whoever verifies each piece.
    #[must_use]
    pub fn of_any_length(mut self) -> Self {
        self.lengths = Lengths::Any;
        self
    }

    /// Returns file number `file` of [`Info::files`] alone, which is at `path`: only its bytes can be
    /// read.
    ///
    /// # Errors
    /// [`ContentError::Folder`] if the folder of `path` cannot be opened.
    pub fn one(
        info: &Info,
        file: usize,
        path: &Path,
        open: Arc<OpenFiles>,
    ) -> Result<Self, ContentError> {
        let no_file = || ContentError::Folder(io::ErrorKind::InvalidInput.into());
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(no_file)?;
        let folder = path.parent().filter(|parent| *parent != Path::new(""));
        let root = Root::open(folder.unwrap_or(Path::new("."))).map_err(ContentError::Folder)?;
        let file = info.files().get(file).ok_or_else(no_file)?;
        let range = Range::of_len(file.offset, file.length_bytes);
        Ok(TorrentFiles::new(root, vec![Placed { range, path: name.to_owned() }], open))
    }

    fn new(root: Root, files: Vec<Placed>, open: Arc<OpenFiles>) -> Self {
        let (torrent, lengths) = (open.torrent(), Lengths::Listed);
        TorrentFiles { root, files, open, torrent, lengths, seen: Mutex::default() }
    }

    /// Appends bytes of the torrent's piece space; the bytes between files are zeros.
    ///
    /// # Errors
    /// [`ContentError`]; `out` is then as long as it was.
    pub fn read(&self, range: Range, out: &mut Vec<u8>) -> Result<(), ContentError> {
        self.read_or_say_whose(range, out).map_err(|(_, error)| error)
    }

    /// As [`TorrentFiles::read`]; an error comes with the bytes of the file that it is about.
    pub(super) fn read_or_say_whose(
        &self,
        range: Range,
        out: &mut Vec<u8>,
    ) -> Result<(), (Range, ContentError)> {
        let start = out.len();
        // Pieces have at most 1 GiB.
        out.resize(start + range.len() as usize, 0);
        let read = self.read_into(range, &mut out[start..]);
        read.map_err(|(number, error)| {
            out.truncate(start);
            (self.files[number].range, error)
        })
    }

    fn read_into(&self, range: Range, out: &mut [u8]) -> Result<(), (usize, ContentError)> {
        for (number, part) in self.parts(range) {
            let file = self.file(number).map_err(|error| (number, error))?;
            let (from, to) =
                ((part.start - range.start) as usize, (part.end - range.start) as usize);
            let offset = part.start - self.files[number].range.start;
            let wanted = &mut out[from..to];
            let read = match self.lengths {
                Lengths::Listed => file.read_exact_at(wanted, offset),
                Lengths::Any => read_up_to_the_end(&file, wanted, offset),
            };
            read.map_err(|error| (number, self.unreadable(number, error)))?;
        }
        Ok(())
    }

    /// Returns the files that have bytes of `range`, and which.
    fn parts(&self, range: Range) -> impl Iterator<Item = (usize, Range)> + '_ {
        let first = self.files.partition_point(|file| file.range.end <= range.start);
        let all = self.files.iter().enumerate().skip(first);
        let touched = all.take_while(move |(_, file)| file.range.start < range.end);
        touched.filter_map(move |(number, file)| Some((number, file.range.intersect(range)?)))
    }

    /// Returns the paths of the files that have bytes of `range`.
    pub fn paths(&self, range: Range) -> impl Iterator<Item = &str> {
        self.parts(range).map(|(number, _)| &*self.files[number].path)
    }

    /// Returns a number that is another one once a file has come, gone, or been written to.
    pub fn stamp(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for placed in &self.files {
            let now = open_below(&self.root, &placed.path).and_then(|file| file.metadata());
            let of = |now: Metadata| (now.len(), now.mtime(), now.mtime_nsec(), now.ino());
            now.ok().map(of).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Opens each file once and returns what is wrong with those that are not as long as in the
    /// torrent or cannot be read, with their bytes in the piece space.
    pub fn faults(&self) -> Vec<(Range, ContentError)> {
        let all = self.files.iter().enumerate();
        all.filter_map(|(number, file)| Some((file.range, self.file(number).err()?))).collect()
    }

    fn file(&self, number: usize) -> Result<Arc<File>, ContentError> {
        let placed = &self.files[number];
        let open = || open_below(&self.root, &placed.path);
        let file = self.open.file(self.torrent, number, open);
        let file = file.map_err(|error| self.unreadable(number, error))?;
        let now = file.metadata().map_err(|error| self.unreadable(number, error))?;
        if !now.is_file() {
            return Err(self.unreadable(number, io::ErrorKind::InvalidInput.into()));
        }
        let path = || placed.path.clone();
        if self.lengths == Lengths::Listed && now.len() != placed.range.len() {
            let (has_bytes, wanted_bytes) = (now.len(), placed.range.len());
            return Err(ContentError::Length { path: path(), has_bytes, wanted_bytes });
        }
        let stamp = Stamp { mtime: (now.mtime(), now.mtime_nsec()), inode: now.ino() };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match *seen.entry(number).or_insert(stamp) == stamp {
            true => Ok(file),
            false => Err(ContentError::Changed { path: path() }),
        }
    }

    fn unreadable(&self, number: usize, error: io::Error) -> ContentError {
        ContentError::Read { path: self.files[number].path.clone(), error }
    }
}

impl Drop for TorrentFiles {
    fn drop(&mut self) {
        self.open.forget(self.torrent);
    }
}

/// Opens a file, through links if they do not lead out of the folder.
fn open_below(root: &Root, path: &str) -> io::Result<File> {
    match root.file_through_links(path.as_bytes()) {
        // Too long for a single call.
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => root.file(path.as_bytes()),
        opened => opened,
    }
}

/// Reads as many bytes as there are; the others stay as they are.
fn read_up_to_the_end(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    let mut read = 0;
    while read < out.len() {
        match file.read_at(&mut out[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use swath_formats::torrent::metainfo::{Builder, Kind, NewFile};
    use swath_model::path::SafePath;

    use super::*;

    /// Two files end to end.
    fn info() -> Info {
        let path = |name: &str| SafePath::new(name).unwrap();
        let mut builder = Builder::new(Kind::V1, path("set"), 16 << 10);
        builder.files = vec![NewFile::new(path("a"), 5), NewFile::new(path("b/c"), 20_000)];
        builder.pieces_v1 = vec![0; 20 * 2];
        builder.build().unwrap().info
    }

    fn open() -> Arc<OpenFiles> {
        Arc::new(OpenFiles::new(4))
    }

    #[test]
    fn bytes_are_read_across_files_and_nothing_beyond_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("set/b")).unwrap();
        fs::write(folder.path().join("set/a"), b"12345").unwrap();
        fs::write(folder.path().join("set/b/c"), vec![7; 20_000]).unwrap();
        // By the folder above, and by the folder itself.
        for data in [folder.path().to_owned(), folder.path().join("set")] {
            let files = TorrentFiles::find(&info(), &data, open()).unwrap();
            let mut out = vec![9];
            files.read(Range::new(3, 8), &mut out).unwrap();
            assert_eq!(out, [9, b'4', b'5', 7, 7, 7]);
            assert_eq!(files.paths(Range::new(3, 8)).collect::<Vec<_>>(), ["a", "b/c"]);
            assert!(files.faults().is_empty());
        }
        // A link that leads out is not followed, even if it leads to the right bytes.
        fs::rename(folder.path().join("set/a"), folder.path().join("a")).unwrap();
        std::os::unix::fs::symlink("../a", folder.path().join("set/a")).unwrap();
        let files = TorrentFiles::find(&info(), folder.path(), open()).unwrap();
        let mut out = vec![9];
        assert!(matches!(files.read(Range::new(3, 8), &mut out), Err(ContentError::Read { .. })));
        assert_eq!(out, [9]);
        files.read(Range::new(5, 8), &mut out).unwrap();
        assert_eq!(files.faults().len(), 1);
        // One that leads to something below is.
        fs::remove_file(folder.path().join("set/a")).unwrap();
        fs::rename(folder.path().join("a"), folder.path().join("set/b/a")).unwrap();
        std::os::unix::fs::symlink("b/a", folder.path().join("set/a")).unwrap();
        let files = TorrentFiles::find(&info(), folder.path(), open()).unwrap();
        assert!(files.faults().is_empty());
        files.read(Range::new(0, 5), &mut out).unwrap();
        assert_eq!(out, [9, 7, 7, 7, b'1', b'2', b'3', b'4', b'5']);
    }

    #[test]
    fn files_of_other_lengths_are_read_if_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("b")).unwrap();
        fs::write(folder.path().join("a"), b"1234567").unwrap();
        fs::write(folder.path().join("b/c"), vec![7; 2]).unwrap();
        let find = || TorrentFiles::find(&info(), folder.path(), open()).unwrap();
        let mut out = Vec::new();
        find().read(Range::new(3, 10), &mut out).unwrap_err();
        find().of_any_length().read(Range::new(3, 10), &mut out).unwrap();
        assert_eq!(out, [b'4', b'5', 7, 7, 0, 0, 0]);
    }

    #[test]
    fn files_are_read_whole_or_in_segments() {
        let path = |name: &str| SafePath::new(name).unwrap();
        let segment_bytes = 16 << 10;
        let single = Builder {
            segment_bytes: Some(segment_bytes),
            is_single_file: true,
            files: vec![NewFile::new(path("big"), 40_000)],
            pieces_v1: vec![0; 20 * 3],
            ..Builder::new(Kind::V1, path("big"), segment_bytes)
        };
        let set = Builder {
            is_single_file: false,
            name: path("set"),
            files: vec![NewFile::new(path("big"), 40_000), NewFile::new(path("c"), 3)],
            ..single.clone()
        };
        let content: Vec<u8> = (0..40_000u32).map(|at| (at / 100) as u8).collect();
        let folder = tempfile::tempdir().unwrap();
        for below in ["whole", "parts/big", "set/big", "mixed/set"] {
            fs::create_dir_all(folder.path().join(below)).unwrap();
        }
        let write = |path: &str, bytes: &[u8]| fs::write(folder.path().join(path), bytes).unwrap();
        for name in ["whole/big", "whole/renamed", "mixed/set/big"] {
            write(name, &content);
        }
        for (number, segment) in content.chunks(segment_bytes as usize).enumerate() {
            write(&format!("parts/big/big.00{number}"), segment);
            write(&format!("set/big/big.00{number}"), segment);
        }
        ["whole/c", "set/c", "mixed/set/c"].iter().for_each(|name| write(name, b"end"));
        let (single, set) = (single.build().unwrap().info, set.build().unwrap().info);
        for (info, data, count) in [
            (&single, "whole", 1),
            (&single, "whole/renamed", 1),
            (&single, "parts", 3),
            (&single, "parts/big", 3),
            (&set, "whole", 2),
            (&set, "", 4),
            (&set, "set", 4),
            (&set, "mixed", 2),
        ] {
            let files = TorrentFiles::find(info, &folder.path().join(data), open()).unwrap();
            assert!(files.faults().is_empty(), "{data}: {:?}", files.faults());
            let mut read = Vec::new();
            files.read(Range::new(16_000, 40_000), &mut read).unwrap();
            assert!(read == content[16_000..], "{data}");
            assert_eq!(files.paths(Range::new(0, info.total_bytes())).count(), count, "{data}");
        }
        let nothing = TorrentFiles::find(&single, &folder.path().join("mixed"), open()).unwrap();
        assert_eq!(nothing.paths(Range::new(0, 40_000)).collect::<Vec<_>>(), ["big"]);
        assert_eq!(nothing.faults().len(), 1);
    }

    #[test]
    fn files_that_change_are_not_read_any_more() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("set/b")).unwrap();
        fs::write(folder.path().join("set/a"), b"12345").unwrap();
        fs::write(folder.path().join("set/b/c"), vec![7; 20_000]).unwrap();
        let files = TorrentFiles::find(&info(), folder.path(), open()).unwrap();
        let read = |range| files.read(range, &mut Vec::new());
        read(Range::new(0, 9)).unwrap();
        fs::remove_file(folder.path().join("set/a")).unwrap();
        fs::write(folder.path().join("set/a"), b"1234567").unwrap();
        // The one that is open is still the old one.
        read(Range::new(0, 5)).unwrap();
        let other = fs::File::options().write(true).open(folder.path().join("set/b/c")).unwrap();
        other.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert!(matches!(read(Range::new(5, 9)), Err(ContentError::Changed { .. })));
        let files = TorrentFiles::find(&info(), folder.path(), open()).unwrap();
        let wrong = files.read(Range::new(0, 5), &mut Vec::new());
        assert!(matches!(wrong, Err(ContentError::Length { has_bytes: 7, .. })));
    }
}
