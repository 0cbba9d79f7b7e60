//! Makes entries without bytes: links and empty files. Folders are made with their content, and
//! empty folders when all folders get their attributes.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, symlinkat, unlinkat, utimensat};
use rustix::io::Errno;
use swath_model::index::{Item, Kind};

use super::building::{make_file, set_mode, set_times};
use super::{PartialError, PartialTree, refuse_own_name};
use crate::tree::folder_cursor::{Enter, FolderCursor, split};
use crate::tree::root::times;

impl PartialTree {
    /// Makes entries without bytes. The index must be complete and must not hold leftovers of an
    /// unfinished copy.
    pub(super) fn make_skeleton(&self) -> Result<(), PartialError> {
        let mut folders = FolderCursor::new(&self.root, Enter::Make);
        let index = self.index();
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            self.go_on()?;
            refuse_own_name(&item, &self.paths)?;
            let is_bare = match item.entry.kind {
                Kind::File { .. } => item.start == item.end,
                Kind::Symlink(_) => true,
                Kind::Folder | Kind::HardLink(_) | Kind::Absent(_) => false,
            };
            if is_bare && !self.unchanged.has(item.number) {
                self.make(&item, &mut folders)
                    .map_err(|source| self.failed("make", item.path, source))?;
            }
        }
        Ok(())
    }

    fn make(&self, item: &Item<'_>, folders: &mut FolderCursor) -> io::Result<()> {
        let (folder, name) = split(item.path);
        match &item.entry.kind {
            Kind::Symlink(target) => self.make_link(folders.folder(folder)?, name, target, item),
            Kind::File { size_bytes, .. } => {
                let file = make_file(folders.folder(folder)?, name, true)?;
                // The file is a single hole.
                file.set_len(*size_bytes)?;
                set_mode(&file, item.entry.mode, self.preserve, FileType::RegularFile)?;
                set_times(&file, item.entry.mtime, self.preserve)
            }
            Kind::Folder | Kind::HardLink(_) | Kind::Absent(_) => Ok(()),
        }
    }

    fn make_link(
        &self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        target: &[u8],
        item: &Item<'_>,
    ) -> io::Result<()> {
        match symlinkat(target, folder, name) {
            // Left by an earlier run.
            Err(Errno::EXIST) => {
                unlinkat(folder, name, AtFlags::empty())?;
                symlinkat(target, folder, name)?;
            }
            other => other?,
        }
        if self.preserve.times {
            utimensat(folder, name, &times(item.entry.mtime), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}
