//! The seam for whoever finds sources while a transfer runs: a swarm, or another list that changes.

use std::fmt;
use std::io;
use std::sync::Arc;

use swath_model::Range;
use swath_source::{Pending, Source};
use tokio::sync::mpsc;

/// Finds sources of one dataset, and hears what a transfer has of it.
pub trait Discovery: fmt::Debug + Send + Sync {
    /// Returns the sources that are known, then those that are found. Its end means that there will be no
    /// more. A transfer that starts again asks again.
    fn sources(&self) -> mpsc::Receiver<Arc<dyn Source>>;

    /// The transfer begins with no verified bytes; `content` reads those that it verifies from now on.
    fn begun(&self, content: Arc<dyn VerifiedContent>);

    /// These bytes are verified, and stay so.
    fn verified(&self, range: Range);
}

/// The verified bytes of a transfer that runs, or has ended well.
pub trait VerifiedContent: Send + Sync {
    /// Reads verified bytes.
    ///
    /// # Errors
    /// They cannot be read, or the transfer has ended and moved them.
    fn read(&self, range: Range) -> Pending<'_, io::Result<Vec<u8>>>;
}
