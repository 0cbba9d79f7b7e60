//! Opens a target: turns a path and facts about the content into a locked part file and the trusted
//! part of it.
//!
//! Order: look at the target, make the folder, open and lock the part file, read and judge the
//! journal, check the space, set the file's size. Nothing is written before the lock is held, and a
//! part file made by a failing call is removed again.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::file_kind::FileKind;
use swath_model::{Range, RangeMap, RangeSet, counted};

use crate::beneath::reach;
use crate::data_file::DataFile;
use crate::disk::Disk;
use crate::finish::keep_mode;
use crate::identity::{Identity, Verdict};
use crate::journal::{HashState, JournalFile, Record, Recovery, State, Sum as _, recover};
use crate::names::{Names, folder_of};
use crate::place::{check_target, is_no_file, is_planted};
use crate::steps::Steps;
use crate::sys;
use crate::tree::{Deed, PlaceGrant, Root};

/// What to open.
#[derive(Clone, Debug, Default)]
pub struct TargetSpec {
    /// The final name. Missing folders above it are created.
    pub path: PathBuf,
    /// The folder above it that the user named, if the rest of the path came from elsewhere: no
    /// link below it is followed.
    pub beneath: Option<PathBuf>,
    /// What may be done, by paths of this machine.
    pub grant: PlaceGrant,
    /// Size of the file in bytes, if known.
    pub size_bytes: Option<u64>,
    /// Known facts about the content, to tell whether a journal belongs to it.
    pub identity: Identity,
    /// Replace a file that has the final name.
    pub overwrite: bool,
    /// Resume a former run; otherwise start again.
    pub resume: bool,
    /// Make whole buffers of zeros holes, and neither reserve nor require space in advance. For
    /// large files of known size only; ignored for others.
    pub sparse: bool,
}

/// What a journal records. Empty for a new target.
#[derive(Clone, Debug, Default)]
pub struct Resumed {
    /// Ranges synced in the part file, with the number of their source.
    pub durable: RangeMap<u32>,
    /// Ranges that were compared with a digest.
    pub verified: RangeSet,
    /// Digests over the beginning of the file, at most one per algorithm.
    pub hash_states: Vec<HashState>,
    /// Chaining values of groups of a hash tree, by number.
    pub groups: Vec<(u64, [u8; 32])>,
    /// The sources by their numbers in `durable`; new ones need other numbers.
    pub sources: Vec<(u32, String)>,
    /// A sentence for the user, if something had to be given up.
    pub note: Option<String>,
}

/// Why a target could not be opened. Nothing was changed, apart from folders that were created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path names no file, as `..` or a name with a zero byte.
    #[error("{} names no file", .0.display())]
    NoName(PathBuf),
    /// The final name is taken and must not be replaced.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// The name has an ending reserved for side files.
    #[error("{} cannot be a file's name here: names that end in .swath, .swath.part or .swath.new are reserved for swath", .0.display())]
    Reserved(PathBuf),
    /// The final name belongs to something that is never replaced.
    #[error("{} is a {kind}, not a file", path.display())]
    NotAFile {
        /// The final name.
        path: PathBuf,
        /// Its kind.
        kind: FileKind,
    },
    /// The final name is a folder.
    #[error("{} is a folder", .0.display())]
    IsFolder(PathBuf),
    /// Another process, or another target of this one, is writing this file.
    #[error("{} is being written by another swath", .0.display())]
    Locked(PathBuf),
    /// Something that swath did not make has a side file's name.
    #[error("{} is in the way: it was not created by swath", .0.display())]
    InTheWay(PathBuf),
    /// A folder of the path is a link, and that part of the path was not chosen by the user.
    #[error("{} is a symbolic link: links below {} are not followed", link.display(), boundary.display())]
    LinkOnTheWay {
        /// The link.
        link: PathBuf,
        /// The folder that the user named.
        boundary: PathBuf,
    },
    /// The name is longer than the file system allows.
    #[error("the name of {} is too long for this file system", .0.display())]
    NameTooLong(PathBuf),
    /// The folder cannot be made or written into.
    #[error("cannot write into {}", folder.display())]
    FolderNotWritable {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file does not fit.
    #[error("{} needs {needed_bytes} more bytes, but only {available_bytes} are free", path.display())]
    NoSpace {
        /// The final name.
        path: PathBuf,
        /// Bytes still to be allocated.
        needed_bytes: u64,
        /// Free bytes.
        available_bytes: u64,
    },
    /// Anything else.
    #[error("cannot open {}", path.display())]
    Io {
        /// The file worked on.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// What opening gives to the target.
pub(crate) struct Opened {
    /// Kept open, because the names lead through it.
    pub(crate) root: Option<Root>,
    pub(crate) names: Names,
    pub(crate) file: DataFile,
    pub(crate) journal: Option<JournalFile>,
    pub(crate) state: State,
    pub(crate) resumed: Resumed,
}

/// Opens a target; blocks.
pub(crate) fn open(disk: &Disk, spec: &TargetSpec) -> Result<Opened, OpenError> {
    let grant = spec.grant.of(&spec.path);
    let refused = |source| OpenError::Io { path: spec.path.clone(), source };
    grant.check(Deed::Create, b"").map_err(refused)?;
    let may_replace = grant.permits(Deed::Modify, b"");
    let restricted;
    let spec = match spec.overwrite && !may_replace {
        false => spec,
        true => {
            restricted = TargetSpec { overwrite: false, ..spec.clone() };
            &restricted
        }
    };
    let reached = reach(&spec.path, spec.beneath.as_deref(), Some(&spec.grant))?;
    match open_reached(disk, spec, &reached.path) {
        Ok(opened) => Ok(Opened { root: reached.root, ..opened }),
        Err(error) => Err(reached.explain(error, &spec.path)),
    }
}

/// Opens the target at `path` as used for system calls.
fn open_reached(disk: &Disk, spec: &TargetSpec, path: &Path) -> Result<Opened, OpenError> {
    let steps = disk.steps().as_ref();
    check_target(path, spec.overwrite)?;
    let space = prepare_folder(path, &spec.grant)?;
    let names =
        Names::of(path, space.name_bytes_max).ok_or_else(|| OpenError::NoName(path.to_owned()))?;
    let names = Names { shown: spec.path.clone(), ..names };
    let (part, created) = lock_part(&names)?;
    if let Ok(old) = names.target.symlink_metadata()
        && old.is_file()
    {
        // Set at once: the replacement of a private file must be private.
        keep_mode(&part, &old, OURS_MEANWHILE);
    }
    let opened = open_locked(disk, spec, names.clone(), part, created, &space);
    if opened.is_err() && created {
        // Still ours: the lock was held throughout.
        let _ = steps.remove(&names.part);
    }
    opened
}

fn open_locked(
    disk: &Disk,
    spec: &TargetSpec,
    names: Names,
    part: File,
    created: bool,
    space: &sys::FileSystem,
) -> Result<Opened, OpenError> {
    let steps = disk.steps().as_ref();
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    let mut found = read_journal(&names, created)?;
    let mut note = None;
    let changed = found.is_older_than(&part).map_err(at(&names.part))?;
    if let Some(reason) = found.reason_to_start_again(spec, changed) {
        // A part file made just now is empty already.
        if !created || !matches!(found, Found::Nothing) {
            note = spec.resume.then(|| format!("starting again: {reason}"));
            start_again(steps, &names, &part, &found).map_err(at(&names.part))?;
        }
        found = Found::Nothing;
    }
    let mut state = State::default();
    let journal;
    if let Found::Journal { file, state: recovered, chain, valid_bytes, dropped_bytes } = found {
        state = *recovered;
        let mut resumed = JournalFile::resume(steps, file, chain, valid_bytes, dropped_bytes)
            .map_err(at(&names.journal))?;
        let lost = lost_ranges(&part, &state, spec.sparse).map_err(at(&names.part))?;
        note = note_of(dropped_bytes, &lost, &state);
        // Written at once: these ranges will be written again, and after a crash meanwhile the old
        // journal must not vouch for them.
        let mut records: Vec<Record> = lost.iter().map(|range| Record::Bad { range }).collect();
        if changed {
            note.get_or_insert_with(|| {
                "the part file was changed after the earlier run: all of it is hashed again"
                    .to_owned()
            });
            // To be delivered again, for the hashes.
            let mut held = state.delivered.clone();
            lost.iter().for_each(|range| held.clear(range));
            records.extend(held.iter().map(|(range, source)| Record::Durable { range, source }));
        }
        // Written in any case, to make the journal as new as the part file is now.
        records.push(identity_of(spec));
        resumed.append(steps, &names, &mut state, &records).map_err(|error| {
            let source = error.into_io();
            OpenError::Io { path: names.journal.clone(), source }
        })?;
        journal = Some(resumed);
    } else {
        state.apply(&identity_of(spec));
        journal = early_journal(disk, spec, &names, &state);
    }
    let direct = match allot(disk, spec, &names, &part, state.size_bytes, space) {
        Ok(direct) => direct,
        Err(error) => {
            if journal.is_some() && state.durable.is_empty() {
                let _ = steps.remove(&names.journal);
            }
            return Err(error);
        }
    };
    let resumed = Resumed {
        durable: state.delivered.clone(),
        verified: state.verified.clone(),
        hash_states: state.hash_states.values().cloned().collect(),
        groups: state.groups.iter().map(|(&index, &(_, cv))| (index, cv)).collect(),
        sources: state.sources.iter().map(|(&id, name)| (id, name.clone())).collect(),
        note,
    };
    let file = DataFile::new(part, &names.part, direct);
    Ok(Opened { root: None, names, file, journal, state, resumed })
}

/// Makes the folder if needed and queries its file system.
fn prepare_folder(target: &Path, grant: &PlaceGrant) -> Result<sys::FileSystem, OpenError> {
    let folder = folder_of(target);
    let not_writable = |source| OpenError::FolderNotWritable { folder: folder.clone(), source };
    let space = match sys::file_system(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            grant.make_folders(&folder).map_err(not_writable)?;
            sys::file_system(&folder)
        }
        answer => answer,
    };
    let space = space.map_err(not_writable)?;
    if space.read_only {
        return Err(not_writable(io::Error::from_raw_os_error(libc::EROFS)));
    }
    Ok(space)
}

/// Opens the part file and locks it; returns true if it was created here.
///
/// Between opening and locking, the previous holder of the lock may have renamed or removed the
/// file. The lock then belongs to an inode without this name, so the name is checked again.
fn lock_part(names: &Names) -> Result<(File, bool), OpenError> {
    let mut options = File::options();
    // Do not block on a FIFO that someone put there.
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    for _ in 0..LOCK_ATTEMPTS_MAX {
        let created = options.clone().create_new(true).open(&names.part);
        let (opened, created) = match created {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (options.open(&names.part), false)
            }
            other => (other, true),
        };
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !created => continue,
            Err(error) => return Err(part_error(names, error)),
        };
        let io_error = |source| OpenError::Io { path: names.part.clone(), source };
        let meant = file.metadata().map_err(io_error)?;
        if !meant.is_file() || is_planted(&meant, &names.folder) {
            return Err(OpenError::InTheWay(names.part.clone()));
        }
        if !sys::try_lock(&file).map_err(io_error)? {
            return Err(OpenError::Locked(names.target.clone()));
        }
        match names.part.symlink_metadata() {
            Ok(now) if (now.dev(), now.ino()) == (meant.dev(), meant.ino()) => {
                return Ok((file, created));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(error)),
            _ => {}
        }
    }
    Err(OpenError::Locked(names.target.clone()))
}

fn part_error(names: &Names, source: io::Error) -> OpenError {
    match source.raw_os_error() {
        _ if is_no_file(&source) => OpenError::InTheWay(names.part.clone()),
        Some(libc::ENAMETOOLONG) => OpenError::NameTooLong(names.target.clone()),
        Some(libc::ENOSPC | libc::EDQUOT) => {
            OpenError::NoSpace { path: names.target.clone(), needed_bytes: 1, available_bytes: 0 }
        }
        Some(libc::EACCES | libc::EPERM | libc::EROFS | libc::ENOENT | libc::ENOTDIR) => {
            OpenError::FolderNotWritable { folder: names.folder.clone(), source }
        }
        _ => OpenError::Io { path: names.part.clone(), source },
    }
}

/// What was found at the journal's name.
enum Found {
    Nothing,
    Damaged,
    Journal {
        file: File,
        state: Box<State>,
        chain: crate::journal::Chain,
        valid_bytes: u64,
        dropped_bytes: u64,
    },
}

impl Found {
    /// Returns whether the part file was written clearly after the journal, so by another program.
    fn is_older_than(&self, part: &File) -> io::Result<bool> {
        let Found::Journal { file, .. } = self else { return Ok(false) };
        let (journal, part) = (file.metadata()?.modified()?, part.metadata()?.modified()?);
        Ok(part.duration_since(journal).is_ok_and(|ahead| ahead > AHEAD_MAX))
    }

    /// Returns why nothing of the part file can be used; `None` if it can.
    fn reason_to_start_again(&self, spec: &TargetSpec, changed: bool) -> Option<String> {
        match self {
            Found::Nothing => Some("a former run left no journal".to_owned()),
            Found::Damaged => Some("the journal is damaged from its beginning".to_owned()),
            Found::Journal { .. } if !spec.resume => Some("resuming is switched off".to_owned()),
            Found::Journal { state, .. } => {
                match state.identity.compare(state.size_bytes, &spec.identity, spec.size_bytes) {
                    Verdict::Different(what) => {
                        Some(format!("the journal is for another content ({what})"))
                    }
                    Verdict::Same | Verdict::Unproven if spec.identity.proves() => None,
                    Verdict::Same if !changed => None,
                    Verdict::Same => Some(
                        "the part file was changed after the earlier run, and no digest is known to check it".to_owned(),
                    ),
                    Verdict::Unproven => Some(
                        "nothing proves that the earlier run fetched the same file (a digest would)".to_owned(),
                    ),
                }
            }
        }
    }
}

/// Returns the known facts as a record for the journal.
fn identity_of(spec: &TargetSpec) -> Record {
    Record::Identity { size_bytes: spec.size_bytes, identity: spec.identity.clone() }
}

/// Creates the journal of a large file before its first byte, with room to grow, so that even on a
/// suddenly full disk the file's ranges can be recorded. Small files, and disks without even that
/// room, do without until there is something to lose.
fn early_journal(
    disk: &Disk,
    spec: &TargetSpec,
    names: &Names,
    state: &State,
) -> Option<JournalFile> {
    let steps = disk.steps().as_ref();
    let is_large = spec.size_bytes.is_some_and(|size| size >= disk.options().journal_from_bytes);
    is_large.then(|| JournalFile::create(steps, names, state).ok()).flatten()
}

fn read_journal(names: &Names, part_created: bool) -> Result<Found, OpenError> {
    let io_error = |source| OpenError::Io { path: names.journal.clone(), source };
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.open(&names.journal) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if is_no_file(&error) => {
            return Err(OpenError::InTheWay(names.journal.clone()));
        }
        Err(error) => return Err(io_error(error)),
    };
    let found = file.metadata().map_err(io_error)?;
    if !found.is_file() || is_planted(&found, &names.folder) {
        return Err(OpenError::InTheWay(names.journal.clone()));
    }
    match recover(BufReader::with_capacity(1 << 16, &file)).map_err(io_error)? {
        Recovery::Journal { state, chain, valid_bytes, dropped_bytes } => {
            Ok(Found::Journal { file, state, chain, valid_bytes, dropped_bytes })
        }
        Recovery::Nothing => Ok(Found::Damaged),
        // Beside a part file it is a damaged journal; alone it is a user's file whose name happens
        // to end like ours.
        Recovery::NotAJournal if part_created => Err(OpenError::InTheWay(names.journal.clone())),
        Recovery::NotAJournal => Ok(Found::Damaged),
    }
}

/// Empties the part file. The old journal is removed durably before any new byte is written, so
/// that it can never vouch for new bytes.
fn start_again(steps: &dyn Steps, names: &Names, part: &File, found: &Found) -> io::Result<()> {
    if !matches!(found, Found::Nothing) {
        steps.remove(&names.journal)?;
        steps.sync_folder(&names.folder)?;
    }
    if part.metadata()?.len() > 0 {
        steps.set_size(part, 0)?;
    }
    Ok(())
}

/// Returns the ranges that the journal calls durable but the part file lacks.
fn lost_ranges(part: &File, state: &State, sparse: bool) -> io::Result<RangeSet> {
    let size_bytes = part.metadata()?.len();
    let mut lost: RangeSet = state.durable.within(Range::new(size_bytes, u64::MAX)).collect();
    if sparse || sys::file_system_kind(part) == ZFS {
        // Blocks of zeros are stored as holes, so a hole proves nothing.
        return Ok(lost);
    }
    for range in state.durable.iter() {
        let end = range.end.min(size_bytes);
        let mut from = range.start;
        while from < end {
            // File systems without support report no holes.
            let Some(hole) = sys::first_hole(part, from) else { return Ok(lost) };
            if hole >= end {
                break;
            }
            let data = sys::first_data(part, hole).unwrap_or(end).min(end);
            lost.insert(Range::new(hole, data));
            from = data.max(hole + 1);
        }
    }
    Ok(lost)
}

fn note_of(dropped_bytes: u64, lost: &RangeSet, state: &State) -> Option<String> {
    let kept = counted(state.durable.total_bytes() - lost.total_bytes(), "byte");
    if !lost.is_empty() {
        let lost_bytes = lost.total_bytes();
        return Some(format!(
            "the part file lacks {} that the journal vouches for: kept {kept}",
            counted(lost_bytes, "byte")
        ));
    }
    (dropped_bytes > 0).then(|| {
        let (dropped, are) =
            (counted(dropped_bytes, "byte"), if dropped_bytes == 1 { "is" } else { "are" });
        format!("the last {dropped} of the journal {are} damaged: kept {kept} of the file")
    })
}

/// Checks the space, sets the part file's size, and decides on direct I/O.
fn allot(
    disk: &Disk,
    spec: &TargetSpec,
    names: &Names,
    part: &File,
    size_bytes: Option<u64>,
    space: &sys::FileSystem,
) -> Result<bool, OpenError> {
    let options = disk.options();
    let Some(size_bytes) = size_bytes else { return Ok(disk.has_direct()) };
    let io_error = |source| OpenError::Io { path: names.part.clone(), source };
    let now = part.metadata().map_err(io_error)?;
    let no_space = |needed_bytes, available_bytes| OpenError::NoSpace {
        path: spec.path.clone(),
        needed_bytes,
        available_bytes,
    };
    let needed_bytes = size_bytes.saturating_sub(now.blocks().saturating_mul(512));
    if needed_bytes > space.available_bytes && !spec.sparse {
        return Err(no_space(needed_bytes, space.available_bytes));
    }
    if size_bytes < options.direct_from_bytes {
        return Ok(false);
    }
    if now.len() != size_bytes && now.len() < size_bytes {
        disk.steps().set_size(part, size_bytes).map_err(io_error)?;
    }
    // Reserving also waits for direct writes of a killed process that the device still works on.
    // They outlive the process and its lock, and must not land on top of ours.
    if options.reserve && !spec.sparse && matches!(sys::file_system_kind(part), EXT4 | XFS | BTRFS)
    {
        match sys::reserve(part, 0, size_bytes) {
            Err(error) if sys::is_full(&error) => {
                return Err(no_space(needed_bytes, space.available_bytes));
            }
            // Only an optimization: writing allocates what cannot be reserved.
            _ => {}
        }
    }
    Ok(disk.has_direct())
}

/// Its owner can resume the file even if nobody may write to the final one.
const OURS_MEANWHILE: u32 = 0o600;
/// Two suffice unless others finish the same target again and again.
const LOCK_ATTEMPTS_MAX: u32 = 16;
/// How much later than the journal a killed run may have written the part file: the commit interval
/// plus the sync time of a slow disk.
const AHEAD_MAX: Duration = Duration::from_secs(30);
/// File systems that reserve any size at once, by their magic numbers.
const EXT4: i64 = 0xEF53;
const XFS: i64 = 0x5846_5342;
const BTRFS: i64 = 0x9123_683E;
const ZFS: i64 = 0x2fc1_2fc1;
