//! The local disk: direct I/O, the journal, atomic final names.
//!
//! A [`Disk`] moves pool buffers to and from the device. A [`Target`] is one file being written:
//! its bytes go to `NAME.swath.part`, what is known of them to the journal `NAME.swath`, and only
//! [`Target::finish`] gives the final name. Always holds: the journal never vouches for a byte
//! that was not synced before; what is recovered from it is the effect of a prefix of what was
//! committed; one target is written by one process at a time.
//!
//! Which bytes are right is for others to say; this crate compares nothing with any digest.

mod commit;
mod data_file;
mod disk;
mod engine;
mod finish;
mod folder_sync;
mod identity;
mod journal;
mod names;
mod open;
mod stats;
mod steps;
mod sys;
mod target;
mod workers;

#[cfg(test)]
mod power_tests;

pub use commit::CommitError;
pub use disk::{Disk, DiskError, DiskOptions, IoMode, UnknownIoMode};
pub use finish::FinishError;
pub use identity::Identity;
pub use journal::{HashState, Record};
pub use open::{OpenError, Resumed, TargetSpec};
pub use stats::DiskStats;
pub use target::{ReadError, Target, WriteError};
