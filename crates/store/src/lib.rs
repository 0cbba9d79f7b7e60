//! The local disk: direct I/O, the journal, atomic final names.
//!
//! A [`Disk`] moves pool buffers to and from the device. A [`Target`] is one file being written:
//! its bytes go to `NAME.swath.part`, facts about them to the journal `NAME.swath`, and only
//! [`Target::finish`] gives the final name. Invariants: the journal never vouches for a byte that
//! was not synced before. Recovery yields the effect of a prefix of the committed records. Only one
//! process at a time writes a target.
//!
//! This crate does not judge bytes: it compares nothing with any digest.
//!
//! ```
//! use swath_model::{Pool, Range};
//! use swath_store::{Disk, IoMode, Record, Target, TargetSpec};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let pool = Pool::new(8, 512 << 10);
//! let disk = Disk::start(&pool, IoMode::Auto)?;
//! let path = folder.path().join("data.bin");
//! let spec = TargetSpec { path, size_bytes: Some(5), resume: true, ..TargetSpec::default() };
//! let (target, resumed) = Target::open(&disk, spec).await?;
//! assert_eq!(resumed.durable.count(), 0, "nothing left from an earlier run");
//!
//! let mut buffer = pool.take().await;
//! buffer.push(b"hello");
//! let buffer = target.write(0, buffer).await?;
//! assert_eq!(&buffer[..], b"hello", "the buffer comes back, for hashing");
//!
//! target.commit(vec![Record::Durable { range: Range::new(0, 5), source: 0 }]).await?;
//! let path = target.finish(None).await?;
//! assert_eq!(std::fs::read(path)?, b"hello");
//! # Ok(())
//! # }
//! ```

mod beneath;
mod bits;
pub mod cache;
mod commit;
mod data_file;
pub mod depot;
mod disk;
mod engine;
mod file_kind;
mod finish;
mod folder_sync;
mod hashed_file;
mod identity;
mod journal;
pub mod memory;
mod names;
mod open;
mod past_cache;
mod place;
pub mod simulated;
mod stats;
mod steps;
mod sys;
mod target;
mod topology;
pub mod tree;
mod workers;

#[cfg(test)]
mod power_tests;

pub use commit::CommitError;
pub use disk::{Disk, DiskError, DiskOptions, IoMode, UnknownIoMode};
pub use file_kind::FileKind;
pub use finish::FinishError;
pub use identity::{Identity, Verdict};
pub use journal::{HashState, Record};
pub use names::is_reserved;
pub use open::{OpenError, Resumed, TargetSpec};
pub use past_cache::{Direct, PastCache, Reads, Through, cached_bytes};
pub use place::{Left, discard_left, kept_bytes, look};
pub use stats::DiskStats;
pub use sys::{prefer_huge_pages, read_ahead, sleeps, tells_no_sizes};
pub use target::{ReadError, Target, WriteError};
pub use topology::{BadCpus, Cpus, Pin, Topology};

/// Entry points for fuzzing; not part of the interface.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Parses `bytes` as the journal of an allocation.
    pub fn lease(bytes: &[u8]) {
        crate::depot::fuzz_lease(bytes);
    }

    /// Parses `bytes` as the head of a cached file.
    pub fn cache_head(bytes: &[u8]) {
        crate::cache::fuzz_head(bytes);
    }
}
