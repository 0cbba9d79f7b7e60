//! Opens a depot and restores the leases of earlier runs.
//!
//! The folder has a lock, `leases` with two files for each allocation (`ID.data`, and the journal
//! `ID.lease`, without which the other means nothing), and `damaged`, for files that cannot be
//! trusted: they stay there, counted as taken, until somebody removes them.

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

/// Where a depot's files lie.
pub(crate) struct Folder {
    pub(super) leases: PathBuf,
    damaged: PathBuf,
    lock: File,
}

/// What was there when a depot was opened.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Live allocations.
    pub allocations: usize,
    /// Allocations that have ended meanwhile: those that did so by the wall clock alone take their
    /// space for ten minutes more, in case it is wrong, and the others are gone.
    pub ended: usize,
    /// What was damaged.
    pub notes: Vec<Note>,
}

/// Something in the depot's folder that was not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The last records of an allocation's journal are not what was written, as after power loss
    /// while they were being written, and do not count. What was acknowledged lies before them,
    /// unless the disk has damaged it.
    Cut {
        /// Which allocation.
        id: LeaseId,
        /// How many bytes of its journal do not count.
        dropped_bytes: u64,
    },
    /// Nothing is known any more of an allocation that has data, or its data is gone: what there
    /// is of it lies at `path` now, and can be reached by nobody.
    SetAside {
        /// Which allocation.
        id: LeaseId,
        /// Where what is left of it lies.
        path: PathBuf,
    },
    /// Allocations have ended by a clock that is far ahead of the last time that something was written
    /// here: it may be wrong.
    Ahead {
        /// How far.
        by: Duration,
        /// How many have.
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
        /// What was worked on.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl Depot {
    /// Opens the depot, and makes it if it is new.
    ///
    /// # Errors
    /// See [`OpenError`]. A damaged allocation is no error: it is set aside and named.
    pub fn open(options: DepotOptions) -> Result<(Depot, Found), OpenError> {
        Depot::open_at(options, Arc::new(SystemClock))
    }

    /// As [`Depot::open`], by another clock.
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
            // What is synced into a folder is there only if the folder is.
            let above = std::path::absolute(folder).map_err(at(folder))?;
            for above in above.ancestors() {
                match steps.sync_folder(above) {
                    // Above what may be read, all was there before.
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

    /// Bytes that its disk has for us, if that can be told.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        sys::free_bytes(&self.lock).ok()
    }

    /// The names of an allocation's files.
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

/// Takes over what lies in the folder.
struct Recover<'a> {
    folder: &'a Folder,
    steps: &'a dyn Steps,
    now: Moment,
    found: &'a mut Found,
    leases: &'a mut LeaseTable,
    pieces: &'a mut usize,
    /// When something was written here last, by the wall clock, in milliseconds since 1970.
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
                // A journal that was being rewritten: the old one has the name.
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
        // Being made or being taken away when the program ended.
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
            // One that cannot be read at all is like one that says nothing.
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
        // Nothing is lost where nothing was stored.
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

    /// Takes away what has ended.
    fn over(&mut self, names: &Names, hashes: &[CapabilityHash; 3]) -> io::Result<()> {
        self.leases.ledger.note_ended(hashes);
        remove(self.steps, &names.journal)?;
        remove(self.steps, &names.part)
    }

    /// A journal that grants nothing: one that was being made, if there is no data.
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

/// Whether an allocation of this size can have been made.
fn is_possible(contents: &Contents) -> bool {
    (1..=SIZE_BYTES_MAX).contains(&contents.layout().size_bytes)
}

/// Makes the file of an allocation that has nothing stored, and has none or not all of it.
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

/// What was written and never acknowledged takes no space any more, where the file system can do
/// that: nobody has counted it.
fn give_back_unstored(names: &Names, contents: &Contents) {
    let Ok(file) = sys::no_follow().write(true).open(&names.part) else { return };
    let layout = contents.layout();
    let all = layout.blocks_of(Range::new(0, layout.size_bytes));
    for gap in contents.covered().gaps_within(all) {
        let _ = sys::make_hole(&file, gap.start, gap.end);
    }
}

/// When a file was written last, by the wall clock, in milliseconds since 1970.
fn modified_ms(file: &File) -> u64 {
    let modified = file.metadata().and_then(|found| found.modified());
    let since = modified.ok().and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What a file takes of the disk.
fn space_of(path: &Path) -> u64 {
    path.symlink_metadata().map_or(0, |found| sys::taken_bytes(&found))
}

/// Most journals are shorter than that.
const READ_BYTES: usize = 8 << 10;
/// A machine may well have been off for so long.
const AHEAD: Duration = Duration::from_secs(24 * 3600);
