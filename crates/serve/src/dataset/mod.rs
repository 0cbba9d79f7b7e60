//! Folders as datasets: walks, and the virtual files that they describe.

mod parts;
mod reader;
mod walks;

pub(crate) use parts::{FURTHER_PARTS, Form, Parts};
pub(crate) use reader::{SEAL_BYTES, Sealed};
pub(crate) use walks::{Walk, WalkId, Walks};
