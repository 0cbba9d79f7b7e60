//! The disk engine that all targets of a process share.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use swath_model::{Buffer, Pool};
use tokio::sync::oneshot;

use crate::data_file::DataFile;
use crate::engine::{BufferedQueue, Direction, Engine, Job, Ring, Threads, Turn};
use crate::simulated::{Faults, SimulatedSteps};
use crate::stats::{DiskStats, Meter};
use crate::steps::{Steps, SystemSteps};
use crate::sys::prefer_huge_pages;
use crate::workers::Workers;

/// How bytes are moved to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// io_uring if the system allows it, otherwise threads.
    #[default]
    Auto,
    /// Direct I/O through io_uring.
    Uring,
    /// Direct I/O by a few threads.
    Threads,
    /// Ordinary writes through the page cache.
    Buffered,
}

/// Sizes of a [`Disk`]; the defaults are measured (see `docs/benchmarks.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Buffers that the kernel has at a time through io_uring.
    pub ring_depth: usize,
    /// Threads that write directly.
    pub write_threads: usize,
    /// Most threads for blocking work: opening, syncing, renaming, ordinary writes.
    pub worker_threads_max: usize,
    /// File size from which direct I/O is used; smaller files go through the page cache.
    pub direct_from_bytes: u64,
    /// File size from which the journal exists from the beginning, not from the first commit.
    pub journal_from_bytes: u64,
    /// Reserve a file's space when it is opened, if the file system does that at once.
    pub reserve: bool,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            ring_depth: 16,
            write_threads: 4,
            worker_threads_max: 16,
            direct_from_bytes: 512 << 10,
            journal_from_bytes: 16 << 20,
            reserve: true,
        }
    }
}

/// The disk engine; clones share it. It ends when the last clone and the last target are gone.
#[derive(Clone)]
pub struct Disk {
    shared: Arc<Shared>,
    /// Faults to inject, in simulations.
    faults: Option<Arc<dyn Faults>>,
}

struct Shared {
    engine: Engine,
    workers: Workers,
    meter: Arc<Meter>,
    steps: Arc<dyn Steps>,
    options: DiskOptions,
    pool: Pool,
}

/// How to move one buffer.
pub(crate) struct TransferOptions {
    pub(crate) direction: Direction,
    /// Past the page cache; offset and length must be aligned.
    pub(crate) direct: bool,
    pub(crate) turn: Turn,
}

/// Why a disk engine could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// io_uring was requested but is not available.
    #[error("this system lacks or forbids io_uring")]
    Uring(#[source] io::Error),
    /// No thread could be started.
    #[error("could not start the disk threads")]
    Threads(#[source] io::Error),
}

impl Disk {
    /// Starts an engine that moves the buffers of `pool` to and from disk, and puts the pool into
    /// huge pages if the system has them.
    ///
    /// # Errors
    /// [`DiskError::Uring`] only if `mode` is [`IoMode::Uring`]; `Auto` falls back to threads.
    pub fn start(pool: &Pool, mode: IoMode) -> Result<Disk, DiskError> {
        Self::start_with(pool, mode, DiskOptions::default())
    }

    /// Starts an engine like [`Disk::start`] with other sizes than the defaults.
    pub fn start_with(pool: &Pool, mode: IoMode, options: DiskOptions) -> Result<Disk, DiskError> {
        Self::start_with_steps(pool, mode, options, Arc::new(SystemSteps::new()))
    }

    pub(crate) fn start_with_steps(
        pool: &Pool,
        mode: IoMode,
        options: DiskOptions,
        steps: Arc<dyn Steps>,
    ) -> Result<Disk, DiskError> {
        prefer_huge_pages(pool);
        let depth = options.ring_depth.clamp(1, 1024);
        let ring =
            |meter: &Arc<Meter>| Ring::start(pool, depth, options.write_threads, Arc::clone(meter));
        let threads = || {
            let meter = Arc::new(Meter::new(options.write_threads + 1));
            let threads = Threads::start(options.write_threads, Arc::clone(&meter))
                .map_err(DiskError::Threads)?;
            Ok((Engine::Threads(threads), meter))
        };
        let ring_meter = Arc::new(Meter::new(depth + 1));
        let (engine, meter) = match mode {
            IoMode::Uring => {
                (Engine::Ring(ring(&ring_meter).map_err(DiskError::Uring)?), ring_meter)
            }
            IoMode::Threads => threads()?,
            IoMode::Buffered => (Engine::None, Arc::new(Meter::new(2))),
            IoMode::Auto => match ring(&ring_meter) {
                Ok(ring) => (Engine::Ring(ring), ring_meter),
                Err(error) => {
                    tracing::debug!(%error, "no io_uring here; writing with threads");
                    threads().or_else(|error: DiskError| {
                        tracing::debug!(%error, "no threads either; writing through the page cache");
                        Ok((Engine::None, Arc::new(Meter::new(2))))
                    })?
                }
            },
        };
        let workers = Workers::new(options.worker_threads_max.max(1));
        Ok(Disk::of(engine, workers, meter, steps, options, pool))
    }

    /// Returns a disk without threads, for simulations; see [`crate::simulated`].
    pub fn simulated(pool: &Pool, faults: Arc<dyn Faults>) -> Disk {
        let options = DiskOptions { reserve: false, ..DiskOptions::default() };
        let steps = SimulatedSteps { faults: Arc::clone(&faults), system: SystemSteps::new() };
        let (workers, meter) = (Workers::new(0), Arc::new(Meter::new(2)));
        let disk = Disk::of(Engine::None, workers, meter, Arc::new(steps), options, pool);
        Disk { faults: Some(faults), ..disk }
    }

    fn of(
        engine: Engine,
        workers: Workers,
        meter: Arc<Meter>,
        steps: Arc<dyn Steps>,
        options: DiskOptions,
        pool: &Pool,
    ) -> Disk {
        let shared = Shared { engine, workers, meter, steps, options, pool: pool.clone() };
        Disk { shared: Arc::new(shared), faults: None }
    }

    /// Returns what [`IoMode::Auto`] became: `uring`, `threads` or `buffered`. A ring whose jobs
    /// the kernel cannot run counts as threads from then on.
    pub fn mode_name(&self) -> &'static str {
        match &self.shared.engine {
            Engine::Ring(ring) if !ring.is_left() => "uring",
            Engine::Ring(_) | Engine::Threads(_) => "threads",
            Engine::None => "buffered",
        }
    }

    /// Returns what the disk did so far, for all targets together.
    pub fn stats(&self) -> DiskStats {
        self.shared.meter.stats()
    }

    /// Runs blocking `task` on one of the disk's threads, even if the future is dropped.
    pub async fn work<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.shared.workers.run(task).await.map_err(io::Error::other)
    }

    /// Returns the pool that this disk works with.
    pub fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    pub(crate) fn options(&self) -> &DiskOptions {
        &self.shared.options
    }

    pub(crate) fn has_direct(&self) -> bool {
        !matches!(self.shared.engine, Engine::None)
    }

    pub(crate) fn steps(&self) -> &Arc<dyn Steps> {
        &self.shared.steps
    }

    pub(crate) fn workers(&self) -> &Workers {
        &self.shared.workers
    }

    /// Syncs a part file and counts the time.
    pub(crate) fn sync_data(&self, file: &std::fs::File) -> io::Result<()> {
        let began = Instant::now();
        let synced = self.shared.steps.sync_data(file);
        self.shared.meter.synced(began.elapsed());
        synced
    }

    /// Moves `bytes` bytes between `buffer` and `file`.
    pub(crate) async fn transfer(
        &self,
        options: TransferOptions,
        file: &Arc<DataFile>,
        offset: u64,
        bytes: usize,
        buffer: Buffer,
    ) -> (Option<Buffer>, io::Result<usize>) {
        let TransferOptions { direction, direct, turn } = options;
        if let (Some(faults), Direction::Write) = (&self.faults, direction)
            && let Err(error) = faults.before_write(offset, bytes)
        {
            return (Some(buffer), Err(error));
        }
        let (answer, answered) = oneshot::channel();
        let job =
            Job { direction, file: Arc::clone(file), offset, bytes, done: 0, buffer, answer, turn };
        self.shared.meter.begin();
        if direct {
            self.shared.engine.submit(job, &self.shared.meter);
        } else {
            BufferedQueue::submit(job, &self.shared.workers, &self.shared.meter);
        }
        match answered.await {
            Ok((buffer, outcome)) => (Some(buffer), outcome),
            Err(_) => (None, Err(io::Error::other("the disk engine gave up"))),
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({})", self.mode_name())
    }
}

/// The text is not `auto`, `uring`, `threads` or `buffered`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown I/O mode {0:?} (known: auto, uring, threads, buffered)")]
pub struct UnknownIoMode(String);

impl FromStr for IoMode {
    type Err = UnknownIoMode;

    fn from_str(text: &str) -> Result<Self, UnknownIoMode> {
        [IoMode::Auto, IoMode::Uring, IoMode::Threads, IoMode::Buffered]
            .into_iter()
            .find(|mode| mode.to_string() == text)
            .ok_or_else(|| UnknownIoMode(text.to_owned()))
    }
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoMode::Auto => "auto",
            IoMode::Uring => "uring",
            IoMode::Threads => "threads",
            IoMode::Buffered => "buffered",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From now on io_uring is forbidden to this thread and those that it starts, as many
    /// containers forbid it.
    fn forbid_io_uring() -> io::Result<()> {
        let answer = |value| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: value };
        let mut program = [
            // Load the number of the system call; compare; allow or answer with EPERM.
            libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
            libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_io_uring_setup as u32 },
            answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            answer(libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the filter and its program outlive the calls, which copy them.
        unsafe {
            let filter = &raw const filter;
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, filter) < 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    #[test]
    fn where_io_uring_is_forbidden_threads_write() {
        std::thread::spawn(|| {
            if let Err(error) = forbid_io_uring() {
                eprintln!("skipped: no seccomp here: {error}");
                return;
            }
            let pool = Pool::new(2, 4096);
            assert_eq!(Disk::start(&pool, IoMode::Auto).unwrap().mode_name(), "threads");
            match Disk::start(&pool, IoMode::Uring) {
                Err(DiskError::Uring(error)) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
                other => panic!("{other:?}"),
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn modes_have_one_name_each() {
        for mode in [IoMode::Auto, IoMode::Uring, IoMode::Threads, IoMode::Buffered] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!(
            "direct".parse::<IoMode>().unwrap_err().to_string(),
            "unknown I/O mode \"direct\" (known: auto, uring, threads, buffered)"
        );
    }
}
