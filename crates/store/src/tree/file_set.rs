//! Files known by path and size, as those of a torrent, received in any order and proved later.
//!
//! They lie end to end in the order of their list; all ranges here are of these bytes, the *content*. A
//! [`PartialTree`] keeps them, so partial folder, journal and final names are those of any tree. It
//! writes bytes before they are proved, and the same bytes again if they were wrong: so a file gets its
//! attributes at the end, and the journal records proved bytes only.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustix::fs::FileType;
use swath_model::index::{Entry, Index, IndexError, Kind, Mtime, Xattrs};
use swath_model::path::SafePath;
use swath_model::{Range, RangeSet};

use super::folder_cursor::Files;
use super::partial::{Halt, PartialError, PartialTree, Preserve, Same, TreePlace, usual_mode};
use super::root::Root;

/// A file or link of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetFile {
    /// Its path below the folder of the set.
    pub path: SafePath,
    /// Its size in bytes; 0 for a link.
    pub size_bytes: u64,
    /// Whether it is a program.
    pub is_executable: bool,
    /// The target of a symbolic link, as written in it.
    pub link: Option<String>,
    /// Whether it is only needed to prove the bytes of others: it gets no final name.
    pub is_temporary: bool,
    /// Tells its content from others of this path and size: what an earlier run left of one with another
    /// value does not count.
    pub version: u64,
}

/// Files being received.
pub struct FileSet {
    tree: PartialTree,
    /// Files with bytes, in the order of the content.
    places: Vec<Place>,
    size_bytes: u64,
    /// The numbers of temporary files in the index, ascending.
    temporary: Vec<u64>,
    reader: Mutex<Option<(usize, Arc<File>)>>,
}

/// Where the bytes of a file lie.
struct Place {
    path: Vec<u8>,
    /// In the content.
    content: Range,
    /// Its first byte in the index.
    index: u64,
}

impl FileSet {
    /// Begins to receive `files` into the folder at `place`, or continues if `resume`. Work that takes
    /// long ends early if `halt` says so. Blocks.
    ///
    /// # Errors
    /// [`PartialError`], also if two files have one name.
    pub fn open(
        place: &TreePlace,
        files: &[SetFile],
        resume: bool,
        halt: Halt,
    ) -> Result<FileSet, PartialError> {
        let destination = &place.destination;
        let SetIndex { index, places, temporary } = index_of(destination, files)
            .map_err(|source| PartialError::Files { folder: destination.to_owned(), source })?;
        let size_bytes = places.last().map_or(0, |place| place.content.end);
        let index = Arc::new(RwLock::new(index));
        let preserve = Preserve { mode: true, times: false, links: false, xattrs: false };
        let tree = PartialTree::open_until(place, index, preserve, resume, &Same::Nothing, halt)?;
        tree.check_conflicts()?;
        Ok(FileSet { tree, places, size_bytes, temporary, reader: Mutex::default() })
    }

    /// Returns the proved bytes that an earlier run left.
    pub fn resumed(&self) -> RangeSet {
        let mut resumed = RangeSet::new();
        for place in &self.places {
            let of_index = Range::of_len(place.index, place.content.len());
            for range in self.tree.had().within(of_index) {
                let start = place.content.start + (range.start - place.index);
                resumed.insert(Range::of_len(start, range.len()));
            }
        }
        resumed
    }

    /// Writes bytes, over those that were there. Blocks.
    ///
    /// # Errors
    /// [`PartialError`].
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), PartialError> {
        for (place, part) in self.parts(Range::of_len(offset, bytes.len() as u64)) {
            let from = (part.start - offset) as usize;
            let bytes = &bytes[from..from + part.len() as usize];
            self.tree.overwrite(place.index + (part.start - place.content.start), bytes)?;
        }
        Ok(())
    }

    /// Reads bytes that were written, as many as `space` takes or there are. Blocks.
    ///
    /// # Errors
    /// The system's error, also for bytes that were not written.
    pub fn read(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        let wanted = Range::of_len(offset, space.len() as u64);
        let mut read = 0;
        for (place, part) in self.parts(wanted) {
            let from = (part.start - offset) as usize;
            let file = self.reader(place)?;
            let here = &mut space[from..from + part.len() as usize];
            file.read_exact_at(here, part.start - place.content.start)?;
            read = from + here.len();
        }
        Ok(read)
    }

    /// Makes proved bytes durable: a later run need not fetch them. Blocks.
    ///
    /// # Errors
    /// [`PartialError`].
    pub fn commit(&self, proved: &RangeSet) -> Result<(), PartialError> {
        let mut ranges = RangeSet::new();
        for range in proved.iter() {
            for (place, part) in self.parts(range) {
                let start = place.index + (part.start - place.content.start);
                ranges.insert(Range::of_len(start, part.len()));
            }
        }
        let ranges: Vec<Range> = ranges.iter().collect();
        if ranges.is_empty() { Ok(()) } else { self.tree.commit(&ranges) }
    }

    /// Returns how many bytes a later run need not fetch.
    pub fn durable_bytes(&self) -> u64 {
        self.tree.durable_bytes()
    }

    /// Gives all files their attributes and their final names, and removes temporary ones. Every byte was
    /// proved. Blocks.
    ///
    /// # Errors
    /// [`PartialError`]; the next run continues.
    pub fn finish(&self) -> Result<(), PartialError> {
        self.tree.complete_files()?;
        self.tree.finish(&self.temporary).map(|_| ())
    }

    /// Ends without a result. Removes everything if nothing is of use later. Blocks.
    ///
    /// # Errors
    /// [`PartialError`].
    pub fn give_up(&self) -> Result<(), PartialError> {
        self.tree.give_up()
    }

    /// Returns the length of the content.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the parts of a range of the content within single files.
    fn parts(&self, range: Range) -> impl Iterator<Item = (&Place, Range)> {
        let first = self.places.partition_point(|place| place.content.end <= range.start);
        let places = self.places[first..].iter();
        places.map_while(move |place| Some((place, place.content.intersect(range)?)))
    }

    /// Opens a file of the partial folder; the last one stays open.
    fn reader(&self, place: &Place) -> io::Result<Arc<File>> {
        let number = self.places.partition_point(|it| it.content.start < place.content.start);
        let mut last = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, file)) = &*last
            && *of == number
        {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.tree.root().file(&place.path)?);
        *last = Some((number, Arc::clone(&file)));
        Ok(file)
    }
}

/// Reads the content of files that have their final names. A file that is not there, or is no ordinary
/// file, is an error; one of another size ends the content early. Temporary files read as zeros.
pub struct SetReader {
    files: Files,
    /// Each with its size; a temporary one has no path.
    left: std::vec::IntoIter<(Option<Vec<u8>>, u64)>,
    open: Option<(Box<dyn Read + Send>, u64)>,
}

impl SetReader {
    /// Returns a reader of `files` below `folder`.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn open(folder: &Path, files: &[SetFile]) -> io::Result<SetReader> {
        let all: Vec<_> = files
            .iter()
            .filter(|file| file.link.is_none())
            .map(|file| {
                let path = file.path.as_str().as_bytes().to_vec();
                (Some(path).filter(|_| !file.is_temporary), file.size_bytes)
            })
            .collect();
        let files = Files::new(&Root::open(folder)?);
        Ok(SetReader { files, left: all.into_iter(), open: None })
    }
}

impl Read for SetReader {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some((file, left_bytes)) = &mut self.open else {
                let Some((path, size_bytes)) = self.left.next() else { return Ok(0) };
                let content: Box<dyn Read + Send> = match path {
                    None => Box::new(io::repeat(0)),
                    Some(path) => {
                        let file = self.files.file(&path)?;
                        if file.metadata()?.len() != size_bytes {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        Box::new(file)
                    }
                };
                self.open = Some((content, size_bytes));
                continue;
            };
            let most = usize::try_from(*left_bytes).unwrap_or(usize::MAX).min(space.len());
            if most == 0 && !space.is_empty() {
                self.open = None;
                continue;
            }
            let got = file.read(&mut space[..most])?;
            if got == 0 && most > 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            *left_bytes -= got as u64;
            return Ok(got);
        }
    }
}

/// Returns which of these files exist in the folder, as paths; temporary ones do not count.
pub fn existing(folder: &Path, files: &[SetFile]) -> Vec<PathBuf> {
    let path = |file: &SetFile| folder.join(file.path.as_path());
    files
        .iter()
        .filter(|file| !file.is_temporary)
        .map(path)
        .filter(|path| path.symlink_metadata().is_ok())
        .collect()
}

/// What [`index_of`] makes.
struct SetIndex {
    index: Index,
    places: Vec<Place>,
    temporary: Vec<u64>,
}

/// Makes the index of a set. What is replaced in `destination` keeps its mode.
fn index_of(destination: &Path, files: &[SetFile]) -> Result<SetIndex, IndexError> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by(|&a, &b| {
        let parts = |at: usize| files[at].path.as_str().split('/');
        parts(a).cmp(parts(b))
    });
    let mut starts = vec![0; files.len()];
    let mut temporary = Vec::new();
    let mut index = Index::new();
    // The folder of the last entry.
    let mut folder: Vec<&str> = Vec::new();
    for at in order {
        let file = &files[at];
        let mut above: Vec<&str> = file.path.as_str().split('/').collect();
        let name = above.pop().unwrap_or_default();
        let common = folder.iter().zip(&above).take_while(|(one, other)| one == other).count();
        let mut leaves = folder.len() - common;
        folder.truncate(common);
        for part in &above[common..] {
            folder.push(part);
            let mode = mode_at(&destination.join(folder.join("/")), FileType::Directory)
                .unwrap_or_else(|| usual_mode(FileType::Directory));
            index.push(&entry(leaves, part, Kind::Folder, mode))?;
            leaves = 0;
        }
        let mode = usual_mode(FileType::RegularFile);
        let executes = if file.is_executable { mode >> 2 & 0o111 } else { 0 };
        let (kind, mode) = match &file.link {
            Some(target) => (Kind::Symlink(target.as_bytes().to_vec()), 0o777),
            None => {
                let size_bytes = file.size_bytes;
                let there = destination.join(file.path.as_path());
                let mode = mode_at(&there, FileType::RegularFile).unwrap_or(mode | executes);
                (Kind::File { size_bytes, extents: None }, mode)
            }
        };
        if file.is_temporary {
            temporary.push(index.entries());
        }
        // Times are not preserved. Two runs compare them to find out whether a file is the same.
        let mtime = Mtime { seconds: file.version.cast_signed(), nanoseconds: 0 };
        starts[at] = index.push(&Entry { mtime, ..entry(leaves, name, kind, mode) })?;
    }
    index.complete();
    let mut end = 0;
    let mut places = Vec::new();
    for (file, index) in files.iter().zip(starts) {
        let content = Range::of_len(end, if file.link.is_some() { 0 } else { file.size_bytes });
        end = content.end;
        if !content.is_empty() {
            places.push(Place { path: file.path.as_str().as_bytes().to_vec(), content, index });
        }
    }
    Ok(SetIndex { index, places, temporary })
}

/// Returns the mode of what is at a path, if it is of this kind.
fn mode_at(path: &Path, kind: FileType) -> Option<u32> {
    let found = path.symlink_metadata().ok()?;
    let mode = found.permissions().mode();
    (FileType::from_raw_mode(mode) == kind).then_some(mode & 0o777)
}

fn entry(leaves: usize, name: &str, kind: Kind, mode: u32) -> Entry<'_> {
    let (name, mtime) = (name.as_bytes(), Mtime::default());
    Entry { leaves, name, kind, mode, mtime, xattrs: Xattrs::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, u64)]) -> Vec<SetFile> {
        let file = |&(path, size_bytes): &(&str, u64)| SetFile {
            path: SafePath::new(path).unwrap(),
            size_bytes,
            is_executable: path.ends_with(".sh"),
            link: None,
            is_temporary: path.starts_with('.'),
            version: 1,
        };
        all.iter().map(file).collect()
    }

    fn never() -> Halt {
        Arc::new(|| false)
    }

    /// An order that is not that of an index, with an empty file and a large one.
    const ALL: [(&str, u64); 6] = [
        ("b/x/run.sh", 70_000),
        ("b.txt", 5),
        ("a", 3_000_000),
        ("b/empty", 0),
        ("b/a", 1_000_001),
        ("c/d/e/f", 300_000),
    ];

    fn content() -> Vec<u8> {
        let bytes: u64 = ALL.iter().map(|it| it.1).sum();
        (0..bytes).map(|at| (at * 31 % 251) as u8).collect()
    }

    #[test]
    fn bytes_written_in_any_order_and_twice_become_files() {
        let folder = tempfile::tempdir().unwrap();
        let (to, content) = (folder.path().join("set"), content());
        let set = FileSet::open(&TreePlace::at(&to), &files(&ALL), true, never()).unwrap();
        assert_eq!(set.size_bytes(), content.len() as u64);
        let step = 100_003;
        set.write(0, &vec![9; 500_000]).unwrap();
        for at in (0..content.len()).step_by(step).collect::<Vec<_>>().into_iter().rev() {
            set.write(at as u64, &content[at..content.len().min(at + step)]).unwrap();
        }
        let mut back = vec![0; content.len()];
        assert_eq!(set.read(0, &mut back).unwrap(), content.len());
        assert!(back == content);
        assert!(!to.exists(), "no final name before the end");
        set.finish().unwrap();
        let mut at = 0;
        for (path, bytes) in ALL {
            let there = std::fs::read(to.join(path)).unwrap();
            assert!(there == content[at..at + bytes as usize], "{path}");
            at += bytes as usize;
            let mode = to.join(path).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o100 != 0, path.ends_with(".sh"), "{path}: {mode:o}");
            assert_ne!(mode & 0o044, 0, "{path}: {mode:o}");
        }
        let mut read = Vec::new();
        SetReader::open(&to, &files(&ALL)).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == content);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left");
    }

    #[test]
    fn proved_bytes_are_resumed_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (to, content) = (folder.path().join("set"), content());
        let set = FileSet::open(&TreePlace::at(&to), &files(&ALL), true, never()).unwrap();
        set.write(0, &content).unwrap();
        // Pieces of a swarm come in any order: many small ranges.
        let end = content.len() as u64;
        let pieces = (0..end).step_by(40_000);
        let proved: RangeSet =
            pieces.map(|start| Range::new(start, (start + 16_384).min(end))).collect();
        set.commit(&proved).unwrap();
        drop(set);
        let set = FileSet::open(&TreePlace::at(&to), &files(&ALL), true, never()).unwrap();
        let resumed = set.resumed();
        assert_eq!(resumed, proved);
        for gap in resumed.gaps_within(Range::new(0, content.len() as u64)) {
            set.write(gap.start, &content[gap.start as usize..gap.end as usize]).unwrap();
        }
        set.finish().unwrap();
        let mut read = Vec::new();
        SetReader::open(&to, &files(&ALL)).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == content);
    }

    #[test]
    fn bytes_of_another_version_of_a_file_are_not_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let (to, content) = (folder.path().join("set"), content());
        let set = FileSet::open(&TreePlace::at(&to), &files(&ALL), true, never()).unwrap();
        set.write(0, &content).unwrap();
        set.commit(&RangeSet::full(content.len() as u64)).unwrap();
        drop(set);
        let mut all = files(&ALL);
        all[2].version = u64::MAX;
        let set = FileSet::open(&TreePlace::at(&to), &all, true, never()).unwrap();
        let (other, same) = (Range::new(70_005, 3_070_005), Range::new(3_070_005, 4_070_006));
        let resumed = set.resumed();
        assert_eq!(resumed.bytes_within(other), 0);
        assert!(resumed.bytes_within(same) > 500_000, "{resumed:?}");
        set.write(0, &content).unwrap();
        set.finish().unwrap();
        let age = to.join("a").metadata().unwrap().modified().unwrap().elapsed();
        assert!(age.is_ok_and(|age| age.as_secs() < 3600), "it is no time");
    }

    #[test]
    fn temporary_files_are_written_read_and_resumed_but_get_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("set");
        let all = files(&[(".end", 3_000_000), ("b/one", 1_500_000), (".begin", 5), ("b/two", 7)]);
        let size = all.iter().map(|it| it.size_bytes).sum::<u64>();
        let content: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
        let set = FileSet::open(&TreePlace::at(&to), &all, true, never()).unwrap();
        set.write(0, &content).unwrap();
        set.commit(&RangeSet::full(size)).unwrap();
        drop(set);
        let set = FileSet::open(&TreePlace::at(&to), &all, true, never()).unwrap();
        assert!(set.resumed().bytes_within(Range::new(0, 3_000_000)) > 1_000_000);
        set.write(0, &content).unwrap();
        let mut back = vec![0; content.len()];
        assert_eq!(set.read(0, &mut back).unwrap(), content.len());
        assert!(back == content);
        set.finish().unwrap();
        let names = |folder: &Path| {
            let names = std::fs::read_dir(folder).unwrap();
            let mut names: Vec<_> = names.map(|it| it.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(
            (names(&to), names(&to.join("b"))),
            (vec!["b".into()], vec!["one".into(), "two".into()])
        );
        assert!(std::fs::read(to.join("b/one")).unwrap() == content[3_000_000..4_500_000]);
        assert_eq!(existing(&to, &all).len(), 2);
        let mut read = Vec::new();
        SetReader::open(&to, &all).unwrap().read_to_end(&mut read).unwrap();
        assert!(read[..3_000_000].iter().all(|&byte| byte == 0));
        assert!(read[3_000_000..4_500_000] == content[3_000_000..4_500_000]);
        // More files of the same folder, later.
        let more = files(&[("b/three", 9), (".end", 5)]);
        let set = FileSet::open(&TreePlace::at(&to), &more, true, never()).unwrap();
        set.write(0, &content[..14]).unwrap();
        set.finish().unwrap();
        assert_eq!((names(&to).len(), names(&to.join("b")).len()), (1, 3));
    }

    #[test]
    fn links_are_made_and_two_files_of_one_name_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("set");
        let mut all = files(&[("data/one", 10), ("latest", 0)]);
        all[1].link = Some("data/one".to_owned());
        let set = FileSet::open(&TreePlace::at(&to), &all, true, never()).unwrap();
        set.write(0, &[7; 10]).unwrap();
        set.finish().unwrap();
        assert_eq!(std::fs::read(to.join("latest")).unwrap(), [7; 10]);
        let twice = files(&[("a", 1), ("a", 2)]);
        let refused =
            FileSet::open(&TreePlace::at(&folder.path().join("other")), &twice, true, never());
        assert!(matches!(refused.map(|_| ()), Err(PartialError::Files { .. })));
    }
}
