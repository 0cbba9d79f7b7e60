//! What can go wrong while a laboratory is built or used.

use std::io;
use std::path::PathBuf;

/// Why a laboratory could not be built or changed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Namespaces and TUN devices need the rights of root.
    #[error("the network laboratory needs root (network namespaces and TUN devices)")]
    NeedsRoot,
    /// The kernel refused one step of the construction.
    #[error("could not {doing}: {cause}")]
    System {
        /// The step, as a phrase that follows "could not".
        doing: String,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// A link specification that cannot be emulated.
    #[error("link {link}: {reason}")]
    BadLink {
        /// Position of the link, from 1 as in `URL1`.
        link: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A site that cannot be emulated.
    #[error("site '{site}': {reason}")]
    BadSite {
        /// Its name.
        site: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A server program that the star needs is not installed.
    #[error("{program} is not installed")]
    ServerMissing {
        /// The program looked for.
        program: &'static str,
    },
    /// A server started and did not answer in time; its own words follow.
    #[error("{program} did not come up: {said}")]
    ServerFailed {
        /// The program started.
        program: &'static str,
        /// The end of what it wrote to standard error.
        said: String,
    },
    /// The folder to serve is not there.
    #[error("cannot serve {}: not a readable folder", .0.display())]
    NothingToServe(PathBuf),
}

impl LabError {
    /// Wraps an operating-system error with the step that met it.
    pub(crate) fn system(doing: impl Into<String>, cause: io::Error) -> Self {
        LabError::System { doing: doing.into(), cause }
    }

    /// Wraps the calling thread's `errno`.
    pub(crate) fn last_os(doing: impl Into<String>) -> Self {
        Self::system(doing, io::Error::last_os_error())
    }
}
