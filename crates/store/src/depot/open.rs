//! Opens a depot and restores the leases of earlier runs.
//!
//! The folder has a lock, `leases` with two files per allocation (`ID.data`, and the journal
//! `ID.lease`, without which the data means nothing), and `damaged` for files that cannot be
//! trusted. Those stay there and count as taken until someone removes them.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use swath_model::Range;

use super::allocate::SIZE_BYTES_MAX;
use super::capability::{CapabilityHash, LeaseId};
use super::clock::{Clock, GRACE, Moment, SystemClock};
use super::contents::Contents;
use super::lease::{Lease, remove};
use super::ledger::{Entry, Ledger, Limits, Medium, Space};
use super::{Depot, DepotOptions, Doubtful, LeaseTable, Shared};
use crate::journal::{JournalFile, Recovery, recover};
use crate::names::Names;
use crate::steps::{Steps, SystemSteps};
use crate::sys;

/// The files of a depot.
pub(crate) struct Folder {
    pub(super) leases: PathBuf,
    damaged: PathBuf,
    lock: File,
}

/// What was found when a depot was opened.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Live allocations.
    pub allocations: usize,
    /// Allocations that have ended meanwhile. Those that ended by the wall clock alone take their
    /// space for ten more minutes, in case that clock is wrong; the others are gone.
    pub ended: usize,
    /// The damage that was found.
    pub notes: Vec<Note>,
}

/// An irregularity in the depot's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The last records of an allocation's journal are damaged, as after power loss during a write,
    /// and are ignored. Acknowledged bytes lie before them, unless the disk has damaged those.
    Cut {
        /// The allocation.
        id: LeaseId,
        /// Ignored bytes of its journal.
        dropped_bytes: u64,
    },
    /// The data of an allocation has no usable journal, or its data is gone. What is left lies at
    /// `path` now and cannot be accessed as an allocation.
    SetAside {
        /// The allocation.
        id: LeaseId,
        /// Where its remains lie.
        path: PathBuf,
    },
    /// Allocations have ended by a clock that is far ahead of the last write here; it may be wrong.
    Ahead {
        /// How far it is ahead.
        by: Duration,
        /// How many have ended.
        ended: usize,
    },
}

/// Why a depot could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error("the depot in {} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// The folder cannot be used.
    #[error("cannot open the depot in {}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Depot {
    /// Opens the depot, or makes it if it is new.
    ///
    /// # Errors
    /// See [`OpenError`]. A damaged allocation is no error: it is set aside and reported.
    pub fn open(options: DepotOptions) -> Result<(Depot, Found), OpenError> {
        Depot::open_at(options, Arc::new(SystemClock))
    }

    /// Opens the depot like [`Depot::open`], but with another clock.
    pub fn open_at(
        options: DepotOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Depot, Found), OpenError> {
        Depot::open_with(options, clock, Arc::new(SystemSteps::new()))
    }

    pub(crate) fn open_with(
        options: DepotOptions,
        clock: Arc<dyn Clock>,
        steps: Arc<dyn Steps>,
    ) -> Result<(Depot, Found), OpenError> {
        let folder = options.folder.as_deref();
        let folder = folder.map(|folder| Folder::open(folder, steps.as_ref())).transpose()?;
        let limits = Limits {
            disk_bytes: if folder.is_some() { options.size_bytes } else { 0 },
            memory_bytes: options.memory_bytes,
            length_max: options.length_max,
            leases_max: options.leases_max,
        };
        let mut found = Found::default();
        let (stuck, doubtful) = (Vec::new(), Vec::new());
        let mut leases = LeaseTable { ledger: Ledger::new(limits), ending: 0, stuck, doubtful };
        let mut pieces = 0;
        if let Some(folder) = &folder {
            let mut recovery = Recover {
                folder,
                steps: steps.as_ref(),
                now: clock.now(),
                found: &mut found,
                leases: &mut leases,
                pieces: &mut pieces,
                written_ms: 0,
            };
            recovery
                .all()
                .map_err(|source| OpenError::Io { path: folder.leases.clone(), source })?;
        }
        found.allocations = leases.ledger.count() - leases.doubtful.len();
        let shared = Shared {
            options,
            folder,
            clock,
            steps,
            ledger: Mutex::new(leases),
            given_back: Condvar::new(),
            pieces: AtomicUsize::new(pieces),
            lost: AtomicUsize::new(0),
        };
        Ok((Depot { shared: Arc::new(shared) }, found))
    }
}

impl Folder {
    fn open(folder: &Path, steps: &dyn Steps) -> Result<Folder, OpenError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        let (leases, damaged) = (folder.join("leases"), folder.join("damaged"));
        let is_new = !leases.exists();
        for made in [&leases, &damaged] {
            std::fs::create_dir_all(made).map_err(at(made))?;
        }
        if is_new {
            // An entry synced into a folder survives only if the folder itself does.
            let above = std::path::absolute(folder).map_err(at(folder))?;
            for above in above.ancestors() {
                match steps.sync_folder(above) {
                    // Folders above the readable ones existed before.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
                    synced => synced.map_err(at(above))?,
                }
            }
        }
        let path = folder.join("lock");
        let lock = sys::lock_file(&path).map_err(at(&path))?;
        let lock = lock.ok_or_else(|| OpenError::Locked(folder.to_owned()))?;
        Ok(Folder { leases, damaged, lock })
    }

    /// Returns the bytes of the disk that are free for us, if known.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        sys::free_bytes(&self.lock).ok()
    }

    /// Returns the names of an allocation's files.
    pub(super) fn names(&self, id: LeaseId) -> Names {
        let named = |end: &str| self.leases.join(format!("{id}.{end}"));
        Names {
            target: PathBuf::new(),
            shown: PathBuf::new(),
            folder: self.leases.clone(),
            part: named("data"),
            journal: named("lease"),
            journal_new: named("new"),
        }
    }
}

/// Takes over the files in the folder.
struct Recover<'a> {
    folder: &'a Folder,
    steps: &'a dyn Steps,
    now: Moment,
    found: &'a mut Found,
    leases: &'a mut LeaseTable,
    pieces: &'a mut usize,
    /// The last write here by the wall clock, in milliseconds since 1970.
    written_ms: u64,
}

impl Recover<'_> {
    fn all(&mut self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.folder.damaged)? {
            self.leases.ledger.occupy(space_of(&entry?.path()));
        }
        let mut without_lease = Vec::new();
        for entry in std::fs::read_dir(&self.folder.leases)? {
            let name = entry?.file_name();
            let Some((id, end)) = name.to_str().and_then(|name| name.split_once('.')) else {
                continue;
            };
            let Some(id) = LeaseId::of(id) else { continue };
            let names = self.folder.names(id);
            match end {
                "lease" => self.one(id, &names)?,
                // A journal that was being rewritten: the old one still has the name.
                "new" => remove(self.steps, &names.journal_new)?,
                "data" if !names.journal.exists() => without_lease.push(names),
                _ => {}
            }
        }
        let by = Duration::from_millis(self.now.wall_ms.saturating_sub(self.written_ms));
        let ended = self.leases.doubtful.len();
        if ended > 0 && by > AHEAD {
            self.found.notes.push(Note::Ahead { by, ended });
        }
        // These were being made or removed when the program ended.
        for names in without_lease {
            remove(self.steps, &names.part)?;
        }
        Ok(())
    }

    fn one(&mut self, id: LeaseId, names: &Names) -> io::Result<()> {
        let file = sys::no_follow().read(true).write(true).open(&names.journal)?;
        let recovered = recover::<Contents>(BufReader::with_capacity(READ_BYTES, &file));
        let (contents, chain, valid_bytes, dropped_bytes) = match recovered {
            Ok(Recovery::Journal { state, chain, valid_bytes, dropped_bytes })
                if state.grant.is_some() && is_possible(&state) =>
            {
                (*state, chain, valid_bytes, dropped_bytes)
            }
            // An unreadable journal counts as an empty one.
            _ => return self.without_grant(id, names),
        };
        let Some(grant) = &contents.grant else { return self.without_grant(id, names) };
        let (term, hashes) = (grant.term, grant.hashes);
        let left = term.left(&self.now);
        self.written_ms = self.written_ms.max(term.from.wall_ms).max(modified_ms(&file));
        if left.is_zero() {
            self.found.ended += 1;
            if term.is_counted(&self.now) {
                return self.over(names, &hashes);
            }
        }
        let layout = contents.layout();
        let has_data = names
            .part
            .symlink_metadata()
            .is_ok_and(|data| data.is_file() && data.len() == layout.file_bytes());
        // Nothing is lost if nothing was stored.
        let has_data =
            has_data || (contents.held.is_empty() && remake(self.steps, names, &contents).is_ok());
        let known = hashes.iter().any(|hash| self.leases.ledger.knows(hash));
        if !has_data || known {
            return match left.is_zero() {
                true => self.over(names, &hashes),
                false => self.set_aside(id, names),
            };
        }
        if dropped_bytes > 0 {
            self.found.notes.push(Note::Cut { id, dropped_bytes });
        }
        let journal = JournalFile::resume(self.steps, file, chain, valid_bytes, dropped_bytes)?;
        *self.pieces += contents.pieces.len();
        if contents.space() == Space::AsStored {
            give_back_unstored(names, &contents);
        }
        let ends = self.now.since_boot + left;
        let lease = Arc::new(Lease::on_disk(id, ends, contents, journal.end()));
        let bytes = lease.taken_bytes();
        let entry = Entry { medium: Medium::Disk, bytes, ends, hashes, lease: Arc::clone(&lease) };
        if left.is_zero() {
            let until = self.now.since_boot + GRACE;
            self.leases.doubtful.push(Doubtful { lease, term, until });
            self.leases.ledger.resume_doubtful(id, entry);
        } else {
            self.leases.ledger.resume(id, entry);
        }
        Ok(())
    }

    /// Removes an allocation that has ended.
    fn over(&mut self, names: &Names, hashes: &[CapabilityHash; 3]) -> io::Result<()> {
        self.leases.ledger.note_ended(hashes);
        remove(self.steps, &names.journal)?;
        remove(self.steps, &names.part)
    }

    /// Handles a journal that grants nothing: without data, it was just being made.
    fn without_grant(&mut self, id: LeaseId, names: &Names) -> io::Result<()> {
        let data = File::open(&names.part);
        let is_empty = match &data {
            Ok(data) => {
                data.metadata()?.len() == 0 || sys::is_hole(data, 0, data.metadata()?.len())
            }
            Err(_) => true,
        };
        if is_empty {
            remove(self.steps, &names.journal)?;
            return remove(self.steps, &names.part);
        }
        self.set_aside(id, names)
    }

    fn set_aside(&mut self, id: LeaseId, names: &Names) -> io::Result<()> {
        let path = self.folder.damaged.join(id.to_string());
        for (from, end) in [(&names.journal, "lease"), (&names.part, "data")] {
            let to = path.with_extension(end);
            match self.steps.rename(from, &to, true) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.leases.ledger.occupy(space_of(&to));
        }
        self.found.notes.push(Note::SetAside { id, path });
        Ok(())
    }
}

/// Returns whether an allocation of this size can have been made.
fn is_possible(contents: &Contents) -> bool {
    (1..=SIZE_BYTES_MAX).contains(&contents.layout().size_bytes)
}

/// Makes the file of an allocation with nothing stored, if it is missing or too short.
fn remake(steps: &dyn Steps, names: &Names, contents: &Contents) -> io::Result<()> {
    let layout = contents.layout();
    let mut options = sys::no_follow();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&names.part)?;
    if contents.space() == Space::Reserved {
        match sys::reserve(&file, 0, layout.file_bytes()) {
            Err(error) if !sys::is_unsupported(&error) => return Err(error),
            _ => {}
        }
    }
    file.set_len(layout.file_bytes())?;
    steps.sync_data(&file)
}

/// Frees the space of bytes that were written but never acknowledged, if the file system can do
/// that: they are not counted.
fn give_back_unstored(names: &Names, contents: &Contents) {
    let Ok(file) = sys::no_follow().write(true).open(&names.part) else { return };
    let layout = contents.layout();
    let all = layout.blocks_of(Range::new(0, layout.size_bytes));
    for gap in contents.covered().gaps_within(all) {
        let _ = sys::make_hole(&file, gap.start, gap.end);
    }
}

/// Returns a file's last write by the wall clock, in milliseconds since 1970.
fn modified_ms(file: &File) -> u64 {
    let modified = file.metadata().and_then(|found| found.modified());
    let since = modified.ok().and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the space that a file takes on the disk.
fn space_of(path: &Path) -> u64 {
    path.symlink_metadata().map_or(0, |found| sys::taken_bytes(&found))
}

/// Most journals are shorter than this.
const READ_BYTES: usize = 8 << 10;
/// A machine may well have been off for this long.
const AHEAD: Duration = Duration::from_secs(24 * 3600);
