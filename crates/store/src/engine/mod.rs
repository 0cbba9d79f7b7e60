//! The engines that move buffers to and from the disk.
//!
//! One [`Job`] is one buffer and one place in a file. Direct jobs (aligned memory, offset and
//! length) go to the ring or to the threads of [`Engine`], any number at once. Ordinary jobs go
//! through the page cache, one after the other for each file: several at once only wait for the
//! file's lock in the kernel, and through io_uring they collapse to a fraction of the speed.

mod buffered;
mod ring;
mod threads;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use swath_model::Buffer;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, oneshot};

use crate::data_file::DataFile;
use crate::stats::Meter;

pub(crate) use buffered::BufferedQueue;
pub(crate) use ring::Ring;
pub(crate) use threads::Threads;

/// The direction of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Write,
    Read,
}

/// One buffer to move.
pub(crate) struct Job {
    pub(crate) direction: Direction,
    pub(crate) file: Arc<DataFile>,
    pub(crate) offset: u64,
    /// Bytes to move, from the buffer's start.
    pub(crate) bytes: usize,
    /// Bytes already moved.
    pub(crate) done: usize,
    pub(crate) buffer: Buffer,
    pub(crate) answer: oneshot::Sender<(Buffer, io::Result<usize>)>,
    /// Held until the kernel is done, even if the caller no longer waits.
    pub(crate) turn: Turn,
}

/// The right to be in flight in a file; see [`DataFile::gate`].
pub(crate) enum Turn {
    /// Beside others.
    Shared { _guard: OwnedRwLockReadGuard<()> },
    /// Alone: an ordinary job on a file with direct ones. With `clean`, the pages it touched must
    /// leave the page cache before the next job begins.
    Alone { _guard: OwnedRwLockWriteGuard<()>, clean: bool },
}

impl Job {
    /// Applies the result of one system call. Returns `Some` if the job is over.
    fn moved(&mut self, outcome: io::Result<usize>) -> Option<io::Result<usize>> {
        match outcome {
            Ok(0) if self.direction == Direction::Read => Some(Ok(self.done)),
            // The kernel moved nothing without an error; a retry could go on forever.
            Ok(0) => Some(Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                self.done += count;
                // A short count: the end of the file when reading, a signal or a full disk when
                // writing. The next call tells which.
                (self.done >= self.bytes).then_some(Ok(self.done))
            }
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Answers the caller and gives everything back.
    fn finish(self, outcome: io::Result<usize>, meter: &Meter) {
        meter.end(self.direction, *outcome.as_ref().unwrap_or(&0));
        let Job { buffer, answer, file, turn, .. } = self;
        drop((file, turn));
        // If the caller no longer waits, the buffer goes back to its pool.
        let _ = answer.send((buffer, outcome));
    }

    /// Runs the job now, with ordinary system calls on `fd`.
    fn run(&mut self, fd: i32) -> io::Result<usize> {
        let mut pauses = 0;
        loop {
            let (offset, left, done) =
                (self.offset + self.done as u64, self.bytes - self.done, self.done);
            let memory = &mut self.buffer.whole()[done..done + left];
            let pointer = memory.as_mut_ptr().cast::<libc::c_void>();
            // SAFETY: `pointer` is valid for `left` bytes in both directions and belongs to this
            // job alone; the file keeps the descriptor open.
            let count = unsafe {
                match self.direction {
                    Direction::Write => libc::pwrite(fd, pointer, left, offset as i64),
                    Direction::Read => libc::pread(fd, pointer, left, offset as i64),
                }
            };
            let outcome = usize::try_from(count).map_err(|_| io::Error::last_os_error());
            // Some file systems lack a resource for a moment although asked to wait.
            if let Err(error) = &outcome
                && error.raw_os_error() == Some(libc::EAGAIN)
                && pauses < PAUSES_MAX
            {
                pauses += 1;
                std::thread::sleep(PAUSE);
                continue;
            }
            if let Some(outcome) = self.moved(outcome) {
                return outcome;
            }
        }
    }
}

/// The engine for direct jobs.
pub(crate) enum Engine {
    Ring(Ring),
    Threads(Threads),
    /// None; every job is an ordinary one.
    None,
}

impl Engine {
    /// Begins a direct job. Only for files with a direct descriptor.
    pub(crate) fn submit(&self, job: Job, meter: &Meter) {
        match self {
            Engine::Ring(ring) => ring.submit(job),
            Engine::Threads(threads) => threads.submit(job),
            Engine::None => job.finish(Err(io::Error::from_raw_os_error(libc::EINVAL)), meter),
        }
    }
}

/// A second in all; a longer shortage is an error, not a reason to spin.
const PAUSES_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);
