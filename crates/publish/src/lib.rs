//! Publishing datasets: one pass over the bytes makes torrent, Metalink and index; a catalogue and
//! feeds list what a folder has published.
//!
//! [`Content`] lists the files, [`hash`] computes all digests in one pass, and [`Publication`] writes
//! the files that others need to fetch the dataset. [`check_torrent`] and [`check_index`] compare
//! files on the disk with these.

mod catalogue;
mod check;
mod content;
mod hash;
mod index;
mod publish;

pub use catalogue::{Catalogue, CatalogueError, Version, WrittenFile};
pub use check::{CheckError, Checked, WrongFile, check_index, check_torrent};
pub use content::{Content, ContentFile};
pub use hash::{FileHashes, HashError, Hashes, Places, Progress, Wanted, hash};
pub use index::{Index, IndexError, IndexFile};
pub use publish::{Output, Publication, PublishError, Published, UnusablePath};
