//! Allocating: promises space in the ledger, reserves it on the disk, writes the journal, and hands
//! out the capabilities.
//!
//! Space is freed only after a name was removed durably, or when its lease has ended, which a
//! restart sees by itself. So power loss never restores more than fits.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::capability::{Capability, LeaseId};
use super::clock::{Moment, Term};
use super::contents::Contents;
use super::lease::{Lease, remove};
use super::ledger::{Entry, Medium, Refusal, Space};
use super::{Depot, Shared, spoken};
use crate::hashed_file::{BLOCK_BYTES, Layout, blocks};
use crate::journal::JournalFile;
use crate::sys;

/// A new allocation, for the client.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// Its name, which is not secret.
    pub id: LeaseId,
    /// The right to read it.
    pub read: Capability,
    /// The right to store in it.
    pub write: Capability,
    /// The right to extend and release it.
    pub manage: Capability,
    /// Its size.
    pub size_bytes: u64,
    /// The medium it lies on. Memory is lost when the program ends.
    pub medium: Medium,
    /// Length of its lease from now on.
    pub left: Duration,
}

/// Why nothing was allocated. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// Zero bytes were requested.
    #[error("an allocation needs at least one byte")]
    Empty,
    /// The lease would be longer than the depot allows.
    #[error("a lease is at most {}", spoken(*.length_max))]
    TooLong {
        /// The longest lease.
        length_max: Duration,
    },
    /// The limit on allocations is reached.
    #[error("all {leases_max} allocations are in use")]
    TooMany {
        /// The limit.
        leases_max: usize,
    },
    /// The rest is promised to others.
    #[error("only {free_bytes} bytes are free")]
    NoRoom {
        /// Bytes not promised.
        free_bytes: u64,
    },
    /// The disk has less free space than the configuration allows the depot to use.
    #[error("the depot's disk has only {free_bytes} bytes free")]
    DiskFull {
        /// Bytes that it has.
        free_bytes: u64,
    },
    /// Anything else.
    #[error("cannot allocate")]
    Io(#[source] io::Error),
}

impl Depot {
    /// Leases `size_bytes` bytes for `length`. The space is reserved when this returns, as far as
    /// the file system can promise that. An allocation on the disk survives restarts.
    pub fn allocate(
        &self,
        size_bytes: u64,
        length: Duration,
        medium: Medium,
    ) -> Result<Allocation, AllocateError> {
        self.allocate_with(size_bytes, length, medium, Space::Reserved)
    }

    /// Allocates like [`Depot::allocate`], and says when the space is taken.
    pub fn allocate_with(
        &self,
        size_bytes: u64,
        length: Duration,
        medium: Medium,
        space: Space,
    ) -> Result<Allocation, AllocateError> {
        let shared = &self.shared;
        if size_bytes == 0 {
            return Err(AllocateError::Empty);
        }
        if size_bytes > SIZE_BYTES_MAX {
            let free_bytes = shared.leases().ledger.free_bytes(medium);
            return Err(AllocateError::NoRoom { free_bytes });
        }
        let bytes = if space == Space::Reserved { blocks(size_bytes) } else { 0 };
        let mut waited = false;
        loop {
            shared.promise(medium, bytes, length)?;
            match shared.found(size_bytes, length, medium, space) {
                Ok((allocation, lease, from)) => {
                    let hashes = [&allocation.read, &allocation.write, &allocation.manage];
                    let hashes = hashes.map(Capability::hash);
                    let ends = from.since_boot + length;
                    let entry = Entry { medium, bytes, ends, hashes, lease };
                    shared.leases().ledger.enter(allocation.id, entry);
                    return Ok(allocation);
                }
                Err(error) => {
                    let ending = {
                        let mut leases = shared.leases();
                        leases.ledger.give_back(medium, bytes);
                        leases.ending > 0
                    };
                    shared.given_back.notify_all();
                    let is_full = matches!(error, AllocateError::DiskFull { .. });
                    // Allocations being removed may free what is missing.
                    if !is_full || !ending || std::mem::replace(&mut waited, true) {
                        return Err(error);
                    }
                    let leases = shared.leases();
                    let done = shared.given_back.wait_while(leases, |leases| leases.ending > 0);
                    drop(done.unwrap_or_else(PoisonError::into_inner));
                }
            }
        }
    }
}

impl Shared {
    /// Promises space, which includes that of ended leases.
    fn promise(&self, medium: Medium, bytes: u64, length: Duration) -> Result<(), AllocateError> {
        self.sweep();
        let mut leases = self.leases();
        loop {
            match leases.ledger.promise(medium, bytes, length) {
                Ok(()) => return Ok(()),
                Err(Refusal::TooLong) => {
                    return Err(AllocateError::TooLong { length_max: self.options.length_max });
                }
                // Other threads are removing ended allocations.
                Err(Refusal::NoRoom { .. } | Refusal::TooMany) if leases.ending > 0 => {
                    let woken = self.given_back.wait(leases);
                    leases = woken.unwrap_or_else(PoisonError::into_inner);
                }
                Err(Refusal::NoRoom { free_bytes }) => {
                    // The rest of a block cannot be allocated.
                    let free_bytes = free_bytes - free_bytes % BLOCK_BYTES;
                    return Err(AllocateError::NoRoom { free_bytes });
                }
                Err(Refusal::TooMany | Refusal::Ended) => {
                    let leases_max = self.options.leases_max;
                    return Err(AllocateError::TooMany { leases_max });
                }
            }
        }
    }

    /// Removes ended allocations and waits for others that do. Returns whether there is more room.
    pub(crate) fn make_room(&self, medium: Medium) -> bool {
        let before_bytes = self.leases().ledger.free_bytes(medium);
        self.sweep();
        let leases = self.given_back.wait_while(self.leases(), |leases| leases.ending > 0);
        leases.unwrap_or_else(PoisonError::into_inner).ledger.free_bytes(medium) > before_bytes
    }

    /// Makes a promised allocation.
    fn found(
        &self,
        size_bytes: u64,
        length: Duration,
        medium: Medium,
        space: Space,
    ) -> Result<(Allocation, Arc<Lease>, Moment), AllocateError> {
        let capability = || Capability::random().map_err(AllocateError::Io);
        let id = LeaseId::random().map_err(AllocateError::Io)?;
        let (read, write, manage) = (capability()?, capability()?, capability()?);
        let from = self.clock.now();
        let hashes = [read.hash(), write.hash(), manage.hash()];
        let contents = Contents::new(size_bytes, hashes, Term { from, length }, space);
        let ends = from.since_boot + length;
        let lease = match medium {
            Medium::Disk => self.found_on_disk(id, ends, contents)?,
            Medium::Memory => {
                let file = in_memory(contents.layout()).map_err(AllocateError::Io)?;
                Lease::in_memory(id, ends, contents, file)
            }
        };
        let left = ends.since(self.clock.now().since_boot);
        let allocation = Allocation { id, read, write, manage, size_bytes, medium, left };
        Ok((allocation, Arc::new(lease), from))
    }

    fn found_on_disk(
        &self,
        id: LeaseId,
        ends: swath_model::Time,
        contents: Contents,
    ) -> Result<Lease, AllocateError> {
        let names = self.names(id).map_err(AllocateError::Io)?;
        let steps = self.steps.as_ref();
        let make = || {
            let mut options = sys::no_follow();
            options.read(true).write(true).create_new(true).mode(0o600);
            let file = options.open(&names.part)?;
            match contents.space() {
                Space::Reserved => self.reserve(&file, contents.layout())?,
                Space::AsStored => file.set_len(contents.layout().file_bytes())?,
            }
            steps.sync_data(&file)?;
            JournalFile::create(steps, &names, &contents).map_err(|error| error.into_io())
        };
        match make() {
            Ok(journal) => Ok(Lease::on_disk(id, ends, contents, journal.end())),
            Err(error) => {
                // Its space is about to be promised to others.
                let _ =
                    remove(steps, &names.journal).and_then(|()| steps.sync_folder(&names.folder));
                let _ = remove(steps, &names.part);
                if sys::is_full(&error) {
                    return Err(AllocateError::DiskFull { free_bytes: self.disk_free_bytes() });
                }
                if error.kind() == io::ErrorKind::FileTooLarge {
                    // Larger than any file can be there.
                    let free_bytes = self.leases().ledger.free_bytes(Medium::Disk);
                    return Err(AllocateError::NoRoom { free_bytes });
                }
                Err(AllocateError::Io(error))
            }
        }
    }

    /// Reserves a file's space in the file system.
    fn reserve(&self, file: &File, layout: Layout) -> io::Result<()> {
        let bytes = layout.file_bytes();
        // A reservation that does not fit would take all free space until it fails, and others
        // would find the disk full meanwhile.
        let free_bytes = sys::free_bytes(file)?;
        if bytes > free_bytes {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        match sys::reserve(file, 0, bytes) {
            Err(error) if sys::is_unsupported(&error) => {
                // Without reservations, only count what others were promised and have not used.
                if bytes > free_bytes.saturating_sub(self.unused_bytes()) {
                    return Err(io::Error::from_raw_os_error(libc::ENOSPC));
                }
            }
            done => done?,
        }
        file.set_len(bytes)
    }

    /// Returns the bytes promised on the disk and not stored yet.
    fn unused_bytes(&self) -> u64 {
        let leases = self.leases().ledger.leases();
        let on_disk = leases.iter().filter(|lease| lease.medium == Medium::Disk);
        let unused = |lease: &Arc<Lease>| {
            lease.taken_bytes().saturating_sub(lease.book().contents.held.total_bytes())
        };
        on_disk.map(unused).sum()
    }
}

/// Returns a file in memory that nobody else can open.
fn in_memory(layout: Layout) -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = File::from(rustix::fs::memfd_create(c"swath-depot", flags)?);
    file.set_len(layout.file_bytes())?;
    Ok(file)
}

/// Larger than every disk, and small enough that sums do not overflow.
pub(super) const SIZE_BYTES_MAX: u64 = 1 << 60;
