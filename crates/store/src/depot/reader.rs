//! Reads stored bytes: as a descriptor for the kernel, or into memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::{Range, RangeSet};

use super::Shared;
use super::check::{Which, check};
use super::lease::Lease;
use crate::hashed_file::HashedFile;

/// Reads an allocation as long as its lease runs.
pub struct Reader {
    depot: Arc<Shared>,
    lease: Arc<Lease>,
    file: Arc<HashedFile>,
}

/// Stored bytes as a part of an open file, to be sent by `sendfile` or read at `position`.
///
/// If the lease ends meanwhile, the file is empty from then on: bytes read from it are right or
/// missing, never wrong. A caller that finds it short asks the reader again and gets the error.
#[derive(Clone, Debug)]
pub struct Part {
    file: Arc<HashedFile>,
    /// The bytes of the allocation.
    pub range: Range,
    /// Their offset in the file.
    pub position: u64,
}

impl AsFd for Part {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Why bytes could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The capability does not allow reading a live allocation.
    #[error("no allocation can be read by this capability")]
    NoLease,
    /// The lease has ended or was released meanwhile.
    #[error("the lease has ended")]
    Ended,
    /// These bytes lie behind the end of the allocation.
    #[error("bytes {range} lie behind the end of the allocation at {size_bytes}")]
    PastEnd {
        /// The requested range.
        range: Range,
        /// The size of the allocation.
        size_bytes: u64,
    },
    /// Nothing is stored in this range.
    #[error("bytes {range} are not stored")]
    NotHeld {
        /// From the requested byte to the next stored one, or to the end of the allocation.
        range: Range,
    },
    /// The stored bytes are damaged. They are not held any more and can be stored again.
    #[error("stored bytes {range} are damaged")]
    Damaged {
        /// The lost range.
        range: Range,
    },
    /// Anything else.
    #[error("cannot read from the depot")]
    Io(#[source] io::Error),
}

impl Reader {
    pub(crate) fn new(depot: Arc<Shared>, lease: Arc<Lease>) -> Result<Reader, ReadError> {
        match lease.file(&depot) {
            Ok(file) => Ok(Reader { depot, lease, file }),
            Err(_) if !lease.is_live(&depot) => Err(ReadError::NoLease),
            Err(error) => Err(ReadError::Io(error)),
        }
    }

    /// Returns the size of the allocation.
    pub fn size_bytes(&self) -> u64 {
        self.lease.layout.size_bytes
    }

    /// Returns the bytes that are stored now.
    pub fn held(&self) -> RangeSet {
        self.lease.book().contents.held.clone()
    }

    /// Returns how long the lease still runs; zero once it has ended.
    pub fn left(&self) -> Duration {
        self.lease.ends().since(self.depot.clock.now().since_boot)
    }

    /// Returns the stored bytes from the start of `range`, as far as available at once: up to its
    /// end, the first byte that is not stored, or some MiB. Each group is checked when it is first
    /// read, see the depot's module docs.
    pub fn part(&self, range: Range) -> Result<Part, ReadError> {
        self.must_live()?;
        let size_bytes = self.size_bytes();
        if range.end > size_bytes || range.is_empty() {
            return Err(ReadError::PastEnd { range, size_bytes });
        }
        let held = self.lease.book().contents.held.first_from(range.start);
        let Some(run) = held.filter(|run| run.start == range.start) else {
            self.must_live()?;
            let until = held.map_or(size_bytes, |next| next.start);
            return Err(ReadError::NotHeld { range: Range::new(range.start, until) });
        };
        let first = self.lease.layout.group_at(range.start);
        let end = range.end.min(run.end).min(first.start + PART_BYTES_MAX);
        let wanted = Range::new(range.start, end);
        let damaged = check(&self.depot, &self.lease, &self.file, wanted, Which::New);
        self.must_live()?;
        let range = match damaged.map_err(ReadError::Io)? {
            Some(damaged) if damaged.start <= wanted.start => {
                return Err(ReadError::Damaged { range: damaged });
            }
            // The bytes before it are sound.
            Some(damaged) => Range::new(wanted.start, damaged.start),
            None => wanted,
        };
        Ok(Part {
            file: Arc::clone(&self.file),
            range,
            position: self.file.position_of(range.start),
        })
    }

    /// Reads stored bytes from `offset` into `bytes`; returns how many, at least one.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, ReadError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let end = self.size_bytes().min(offset.saturating_add(bytes.len() as u64));
        let part = self.part(Range::new(offset, end))?;
        let count = part.range.len() as usize;
        let read = self.file.read(offset, &mut bytes[..count]);
        self.must_live()?;
        read.map_err(ReadError::Io)?;
        Ok(count)
    }

    /// Hashes everything stored of `range` again and returns the damaged bytes. They are not held
    /// any more and can be stored again.
    ///
    /// # Errors
    /// [`ReadError::Ended`] and [`ReadError::Io`].
    pub fn check(&self, range: Range) -> Result<RangeSet, ReadError> {
        let mut damaged = RangeSet::new();
        for group in self.lease.layout.groups_of(range) {
            // Each call finds only the first damage.
            while let Some(bad) = {
                let checked = check(&self.depot, &self.lease, &self.file, group, Which::Held);
                self.must_live()?;
                checked.map_err(ReadError::Io)?
            } {
                if damaged.insert(bad) == 0 {
                    break;
                }
            }
        }
        Ok(damaged)
    }

    fn must_live(&self) -> Result<(), ReadError> {
        if self.lease.is_live(&self.depot) { Ok(()) } else { Err(ReadError::Ended) }
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({})", self.lease.id)
    }
}

/// Checking this much takes about a millisecond; more would delay the first byte.
const PART_BYTES_MAX: u64 = 16 * GROUP_BYTES;
