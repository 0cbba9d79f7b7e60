//! A tree that is being received.
//!
//! Its files grow in a folder of their own, the *stage*, and get their final names together, at
//! the end. Where the destination does not exist the stage lies beside it, and one rename gives
//! all of them their names; else it lies within it, and they move one by one.
//!
//! The journal beside the stage vouches for ranges of the virtual file (never for bytes that were
//! not synced before), and a copy of the index says what they are bytes of. All methods block.

mod building;
mod carry;
mod compare;
mod data;
mod error;
mod finish;
mod further;
mod mark;
mod place;
mod room;
mod settle;
mod skeleton;
mod way;
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

use super::conflict::{Conflict, conflicts};
use super::filter::Filter;
use super::root::Root;
use super::trail::{Enter, Trail};
use super::unfinished::{OWN_NAME, is_own_name};
use super::xattrs::XattrLoss;
use crate::journal::{JournalFile, Record, State};
use crate::steps::SystemSteps;
use building::Files;
use carry::Carried;
use data::Directly;
use place::Place;
use settle::InTheWay;

pub use compare::{Kept, Same};
pub use error::StageError;
pub use finish::Finished;
pub(super) use mark::is_mark;
pub use room::check_room;
pub use way::{check_rights, check_way};

/// What of a file's attributes is taken over besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Times of the last change.
    pub times: bool,
    /// Several names of one file stay names of one file.
    pub links: bool,
    /// Extended attributes (those of the `user.` namespace), as far as the index tells them.
    pub xattrs: bool,
}

impl Default for Preserve {
    fn default() -> Preserve {
        Preserve { mode: true, times: true, links: false, xattrs: false }
    }
}

/// Says whether the user wants all to end.
pub type Halt = Arc<dyn Fn() -> bool + Send + Sync>;

/// A tree that is being received.
pub struct Stage {
    place: Place,
    root: Root,
    index: Arc<RwLock<Index>>,
    preserve: Preserve,
    /// What an earlier run left, by its journal, in the virtual file of this index.
    resumed: RangeSet,
    /// The same with what lies in groups that have to come once more for other files.
    had: RangeSet,
    /// What the destination has already, and stays.
    kept: Kept,
    /// What need not be fetched, in whole groups.
    present: RangeSet,
    files: Files,
    directly: Directly,
    journal: Mutex<Option<(JournalFile, State)>>,
    /// When the destination's own entries changed last, before there was a stage.
    top_mtime: Option<Mtime>,
    /// What the tree's own folder is like: so will be a destination that is not there yet.
    top: Option<Top>,
    /// What is in the way goes, unless it holds what this leaves out.
    replaces: Option<Filter>,
    /// Of which entries extended attributes could not be taken over.
    xattr_losses: Mutex<Vec<(u64, XattrLoss)>>,
    /// How much an earlier index had that this one has not, and the first of it.
    gone: (usize, Vec<Vec<u8>>),
    /// An earlier copy came to its end first; so much of it could not have its names.
    completed_earlier: Option<u64>,
    /// What is made in it gets rights from the folder that it lies in.
    has_default_rights: bool,
    halt: Halt,
}

/// One file of which some bytes are to be written.
struct Wanted {
    number: u64,
    path: Vec<u8>,
    range: Range,
    size_bytes: u64,
    /// It has holes.
    is_sparse: bool,
    mode: u32,
    mtime: Mtime,
    parts: Vec<Part>,
}

impl Wanted {
    /// Whether these are all its bytes.
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

impl Stage {
    /// Whether an earlier run left something for this destination (or for a single file of this name
    /// there), so that the whole index is needed to go on with it.
    pub fn is_left(destination: &Path, single: Option<&str>) -> bool {
        Place::of(destination, single).is_ok_and(|place| place.is_left())
    }

    /// Begin to receive the tree of `index` (which may still grow, unless something
    /// [is left](Stage::is_left)) at `destination`, or go on with it if `resume`. Files that are
    /// there already and the same stay as they are; to look for such the index must be complete.
    ///
    /// # Errors
    /// [`StageError`].
    pub fn open(
        destination: &Path,
        index: Arc<RwLock<Index>>,
        preserve: Preserve,
        resume: bool,
        same: &Same,
    ) -> Result<Stage, StageError> {
        Stage::open_until(destination, None, index, preserve, resume, same, Arc::new(|| false))
    }

    /// As [`Stage::open`]; whatever takes long ends early when `halt` says so, then and later. A tree
    /// that is a single file of this name is unfinished for itself, and the folder is made at once.
    ///
    /// # Errors
    /// [`StageError`].
    pub fn open_until(
        destination: &Path,
        single: Option<&str>,
        index: Arc<RwLock<Index>>,
        preserve: Preserve,
        resume: bool,
        same: &Same,
        halt: Halt,
    ) -> Result<Stage, StageError> {
        let place = Place::of(destination, single)?;
        let top_mtime = place.top_mtime();
        let root = place.open_stage()?;
        let mut stage = Stage::of(place, root, Arc::clone(&index), preserve, Arc::clone(&halt));
        stage.top_mtime = top_mtime;
        let place = &stage.place;
        refuse_own_names(&read(&index), place)?;
        if resume && let Some(moving) = place.moving() {
            // What is refused in the end had better stay where it is.
            let kept = Kept::at(&read(&index), &place.destination, same, preserve.links);
            check_rights(&read(&index), &place.destination, &kept)?;
            // What an earlier run was about: then nearly everything is as if it had come to its end.
            stage.index = Arc::new(RwLock::new(moving.index));
            let finished = stage.finish_moving(&moving.without, InTheWay::Stays)?;
            drop(stage);
            let mut stage =
                Stage::open_until(destination, single, index, preserve, resume, same, halt)?;
            stage.completed_earlier = Some(finished.closed);
            return Ok(stage);
        }
        let mut left = if resume { place.recover(&read(&index)) } else { Carried::default() };
        if left.is_other {
            return Err(StageError::OtherTree { stage: place.names.part.clone() });
        }
        if !left.durable.is_empty() {
            let has_times = preserve.times;
            compare::still_there(&read(&index), &stage.root, has_times, &mut left.durable);
        }
        let kept = match Root::open(&place.destination) {
            Ok(destination) if !place.is_new => {
                Kept::find(&read(&index), &destination, same, preserve.links)
            }
            _ => Kept::default(),
        };
        if !place.is_new {
            check_rights(&read(&index), &place.destination, &kept)?;
        }
        let mut known = left.durable.clone();
        for range in kept.ranges.iter() {
            known.insert(range);
        }
        // Of files that stay nothing is in the stage.
        let present = whole_groups(&known, &read(&index));
        let mut resumed = RangeSet::new();
        for range in present.iter() {
            for durable in left.durable.within(range) {
                resumed.insert(durable);
            }
        }
        stage.go_on()?;
        if resumed.is_empty() {
            place.clear(&stage.root, &*halt)?;
        } else {
            stage.had = left.durable;
        }
        (stage.resumed, stage.kept, stage.present) = (resumed, kept, present);
        if !stage.resumed.is_empty() {
            let mut trail = Trail::new(&stage.root, Enter::Open);
            for path in left.gone.iter().rev() {
                stage.remove(path, &mut trail)?;
            }
            // What was taken over is written down anew: it may be of another index than before.
            stage.begin_journal(&mut lock(&stage.journal))?;
        }
        let count = left.gone.len();
        left.gone.truncate(GONE_TOLD);
        stage.gone = (count, left.gone);
        Ok(stage)
    }

    /// One in which nothing is.
    fn of(
        place: Place,
        root: Root,
        index: Arc<RwLock<Index>>,
        preserve: Preserve,
        halt: Halt,
    ) -> Stage {
        Stage {
            has_default_rights: building::has_default_rights(root.fd()),
            place,
            root,
            index,
            preserve,
            resumed: RangeSet::new(),
            had: RangeSet::new(),
            kept: Kept::default(),
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
            halt,
        }
    }

    /// Write everything through the page cache; before anything is written.
    pub fn write_buffered(&mut self) {
        self.directly = Directly::new(false);
    }

    /// What is of another kind at the destination goes when its name is given, unless it holds what
    /// this filter leaves out.
    pub fn replace(&mut self, filter: Filter) {
        self.replaces = Some(filter);
    }

    /// What the tree's own folder is like at its source. A destination that was there before stays
    /// as it is.
    pub fn tell_top(&mut self, top: Top) {
        self.top = Some(top);
    }

    /// An earlier copy had ended while it gave names: all that it had came to its names first, but for
    /// so much that could not.
    pub fn completed_earlier(&self) -> Option<u64> {
        self.completed_earlier
    }

    /// What had been in the index before and is not in this one, or as another kind of thing: how many
    /// entries, and the paths of the first ones.
    pub fn gone(&self) -> (usize, &[Vec<u8>]) {
        (self.gone.0, &self.gone.1)
    }

    /// What the journal vouches for, in bytes of the virtual file: a later run goes on from there.
    pub fn durable_bytes(&self) -> u64 {
        lock(&self.journal).as_ref().map_or(0, |(_, state)| state.durable.total_bytes())
    }

    /// Nothing more will be written. What no journal vouches for is of no use to anybody, and goes.
    ///
    /// # Errors
    /// [`StageError::Io`].
    pub fn give_up(&self) -> Result<(), StageError> {
        if lock(&self.journal).is_none() && !self.place.is_left() {
            self.place.clear(&self.root, &|| false)?;
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), StageError> {
        if (self.halt)() { Err(StageError::Stopped) } else { Ok(()) }
    }

    /// What need not be fetched, in whole groups of the virtual file: an earlier run left it, or it is
    /// at the destination already.
    pub fn present(&self) -> &RangeSet {
        &self.present
    }

    /// What of it an earlier run (or pass) left, in bytes of the virtual file.
    pub fn resumed(&self) -> &RangeSet {
        &self.resumed
    }

    /// Files, links and further names that stay as they are at the destination.
    pub fn kept_entries(&self) -> u64 {
        self.kept.entries
    }

    /// Files that stay as they are at the destination.
    pub fn kept_files(&self) -> u64 {
        self.kept.files
    }

    /// Whether there is a folder at this destination already.
    pub fn is_there(destination: &Path) -> bool {
        Place::of(destination, None).is_ok_and(|place| !place.is_new)
    }

    /// Write bytes of the virtual file from `start` on. Each byte is written once; a file that has
    /// all its bytes gets its attributes and is closed. One that was had as a whole stays as it is:
    /// its bytes and these may be of two versions.
    ///
    /// # Errors
    /// [`StageError::Io`].
    pub fn write(&self, start: u64, bytes: &[u8]) -> Result<(), StageError> {
        let range = Range::of_len(start, bytes.len() as u64);
        let mut trail = Trail::new(&self.root, Enter::Make);
        for wanted in self.wanted(range) {
            if self.had.covers(wanted.range) {
                continue;
            }
            self.files
                .write(self, &wanted, start, bytes, &mut trail)
                .map_err(|source| self.not_written(&wanted.path, source))?;
        }
        Ok(())
    }

    /// Make everything written so far durable, then write down that these ranges are. When this
    /// returns they survive `kill -9` and power loss. The index must be complete.
    ///
    /// # Errors
    /// [`StageError::Io`].
    pub fn commit(&self, ranges: &[Range]) -> Result<(), StageError> {
        self.sync()?;
        let mut journal = lock(&self.journal);
        if journal.is_none() {
            self.begin_journal(&mut journal)?;
        }
        let Some((file, state)) = &mut *journal else { return Ok(()) };
        let records: Vec<Record> =
            ranges.iter().map(|&range| Record::Durable { range, source: 0 }).collect();
        file.append(&SystemSteps::new(), &self.place.names, state, &records)
            .map_err(|error| self.journal_failed(error.into_io()))
    }

    /// What came of these files (numbers in the index) is of no use: the journal vouches for none of
    /// it any more.
    ///
    /// # Errors
    /// [`StageError::Io`].
    pub fn forget(&self, files: &[u64]) -> Result<(), StageError> {
        let mut journal = lock(&self.journal);
        let Some((file, state)) = &mut *journal else { return Ok(()) };
        let index = self.index();
        let range = |&number: &u64| index.cursor_from(number).next().map(|item| item.range());
        let ranges = files.iter().filter_map(range).filter(|range| !range.is_empty());
        let records: Vec<Record> = ranges.map(|range| Record::Bad { range }).collect();
        file.append(&SystemSteps::new(), &self.place.names, state, &records)
            .map_err(|error| self.journal_failed(error.into_io()))
    }

    fn begin_journal(&self, journal: &mut Option<(JournalFile, State)>) -> Result<(), StageError> {
        let begun = self.place.begin_journal(&self.index(), &self.had);
        *journal = Some(begun.map_err(|source| self.journal_failed(source))?);
        Ok(())
    }

    fn journal_failed(&self, source: io::Error) -> StageError {
        self.failed("write the journal of", b"", source)
    }

    fn sync(&self) -> Result<(), StageError> {
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
            if !self.kept.has(item.number) {
                all.extend(Wanted::of(&item, range));
            }
        }
        all
    }

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        read(&self.index)
    }

    fn failed(&self, doing: &'static str, path: &[u8], source: io::Error) -> StageError {
        StageError::Io { doing, path: self.shown(path), source }
    }

    /// Where somebody has put something else into the stage that is what has to go.
    fn not_written(&self, path: &[u8], source: io::Error) -> StageError {
        let kinds = [Errno::LOOP, Errno::NOTDIR, Errno::ISDIR].map(|it| it.raw_os_error());
        if !source.raw_os_error().is_some_and(|error| kinds.contains(&error)) {
            return self.failed("write", path, source);
        }
        let path = self.place.names.part.join(OsStr::from_bytes(path));
        StageError::Io { doing: "write, as something else is in its place:", path, source }
    }

    /// A path of the tree as that of its final place.
    fn shown(&self, path: &[u8]) -> PathBuf {
        match path {
            b"" => self.place.destination.clone(),
            path => self.place.destination.join(OsStr::from_bytes(path)),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.place.give_back(&self.root);
    }
}

/// A tree may hold what an unfinished copy left in it; it would lie where ours lies, or that of a copy
/// into one of its folders.
fn refuse_own_names(index: &Index, place: &Place) -> Result<(), StageError> {
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        refuse_own_name(&item, place)?;
    }
    Ok(())
}

fn refuse_own_name(item: &Item<'_>, place: &Place) -> Result<(), StageError> {
    if is_own_name(item.entry.name) {
        let name = String::from_utf8_lossy(item.path).into_owned();
        return Err(StageError::OwnName { path: place.destination.join(name) });
    }
    Ok(())
}

/// Of ranges of a virtual file what can be taken over: a group is fetched whole or not at all, and
/// of a file whose bytes come twice nobody could say when it is complete.
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

/// So many paths of what is not in the tree any more are kept.
const GONE_TOLD: usize = 10;
