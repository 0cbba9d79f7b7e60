//! The depot: space on a relay that is leased to others, on its disk or in memory.
//!
//! The server decides who may allocate. The holder of a capability may use the allocation for the
//! purpose of that capability and needs nothing else. All functions block, some for as long as a
//! disk needs to sync: they belong on threads for that.
//!
//! Invariants, across restarts, crashes and power loss:
//! - Promised space never exceeds the depot's size. The space of a lease is free when it ends, even
//!   if it is being read (ten minutes later, if it ended while the machine was off).
//! - Bytes acknowledged by `commit` stay until the lease ends, the same for all readers.
//! - Only stored bytes are read: a flipped byte is noticed when its group (256 KiB) is first read
//!   after it was stored or the depot was opened, and by every [`Reader::check`]. In between the
//!   server sends from the page cache, and the receiver verifies anyway.
//!
//! ```
//! use std::time::Duration;
//! use swath_store::depot::{Depot, DepotOptions, Medium};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let options = DepotOptions { size_bytes: 1 << 30, ..DepotOptions::in_folder(folder.path()) };
//! let (depot, found) = Depot::open(options)?;
//! assert!(found.notes.is_empty(), "nothing was damaged");
//!
//! let lease = depot.allocate(1 << 20, Duration::from_secs(3600), Medium::Disk)?;
//! let mut writer = depot.writer(&lease.write, 100)?;
//! writer.write(b"hello")?;
//! writer.commit()?;
//!
//! let reader = depot.reader(&lease.read)?;
//! let mut bytes = [0; 5];
//! assert_eq!(reader.read(100, &mut bytes)?, 5);
//! assert_eq!(&bytes, b"hello");
//! depot.release(&lease.manage)?;
//! # Ok(())
//! # }
//! ```

mod allocate;
mod capability;
mod check;
mod clock;
mod contents;
mod lease;
mod ledger;
mod open;
mod reader;
mod settle;
mod writer;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swath_model::RangeSet;

use crate::names::Names;
use crate::steps::Steps;
use clock::Term;
use lease::{Fault, Lease};
use ledger::{Entry, Ledger};

pub(crate) use capability::random;

pub use crate::memory::memory_limit_bytes;
pub use allocate::{AllocateError, Allocation};
pub use capability::{Capability, LeaseId, NoCapability, Right};
pub use clock::{Clock, Moment, SystemClock};
pub use ledger::{Medium, Space};
pub use open::{Found, Note, OpenError};
pub use reader::{Part, ReadError, Reader};
pub use writer::{StoreError, Writer};

/// The space of a depot, and where it lies.
#[derive(Clone, Debug)]
pub struct DepotOptions {
    /// The depot's own folder for allocations on the disk. `None`: none on the disk.
    pub folder: Option<PathBuf>,
    /// Bytes that may be allocated there, counted in blocks of 4 KiB. Group hashes (1/8192 of an
    /// allocation) and its journal (4 KiB, plus 40 bytes per 256 KiB if all its space is taken at
    /// once) come on top: together 288 MiB for 1 TiB.
    pub size_bytes: u64,
    /// Bytes that may be allocated in memory. Memory is taken as bytes are stored; if the system
    /// has less, it kills this program or another one. See [`memory_limit_bytes`].
    pub memory_bytes: u64,
    /// The longest lease.
    pub length_max: Duration,
    /// Most allocations at once. Each takes about 1 KiB of memory.
    pub leases_max: usize,
}

impl DepotOptions {
    /// Returns options for this folder without any space yet; up to 100,000 leases of up to a week.
    pub fn in_folder(folder: &Path) -> DepotOptions {
        DepotOptions { folder: Some(folder.to_owned()), ..DepotOptions::default() }
    }
}

impl Default for DepotOptions {
    fn default() -> DepotOptions {
        DepotOptions {
            folder: None,
            size_bytes: 0,
            memory_bytes: 0,
            length_max: Duration::from_secs(7 * 24 * 3600),
            leases_max: 100_000,
        }
    }
}

/// A depot. Clones share it; it stays open and locked as long as a clone, reader or writer exists.
#[derive(Clone)]
pub struct Depot {
    shared: Arc<Shared>,
}

/// The state shared by all users of a depot.
pub(crate) struct Shared {
    options: DepotOptions,
    folder: Option<open::Folder>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) steps: Arc<dyn Steps>,
    ledger: Mutex<LeaseTable>,
    /// Signals that space was given back.
    given_back: Condvar,
    /// Number of pieces in all allocations together.
    pub(crate) pieces: AtomicUsize,
    /// Number of allocations found without their files.
    pub(crate) lost: AtomicUsize,
}

struct LeaseTable {
    ledger: Ledger<Arc<Lease>>,
    /// Number of allocations being removed.
    ending: usize,
    /// Ended or released allocations that could not be removed yet and still take space.
    stuck: Vec<Entry<Arc<Lease>>>,
    /// Allocations that ended by the wall clock alone. They cannot be read; they are removed after
    /// that clock has run for a while, or restored if it is corrected.
    doubtful: Vec<Doubtful>,
}

impl LeaseTable {
    fn is_doubtful(&self, lease: &Lease) -> bool {
        self.doubtful.iter().any(|doubtful| doubtful.lease.id == lease.id)
    }
}

struct Doubtful {
    lease: Arc<Lease>,
    term: Term,
    /// When it counts as ended, by the clock that nobody can set.
    until: swath_model::Time,
}

/// The present state of an allocation.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its name, which is not secret.
    pub id: LeaseId,
    /// What the capability allows.
    pub right: Right,
    /// The medium that it lies on.
    pub medium: Medium,
    /// Its size.
    pub size_bytes: u64,
    /// The stored bytes.
    pub held: RangeSet,
    /// Bytes that were found damaged and have not been stored again.
    pub damaged: RangeSet,
    /// The rest of its lease.
    pub left: Duration,
    /// Space that it takes from the depot.
    pub taken_bytes: u64,
    /// Whether its files disappeared: nothing of it can be read or stored any more.
    pub is_lost: bool,
}

/// The used and free space of a depot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepotUsage {
    /// Promised bytes on the disk.
    pub disk_taken_bytes: u64,
    /// Bytes on the disk that can still be promised and that the disk has.
    pub disk_free_bytes: u64,
    /// Promised bytes of memory.
    pub memory_taken_bytes: u64,
    /// Bytes of memory that can still be promised.
    pub memory_free_bytes: u64,
    /// Number of allocations.
    pub allocations: usize,
}

/// Why a lease could not be extended or given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManageError {
    /// The capability does not manage a live allocation.
    #[error("no allocation can be managed by this capability")]
    NoLease,
    /// The lease would be longer than the depot allows.
    #[error("a lease is at most {}", spoken(*.length_max))]
    TooLong {
        /// The longest lease.
        length_max: Duration,
    },
    /// The disk failed. The lease is unchanged; a release that had begun is retried until the disk
    /// takes it.
    #[error("cannot change the lease")]
    Io(#[source] Arc<io::Error>),
}

impl Depot {
    /// Returns a writer that starts at `offset`, for the capability to write.
    ///
    /// # Errors
    /// [`StoreError::NoLease`], and [`StoreError::Io`] if its file cannot be opened.
    pub fn writer(&self, write: &Capability, offset: u64) -> Result<Writer, StoreError> {
        let (lease, _) = self.find(write, Right::Write).ok_or(StoreError::NoLease)?;
        Writer::new(Arc::clone(&self.shared), lease, offset)
    }

    /// Stores these bytes at `offset`; they are held when this returns. Concurrent callers share
    /// syncs.
    ///
    /// # Errors
    /// See [`StoreError`]. Bytes before the one that failed may be held.
    pub fn store(&self, write: &Capability, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.writer(write, offset)?;
        let written = writer.write(bytes);
        writer.commit()?;
        written
    }

    /// Returns a reader, for the capability to read.
    ///
    /// # Errors
    /// [`ReadError::NoLease`], and [`ReadError::Io`] if its file cannot be opened.
    pub fn reader(&self, read: &Capability) -> Result<Reader, ReadError> {
        let (lease, _) = self.find(read, Right::Read).ok_or(ReadError::NoLease)?;
        Reader::new(Arc::clone(&self.shared), lease)
    }

    /// Returns the state of an allocation, for any of its capabilities; `None` if there is none.
    pub fn status(&self, capability: &Capability) -> Option<Status> {
        let now = self.shared.clock.now().since_boot;
        let (id, right, lease) = {
            let leases = self.shared.leases();
            let (id, right, entry) = leases.ledger.find(&capability.hash(), now)?;
            (id, right, Arc::clone(&entry.lease))
        };
        let (left, taken_bytes) = (lease.ends().since(now), lease.taken_bytes());
        let book = lease.book();
        let (held, damaged) = (book.contents.held.clone(), book.contents.damaged.clone());
        let size_bytes = lease.layout.size_bytes;
        let medium = lease.medium;
        drop(book);
        let is_lost = lease.is_lost(&self.shared);
        Some(Status { id, right, medium, size_bytes, held, damaged, left, taken_bytes, is_lost })
    }

    /// Returns how many requested allocations turned out to have lost their files.
    pub fn lost(&self) -> usize {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Returns whether this capability was for an allocation that ended or was released. About ten
    /// thousand allocations are remembered, plus those that ended while the depot was closed.
    pub fn has_ended(&self, capability: &Capability) -> bool {
        let now = self.shared.clock.now().since_boot;
        self.shared.leases().ledger.has_ended(&capability.hash(), now)
    }

    /// Returns the options that it was opened with.
    pub fn options(&self) -> &DepotOptions {
        &self.shared.options
    }

    /// Extends a lease to `length` from now, unless it is longer already. Returns its length.
    pub fn extend(&self, manage: &Capability, length: Duration) -> Result<Duration, ManageError> {
        let shared = &self.shared;
        if length > shared.options.length_max {
            return Err(ManageError::TooLong { length_max: shared.options.length_max });
        }
        let (lease, _) = self.find(manage, Right::Manage).ok_or(ManageError::NoLease)?;
        let from = shared.clock.now();
        let left = lease.ends().since(from.since_boot);
        if left >= length {
            return Ok(left);
        }
        // It was live before: its journal must hold by now, unless both are being removed.
        let enter = |ends| shared.leases().ledger.extend(lease.id, ends, from.since_boot);
        let ends = lease.extend(shared, Term { from, length }, enter).map_err(manage_error)?;
        Ok(ends.since(from.since_boot))
    }

    /// Releases an allocation. When this returns, its space is free and nobody can read it.
    pub fn release(&self, manage: &Capability) -> Result<(), ManageError> {
        let now = self.shared.clock.now().since_boot;
        let entry = {
            let mut leases = self.shared.leases();
            // A doubtful allocation cannot be read, but it can be released.
            let found = leases.ledger.find_any(&manage.hash());
            let found = found.filter(|(_, right, entry)| {
                *right == Right::Manage && (entry.ends > now || leases.is_doubtful(&entry.lease))
            });
            let id = found.map(|(id, ..)| id);
            leases.doubtful.retain(|doubtful| Some(doubtful.lease.id) != id);
            let entry = id.and_then(|id| leases.ledger.take_out(id)).ok_or(ManageError::NoLease)?;
            leases.ending += 1;
            entry
        };
        let Some((entry, unended)) = self.shared.end(vec![entry]).pop() else { return Ok(()) };
        let mut leases = self.shared.leases();
        let error = match unended {
            Unended::IsAsItWas(error) => {
                leases.ledger.enter(entry.lease.id, entry);
                error
            }
            Unended::MayComeBack(error) => {
                leases.stuck.push(entry);
                error
            }
        };
        Err(ManageError::Io(Arc::new(error)))
    }

    /// Removes ended allocations and returns the time until the next lease ends, when to call it
    /// again. Without it, ended allocations cannot be read either, and their space is found by the
    /// next allocation; this returns it to the file system.
    pub fn sweep(&self) -> Option<Duration> {
        let now = self.shared.sweep();
        let leases = self.shared.leases();
        let next = leases.ledger.next_end().map(|ends| ends.since(now));
        let waits = !leases.doubtful.is_empty() || !leases.stuck.is_empty();
        let look = waits.then_some(clock::LOOK);
        next.into_iter().chain(look).min()
    }

    /// Returns the used and free space.
    pub fn usage(&self) -> DepotUsage {
        self.shared.sweep();
        let disk_has = self.shared.disk_free_bytes();
        let leases = self.shared.leases();
        DepotUsage {
            disk_taken_bytes: leases.ledger.taken_bytes(Medium::Disk),
            disk_free_bytes: leases.ledger.free_bytes(Medium::Disk).min(disk_has),
            memory_taken_bytes: leases.ledger.taken_bytes(Medium::Memory),
            memory_free_bytes: leases.ledger.free_bytes(Medium::Memory),
            allocations: leases.ledger.count(),
        }
    }

    fn find(&self, capability: &Capability, wanted: Right) -> Option<(Arc<Lease>, LeaseId)> {
        let now = self.shared.clock.now().since_boot;
        let leases = self.shared.leases();
        let (id, right, entry) = leases.ledger.find(&capability.hash(), now)?;
        (right == wanted).then(|| (Arc::clone(&entry.lease), id))
    }
}

impl Shared {
    fn leases(&self) -> MutexGuard<'_, LeaseTable> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the free bytes of the disk; the maximum if there is no disk or it does not tell.
    fn disk_free_bytes(&self) -> u64 {
        self.folder.as_ref().and_then(open::Folder::free_bytes).unwrap_or(u64::MAX)
    }

    /// Returns the names of an allocation's files.
    pub(crate) fn names(&self, id: LeaseId) -> io::Result<Names> {
        let folder = self.folder.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(folder.names(id))
    }

    /// Decides doubtful leases for which that is possible by now.
    fn settle(&self, now: &Moment) {
        let mut leases = self.leases();
        for doubtful in std::mem::take(&mut leases.doubtful) {
            let left = doubtful.term.left(now);
            let id = doubtful.lease.id;
            if !left.is_zero() {
                let ends = now.since_boot + left;
                doubtful.lease.revive(ends);
                leases.ledger.ends_at(id, ends);
            } else if now.since_boot >= doubtful.until {
                leases.ledger.ends_at(id, doubtful.lease.ends());
            } else {
                leases.doubtful.push(doubtful);
            }
        }
    }

    /// Removes allocations that have ended by now; returns the current time.
    fn sweep(&self) -> swath_model::Time {
        let moment = self.clock.now();
        self.settle(&moment);
        let now = moment.since_boot;
        let (stuck, ended) = {
            let mut leases = self.leases();
            let stuck = std::mem::take(&mut leases.stuck);
            let mut ended = Vec::new();
            while let Some((_, entry)) = leases.ledger.take_ended(now) {
                ended.push(entry);
            }
            leases.ending += stuck.len() + ended.len();
            (stuck, ended)
        };
        let mut left = self.end(stuck);
        let new = self.end(ended);
        for (entry, unended) in &new {
            let (error, id) = (unended.error(), &entry.lease.id);
            tracing::warn!(%error, lease = %id, "a lease that has ended could not be removed");
        }
        left.extend(new);
        self.leases().stuck.extend(left.into_iter().map(|(entry, _)| entry));
        now
    }

    /// Removes allocations that are no longer in the table, and gives their space back once power
    /// loss cannot restore them. Returns those that failed; they stay promised.
    fn end(&self, entries: Vec<Entry<Arc<Lease>>>) -> Vec<(Entry<Arc<Lease>>, Unended)> {
        if entries.is_empty() {
            return Vec::new();
        }
        let count = entries.len();
        let (mut gone, mut left) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry.lease.give_up(self) {
                Ok(()) => gone.push(entry),
                Err(error) => left.push((entry, Unended::IsAsItWas(error))),
            }
        }
        let on_disk = gone.iter().find(|entry| entry.medium == Medium::Disk);
        let folder = on_disk.and_then(|entry| Some(self.names(entry.lease.id).ok()?.folder));
        let synced = match folder.map_or(Ok(()), |folder| self.steps.sync_folder(&folder)) {
            // A folder that does not exist restores nothing.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Arc::new(error)),
            _ => Ok(()),
        };
        let mut free = Vec::new();
        for entry in gone {
            match &synced {
                Err(error) if entry.medium == Medium::Disk => {
                    let error = io::Error::new(error.kind(), Arc::clone(error));
                    left.push((entry, Unended::MayComeBack(error)));
                }
                _ => {
                    entry.lease.clear(self);
                    free.push(entry);
                }
            }
        }
        let mut leases = self.leases();
        leases.ending -= count;
        for entry in free {
            leases.ledger.give_back(entry.medium, entry.bytes);
        }
        drop(leases);
        self.given_back.notify_all();
        left
    }
}

/// Why an allocation could not be removed.
#[derive(Debug)]
enum Unended {
    /// Its journal remains: nothing has changed.
    IsAsItWas(io::Error),
    /// It is gone, but a power loss could restore it.
    MayComeBack(io::Error),
}

impl Unended {
    fn error(&self) -> &io::Error {
        match self {
            Unended::IsAsItWas(error) | Unended::MayComeBack(error) => error,
        }
    }
}

impl std::fmt::Debug for Depot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Depot({:?})", self.shared.options)
    }
}

/// Formats a length of time in the largest unit that divides it.
fn spoken(length: Duration) -> String {
    let seconds = length.as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let whole = units.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "s"));
    format!("{} {name}", seconds / unit)
}

fn manage_error(fault: Fault) -> ManageError {
    match fault {
        Fault::Gone => ManageError::NoLease,
        Fault::Lost(error) | Fault::Io(error) => ManageError::Io(error),
    }
}

/// Reads any bytes as an allocation's journal, and as its facts one by one: no result may reach
/// beyond the allocation, and each can be written again.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz_lease(bytes: &[u8]) {
    use crate::journal::{Entry as _, Recovery, Sum as _, recover};
    use contents::{Contents, Fact};
    let sound = |contents: &Contents| {
        let size_bytes = contents.layout().size_bytes;
        assert!(contents.held.last().is_none_or(|last| last.end <= size_bytes));
        let mut again = Contents::default();
        contents.records().for_each(|fact| again.apply(&fact));
        assert_eq!(again, *contents);
    };
    if let Ok(Recovery::Journal { state, .. }) = recover::<Contents>(bytes) {
        sound(&state);
    }
    // Again without the tags, which no fuzzer finds.
    let mut contents = Contents::default();
    for frame in bytes.chunks(1 + 49) {
        let Some((kind, payload)) = frame.split_first() else { break };
        for payload in
            [payload, &payload[..payload.len().min(16)], &payload[..payload.len().min(48)]]
        {
            if let Some(fact) = Fact::decode(*kind, payload) {
                contents.apply(&fact);
            }
        }
    }
    sound(&contents);
}
