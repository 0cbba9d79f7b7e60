//! Work that a few threads do ahead, or the caller that needs its result first.
//!
//! A caller that takes a result nobody has started on does the work itself. So nothing waits in a
//! queue, and everything works without threads too.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type Work<T> = Box<dyn FnOnce() -> T + Send>;

enum State<T> {
    Queued(Work<T>),
    Running,
    Done(T),
    Taken,
}

struct Slot<T> {
    /// With whether a caller waits for the result.
    state: Mutex<(State<T>, bool)>,
    done: Condvar,
}

/// The result of some work, to be taken once.
pub(super) struct Ticket<T> {
    slot: Arc<Slot<T>>,
}

/// Work to do, in order.
pub(super) struct Queue<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    waiting: Mutex<Waiting<T>>,
    news: Condvar,
}

struct Waiting<T> {
    slots: VecDeque<Arc<Slot<T>>>,
    /// Sleeping threads: waking none would still cost a system call.
    idle: usize,
    is_over: bool,
}

impl<T: Send + 'static> Queue<T> {
    /// Returns a queue with up to `threads` threads, which end when it is dropped.
    pub fn new(threads: usize) -> Queue<T> {
        let waiting = Waiting { slots: VecDeque::new(), idle: 0, is_over: false };
        let waiting = Mutex::new(waiting);
        let inner = Arc::new(Inner { waiting, news: Condvar::new() });
        for number in 0..threads {
            let inner = Arc::clone(&inner);
            let thread = std::thread::Builder::new().name(format!("swath-walk-{number}"));
            if thread.spawn(move || inner.work()).is_err() {
                break;
            }
        }
        Queue { inner }
    }

    /// Adds work; wakes sleeping threads once `waiting_min` pieces wait.
    pub fn add(&self, work: impl FnOnce() -> T + Send + 'static, waiting_min: usize) -> Ticket<T> {
        let state = Mutex::new((State::Queued(Box::new(work)), false));
        let slot = Arc::new(Slot { state, done: Condvar::new() });
        let mut waiting = lock(&self.inner.waiting);
        waiting.slots.push_back(Arc::clone(&slot));
        let wakes = waiting.idle > 0 && waiting.slots.len() >= waiting_min;
        drop(waiting);
        if wakes {
            self.inner.news.notify_one();
        }
        Ticket { slot }
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.inner.waiting);
        waiting.slots.clear();
        waiting.is_over = true;
        self.inner.news.notify_all();
    }
}

impl<T> Inner<T> {
    fn work(&self) {
        loop {
            let slot = {
                let mut waiting = lock(&self.waiting);
                loop {
                    if waiting.is_over {
                        return;
                    }
                    if let Some(slot) = waiting.slots.pop_front() {
                        break slot;
                    }
                    waiting.idle += 1;
                    waiting = self.news.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                    waiting.idle -= 1;
                }
            };
            slot.run();
        }
    }
}

impl<T> Slot<T> {
    /// Does the work unless another thread has started it.
    fn run(&self) {
        let work = {
            let mut state = lock(&self.state);
            match std::mem::replace(&mut state.0, State::Running) {
                State::Queued(work) => work,
                other => {
                    state.0 = other;
                    return;
                }
            }
        };
        let result = work();
        let mut state = lock(&self.state);
        state.0 = State::Done(result);
        let is_wanted = state.1;
        drop(state);
        if is_wanted {
            self.done.notify_all();
        }
    }
}

impl<T> Ticket<T> {
    /// Returns the result; does the work if no thread has started it.
    pub fn take(self) -> Option<T> {
        self.slot.run();
        let mut state = lock(&self.slot.state);
        loop {
            match std::mem::replace(&mut state.0, State::Taken) {
                State::Done(result) => return Some(result),
                State::Taken => return None,
                other => *state = (other, true),
            }
            state = self.slot.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
