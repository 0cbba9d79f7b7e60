//! Stores bytes from an offset on; `commit` acknowledges them.
//!
//! A held byte never changes: the same byte is accepted again, another one is refused. So nobody
//! can change what others have read. Uncommitted bytes belong to their writer until it commits or
//! is dropped; other writers get [`StoreError::Busy`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use swath_model::Range;
use swath_model::digest::blake3_tree::GROUP_BYTES;

use super::Shared;
use super::check::{Which, check};
use super::lease::{Fault, Lease};
use super::ledger::Refusal;
use super::settle::Parts;
use crate::hashed_file::{HashedFile, PieceHasher, is_unreadable};
use crate::sys;

/// Stores bytes from one offset on. Dropping it discards bytes since the last commit.
pub struct Writer {
    depot: Arc<Shared>,
    lease: Arc<Lease>,
    file: Arc<HashedFile>,
    at: u64,
    /// The piece being written.
    run: Option<(u64, PieceHasher)>,
    parts: Parts,
    epoch: u32,
    written_back: u64,
}

/// Why bytes could not be stored. Acknowledged bytes are safe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The capability does not allow writing to a live allocation.
    #[error("no allocation can be written by this capability")]
    NoLease,
    /// The lease has ended or was released meanwhile.
    #[error("the lease has ended")]
    Ended,
    /// The bytes would lie behind the end of the allocation.
    #[error("bytes {range} lie behind the end of the allocation at {size_bytes}")]
    PastEnd {
        /// The range to store.
        range: Range,
        /// The size of the allocation.
        size_bytes: u64,
    },
    /// Another writer is storing here now.
    #[error("bytes {range} are being stored by another writer")]
    Busy {
        /// The range to store.
        range: Range,
    },
    /// Other bytes are stored here.
    #[error("other bytes are already stored at {range}")]
    Differs {
        /// The range to store.
        range: Range,
    },
    /// One more separate piece would cost too much memory. Bytes next to stored ones are accepted,
    /// and so are whole groups (of 256 KiB).
    #[error("bytes {range} would be one separate piece too many")]
    TooScattered {
        /// The range to store.
        range: Range,
    },
    /// No space is left for an allocation whose space is taken as bytes are stored.
    #[error("only {free_bytes} bytes are free")]
    NoRoom {
        /// Bytes not promised to others.
        free_bytes: u64,
    },
    /// The disk is full, although the space was reserved if the file system can do that.
    #[error("no space left on the depot's disk")]
    NoSpace(#[source] io::Error),
    /// The bytes could not be made durable: store everything unacknowledged again.
    #[error("the stored bytes could not be made durable")]
    DataLost(#[source] Arc<io::Error>),
    /// Anything else.
    #[error("cannot store")]
    Io(#[source] Arc<io::Error>),
}

impl Writer {
    pub(crate) fn new(
        depot: Arc<Shared>,
        lease: Arc<Lease>,
        offset: u64,
    ) -> Result<Writer, StoreError> {
        let file = lease.file(&depot).map_err(|error| io_error(&lease, &depot, error))?;
        let epoch = lease.book().epoch;
        let parts = Parts::default();
        Ok(Writer { depot, lease, file, at: offset, run: None, parts, epoch, written_back: offset })
    }

    /// Returns the offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Returns the size of the allocation.
    pub fn size_bytes(&self) -> u64 {
        self.lease.layout.size_bytes
    }

    /// Writes the next bytes. They are held once a later [`Writer::commit`] has returned. After an
    /// error, the bytes before [`Writer::offset`] can still be committed.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        let range = Range::of_len(self.at, bytes.len() as u64);
        let size_bytes = self.size_bytes();
        if range.end > size_bytes {
            return Err(StoreError::PastEnd { range, size_bytes });
        }
        while !bytes.is_empty() {
            let slice = Range::new(self.at, range.end.min(self.lease.layout.group_at(self.at).end));
            let (part, is_held) = match self.claim(slice) {
                Err(StoreError::NoRoom { .. }) if self.depot.make_room(self.lease.medium) => {
                    continue;
                }
                claimed => claimed?,
            };
            let (now, later) = bytes.split_at(part.len() as usize);
            if is_held {
                self.end_run()?;
                if !self.compare(part, now)? {
                    // It was damaged and is not held any more.
                    continue;
                }
            } else {
                self.put(part, now)?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Makes everything written so far durable. When this returns the bytes are held: they survive
    /// `kill -9` and power loss, and can be read. In memory they are held at once, and lost with
    /// the program. Returns [`Writer::offset`].
    ///
    /// # Errors
    /// See [`StoreError`]. Bytes since the last commit are then not held, and another writer has to
    /// write them again.
    pub fn commit(&mut self) -> Result<u64, StoreError> {
        if let Err(error) = self.end_run() {
            self.give_up();
            return Err(error);
        }
        let parts = std::mem::take(&mut self.parts);
        if !self.lease.is_live(&self.depot) {
            self.parts = parts;
            self.give_up();
            return Err(StoreError::Ended);
        }
        if !parts.is_empty() {
            self.lease.commit(&self.depot, &self.file, parts, self.epoch).map_err(|fault| {
                match fault {
                    Fault::Gone => StoreError::Ended,
                    Fault::Lost(error) => StoreError::DataLost(error),
                    Fault::Io(error) => StoreError::Io(error),
                }
            })?;
        }
        Ok(self.at)
    }

    /// Returns the first part of `slice` and whether it is held; if not, it is claimed.
    fn claim(&mut self, slice: Range) -> Result<(Range, bool), StoreError> {
        if !self.lease.is_live(&self.depot) {
            return Err(StoreError::Ended);
        }
        let mut book = self.lease.book();
        let next =
            book.contents.held.first_from(slice.start).unwrap_or(Range::new(u64::MAX, u64::MAX));
        if next.start == slice.start {
            return Ok((Range::new(slice.start, slice.end.min(next.end)), true));
        }
        let gap = Range::new(slice.start, slice.end.min(next.start));
        if book.writing.bytes_within(gap) > 0 {
            return Err(StoreError::Busy { range: gap });
        }
        if self.run.is_none() && !self.lease.layout.is_whole(gap) {
            let group = self.lease.layout.group_at(gap.start);
            // A piece at the start of a group may grow to the whole group, and these are few.
            let adjoins = gap.start == group.start
                || book.contents.held.contains(gap.start - 1)
                || (gap.end < group.end && next.start == gap.end);
            if !adjoins
                && (book.contents.held.within(group).count() >= RUNS_IN_GROUP_MAX
                    || self.depot.pieces.load(Ordering::Relaxed) >= PIECES_MAX)
            {
                return Err(StoreError::TooScattered { range: gap });
            }
        }
        self.lease.cover(&self.depot, &mut book, gap).map_err(|refusal| match refusal {
            Refusal::NoRoom { free_bytes } => StoreError::NoRoom { free_bytes },
            _ => StoreError::Ended,
        })?;
        book.writing.insert(gap);
        Ok((gap, false))
    }

    /// Writes claimed bytes.
    fn put(&mut self, part: Range, bytes: &[u8]) -> Result<(), StoreError> {
        if let Err(error) = self.file.write(part.start, bytes) {
            self.lease.book().writing.remove(part);
            return Err(io_error(&self.lease, &self.depot, error));
        }
        if !self.lease.is_live(&self.depot) {
            // Its space may have been freed before this write took some again. (If its time is
            // merely over, it may be about to be extended; a thread that removes it empties it.)
            if self.lease.is_given_up() {
                self.file.empty();
            }
            // If it is extended, others may store here.
            self.lease.book().writing.remove(part);
            return Err(StoreError::Ended);
        }
        let (_, hasher) =
            self.run.get_or_insert_with(|| (part.start, PieceHasher::new(part.start)));
        hasher.update(bytes);
        self.at = part.end;
        if self.at >= self.written_back + WRITE_BACK_BYTES {
            self.file.begin_write_back(Range::new(self.written_back, self.at));
            self.written_back = self.at;
        }
        if part.end == self.lease.layout.group_at(part.start).end {
            self.end_run()?;
        }
        Ok(())
    }

    /// Ends the piece being written at the current offset. On error the piece is dropped, and the
    /// offset moves back to its start.
    fn end_run(&mut self) -> Result<(), StoreError> {
        let Some((start, hasher)) = self.run.take() else { return Ok(()) };
        let range = Range::new(start, self.at);
        if self.lease.layout.is_whole(range) {
            if let Err(error) = self.file.write_group_hash(start, &hasher.finish()) {
                self.lease.book().writing.remove(range);
                self.at = start;
                return Err(io_error(&self.lease, &self.depot, error));
            }
            self.parts.whole.insert(range);
        } else {
            self.parts.pieces.push((range, hasher.finish()));
        }
        Ok(())
    }

    /// Compares `bytes` with the held ones at `part` and moves behind them. Returns false if the
    /// held ones turn out to be damaged.
    fn compare(&mut self, part: Range, bytes: &[u8]) -> Result<bool, StoreError> {
        let mut held = vec![0; bytes.len()];
        match self.file.read(part.start, &mut held) {
            Ok(()) if held == bytes => {
                self.at = part.end;
                return Ok(true);
            }
            Err(error) if !is_unreadable(&error) => {
                return Err(io_error(&self.lease, &self.depot, error));
            }
            Ok(()) | Err(_) => {}
        }
        let checked = check(&self.depot, &self.lease, &self.file, part, Which::All);
        match checked.map_err(|error| io_error(&self.lease, &self.depot, error))? {
            None => Err(StoreError::Differs { range: part }),
            Some(_) => Ok(false),
        }
    }

    fn give_up(&mut self) {
        let run = self.run.take().map(|(start, _)| Range::new(start, self.at));
        let parts = std::mem::take(&mut self.parts);
        let pieces = parts.pieces.iter().map(|(range, _)| *range);
        let mut book = self.lease.book();
        for range in parts.whole.iter().chain(pieces).chain(run) {
            book.writing.remove(range);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer({} at {})", self.lease.id, self.at)
    }
}

fn io_error(lease: &Lease, depot: &Shared, error: io::Error) -> StoreError {
    if !lease.is_live(depot) {
        StoreError::Ended
    } else if sys::is_full(&error) {
        StoreError::NoSpace(error)
    } else {
        StoreError::Io(Arc::new(error))
    }
}

/// Interval of early write-back, so that the last sync of a long store is short.
const WRITE_BACK_BYTES: u64 = 32 * GROUP_BYTES;
/// 64 KiB of memory for a group of 256 KiB, in the worst case.
const RUNS_IN_GROUP_MAX: usize = 1024;
/// About 100 MiB of memory, for all allocations together.
const PIECES_MAX: usize = 1 << 20;
