//! The end of a copy: makes entries without bytes, and gives final names.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Mode, fchmod, renameat_with, unlinkat};
use rustix::io::Errno;
use swath_model::index::{Kind, Top};

use super::building::{inherited, mode_here, set_times, usual_mode};
use super::settle::InTheWay;
use super::{PartialError, PartialTree};
use crate::names::folder_of;
use crate::tree::folder_cursor::{Enter, FolderCursor, split};
use crate::tree::grant::Deed;
use crate::tree::root::{self, Root};
use crate::tree::xattrs::XattrLoss;

/// The outcome of a copied tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Files that now have their final names.
    pub files: u64,
    /// Entries of another kind that were removed for that.
    pub replaced: u64,
    /// Entries of an earlier copy without their names because we may not write there.
    pub closed: u64,
    /// Numbers of the entries without names, ascending: wrong files, and their further names.
    pub lacking: Vec<u64>,
    /// Numbers of the entries whose extended attributes are not as they should be, ascending, if
    /// attributes were wanted.
    pub xattr_losses: Vec<(u64, XattrLoss)>,
}

impl PartialTree {
    /// Makes entries without bytes and gives everything its final name. Removes the files with
    /// these numbers (ascending) as wrong. The index must be complete.
    ///
    /// # Errors
    /// [`PartialError`]; names given by then stay, and the next run continues.
    pub fn finish(&self, without: &[u64]) -> Result<Finished, PartialError> {
        self.check_names(self.index().entries())?;
        self.make_skeleton()?;
        let without = self.with_further_names(without);
        self.remove_files(&without)?;
        self.set_xattrs(&without)?;
        self.link(&without)?;
        // Names must not appear before their bytes are durable.
        self.sync()?;
        if self.paths.is_new && !self.paths.is_taken()? {
            let finished = self.settle_here(&without)?;
            if self.become_destination()? {
                self.paths.forget();
                return Ok(finished);
            }
        }
        if self.paths.is_new {
            // The destination was made meanwhile.
            let root = self.place.open();
            self.check_conflicts_in(&root.map_err(|source| self.failed("open", b"", source))?)?;
        }
        let mut journal = super::lock(&self.journal);
        if journal.is_none() {
            self.begin_journal(&mut journal)?;
        }
        drop(journal);
        let begun = self.paths.begin_moving(&self.index(), &without);
        begun.map_err(|source| self.failed("write the journal of", b"", source))?;
        let rule = if self.replaces.is_some() { InTheWay::Goes } else { InTheWay::IsAnError };
        self.finish_moving(&without, rule)
    }

    /// Gives everything still in the partial folder its final name.
    pub(super) fn finish_moving(
        &self,
        without: &[u64],
        rule: InTheWay,
    ) -> Result<Finished, PartialError> {
        let failed = |doing, source| self.failed(doing, b"", source);
        let destination = self.place.open();
        let destination = destination.map_err(|source| failed("open", source))?;
        let (finished, is_same_top) = self.settle_at(&destination, without, rule)?;
        self.paths.forget_journal();
        self.root
            .empty(&|| false)
            .map_err(|source| failed("empty the partial folder of", source))?;
        self.paths.give_back(&self.root);
        if let Some(mtime) = self.top_mtime.filter(|_| is_same_top) {
            // Only the partial folder came and went there.
            let here = destination.fd().as_fd();
            root::set_mtime(here, b".", mtime)
                .map_err(|source| failed("set the time of", source))?;
        }
        Ok(finished)
    }

    /// Adds the further names of these files, which cannot be made either.
    fn with_further_names(&self, without: &[u64]) -> Vec<u64> {
        let mut all = without.to_vec();
        let index = self.index();
        if !all.is_empty() && index.counts().hard_links > 0 {
            let mut cursor = index.cursor();
            while let Some(item) = cursor.next() {
                if let Kind::HardLink(of) = item.entry.kind
                    && without.binary_search(&of).is_ok()
                {
                    all.push(item.number);
                }
            }
            all.sort_unstable();
        }
        all
    }

    /// Gives all names by one rename; returns false if the destination was made meanwhile.
    fn become_destination(&self) -> Result<bool, PartialError> {
        let (from, to) = (&self.paths.names.part, &self.paths.destination);
        let may_make = self.place.grant.check(Deed::Create, b"");
        may_make.map_err(|source| self.failed("give its name to", b"", source))?;
        // The folder was private until now.
        let set_mode = |mode| {
            let inherited = match self.preserve.mode {
                true => Ok(Mode::empty()),
                false => inherited(self.root.fd()),
            };
            inherited
                .and_then(|bit| Ok(fchmod(self.root.fd(), Mode::from_raw_mode(mode) | bit)?))
                .map_err(|source| self.failed("set the mode of", b"", source))
        };
        let mode = match self.top {
            Some(top) => mode_here(top.mode, self.preserve, FileType::Directory) | OWNERS,
            None => usual_mode(FileType::Directory),
        };
        set_mode(mode)?;
        // It is not an entry, and extra facts from a source are no reason to fail.
        let set_times = |top: Top| set_times(self.root.fd(), top.mtime, self.preserve);
        if let Some(Err(error)) = self.top.map(set_times) {
            tracing::debug!(%error, "the folder itself cannot have its time");
        }
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let renamed = match renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags) {
            Err(Errno::INVAL | Errno::NOSYS) => std::fs::rename(from, to),
            other => other.map_err(io::Error::from),
        };
        match renamed {
            Err(error) if self.paths.is_taken()? => {
                tracing::debug!(%error, "the destination is there now");
                set_mode(0o700)?;
                return Ok(false);
            }
            other => other.map_err(|source| self.failed("give its name to", b"", source))?,
        }
        let folder = Root::open(&folder_of(to));
        folder
            .and_then(|folder| Ok(rustix::fs::fsync(folder.fd())?))
            .map_err(|source| self.failed("sync the folder of", b"", source))?;
        Ok(true)
    }

    /// Removes files that differ from the index.
    fn remove_files(&self, without: &[u64]) -> Result<(), PartialError> {
        let mut folders = FolderCursor::new(&self.root, Enter::Open);
        let index = self.index();
        for &number in without {
            if let Some(item) = index.cursor_from(number).next() {
                self.remove(item.path, &mut folders)?;
            }
        }
        Ok(())
    }

    /// Removes the file, link or empty folder at `path` in the partial folder, if it exists.
    pub(super) fn remove(
        &self,
        path: &[u8],
        folders: &mut FolderCursor,
    ) -> Result<(), PartialError> {
        let (folder, name) = split(path);
        let mut remove = || -> io::Result<()> {
            let folder = match folders.to(folder) {
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
                other => other?,
            };
            let Some(folder) = folder else { return Ok(()) };
            match unlinkat(folder, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => match unlinkat(folder, name, AtFlags::REMOVEDIR) {
                    // It holds something that belongs there.
                    Err(Errno::NOTEMPTY) => Ok(()),
                    other => Ok(other?),
                },
                Err(Errno::NOENT) => Ok(()),
                other => Ok(other?),
            }
        };
        remove().map_err(|source| self.failed("remove", path, source))
    }
}

/// Needed by owners: otherwise a folder could not be copied into again (a partial folder is made in
/// it), nor be searched to remove or check what had been received.
const OWNERS: u32 = 0o700;
