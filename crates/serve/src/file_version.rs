//! Tells one content of a file from another.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use swath_model::index::Mtime;

/// What tells one content of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    pub size_bytes: u64,
    pub mtime: Mtime,
    pub ctime: (i64, i64),
    /// Device and inode.
    pub id: (u64, u64),
}

impl From<&Metadata> for FileVersion {
    fn from(found: &Metadata) -> FileVersion {
        let nanoseconds = u32::try_from(found.mtime_nsec()).unwrap_or(0);
        FileVersion {
            size_bytes: found.len(),
            mtime: Mtime { seconds: found.mtime(), nanoseconds },
            ctime: (found.ctime(), found.ctime_nsec()),
            id: (found.dev(), found.ino()),
        }
    }
}
