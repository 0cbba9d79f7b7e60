//! The end of a copy: makes what is left to make, and gives final names.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, renameat_with, unlinkat};
use rustix::io::Errno;
use swath_model::index::{Kind, Top};

use super::building::{mode_here, set_times, usual_mode};
use super::settle::InTheWay;
use super::{PartialError, PartialTree};
use crate::names::folder_of;
use crate::tree::folder_cursor::{Enter, FolderCursor, split};
use crate::tree::root::{self, Root};
use crate::tree::xattrs::XattrLoss;

/// What became of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Files that have their final names now.
    pub files: u64,
    /// How much of another kind had to go for that.
    pub replaced: u64,
    /// How much could not have its name because we may not write there, in the end of an earlier copy.
    pub closed: u64,
    /// Numbers of the entries that have none, ascending: files that are not right, and further names
    /// of theirs.
    pub lacking: Vec<u64>,
    /// Numbers of the entries whose extended attributes are not as they should be, ascending, if these
    /// were wanted.
    pub xattr_losses: Vec<(u64, XattrLoss)>,
}

impl PartialTree {
    /// Makes what has no bytes, and gives everything its final name, but for the files with these
    /// numbers (ascending), which are not right and go. The index must be complete.
    ///
    /// # Errors
    /// [`PartialError`]; what has its name by then keeps it, and the next run goes on.
    pub fn finish(&self, without: &[u64]) -> Result<Finished, PartialError> {
        self.make_skeleton()?;
        let without = self.with_further_names(without);
        self.remove_files(&without)?;
        self.set_xattrs(&without)?;
        self.link(&without)?;
        // Names must not be there before their bytes are.
        self.sync()?;
        if self.paths.is_new && !self.paths.is_taken()? {
            let finished = self.settle_here(&without)?;
            if self.become_destination()? {
                self.paths.forget();
                return Ok(finished);
            }
        }
        if self.paths.is_new {
            // Somebody has made the destination meanwhile.
            let root = Root::open(&self.paths.destination);
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

    /// Everything that is still in the partial folder gets its final name.
    pub(super) fn finish_moving(
        &self,
        without: &[u64],
        rule: InTheWay,
    ) -> Result<Finished, PartialError> {
        let failed = |doing, source| self.failed(doing, b"", source);
        let destination = Root::open(&self.paths.destination);
        let destination = destination.map_err(|source| failed("open", source))?;
        let (finished, is_same_top) = self.settle_at(&destination, without, rule)?;
        self.paths.forget_journal();
        self.root
            .empty(&|| false)
            .map_err(|source| failed("empty the partial folder of", source))?;
        self.paths.give_back(&self.root);
        if let Some(mtime) = self.top_mtime.filter(|_| is_same_top) {
            // Nothing but the partial folder came there and went.
            let here = destination.fd().as_fd();
            root::set_mtime(here, b".", mtime)
                .map_err(|source| failed("set the time of", source))?;
        }
        Ok(finished)
    }

    /// With the further names of these files: they cannot be made either.
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

    /// One rename gives all their names; `false` if somebody has made the destination meanwhile.
    fn become_destination(&self) -> Result<bool, PartialError> {
        let (from, to) = (&self.paths.names.part, &self.paths.destination);
        // Nobody else was to look into it before.
        let set_mode = |mode| {
            rustix::fs::fchmod(self.root.fd(), rustix::fs::Mode::from_raw_mode(mode))
                .map_err(|error| self.failed("set the mode of", b"", error.into()))
        };
        let mode = match self.top {
            Some(top) => mode_here(top.mode, self.preserve, FileType::Directory) | OWNERS,
            None => usual_mode(FileType::Directory),
        };
        set_mode(mode)?;
        // It is no entry, and what a source tells beside its index is no reason to fail.
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

    /// Files that are not what the index promised.
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

    /// Removes what is at `path` in the partial folder: a file, a link or an empty folder, if it is
    /// there.
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
                    // Something that belongs there is in it.
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

/// A folder in which its owner may not do all this could neither be copied into again, for which a
/// partial folder is made in it, nor be looked through when what had come is removed or vouched for.
const OWNERS: u32 = 0o700;
