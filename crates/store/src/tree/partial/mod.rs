//! A tree being received.
//!
//! Its files grow in a folder of their own, the *partial folder*, and get their final names
//! together at the end. If the destination does not exist, the partial folder lies beside it, and
//! one rename gives all final names. Otherwise it lies inside, and the files move one by one.
//!
//! The journal beside the partial folder records ranges of the virtual file (only after they were
//! synced), and a copy of the index maps them to files. All methods block.

mod building;
mod compare;
mod data;
mod error;
mod finish;
mod further;
mod mark;
mod paths;
mod place;
mod preflight;
mod reuse;
mod settle;
mod skeleton;
mod xattrs;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use rustix::io::Errno;
use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::index::{Index, Item, Kind, Mtime, Part, Top};
use swath_model::{Range, RangeSet};

use super::alike::{Names, Spellings};
use super::conflict::{Conflict, conflicts};
use super::filter::Filter;
use super::folder_cursor::{Enter, FolderCursor};
use super::grant::Deed;
use super::reader::TreeReader;
use super::root::Root;
use super::unfinished::{OWN_NAME, is_own_name};
use super::xattrs::XattrLoss;
use crate::journal::{JournalFile, Record, State};
use crate::steps::SystemSteps;
use building::Files;
use data::Directly;
use paths::Paths;
use reuse::Reusable;
use settle::InTheWay;

pub(super) use building::usual_mode;
pub use compare::{Same, Unchanged};
pub use error::PartialError;
pub use finish::Finished;
pub(super) use mark::is_mark;
pub use place::TreePlace;
pub use preflight::{check_destination, check_rights, check_space};

/// Which attributes of files are copied besides their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Modification times.
    pub times: bool,
    /// Hard links stay hard links.
    pub links: bool,
    /// Extended attributes (of the `user.` namespace), as far as the index has them.
    pub xattrs: bool,
}

impl Default for Preserve {
    fn default() -> Preserve {
        Preserve { mode: true, times: true, links: false, xattrs: false }
    }
}

/// Returns whether the user wants to stop.
pub type Halt = Arc<dyn Fn() -> bool + Send + Sync>;

/// A tree being received.
pub struct PartialTree {
    place: TreePlace,
    paths: Paths,
    root: Root,
    index: Arc<RwLock<Index>>,
    preserve: Preserve,
    /// What an earlier run left by its journal, in this index's virtual file.
    resumed: RangeSet,
    /// The same, including bytes in groups that are fetched again for other files.
    had: RangeSet,
    /// What the destination already has.
    unchanged: Unchanged,
    /// Whole groups that need not be fetched.
    present: RangeSet,
    files: Files,
    directly: Directly,
    journal: Mutex<Option<(JournalFile, State)>>,
    /// The destination's own time, before there was a partial folder.
    top_mtime: Option<Mtime>,
    /// The mode and time of the tree's own folder, for a new destination.
    top: Option<Top>,
    /// Whether entries in the way are removed, unless they hold what this filter excludes.
    replaces: Option<Filter>,
    /// Entries whose extended attributes could not be set.
    xattr_losses: Mutex<Vec<(u64, XattrLoss)>>,
    /// How many entries of an earlier index are not in this one, and the first paths.
    gone: (usize, Vec<Vec<u8>>),
    /// Entries without their names, if an earlier copy was completed first.
    completed_earlier: Option<u64>,
    /// Whether new files inherit rights from their folder.
    has_default_rights: bool,
    /// The names compared so far.
    names: Mutex<Names>,
    halt: Halt,
}

/// A file with bytes to write.
struct Wanted {
    number: u64,
    path: Vec<u8>,
    range: Range,
    size_bytes: u64,
    /// Whether it has holes.
    is_sparse: bool,
    mode: u32,
    mtime: Mtime,
    parts: Vec<Part>,
}

impl Wanted {
    /// Returns whether these are all its bytes.
    fn is_whole(&self) -> bool {
        self.parts.iter().map(|part| part.bytes).sum::<u64>() == self.range.len()
    }

    fn of(item: &Item<'_>, range: Range) -> Option<Wanted> {
        let Kind::File { size_bytes, .. } = item.entry.kind else { return None };
        let parts: Vec<Part> = item.parts(range).collect();
        (!parts.is_empty()).then(|| Wanted {
            number: item.number,
            path: item.path.to_vec(),
            range: item.range(),
            size_bytes,
            is_sparse: item.entry.kind.is_sparse(),
            mode: item.entry.mode,
            mtime: item.entry.mtime,
            parts,
        })
    }
}

impl PartialTree {
    /// Returns whether an earlier run left something for this destination (or for a single file of
    /// this name there). Resuming it needs the whole index.
    pub fn is_left(destination: &Path, single: Option<&str>) -> bool {
        Paths::of(destination, single).is_ok_and(|paths| paths.is_left())
    }

    /// Returns whether an earlier run for this destination was interrupted while it gave names.
    pub fn is_moving(destination: &Path) -> bool {
        Paths::of(destination, None).is_ok_and(|paths| paths.is_moving())
    }

    /// Begins to receive the tree of `index` at `destination`, or continues if `resume`. The index
    /// may still grow, unless something [is left](PartialTree::is_left). Identical existing files
    /// stay as they are; finding them needs a complete index.
    pub fn open(
        destination: &Path,
        index: Arc<RwLock<Index>>,
        preserve: Preserve,
        resume: bool,
        same: &Same,
    ) -> Result<PartialTree, PartialError> {
        let place = TreePlace::at(destination);
        PartialTree::open_until(&place, index, preserve, resume, same, Arc::new(|| false))
    }

    /// Opens like [`PartialTree::open`]; ends long work early if `halt` says so, now and later. The
    /// partial folder of a single file is made at once.
    pub fn open_until(
        place: &TreePlace,
        index: Arc<RwLock<Index>>,
        preserve: Preserve,
        resume: bool,
        same: &Same,
        halt: Halt,
    ) -> Result<PartialTree, PartialError> {
        place.check_links()?;
        let paths = Paths::of(&place.destination, place.single.as_deref())?;
        if !place.destination.is_dir() {
            let may_make = place.grant.check(Deed::MakeFolder, b"");
            may_make.map_err(|source| PartialError::Io {
                doing: "make",
                path: place.destination.clone(),
                source,
            })?;
        }
        let top_mtime = paths.top_mtime();
        let root = paths.open_folder()?;
        let mut tree =
            PartialTree::of(place.clone(), paths, root, Arc::clone(&index), preserve, halt);
        let halt = Arc::clone(&tree.halt);
        tree.top_mtime = top_mtime;
        let paths = &tree.paths;
        refuse_own_names(&read(&index), paths)?;
        if resume && let Some(moving) = paths.moving() {
            // A copy that would be refused in the end should stay where it is.
            let unchanged = Unchanged::at(&read(&index), &paths.destination, same, preserve.links);
            check_rights(&read(&index), &paths.destination, &unchanged)?;
            // The tree of the earlier run, which is then nearly as if that run had completed it.
            tree.index = Arc::new(RwLock::new(moving.index));
            let finished = tree.finish_moving(&moving.without, InTheWay::Stays)?;
            drop(tree);
            let mut tree = PartialTree::open_until(place, index, preserve, resume, same, halt)?;
            tree.completed_earlier = Some(finished.closed);
            return Ok(tree);
        }
        let mut left = if resume { paths.recover(&read(&index)) } else { Reusable::default() };
        if left.is_other {
            return Err(PartialError::OtherTree { folder: paths.names.part.clone() });
        }
        if !left.durable.is_empty() {
            let gone: Vec<&Vec<u8>> = {
                let index = read(&index);
                let mut spellings = Spellings::new(&index, Some(&tree.root));
                left.gone.iter().filter(|path| !spellings.has(path)).collect()
            };
            let mut folders = FolderCursor::new(&tree.root, Enter::Open);
            for path in gone.into_iter().rev() {
                tree.remove(path, &mut folders)?;
            }
            let has_times = preserve.times;
            compare::still_there(&read(&index), &tree.root, has_times, &mut left.durable);
        }
        let unchanged = match place.open() {
            Ok(destination) if !paths.is_new => {
                Unchanged::find(&read(&index), &destination, same, preserve.links)
            }
            _ => Unchanged::default(),
        };
        if !paths.is_new {
            check_rights(&read(&index), &paths.destination, &unchanged)?;
        }
        let mut known = left.durable.clone();
        for range in unchanged.ranges.iter() {
            known.insert(range);
        }
        // The partial folder holds nothing of files that stay.
        let present = whole_groups(&known, &read(&index));
        let mut resumed = RangeSet::new();
        for range in present.iter() {
            for durable in left.durable.within(range) {
                resumed.insert(durable);
            }
        }
        tree.go_on()?;
        if left.durable.is_empty() {
            paths.clear(&tree.root, &*halt)?;
        }
        tree.had = left.durable;
        (tree.resumed, tree.unchanged, tree.present) = (resumed, unchanged, present);
        if !tree.had.is_empty() {
            // Journal the reused bytes anew: their index may have changed.
            tree.begin_journal(&mut lock(&tree.journal))?;
        }
        let count = left.gone.len();
        left.gone.truncate(GONE_TOLD);
        tree.gone = (count, left.gone);
        Ok(tree)
    }

    /// Returns a tree without any bytes.
    fn of(
        place: TreePlace,
        paths: Paths,
        root: Root,
        index: Arc<RwLock<Index>>,
        preserve: Preserve,
        halt: Halt,
    ) -> PartialTree {
        PartialTree {
            has_default_rights: building::has_default_rights(root.fd()),
            place,
            paths,
            root,
            index,
            preserve,
            resumed: RangeSet::new(),
            had: RangeSet::new(),
            unchanged: Unchanged::default(),
            present: RangeSet::new(),
            files: Files::default(),
            directly: Directly::new(true),
            journal: Mutex::new(None),
            top_mtime: None,
            top: None,
            replaces: None,
            xattr_losses: Mutex::default(),
            gone: Default::default(),
            completed_earlier: None,
            names: Mutex::default(),
            halt,
        }
    }

    /// Writes everything through the page cache. Call it before the first write.
    pub fn write_buffered(&mut self) {
        self.directly = Directly::new(false);
    }

    /// Allows removing entries of another kind at the destination when their names are needed,
    /// unless they hold what this filter excludes.
    pub fn replace(&mut self, filter: Filter) {
        self.replaces = Some(filter);
    }

    /// Sets the mode and time of the tree's own folder. An existing destination keeps its own.
    pub fn tell_top(&mut self, top: Top) {
        self.top = Some(top);
    }

    /// Returns how many entries could not get their names when an earlier copy, interrupted while
    /// giving names, was completed first; `None` if there was none.
    pub fn completed_earlier(&self) -> Option<u64> {
        self.completed_earlier
    }

    /// Returns how many entries of an earlier index are not in this one, or have another kind, and
    /// the paths of the first ones.
    pub fn gone(&self) -> (usize, &[Vec<u8>]) {
        (self.gone.0, &self.gone.1)
    }

    /// Returns how many bytes of the virtual file the journal records: a later run resumes there.
    pub fn durable_bytes(&self) -> u64 {
        lock(&self.journal).as_ref().map_or(0, |(_, state)| state.durable.total_bytes())
    }

    /// Ends the copy. Removes everything if no journal makes it useful later.
    pub fn give_up(&self) -> Result<(), PartialError> {
        if lock(&self.journal).is_none() && !self.paths.is_left() {
            self.paths.clear(&self.root, &|| false)?;
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), PartialError> {
        if (self.halt)() { Err(PartialError::Stopped) } else { Ok(()) }
    }

    /// Returns the whole groups of the virtual file that need not be fetched: an earlier run left
    /// them, or the destination has them.
    pub fn present(&self) -> &RangeSet {
        &self.present
    }

    /// Returns a reader of what is written. It stays good when the files get their final names, and does
    /// not keep others from opening the partial folder again.
    ///
    /// # Errors
    /// The partial folder cannot be opened once more.
    pub fn reader(&self) -> io::Result<TreeReader> {
        // The descriptor itself holds the lock.
        let partial = self.root.below(b"")?;
        let destination = self.paths.destination.clone();
        Ok(TreeReader::new(partial, destination, Arc::clone(&self.index)))
    }

    /// Returns the part of these that an earlier run (or pass) left.
    pub fn resumed(&self) -> &RangeSet {
        &self.resumed
    }

    /// Returns the same with the bytes outside whole groups, for an owner that proves other units.
    pub(super) fn had(&self) -> &RangeSet {
        &self.had
    }

    /// Returns how many files, links and further names stay as they are at the destination.
    pub fn unchanged_entries(&self) -> u64 {
        self.unchanged.entries
    }

    /// Returns how many files stay as they are at the destination.
    pub fn unchanged_files(&self) -> u64 {
        self.unchanged.files
    }

    /// Returns whether the destination exists.
    pub fn is_there(destination: &Path) -> bool {
        Paths::of(destination, None).is_ok_and(|paths| !paths.is_new)
    }

    /// Writes bytes of the virtual file from `start` on. Each byte is written once. A file with all
    /// its bytes gets its attributes and is closed. A file that was complete before stays as it is,
    /// as its bytes and these may be of two versions.
    pub fn write(&self, start: u64, bytes: &[u8]) -> Result<(), PartialError> {
        let range = Range::of_len(start, bytes.len() as u64);
        let mut folders = FolderCursor::new(&self.root, Enter::Make);
        let all = self.wanted(range);
        // Two files that are one here would become a mixture.
        self.check_names(all.last().map_or(0, |last| last.number + 1))?;
        for wanted in all {
            if self.had.covers(wanted.range) {
                continue;
            }
            self.files
                .write(self, &wanted, start, bytes, &mut folders)
                .map_err(|source| self.not_written(&wanted.path, source))?;
        }
        Ok(())
    }

    /// These bytes, which were written, are wrong: they will be written once more.
    pub fn reopen(&self, range: Range) {
        let wanted = self.wanted(range).into_iter();
        wanted
            .filter(|wanted| !self.had.covers(wanted.range))
            .for_each(|wanted| self.files.reopen(&wanted));
    }

    /// Writes bytes of the virtual file from `start` on, perhaps over others. Files stay open and without
    /// attributes until [`PartialTree::complete_files`].
    pub fn overwrite(&self, start: u64, bytes: &[u8]) -> Result<(), PartialError> {
        let mut folders = FolderCursor::new(&self.root, Enter::Make);
        for wanted in self.wanted(Range::of_len(start, bytes.len() as u64)) {
            self.files
                .overwrite(self, &wanted, start, bytes, &mut folders)
                .map_err(|source| self.not_written(&wanted.path, source))?;
        }
        Ok(())
    }

    /// Gives all files with bytes their attributes. All these bytes are there.
    pub fn complete_files(&self) -> Result<(), PartialError> {
        let mut folders = FolderCursor::new(&self.root, Enter::Make);
        for wanted in self.wanted(Range::new(0, self.index().size_bytes())) {
            self.go_on()?;
            self.files
                .complete(self, &wanted, &mut folders)
                .map_err(|source| self.not_written(&wanted.path, source))?;
        }
        Ok(())
    }

    /// Returns the partial folder.
    pub(super) fn root(&self) -> &Root {
        &self.root
    }

    /// Makes everything written so far durable and records these ranges in the journal. When this
    /// returns they survive `kill -9` and power loss. The index must be complete.
    pub fn commit(&self, ranges: &[Range]) -> Result<(), PartialError> {
        self.sync()?;
        let mut journal = lock(&self.journal);
        if journal.is_none() {
            self.begin_journal(&mut journal)?;
        }
        let Some((file, state)) = &mut *journal else { return Ok(()) };
        let records: Vec<Record> =
            ranges.iter().map(|&range| Record::Durable { range, source: 0 }).collect();
        file.append(&SystemSteps::new(), &self.paths.names, state, &records)
            .map_err(|error| self.journal_failed(error.into_io()))
    }

    /// Removes the bytes of these files (numbers in the index) from the journal as useless.
    pub fn forget(&self, files: &[u64]) -> Result<(), PartialError> {
        let mut journal = lock(&self.journal);
        let Some((file, state)) = &mut *journal else { return Ok(()) };
        let index = self.index();
        let range = |&number: &u64| index.cursor_from(number).next().map(|item| item.range());
        let ranges = files.iter().filter_map(range).filter(|range| !range.is_empty());
        let records: Vec<Record> = ranges.map(|range| Record::Bad { range }).collect();
        file.append(&SystemSteps::new(), &self.paths.names, state, &records)
            .map_err(|error| self.journal_failed(error.into_io()))
    }

    fn begin_journal(
        &self,
        journal: &mut Option<(JournalFile, State)>,
    ) -> Result<(), PartialError> {
        let begun = self.paths.begin_journal(&self.index(), &self.had);
        *journal = Some(begun.map_err(|source| self.journal_failed(source))?);
        Ok(())
    }

    fn journal_failed(&self, source: io::Error) -> PartialError {
        self.failed("write the journal of", b"", source)
    }

    fn sync(&self) -> Result<(), PartialError> {
        rustix::fs::syncfs(self.root.fd()).map_err(|error| self.failed("sync", b"", error.into()))
    }

    fn wanted(&self, range: Range) -> Vec<Wanted> {
        let index = self.index();
        let mut cursor = index.cursor_at(range.start);
        let mut all = Vec::new();
        while let Some(item) = cursor.next() {
            if item.start >= range.end {
                break;
            }
            if !self.unchanged.has(item.number) {
                all.extend(Wanted::of(&item, range));
            }
        }
        all
    }

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        read(&self.index)
    }

    fn failed(&self, doing: &'static str, path: &[u8], source: io::Error) -> PartialError {
        PartialError::Io { doing, path: self.shown(path), source }
    }

    /// Returns the error for a failed write, or names what is foreign in the partial folder.
    fn not_written(&self, path: &[u8], source: io::Error) -> PartialError {
        let kinds = [Errno::LOOP, Errno::NOTDIR, Errno::ISDIR].map(|it| it.raw_os_error());
        if !source.raw_os_error().is_some_and(|error| kinds.contains(&error)) {
            return self.failed("write", path, source);
        }
        let path = self.paths.names.part.join(OsStr::from_bytes(path));
        PartialError::Io { doing: "write, as something else is in its place:", path, source }
    }

    /// Returns a path of the tree as that of its final place.
    fn shown(&self, path: &[u8]) -> PathBuf {
        match path {
            b"" => self.paths.destination.clone(),
            path => self.paths.destination.join(OsStr::from_bytes(path)),
        }
    }
}

impl Drop for PartialTree {
    fn drop(&mut self) {
        self.paths.give_back(&self.root);
    }
}

/// Refuses a tree with leftovers of an unfinished copy: they would lie at our own names, or at
/// those of a copy into one of its folders.
fn refuse_own_names(index: &Index, paths: &Paths) -> Result<(), PartialError> {
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        refuse_own_name(&item, paths)?;
    }
    Ok(())
}

fn refuse_own_name(item: &Item<'_>, paths: &Paths) -> Result<(), PartialError> {
    if is_own_name(item.entry.name) {
        let name = String::from_utf8_lossy(item.path).into_owned();
        return Err(PartialError::OwnName { path: paths.destination.join(name) });
    }
    Ok(())
}

/// Returns what can be reused of ranges of a virtual file: whole groups only, because if a file's
/// bytes came twice nobody could say when it is complete.
fn whole_groups(ranges: &RangeSet, index: &Index) -> RangeSet {
    let mut whole = RangeSet::new();
    for range in ranges.iter() {
        let start = range.start.next_multiple_of(GROUP_BYTES);
        let end = match range.end {
            end if end == index.size_bytes() => end,
            end => end - end % GROUP_BYTES,
        };
        if start < end {
            whole.insert(Range::new(start, end));
        }
    }
    whole
}

fn read(index: &RwLock<Index>) -> RwLockReadGuard<'_, Index> {
    index.read().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most paths kept of entries that are no longer in the tree.
const GONE_TOLD: usize = 10;
