//! A tree of files: walked into the entries of an index.

mod differ;
mod list;
mod names;
mod root;
mod stage;
mod stat;
mod walk;
mod work;

pub use differ::{Change, differences, remove};
pub use list::Listed;
pub use root::Root;
pub use stage::{Finished, Preserve, Stage, StageError};
pub use walk::{Unnameable, WalkError, WalkOptions, walk};
