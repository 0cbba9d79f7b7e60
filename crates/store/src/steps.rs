//! The steps on which durability depends, behind one trait.
//!
//! Data, journal, name and folder become durable in a fixed order. Every step of that order goes
//! through [`Steps`], so that tests can record it, let single steps fail and cut the power between
//! any two of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::folder_sync::FolderSync;
use crate::sys;

/// The operations that must happen in the right order.
pub(crate) trait Steps: Send + Sync {
    /// Makes all data written to the part file durable, with what is needed to read it back.
    fn sync_data(&self, part: &File) -> io::Result<()>;
    /// Writes `bytes` at offset `at` of the journal.
    fn append_journal(&self, journal: &File, at_bytes: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the journal durable.
    fn sync_journal(&self, journal: &File) -> io::Result<()>;
    /// Cuts the journal or the part file to `size_bytes`.
    fn set_size(&self, file: &File, size_bytes: u64) -> io::Result<()>;
    /// Gives a file another name in its folder; without `replace`, fails if that name is taken.
    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()>;
    /// Makes the names in `folder` durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Removes a name.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The steps as the operating system offers them.
pub(crate) struct SystemSteps {
    folders: FolderSync,
}

impl SystemSteps {
    pub(crate) fn new() -> Self {
        Self { folders: FolderSync::default() }
    }
}

impl Steps for SystemSteps {
    fn sync_data(&self, part: &File) -> io::Result<()> {
        sys::sync_data(part)
    }

    fn append_journal(&self, journal: &File, at_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        journal.write_all_at(bytes, at_bytes)
    }

    fn sync_journal(&self, journal: &File) -> io::Result<()> {
        self.sync_data(journal)
    }

    fn set_size(&self, file: &File, size_bytes: u64) -> io::Result<()> {
        file.set_len(size_bytes)
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        if replace { std::fs::rename(from, to) } else { sys::rename_if_free(from, to) }
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.folders.sync(folder)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}
