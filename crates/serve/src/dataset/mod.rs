//! Folders as datasets: walks, and the virtual files that they describe.

mod parts;
mod reader;
mod walks;

pub(crate) use parts::{Form, Parts, WHOLE_PARTS};
pub(crate) use reader::{SEAL_BYTES, Sealed};
pub(crate) use walks::{Walk, WalkId, Walks};
