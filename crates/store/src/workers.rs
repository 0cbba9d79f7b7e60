//! Threads for blocking work: opening, syncing, renaming, ordinary writes.
//!
//! Threads start when work waits and all others are busy, up to a limit, and end after a while
//! without work, so a short run starts few. Independent of any runtime: the answer arrives through
//! a future.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

type Task = Box<dyn FnOnce() + Send>;

/// A pool of threads; clones share it. Its threads end when the last clone is dropped and the
/// queue is empty.
#[derive(Clone)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
    _alive: Arc<Alive>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    threads_max: usize,
}

struct State {
    queue: VecDeque<Task>,
    idle: usize,
    threads: usize,
    closing: bool,
}

/// Dropped with the last handle.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.lock().closing = true;
        self.0.changed.notify_all();
    }
}

/// The task ended without an answer: it panicked.
#[derive(Debug, thiserror::Error)]
#[error("a disk worker failed")]
pub(crate) struct WorkerGone;

impl Workers {
    /// Returns a pool of up to `threads_max` threads; without any, callers do the work.
    pub(crate) fn new(threads_max: usize) -> Workers {
        let state = State { queue: VecDeque::new(), idle: 0, threads: 0, closing: false };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), threads_max });
        Workers { _alive: Arc::new(Alive(Arc::clone(&shared))), shared }
    }

    /// Runs `task` on a thread of the pool, even if the future is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkerGone> {
        let (answer, answered) = oneshot::channel();
        self.start(move || {
            let _ = answer.send(task());
        });
        answered.await.map_err(|_| WorkerGone)
    }

    /// Runs `task` on a thread of the pool without waiting for it.
    pub(crate) fn start(&self, task: impl FnOnce() + Send + 'static) {
        self.start_boxed(Box::new(task));
    }

    fn start_boxed(&self, task: Task) {
        if self.shared.threads_max == 0 {
            return task();
        }
        let mut state = self.shared.lock();
        state.queue.push_back(task);
        if state.idle >= state.queue.len() || state.threads >= self.shared.threads_max {
            drop(state);
            self.shared.changed.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        if std::thread::Builder::new()
            .name("swath-disk".into())
            .spawn(move || shared.work())
            .is_err()
        {
            let mut state = self.shared.lock();
            state.threads -= 1;
            if state.threads == 0 {
                // No other thread will ever run these, so the caller must, however long it takes.
                let tasks = std::mem::take(&mut state.queue);
                drop(state);
                tasks.into_iter().for_each(|task| task());
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.queue.pop_front() {
                drop(state);
                // A panicking task must not end its thread; the caller gets `WorkerGone`.
                let _ = catch_unwind(AssertUnwindSafe(task));
                state = self.lock();
                continue;
            }
            if state.closing {
                break;
            }
            state.idle += 1;
            let (back, waited) =
                self.changed.wait_timeout(state, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

/// Longer than the pause between two commits, so that a transfer keeps its threads.
const IDLE_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn runs_everything_and_survives_a_panic() {
        let workers = Workers::new(2);
        assert!(workers.run(|| panic!("on purpose")).await.is_err());
        let mut answers = Vec::new();
        for i in 0..100 {
            answers.push(workers.run(move || i * 2));
        }
        for (i, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.await.unwrap(), i * 2);
        }
    }
}
