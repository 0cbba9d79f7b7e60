//! Disk work that is under way for one transfer.
//!
//! Its futures run within the executor's own task: what they do themselves is little (hand a
//! buffer to the disk, take it back), and a task each would cost more than that.

use std::future::Future;
use std::pin::Pin;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::sink::JobDone;

/// The work that is under way. It goes on only while somebody asks for what has ended; what the
/// disk was given already arrives there all the same.
#[derive(Default)]
pub(super) struct Jobs {
    running: FuturesUnordered<Pin<Box<dyn Future<Output = JobDone> + Send>>>,
}

impl Jobs {
    /// Begin with the next call of [`Jobs::ended`] or [`Jobs::next`].
    pub fn add(&self, job: impl Future<Output = JobDone> + Send + 'static) {
        self.running.push(Box::pin(job));
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// What has ended already; begins what was added.
    pub fn ended(&mut self) -> Option<JobDone> {
        self.running.next().now_or_never().flatten()
    }

    /// Waits for the next one to end; for ever if there is none.
    pub async fn next(&mut self) -> JobDone {
        match self.running.next().await {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    /// Wait for nothing that is under way.
    pub fn forget(&mut self) {
        self.running.clear();
    }
}
