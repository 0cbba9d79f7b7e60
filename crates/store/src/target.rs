//! One file being written: its buffers in and out.
//!
//! All methods take `&self`, so tasks can share a target while filling it. Invariant: `written`
//! contains only bytes whose write the kernel has reported as done. Only such bytes can be
//! committed, and only a file that consists of them can be finished.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swath_model::{Buffer, Range, RangeSet};

use crate::data_file::DataFile;
use crate::disk::{Disk, TransferOptions};
use crate::engine::{Direction, Turn};
use crate::journal::{JournalFile, State};
use crate::names::Names;
use crate::open::{self, OpenError, Resumed, TargetSpec};
use crate::sys;
use crate::tree::Grant;

/// A file being written. Dropping it keeps the part file and the journal for another run, but
/// removes a part file without a useful journal.
pub struct Target {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) disk: Disk,
    pub(crate) names: Names,
    /// The folder through which the names are reached, if resolved beneath another one.
    pub(crate) _root: Option<crate::tree::Root>,
    pub(crate) file: Arc<DataFile>,
    pub(crate) overwrite: bool,
    /// What may be done with it; its path there is the empty one.
    pub(crate) grant: Grant,
    /// Zeros are left out.
    sparse: bool,
    progress: Mutex<Progress>,
    /// Held for a whole commit, so that commits run one after the other.
    pub(crate) journal: Arc<tokio::sync::Mutex<Journal>>,
}

pub(crate) struct Progress {
    pub(crate) written: RangeSet,
    /// Written bytes that later turned out wrong, whether rewritten or not.
    pub(crate) distrusted: RangeSet,
    pub(crate) size_bytes: Option<u64>,
    /// Finished or discarded, or about to be.
    pub(crate) closed: bool,
    /// The part file has its final name or none: there is nothing to keep.
    pub(crate) gone: bool,
    /// A journal exists on the disk.
    pub(crate) journaled: bool,
    /// The journal has vouched for some bytes.
    pub(crate) vouched: bool,
}

pub(crate) struct Journal {
    /// Created at the first commit: most small files never need one.
    pub(crate) file: Option<JournalFile>,
    pub(crate) state: State,
    /// A sync of the data failed. The kernel may have dropped data, so later syncs say nothing
    /// about bytes written before.
    pub(crate) data_lost: bool,
}

/// Why bytes could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The device or the user's quota is full. Committed bytes stay.
    #[error("no space left for {} at byte {offset}", path.display())]
    NoSpace {
        /// The final name.
        path: PathBuf,
        /// Where the write began.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The bytes would lie behind the end of the file.
    #[error("bytes {range} lie behind the end of {} at {size_bytes}", path.display())]
    PastEnd {
        /// The final name.
        path: PathBuf,
        /// The range to write.
        range: Range,
        /// Size of the file.
        size_bytes: u64,
    },
    /// The target was finished or discarded.
    #[error("{} is finished", .0.display())]
    Closed(PathBuf),
    /// Anything else.
    #[error("cannot write to {} at byte {offset}", path.display())]
    Io {
        /// The final name.
        path: PathBuf,
        /// Where the write began.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
}

/// Why bytes could not be read back.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {} back at byte {offset}", path.display())]
pub struct ReadError {
    /// The final name.
    pub path: PathBuf,
    /// Where the read began.
    pub offset: u64,
    /// The system's error.
    pub source: io::Error,
}

impl Target {
    /// Opens a target: checks its place, locks it, reads its journal, checks the space.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is left behind.
    pub async fn open(disk: &Disk, spec: TargetSpec) -> Result<(Target, Resumed), OpenError> {
        let (for_worker, overwrite, path) = (disk.clone(), spec.overwrite, spec.path.clone());
        let grant = spec.grant.of(&path);
        // Smaller files do not get their size in advance, which holes at the end would need.
        let sparse = spec.sparse
            && spec.size_bytes.is_some_and(|size| size >= disk.options().direct_from_bytes);
        let opened = disk.workers().run(move || open::open(&for_worker, &spec)).await;
        let opened =
            opened.map_err(|gone| OpenError::Io { path, source: io::Error::other(gone) })??;
        let progress = Progress {
            distrusted: RangeSet::new(),
            written: opened.state.durable.clone(),
            size_bytes: opened.state.size_bytes,
            closed: false,
            gone: false,
            journaled: opened.journal.is_some(),
            vouched: !opened.state.durable.is_empty(),
        };
        let journal = Journal { file: opened.journal, state: opened.state, data_lost: false };
        let inner = Inner {
            disk: disk.clone(),
            names: opened.names,
            _root: opened.root,
            file: Arc::new(opened.file),
            overwrite,
            grant,
            sparse,
            progress: Mutex::new(progress),
            journal: Arc::new(tokio::sync::Mutex::new(journal)),
        };
        Ok((Target { inner: Arc::new(inner) }, opened.resumed))
    }

    /// Returns the final name.
    pub fn path(&self) -> &Path {
        &self.inner.names.shown
    }

    /// Returns where the data lies until it is finished.
    pub fn part_path(&self) -> &Path {
        &self.inner.names.part
    }

    /// Returns the size of the file in bytes, if known.
    pub fn size_bytes(&self) -> Option<u64> {
        self.inner.progress().size_bytes
    }

    /// Returns how many bytes the journal vouches for; another run need not fetch them.
    pub async fn durable_bytes(&self) -> u64 {
        self.inner.journal.lock().await.state.durable.total_bytes()
    }

    /// Returns whether writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.inner.file.direct_align_bytes().is_some()
    }

    /// Sets the size if it was unknown.
    ///
    /// # Errors
    /// [`WriteError::PastEnd`] if more was already written.
    pub fn set_size(&self, size_bytes: u64) -> Result<(), WriteError> {
        let mut progress = self.inner.progress();
        if let Some(last) = progress.written.last()
            && last.end > size_bytes
        {
            return Err(WriteError::PastEnd {
                path: self.path().to_owned(),
                range: last,
                size_bytes,
            });
        }
        progress.size_bytes = Some(size_bytes);
        Ok(())
    }

    /// Marks bytes as wrong: they can be neither committed nor finished before they are written
    /// again. If they were committed as durable, a `Bad` record must be committed too.
    pub fn distrust(&self, range: Range) {
        let mut progress = self.inner.progress();
        progress.written.remove(range);
        progress.distrusted.insert(range);
    }

    /// Writes the valid bytes of `data` at `offset` and returns the buffer unchanged. The bytes are
    /// not durable before a commit.
    ///
    /// Bytes on the grid of 4,096 (only the end of the file may be off it) go past the page cache;
    /// others take a slower way. The write happens even if the future is dropped. After concurrent
    /// writes of overlapping ranges, either's bytes may remain.
    ///
    /// # Errors
    /// See [`WriteError`]; the buffer goes back to its pool.
    pub async fn write(&self, offset: u64, mut data: Buffer) -> Result<Buffer, WriteError> {
        let inner = &self.inner;
        let bytes = data.filled();
        let range = Range::of_len(offset, bytes as u64);
        let size_bytes = inner.admit(range)?;
        if bytes == 0 {
            return Ok(data);
        }
        if inner.sparse
            && is_zero(&data)
            && sys::is_hole(inner.file.plain(), range.start, range.end)
        {
            inner.progress().written.insert(range);
            return Ok(data);
        }
        loop {
            let direct_bytes = inner.file.direct_align_bytes().and_then(|align_bytes| {
                direct_length(range, size_bytes, align_bytes)
                    .filter(|&length| length <= data.capacity())
            });
            let turn = inner.turn(direct_bytes.is_some()).await;
            if direct_bytes.is_some() && inner.file.direct_align_bytes().is_none() {
                // Direct I/O was given up while this waited.
                continue;
            }
            if let Some(length) = direct_bytes {
                data.whole()[bytes..length].fill(0);
            }
            let length = direct_bytes.unwrap_or(bytes);
            let direct = direct_bytes.is_some();
            let options = TransferOptions { direction: Direction::Write, direct, turn };
            let (buffer, outcome) =
                inner.disk.transfer(options, &inner.file, offset, length, data).await;
            match (buffer, outcome) {
                (Some(buffer), Ok(_)) => {
                    inner.progress().written.insert(range);
                    return Ok(buffer);
                }
                (Some(buffer), Err(error))
                    if direct && error.raw_os_error() == Some(libc::EINVAL) =>
                {
                    tracing::debug!(path = %inner.names.part.display(), "direct I/O refused; writing without");
                    inner.file.stop_direct();
                    data = buffer;
                }
                (_, Err(error)) => return Err(inner.write_error(offset, error)),
                (None, Ok(_)) => {
                    return Err(inner.write_error(offset, io::Error::other("no buffer")));
                }
            }
        }
    }

    /// Reads up to `bytes` bytes at `offset` into `into` (at most its capacity, and nothing behind
    /// the end of the file), replacing its content.
    pub async fn read(
        &self,
        offset: u64,
        bytes: usize,
        mut into: Buffer,
    ) -> Result<Buffer, ReadError> {
        let inner = &self.inner;
        into.truncate(0);
        let size_bytes = inner.progress().size_bytes.unwrap_or(u64::MAX);
        let wanted = bytes
            .min(into.capacity())
            .min(usize::try_from(size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(into);
        }
        let direct_bytes = inner.file.direct_align_bytes().and_then(|align_bytes| {
            let length = wanted.next_multiple_of(align_bytes as usize);
            (offset.is_multiple_of(align_bytes) && length <= into.capacity()).then_some(length)
        });
        let turn = inner.turn(direct_bytes.is_some()).await;
        let length = direct_bytes.unwrap_or(wanted);
        let direct = direct_bytes.is_some();
        let options = TransferOptions { direction: Direction::Read, direct, turn };
        let (buffer, outcome) =
            inner.disk.transfer(options, &inner.file, offset, length, into).await;
        let failed = |source| ReadError { path: inner.names.shown.clone(), offset, source };
        let count = outcome.map_err(failed)?;
        let Some(mut buffer) = buffer else { return Err(failed(io::Error::other("no buffer"))) };
        buffer.advance(count.min(wanted));
        Ok(buffer)
    }
}

impl Inner {
    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        // The bookkeeping is consistent between any two statements.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether `range` may be written; returns the size of the file.
    fn admit(&self, range: Range) -> Result<Option<u64>, WriteError> {
        let progress = self.progress();
        if progress.closed {
            return Err(WriteError::Closed(self.names.shown.clone()));
        }
        // No file reaches offsets beyond the system's signed type.
        let end_max = progress.size_bytes.unwrap_or(u64::MAX).min(OFFSET_MAX);
        if range.end > end_max {
            let path = self.names.shown.clone();
            return Err(WriteError::PastEnd { path, range, size_bytes: end_max });
        }
        Ok(progress.size_bytes)
    }

    /// Returns the turn of a job. An ordinary job beside direct ones must be alone and clean up.
    async fn turn(&self, direct: bool) -> Turn {
        if direct || !self.file.was_direct() {
            return Turn::Shared { _guard: Arc::clone(&self.file.gate).read_owned().await };
        }
        let guard = Arc::clone(&self.file.gate).write_owned().await;
        let clean = self.file.direct_align_bytes().is_some();
        if clean {
            self.file.count_interruption();
        }
        Turn::Alone { _guard: guard, clean }
    }

    fn write_error(&self, offset: u64, source: io::Error) -> WriteError {
        let path = self.names.shown.clone();
        if sys::is_full(&source) {
            WriteError::NoSpace { path, offset, source }
        } else {
            WriteError::Io { path, offset, source }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let progress = self.progress.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !progress.gone && !progress.vouched {
            // Nothing vouches for these bytes, so another run could only start again.
            if progress.journaled {
                let _ = self.disk.steps().remove(&self.names.journal);
            }
            let _ = self.disk.steps().remove(&self.names.part);
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.inner.names.shown.display())
    }
}

/// Returns how many bytes a direct write of `range` must move: its length, or up to the next block
/// if it ends the file. The rest of that block is unused, and finishing cuts it off.
fn direct_length(range: Range, size_bytes: Option<u64>, align_bytes: u64) -> Option<usize> {
    if !range.start.is_multiple_of(align_bytes) {
        return None;
    }
    if !range.len().is_multiple_of(align_bytes) && size_bytes != Some(range.end) {
        return None;
    }
    usize::try_from(range.len().next_multiple_of(align_bytes)).ok()
}

/// Returns whether every byte is zero: the first one is, and each equals the one before it.
pub(crate) fn is_zero(data: &[u8]) -> bool {
    data.first() == Some(&0) && data[1..] == data[..data.len() - 1]
}

/// The largest offset that the kernel takes, minus one block for padding.
const OFFSET_MAX: u64 = i64::MAX as u64 - (1 << 20);
