//! Pause, resume and cancel.
//!
//! ```text
//! running --pause--> paused --resume--> running
//! running, paused --cancel--> cancelled (for good)
//! ```
//!
//! A pause stops the active transfers in good order: durable data stays, with its journal. When the job
//! is resumed, each transfer starts again and resumes from its journal.

use std::sync::Arc;

use swath_transfer::observe::{Observer, Summary};
use swath_transfer::{Destination, Engine, GetError, Request, Stop};
use tokio::sync::watch;

/// Pauses, resumes and cancels a job; clones control the same one.
#[derive(Clone, Debug)]
pub struct Control {
    stop: Stop,
    paused: watch::Sender<bool>,
}

impl Default for Control {
    fn default() -> Control {
        Control { stop: Stop::default(), paused: watch::Sender::new(false) }
    }
}

impl From<Stop> for Control {
    /// Returns a control that `stop` cancels too.
    fn from(stop: Stop) -> Control {
        Control { stop, ..Control::default() }
    }
}

impl Control {
    /// Pauses the job and keeps the received data. Output to a stream is not paused, because it cannot be
    /// resumed.
    pub fn pause(&self) {
        self.paused.send_replace(true);
    }

    /// Resumes the job.
    pub fn resume(&self) {
        self.paused.send_replace(false);
    }

    /// Cancels the job; durable data is kept.
    pub fn cancel(&self) {
        self.stop.set();
    }

    /// Whether the job is paused.
    pub fn is_paused(&self) -> bool {
        *self.paused.borrow()
    }

    /// Whether the job was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.stop.is_set()
    }

    /// Returns what is set when the job is cancelled.
    pub(crate) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Waits until the job is cancelled.
    pub async fn cancelled(&self) {
        self.stop.wait().await;
    }

    /// After a transfer was stopped: waits while the job is paused, and returns whether it continues.
    pub(crate) async fn goes_on(&self) -> bool {
        let mut paused = self.paused.subscribe();
        tokio::select! {
            biased;
            () = self.stop.wait() => false,
            // `self` holds the sender, so this does not fail.
            _ = paused.wait_for(|paused| !paused) => true,
        }
    }

    /// Runs a transfer, and sets its `stop` on pause and on cancel.
    pub(crate) async fn until_paused<T>(
        &self,
        stop: &Stop,
        transfer: impl Future<Output = T>,
    ) -> T {
        let mut paused = self.paused.subscribe();
        let mut transfer = std::pin::pin!(transfer);
        tokio::select! {
            biased;
            ended = &mut transfer => return ended,
            () = self.stop.wait() => {}
            _ = paused.wait_for(|paused| *paused) => {}
        }
        stop.set();
        transfer.await
    }

    /// Fetches one file; a pause interrupts it.
    pub(crate) async fn fetch(
        &self,
        engine: &Engine,
        mut request: Request,
        observer: &mut dyn Observer,
    ) -> Result<Summary, GetError> {
        loop {
            let Some(again) = once_more(&request) else {
                return engine.get_observed(request, observer, &self.stop).await;
            };
            let stop = Stop::default();
            let fetched = engine.get_observed(request, observer, &stop);
            match self.until_paused(&stop, fetched).await {
                Err(GetError::Stopped) if self.goes_on().await => {
                    request = Request { resume: true, ..again };
                }
                ended => return ended,
            }
        }
    }
}

/// Returns the same request again, if it can be resumed.
fn once_more(request: &Request) -> Option<Request> {
    let mut again = match &request.destination {
        Destination::File(path) => Request::to_file(path),
        Destination::Files { folder, files } => Request::to_files(folder, Arc::clone(files)),
        _ => return None,
    };
    again.mirrors.clone_from(&request.mirrors);
    again.sources.clone_from(&request.sources);
    again.discovery.clone_from(&request.discovery);
    again.digests.clone_from(&request.digests);
    again.told_digests.clone_from(&request.told_digests);
    again.pieces.clone_from(&request.pieces);
    again.beneath.clone_from(&request.beneath);
    again.plan.clone_from(&request.plan);
    Some(Request {
        told_by: request.told_by,
        size_bytes: request.size_bytes,
        modified: request.modified,
        overwrite: request.overwrite,
        ask_if_present: request.ask_if_present,
        require_digest: request.require_digest,
        resume: request.resume,
        sparse: request.sparse,
        discover: request.discover,
        metalinks: request.metalinks,
        refuses_folders: request.refuses_folders,
        stall_s: request.stall_s,
        ..again
    })
}
