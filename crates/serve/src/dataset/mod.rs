//! Folders as datasets: walks, and the virtual files that they describe.

mod parts;
mod reader;
mod walks;
mod whole;

pub(crate) use parts::{Form, Parts};
pub(crate) use reader::{GROUP_HASH_BYTES, Sealed};
pub(crate) use walks::{Progress, Walk, WalkId, Walks};
pub(crate) use whole::WholeParts;
