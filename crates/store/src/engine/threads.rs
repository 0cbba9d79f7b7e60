//! Direct I/O by a few threads with `pwrite` and `pread`, if io_uring is forbidden or missing.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::Job;
use crate::stats::Meter;

/// The threads and their queue. Dropping it ends them after the queued jobs.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    /// The jobs, and whether the threads end when there are none.
    queue: Mutex<(VecDeque<Job>, bool)>,
    changed: Condvar,
    meter: Arc<Meter>,
}

impl Threads {
    /// Starts up to `count` threads, as the system allows; fails if it allows none.
    pub(crate) fn start(count: usize, meter: Arc<Meter>) -> io::Result<Threads> {
        let shared = Arc::new(Shared {
            queue: Mutex::new((VecDeque::new(), false)),
            changed: Condvar::new(),
            meter,
        });
        let mut threads = Threads { shared, threads: Vec::new() };
        for _ in 0..count.max(1) {
            let shared = Arc::clone(&threads.shared);
            let thread =
                std::thread::Builder::new().name("swath-write".into()).spawn(move || shared.work());
            match thread {
                Ok(thread) => threads.threads.push(thread),
                Err(error) if threads.threads.is_empty() => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, count = threads.threads.len(), "fewer disk threads");
                    break;
                }
            }
        }
        Ok(threads)
    }

    pub(crate) fn submit(&self, job: Job) {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).0.push_back(job);
        self.shared.changed.notify_one();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(mut job) = queue.0.pop_front() {
                drop(queue);
                let fd = job.file.direct_fd();
                let outcome = job.run(fd);
                job.finish(outcome, &self.meter);
                queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if queue.1 {
                return;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
