//! Detects whether a connection with several answers under way is stalled: its client takes nothing
//! of what it requested.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::connection::STALLED;

/// Whether anything moves on a connection: we are at work for it, or its client takes or sends
/// something.
pub(super) struct Activity {
    /// Answers that we are at work on.
    working: AtomicUsize,
    last: Mutex<Instant>,
}

/// We are at work on an answer.
pub(super) struct Working<'a>(&'a Activity);

/// In the midst of our work its client is waited for.
pub(super) struct Waiting<'a>(&'a Activity);

impl Activity {
    /// Something moves now.
    pub fn new() -> Activity {
        Activity { working: AtomicUsize::new(0), last: Mutex::new(Instant::now()) }
    }

    /// Its client has taken or sent something.
    pub fn note(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// From now on we are at work on one more answer.
    pub fn working(&self) -> Working<'_> {
        self.working.fetch_add(1, Ordering::Relaxed);
        Working(self)
    }

    /// From now on we wait for the client in the midst of that.
    pub fn waiting(&self) -> Waiting<'_> {
        self.working.fetch_sub(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Nothing has moved for so long that it counts as silence.
    pub fn is_idle(&self) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.working.load(Ordering::Relaxed) == 0 && last.elapsed() >= STALLED
    }

    /// Resolves when that is another way.
    pub async fn change(&self, was_idle: bool) {
        while self.is_idle() == was_idle {
            sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::Relaxed);
        self.0.note();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.working.fetch_add(1, Ordering::Relaxed);
        self.0.note();
    }
}

/// It is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(500);
