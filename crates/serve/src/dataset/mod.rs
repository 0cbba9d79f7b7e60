//! Folders as datasets: walks, and the virtual files that they describe.

mod reader;
mod walks;

pub(crate) use reader::{Reader, SEAL_BYTES, Sealed};
pub(crate) use walks::{Walk, WalkId, Walks};
