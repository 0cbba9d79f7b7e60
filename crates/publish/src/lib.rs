//! Publishing datasets: one pass over the bytes makes torrent, Metalink and index.
//!
//! [`Content`] lists the files, [`hash`] computes all digests in one pass, and [`Publication`] writes
//! the files that others need to fetch the dataset.

mod content;
mod hash;
mod index;
mod publish;

pub use content::{Content, ContentFile};
pub use hash::{FileHashes, HashError, Hashes, Places, Progress, Wanted, hash};
pub use index::{Index, IndexError, IndexFile};
pub use publish::{Output, Publication, PublishError, Published};
