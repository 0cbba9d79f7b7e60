//! Extended attributes of received entries.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use swath_model::index::{Kind, Xattrs};

use super::further::open_for_reading;
use super::{PartialError, PartialTree, lock};
use crate::tree::folder_cursor::{Enter, FolderCursor, split};
use crate::tree::xattrs::{self, XattrLoss};

impl PartialTree {
    /// Sets the attributes of files in the partial folder, except those with these numbers
    /// (ascending). All files are there.
    pub(super) fn set_xattrs(&self, without: &[u64]) -> Result<(), PartialError> {
        if !self.preserve.xattrs {
            return Ok(());
        }
        // Files of an earlier run may have attributes that have since been removed.
        let is_fresh = self.had.is_empty();
        let mut folders = FolderCursor::new(&self.root, Enter::Open);
        let index = self.index();
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            self.go_on()?;
            let is_here = matches!(item.entry.kind, Kind::File { .. })
                && !self.unchanged.has(item.number)
                && without.binary_search(&item.number).is_err();
            if !is_here || (is_fresh && item.entry.xattrs == Xattrs::None) {
                continue;
            }
            let (above, name) = split(item.path);
            let folder = folders.folder(above);
            let folder = folder.map_err(|source| self.failed("open", item.path, source))?;
            self.put_xattrs_at(item.number, folder, name, &item.entry.xattrs);
        }
        Ok(())
    }

    /// Sets an entry's attributes on the file of this name.
    pub(super) fn put_xattrs_at(
        &self,
        number: u64,
        folder: BorrowedFd<'_>,
        name: &[u8],
        wanted: &Xattrs<'_>,
    ) {
        if self.preserve.xattrs {
            match open(folder, name) {
                Ok(file) => self.put_xattrs(number, file, wanted),
                Err(error) => self.note_loss(number, XattrLoss::of(error)),
            }
        }
    }

    /// Sets an entry's attributes on an open file. Failures are recorded; the rest goes on.
    pub(super) fn put_xattrs(&self, number: u64, file: impl AsFd, wanted: &Xattrs<'_>) {
        if !self.preserve.xattrs {
            return;
        }
        let put = match wanted {
            Xattrs::Unknown => Err(XattrLoss::Unknown),
            known => xattrs::write(file, known).map_err(XattrLoss::of),
        };
        if let Err(loss) = put {
            self.note_loss(number, loss);
        }
    }

    /// Returns the failures, by the numbers of entries.
    pub(super) fn xattr_losses(&self) -> Vec<(u64, XattrLoss)> {
        // Keep them: if the destination is made meanwhile, names are given once more.
        let mut all = lock(&self.xattr_losses).clone();
        all.sort_unstable();
        all.dedup_by_key(|&mut (number, _)| number);
        all
    }

    fn note_loss(&self, number: u64, loss: XattrLoss) {
        lock(&self.xattr_losses).push((number, loss));
    }
}

fn open(folder: BorrowedFd<'_>, name: &[u8]) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened: std::io::Result<OwnedFd> = open_for_reading(folder, name, flags);
    opened.map(File::from).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
