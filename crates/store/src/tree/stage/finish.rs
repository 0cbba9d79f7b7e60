//! The end: what is left to make, attributes of folders, final names.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, StatxFlags, linkat, renameat, renameat_with, statx, unlinkat};
use rustix::io::Errno;
use swath_model::index::{Kind, Mtime};

use super::building::{set_mode, set_times, split};
use super::{Stage, StageError, refuse_own_names};
use crate::names::folder_of;
use crate::tree::root::{Links, Root};

/// What became of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Files that have their final names now.
    pub files: u64,
}

/// A folder of the stage, and the one that takes its place: most files follow one of the same folder.
struct Way {
    folder: Vec<u8>,
    from: OwnedFd,
    to: OwnedFd,
}

/// A folder whose attributes are set when all that lies in it is there.
struct Open {
    path: Vec<u8>,
    mode: u32,
    mtime: Mtime,
}

impl Stage {
    /// Look whether all names can be given: nothing of another kind is in the way. The index must be
    /// complete.
    ///
    /// # Errors
    /// [`StageError::InTheWay`].
    pub fn check_way(&self) -> Result<(), StageError> {
        if self.place.is_new {
            return Ok(());
        }
        let path = &self.place.destination;
        let root = Root::open(path).map_err(|source| self.failed("open", b"", source))?;
        let index = self.index();
        let mut cursor = index.cursor();
        // A folder that is not there yet: nothing in it can be in the way.
        let mut missing: Option<Vec<u8>> = None;
        while let Some(item) = cursor.next() {
            let is_below = |folder: &Vec<u8>| {
                item.path.strip_prefix(folder.as_slice()).is_some_and(|rest| rest.starts_with(b"/"))
            };
            if missing.as_ref().is_some_and(is_below) {
                continue;
            }
            missing = None;
            let wants_folder = item.entry.kind == Kind::Folder;
            let (there, here) = match root.kind(item.path) {
                Ok(None) => {
                    if wants_folder {
                        missing = Some(item.path.to_vec());
                    }
                    continue;
                }
                Ok(Some(FileType::Directory)) if !wants_folder => match item.entry.kind {
                    Kind::Absent(_) => continue,
                    Kind::Symlink(_) => ("a folder", "a link"),
                    _ => ("a folder", "a file"),
                },
                Ok(Some(FileType::Directory)) => continue,
                Ok(Some(FileType::Symlink)) if wants_folder => ("a link", "a folder"),
                Ok(Some(_)) if wants_folder => ("no folder", "a folder"),
                Ok(Some(_)) => continue,
                Err(source) => return Err(self.failed("look at", item.path, source)),
            };
            let path = self.shown(item.path);
            return Err(StageError::InTheWay { path, there, here });
        }
        Ok(())
    }

    /// Give everything its final name, but for the files with these numbers (ascending), which are
    /// not right and go.
    ///
    /// # Errors
    /// [`StageError::Io`]; what has its name by then keeps it, and the next run goes on.
    pub fn finish(&self, without: &[u64]) -> Result<Finished, StageError> {
        refuse_own_names(&self.index(), &self.place)?;
        let without = self.with_further_names(without);
        self.remove_files(&without)?;
        self.link(&without)?;
        // Names must not be there before their bytes are.
        self.sync()?;
        if self.place.is_new {
            let finished = self.settle(None, &without)?;
            self.become_destination()?;
            self.place.forget_journal();
            return Ok(finished);
        }
        let mut journal = super::lock(&self.journal);
        if journal.is_none() {
            self.begin_journal(&mut journal)?;
        }
        drop(journal);
        let begun = self.place.begin_moving(&self.index(), &without);
        begun.map_err(|source| self.failed("write the journal of", b"", source))?;
        self.finish_moving(&without)
    }

    /// Everything that is still in the stage gets its final name.
    pub(super) fn finish_moving(&self, without: &[u64]) -> Result<Finished, StageError> {
        let failed = |doing, source| self.failed(doing, b"", source);
        let destination = Root::open(&self.place.destination);
        let destination = destination.map_err(|source| failed("open", source))?;
        let finished = self.settle(Some(&destination), without)?;
        self.place.forget_journal();
        self.root.empty().map_err(|source| failed("empty the stage of", source))?;
        let _ = std::fs::remove_dir(&self.place.names.part);
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

    fn become_destination(&self) -> Result<(), StageError> {
        let (from, to) = (&self.place.names.part, &self.place.destination);
        // Nobody else was to look into it before; its own attributes are not those of an entry.
        let usual = super::building::usual_mode(FileType::Directory);
        rustix::fs::fchmod(self.root.fd(), rustix::fs::Mode::from_raw_mode(usual))
            .map_err(|error| self.failed("set the mode of", b"", error.into()))?;
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let renamed = match renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags) {
            Err(Errno::INVAL | Errno::NOSYS) => std::fs::rename(from, to),
            other => other.map_err(io::Error::from),
        };
        renamed.map_err(|source| self.failed("give its name to", b"", source))?;
        let folder = Root::open(&folder_of(to));
        folder
            .and_then(|folder| Ok(rustix::fs::fsync(folder.fd())?))
            .map_err(|source| self.failed("sync the folder of", b"", source))
    }

    /// Files that are not what the index promised.
    fn remove_files(&self, without: &[u64]) -> Result<(), StageError> {
        for &number in without {
            let path = {
                let index = self.index();
                let mut cursor = index.cursor_from(number);
                cursor.next().map(|item| item.path.to_vec())
            };
            if let Some(path) = path {
                self.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Remove what is at `path` in the stage: a file, a link or an empty folder, if it is there.
    pub(super) fn remove(&self, path: &[u8]) -> Result<(), StageError> {
        let (folder, name) = split(path);
        let remove = || -> io::Result<()> {
            let folder = match self.root.folder(folder, Links::Refuse) {
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
                other => other?,
            };
            match unlinkat(&folder, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => match unlinkat(&folder, name, AtFlags::REMOVEDIR) {
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

    /// Further names of files.
    fn link(&self, without: &[u64]) -> Result<(), StageError> {
        let index = self.index();
        if index.counts().hard_links == 0 {
            return Ok(());
        }
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            let Kind::HardLink(number) = item.entry.kind else { continue };
            if without.binary_search(&item.number).is_ok() {
                continue;
            }
            let mut of = index.cursor_from(number);
            let Some(first) = of.next() else { continue };
            self.link_one(first.path, item.path)
                .map_err(|source| self.failed("make the link", item.path, source))?;
        }
        Ok(())
    }

    fn link_one(&self, first: &[u8], other: &[u8]) -> io::Result<()> {
        let ((from, from_name), (to, to_name)) = (split(first), split(other));
        let from = self.root.make_folder(from)?;
        let to = self.root.make_folder(to)?;
        match unlinkat(&to, to_name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        if self.preserve.links {
            match linkat(&from, from_name, &to, to_name, AtFlags::empty()) {
                // Not of every kind of file, and not on every file system; or the file is not right.
                Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => {}
                other => return Ok(other?),
            }
        }
        self.copy(from.as_fd(), from_name, to.as_fd(), to_name)
    }

    /// A copy beside a file, with its attributes.
    fn copy(
        &self,
        from: rustix::fd::BorrowedFd<'_>,
        from_name: &[u8],
        to: rustix::fd::BorrowedFd<'_>,
        to_name: &[u8],
    ) -> io::Result<()> {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW;
        let mut source = match rustix::fs::openat(from, from_name, flags, rustix::fs::Mode::empty())
        {
            Ok(file) => std::fs::File::from(file),
            Err(error) => return Err(error.into()),
        };
        let mut file = super::building::make_file(to, to_name, true)?;
        io::copy(&mut source, &mut file)?;
        let found = source.metadata()?;
        file.set_permissions(found.permissions())?;
        file.set_modified(found.modified()?)
    }

    /// Move everything to its destination, if that is another one, and give folders their
    /// attributes once all in them is there.
    fn settle(&self, destination: Option<&Root>, without: &[u64]) -> Result<Finished, StageError> {
        let mut finished = Finished::default();
        let mut open: Vec<Open> = Vec::new();
        let mut way: Option<Way> = None;
        let index = self.index();
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            for _ in 0..item.entry.leaves {
                if let Some(folder) = open.pop() {
                    self.settle_folder(destination, &folder)?;
                }
            }
            let failed = |source| self.failed("give its name to", item.path, source);
            match item.entry.kind {
                Kind::Folder => {
                    if let Some(destination) = destination {
                        destination.make_folder(item.path).map_err(failed)?;
                    }
                    let (mode, mtime) = (item.entry.mode, item.entry.mtime);
                    open.push(Open { path: item.path.to_vec(), mode, mtime });
                }
                Kind::Absent(_) => {}
                _ if without.binary_search(&item.number).is_ok() => {}
                _ if self.kept.has(item.number) => {
                    finished.files += 1;
                    if let Some(destination) = destination.filter(|_| self.preserve.mode) {
                        destination.set_mode(item.path, item.entry.mode & 0o777).map_err(failed)?;
                    }
                    let sets_times = self.kept.by_content && self.preserve.times;
                    if let Some(destination) = destination.filter(|_| sets_times) {
                        destination.set_mtime(item.path, item.entry.mtime).map_err(failed)?;
                    }
                }
                _ => {
                    finished.files += u64::from(matches!(item.entry.kind, Kind::File { .. }));
                    if let Some(destination) = destination {
                        self.rename(destination, item.path, &mut way).map_err(failed)?;
                    }
                }
            }
        }
        while let Some(folder) = open.pop() {
            self.settle_folder(destination, &folder)?;
        }
        Ok(finished)
    }

    fn settle_folder(&self, destination: Option<&Root>, of: &Open) -> Result<(), StageError> {
        let root = destination.unwrap_or(&self.root);
        let settled = root.make_folder(&of.path).and_then(|folder| {
            set_mode(&folder, of.mode, self.preserve, FileType::Directory)?;
            set_times(&folder, of.mtime, self.preserve)
        });
        settled.map_err(|source| self.failed("set the attributes of", &of.path, source))
    }

    fn rename(&self, destination: &Root, path: &[u8], way: &mut Option<Way>) -> io::Result<()> {
        let (folder, name) = split(path);
        let Way { from, to, .. } = match way.take().filter(|way| way.folder == folder) {
            Some(known) => way.insert(known),
            None => way.insert(Way {
                folder: folder.to_vec(),
                from: self.root.make_folder(folder)?,
                to: destination.make_folder(folder)?,
            }),
        };
        match renameat(&*from, name, &*to, name) {
            Ok(()) => Ok(()),
            // An earlier run had come so far already.
            Err(Errno::NOENT)
                if statx(&*to, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE).is_ok() =>
            {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}
