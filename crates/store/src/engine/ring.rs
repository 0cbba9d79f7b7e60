//! Direct I/O through one io_uring for all files.
//!
//! A thread owns the ring. Jobs reach it through a queue and an event descriptor that the ring
//! itself watches; at most `depth` are with the kernel at a time. Each group of the pool's slots is
//! registered when it is first written from. So only used memory gets pinned, and if the system
//! limits pinned memory, some groups stay unregistered.
//!
//! The kernel gives jobs that it cannot do at once to its own workers. If it may not start any
//! (`ulimit -u`, a container's limit of processes), it rejects the job. From then on this and all
//! later jobs are done by threads, or by the ring's own thread if no other can be started.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use swath_model::Pool;
use swath_model::pool::SPAN_MAX;

use super::{Direction, Job, Threads};
use crate::stats::Meter;

/// The ring's thread and its queue. Dropping it waits for all jobs.
pub(crate) struct Ring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// The thread sleeps or is about to: a new job must wake it.
    asleep: AtomicBool,
    /// The kernel rejected a job; all jobs are done without it since.
    left: AtomicBool,
    wake: OwnedFd,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closing: bool,
}

impl Ring {
    /// Starts the thread; fails if the kernel lacks or forbids io_uring.
    ///
    /// `threads` threads replace it if the kernel cannot run jobs.
    pub(crate) fn start(
        pool: &Pool,
        depth: usize,
        threads: usize,
        meter: Arc<Meter>,
    ) -> io::Result<Ring> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            asleep: AtomicBool::new(false),
            left: AtomicBool::new(false),
            wake,
        });
        let (started, start) = std::sync::mpsc::channel();
        let (for_thread, pool) = (Arc::clone(&shared), pool.clone());
        let thread = std::thread::Builder::new().name("swath-ring".into()).spawn(move || {
            // The ring is made by the thread that uses it, which lets the kernel skip locks.
            match new_ring(depth as u32) {
                Ok(ring) => {
                    let registered = Registered::new(&ring, pool);
                    let _ = started.send(Ok(()));
                    Loop {
                        ring,
                        depth,
                        shared: for_thread,
                        meter,
                        registered,
                        jobs: Vec::new(),
                        free: Vec::new(),
                        threads,
                        instead: None,
                    }
                    .run();
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        start.recv().map_err(|_| io::Error::other("the ring's thread ended"))??;
        Ok(Ring { shared, thread: Some(thread) })
    }

    pub(crate) fn submit(&self, job: Job) {
        self.shared.lock().jobs.push_back(job);
        self.shared.wake();
    }

    /// Returns whether jobs are done without the kernel's ring by now.
    pub(crate) fn is_left(&self) -> bool {
        self.shared.left.load(Ordering::Relaxed)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets the event descriptor.
    fn clear_wake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
    }

    /// Waits until the event descriptor is written to.
    fn sleep(&self) {
        // After a signal the caller just looks again.
        let _ = poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], None);
        self.clear_wake();
    }

    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

fn new_ring(depth: u32) -> io::Result<IoUring> {
    // One more entry to watch the event descriptor.
    let entries = (depth + 1).next_power_of_two();
    let mut lean = IoUring::builder();
    lean.setup_single_issuer().setup_defer_taskrun();
    // Unknown flags before Linux 6.1.
    lean.build(entries).or_else(|_| IoUring::new(entries))
}

/// The groups of slots registered with the kernel, each as one buffer.
struct Registered {
    pool: Pool,
    known: Vec<bool>,
    /// Whether the kernel refused one, so that no more are registered.
    full: bool,
}

impl Registered {
    fn new(ring: &IoUring, pool: Pool) -> Registered {
        let count = pool.slots().div_ceil(SPAN_MAX).min(REGISTERED_MAX);
        let full = ring.submitter().register_buffers_sparse(count as u32).is_err();
        Registered { pool, known: vec![false; count], full }
    }

    /// Returns the kernel's index of a job's buffer, and registers it if needed.
    fn index(&mut self, ring: &IoUring, job: &mut Job) -> Option<u16> {
        let group = job.buffer.group();
        let known = self.known.get_mut(group)?;
        let (region, region_bytes) = self.pool.region();
        let group_bytes = SPAN_MAX * self.pool.slot_bytes();
        let start = region.wrapping_add(group * group_bytes);
        let bytes = group_bytes.min(region_bytes - group * group_bytes);
        // A buffer of another pool has a group too, but lies elsewhere.
        let part = job.buffer.whole().as_ptr_range();
        if part.start < start.cast_const() || part.end > start.wrapping_add(bytes).cast_const() {
            return None;
        }
        if !*known {
            if self.full {
                return None;
            }
            let part = libc::iovec { iov_base: start.cast(), iov_len: bytes };
            // SAFETY: the memory belongs to `self.pool`, which lives as long as the ring does.
            if unsafe { ring.submitter().register_buffers_update(group as u32, &[part], None) }
                .is_err()
            {
                self.full = true;
                return None;
            }
            *known = true;
        }
        u16::try_from(group).ok()
    }
}

/// The state of the thread.
struct Loop {
    // Declared before the pool in `registered`, as the ring must be dropped before its memory.
    ring: IoUring,
    depth: usize,
    shared: Arc<Shared>,
    meter: Arc<Meter>,
    registered: Registered,
    /// Jobs with the kernel, by the number that the kernel returns.
    jobs: Vec<Option<Job>>,
    free: Vec<usize>,
    /// Number of threads that replace the ring if needed.
    threads: usize,
    instead: Option<Instead>,
}

/// Runs the jobs after the kernel rejected one.
enum Instead {
    Threads(Threads),
    /// The ring's own thread: no other thread could be started.
    Here,
}

impl Loop {
    fn run(mut self) {
        let mut listening = false;
        let mut in_flight = 0;
        loop {
            let mut closing = false;
            while in_flight < self.depth {
                let next = {
                    let mut queue = self.shared.lock();
                    closing = queue.closing;
                    queue.jobs.pop_front()
                };
                let Some(job) = next else { break };
                if self.instead.is_some() {
                    self.do_without(job);
                } else {
                    self.begin(job);
                    in_flight += 1;
                }
            }
            if closing && in_flight == 0 {
                return;
            }
            if in_flight < self.depth {
                self.shared.asleep.store(true, Ordering::SeqCst);
                let queue = self.shared.lock();
                let more = !queue.jobs.is_empty() || (queue.closing && !closing);
                drop(queue);
                if more {
                    self.shared.asleep.store(false, Ordering::SeqCst);
                    continue;
                }
                if !listening {
                    // Polled, not read by the kernel, which so never writes to our memory.
                    let fd = types::Fd(self.shared.wake.as_raw_fd());
                    let watch =
                        opcode::PollAdd::new(fd, libc::POLLIN as u32).build().user_data(WAKE);
                    self.push(&watch);
                    listening = true;
                }
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                // Too many waiting completions, or a signal: look at them and continue.
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                    ) => {}
                Err(error) => return self.give_up(error),
            }
            self.shared.asleep.store(false, Ordering::SeqCst);
            let arrived: Vec<(u64, i32)> = self
                .ring
                .completion()
                .map(|e: cqueue::Entry| (e.user_data(), e.result()))
                .collect();
            for (number, result) in arrived {
                if number == WAKE {
                    listening = false;
                    self.shared.clear_wake();
                } else if self.end(number as usize, result) {
                    in_flight -= 1;
                }
            }
        }
    }

    /// Hands a new job to the kernel.
    fn begin(&mut self, job: Job) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() - 1
        });
        self.issue(number, job);
    }

    fn issue(&mut self, number: usize, mut job: Job) {
        let fd = types::Fd(job.file.direct_fd());
        let index = self.registered.index(&self.ring, &mut job);
        let offset = job.offset + job.done as u64;
        let (done, left) = (job.done, job.bytes - job.done);
        let pointer = job.buffer.whole()[done..done + left].as_mut_ptr();
        let left = left as u32;
        let entry = match (job.direction, index) {
            (Direction::Write, Some(i)) => {
                opcode::WriteFixed::new(fd, pointer, left, i).offset(offset).build()
            }
            (Direction::Write, None) => {
                opcode::Write::new(fd, pointer, left).offset(offset).build()
            }
            (Direction::Read, Some(i)) => {
                opcode::ReadFixed::new(fd, pointer, left, i).offset(offset).build()
            }
            (Direction::Read, None) => opcode::Read::new(fd, pointer, left).offset(offset).build(),
        };
        self.jobs[number] = Some(job);
        self.push(&entry.user_data(number as u64));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the entry's memory, if it has any, is a buffer owned by a job in `jobs`, kept
            // with its open file until the completion arrives.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // Full: cannot happen with room for `depth + 1`, but submitting makes room anyway.
            let _ = self.ring.submit();
        }
    }

    /// Handles a completion; returns true if its job is over.
    fn end(&mut self, number: usize, result: i32) -> bool {
        let Some(mut job) = self.jobs.get_mut(number).and_then(Option::take) else { return false };
        let outcome = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        if let Err(error) = &outcome
            && is_turned_away(error)
        {
            self.free.push(number);
            self.do_without(job);
            return true;
        }
        match job.moved(outcome) {
            Some(outcome) => {
                job.finish(outcome, &self.meter);
                self.free.push(number);
                true
            }
            None => {
                self.issue(number, job);
                false
            }
        }
    }

    /// Runs a job without the kernel's ring, from where it stands.
    fn do_without(&mut self, mut job: Job) {
        let instead = self.instead.get_or_insert_with(|| {
            self.shared.left.store(true, Ordering::Relaxed);
            match Threads::start(self.threads, Arc::clone(&self.meter)) {
                Ok(threads) => {
                    tracing::info!(
                        "the kernel cannot start workers for io_uring (a limit of processes, as of \
                         ulimit -u?): going on with threads"
                    );
                    Instead::Threads(threads)
                }
                Err(error) => {
                    tracing::info!(
                        %error,
                        "the kernel cannot start workers for io_uring, nor swath threads (a limit \
                         of processes, as of ulimit -u?): one buffer is moved at a time"
                    );
                    Instead::Here
                }
            }
        });
        match instead {
            Instead::Threads(threads) => threads.submit(job),
            Instead::Here => {
                let fd = job.file.direct_fd();
                let outcome = job.run(fd);
                job.finish(outcome, &self.meter);
            }
        }
    }

    /// Handles a failure of the ring itself, which no known kernel shows. Jobs with the kernel stay
    /// there, and their buffers are given up, as nobody can tell when it is done with them. All
    /// other jobs run without the ring, so that the transfer can continue or end in order.
    fn give_up(self, error: io::Error) {
        tracing::error!(%error, "io_uring failed; going on without it");
        let Loop { ring, shared, meter, registered, jobs, instead, .. } = self;
        // Ends after the jobs that it has.
        drop(instead);
        std::mem::forget((ring, registered));
        for Job { direction, file, buffer, answer, turn, .. } in jobs.into_iter().flatten() {
            std::mem::forget((file, buffer, turn));
            meter.end(direction, 0);
            // The caller learns that the engine is gone.
            drop(answer);
        }
        loop {
            let (job, closing) = {
                let mut queue = shared.lock();
                (queue.jobs.pop_front(), queue.closing)
            };
            if let Some(mut job) = job {
                let fd = job.file.direct_fd();
                let outcome = job.run(fd);
                job.finish(outcome, &meter);
                continue;
            }
            if closing {
                return;
            }
            shared.asleep.store(true, Ordering::SeqCst);
            let queue = shared.lock();
            let nothing = queue.jobs.is_empty() && !queue.closing;
            drop(queue);
            if nothing {
                shared.sleep();
            }
        }
    }
}

/// Returns whether the kernel had no means to run a job: nothing was done, and another way may
/// work. Kernels without workers cancel waiting jobs; older ones answer "try again".
fn is_turned_away(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ECANCELED | libc::ENOMEM))
}

/// The number of the event descriptor's watch; job numbers are small.
const WAKE: u64 = u64::MAX;
/// The kernel's limit (`IORING_MAX_REG_BUFFERS`).
const REGISTERED_MAX: usize = 1 << 14;
