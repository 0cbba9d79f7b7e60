//! The paths of a received tree: the partial folder, the journal and the copy of the index.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FlockOperation, StatVfs, accessat, flock, linkat};
use swath_model::RangeSet;
use swath_model::index::{Index, Mtime, Reader};

use super::PartialError;
use super::mark::{self, Marked};
use super::reuse::{self, Reusable};
use crate::Identity;
use crate::journal::{AppendError, JournalFile, Record, Recovery, State, Sum as _, recover};
use crate::names::{Names, folder_of};
use crate::place::is_planted;
use crate::steps::SystemSteps;
use crate::tree::root::Root;

/// The paths around one destination.
pub(super) struct Paths {
    pub destination: PathBuf,
    /// Whether the destination does not exist, so that the partial folder becomes it.
    pub is_new: bool,
    pub names: Names,
    /// A copy of the index to which the journal refers …
    index: PathBuf,
    /// … and of the index that replaces it.
    index_new: PathBuf,
    /// Records that names are being given, and which files get none.
    moving: PathBuf,
    /// Marks the partial folder as ours and identifies it, even before anything is journaled.
    mark: PathBuf,
}

/// Free space of a file system for this user.
pub(super) struct FreeSpace {
    pub free_bytes: u64,
    /// Files and folders; `None` if they have no limit of their own.
    pub free_entries: Option<u64>,
}

/// A tree that is being moved to its final names.
pub(super) struct Moving {
    pub index: Index,
    /// Files that get no final name.
    pub without: Vec<u64>,
}

impl Paths {
    /// Returns the paths of a tree, or of a single file of this name. A single file has its own
    /// partial folder, whatever else is copied into the destination or left there.
    pub fn of(destination: &Path, single: Option<&str>) -> Result<Paths, PartialError> {
        let name = || PartialError::Name(destination.to_owned());
        // "there/" and "there/." mean "there".
        let destination: PathBuf = destination.components().collect();
        let is_new = match destination.metadata() {
            Ok(found) if found.is_dir() => false,
            Ok(_) => return Err(PartialError::NoFolder(destination)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if destination.symlink_metadata().is_ok() {
                    return Err(PartialError::DeadLink(destination));
                }
                true
            }
            // A name that is too long, a file in place of a folder on the way, …
            Err(source) => {
                return Err(PartialError::Io { doing: "use", path: destination, source });
            }
        };
        if let Some(single) = single {
            let is_name = !matches!(single, "" | "." | "..") && !single.contains(['/', '\0']);
            let base = destination.join(format!(".swath-stage.swath.{single}"));
            let paths = Paths::at(&destination, &base, false).filter(|_| is_name);
            return paths.ok_or_else(|| PartialError::Name(destination.join(single)));
        }
        let beside = Paths::at(&destination, &destination, is_new);
        if is_new {
            return beside.ok_or_else(name);
        }
        // A path beside the destination may be on another file system.
        let within = Paths::at(&destination, &destination.join(".swath-stage"), false);
        let within = within.ok_or_else(name)?;
        Ok(match beside {
            // This copy began before the destination existed.
            Some(beside) if beside.is_of_use() && !within.is_left() => beside,
            _ => within,
        })
    }

    /// Returns the paths for a partial folder of this name.
    fn at(destination: &Path, base: &Path, is_new: bool) -> Option<Paths> {
        let names = Names::of(base, NAME_BYTES_MAX)?;
        let destination = destination.to_owned();
        let beside = |suffix: &str| {
            let mut name = names.journal.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        let (index, index_new) = (beside(".index"), beside(".index.new"));
        let (moving, mark) = (beside(".moving"), beside(".mark"));
        Some(Paths { destination, is_new, names, index, index_new, moving, mark })
    }

    /// Returns whether this partial folder can be resumed and is on the destination's file system.
    fn is_of_use(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let device = |found: std::fs::Metadata| found.dev();
        let folder = self.names.part.symlink_metadata().ok().filter(std::fs::Metadata::is_dir);
        let is_ours = |root| self.marked(&root) == Marked::This;
        self.is_left()
            && folder.is_some()
            && Root::open(&self.names.part).is_ok_and(is_ours)
            && folder.map(device) == self.destination.metadata().ok().map(device)
    }

    /// Returns what the mark says about this partial folder.
    fn marked(&self, folder: &Root) -> Marked {
        self.read(&self.mark).map_or(Marked::No, |file| mark::read(&file, folder.fd()))
    }

    /// Returns the existing files among the names that a copy needs beside its partial folder.
    fn taken(&self) -> impl Iterator<Item = &Path> {
        let Names { journal, journal_new, .. } = &self.names;
        let all = [journal, journal_new, &self.index, &self.index_new, &self.moving, &self.mark];
        all.into_iter().map(PathBuf::as_path).filter(|path| path.symlink_metadata().is_ok())
    }

    /// Returns when an existing destination's top folder last changed.
    pub fn top_mtime(&self) -> Option<Mtime> {
        use std::os::unix::fs::MetadataExt;
        let found = self.destination.metadata().ok()?;
        let nanoseconds = u32::try_from(found.mtime_nsec()).ok()?;
        Some(Mtime { seconds: found.mtime(), nanoseconds })
    }

    /// Returns whether the destination exists by now although it did not before.
    ///
    /// # Errors
    /// [`PartialError::NoFolder`] if it is not a folder.
    pub fn is_taken(&self) -> Result<bool, PartialError> {
        match self.destination.symlink_metadata() {
            Ok(_) if self.destination.is_dir() => Ok(true),
            Ok(_) => Err(PartialError::NoFolder(self.destination.clone())),
            Err(_) => Ok(false),
        }
    }

    /// Returns whether an earlier run left something to resume.
    pub fn is_left(&self) -> bool {
        let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_file());
        is_file(&self.names.journal) || self.is_moving()
    }

    /// Returns whether an earlier run was interrupted while it gave names.
    pub fn is_moving(&self) -> bool {
        self.moving.symlink_metadata().is_ok_and(|found| found.is_file())
    }

    /// Checks by permissions whether this user may make the partial folder.
    pub fn check_rights(&self) -> io::Result<()> {
        let there = self.folder_above();
        let rights = Access::WRITE_OK | Access::EXEC_OK;
        Ok(accessat(CWD, &there, rights, AtFlags::EACCESS)?)
    }

    /// Returns the folder for it, or the nearest existing one above; missing folders are made where
    /// the copy begins.
    fn folder_above(&self) -> PathBuf {
        let folder = folder_of(&self.names.part);
        let there = folder.ancestors().find(|above| above.symlink_metadata().is_ok());
        there.unwrap_or(Path::new(".")).to_owned()
    }

    /// Records that everything in the partial folder only has to be moved to its name. The journal
    /// is void from here on, as its files leave the partial folder. Durable when this returns.
    pub fn begin_moving(&self, index: &Index, without: &[u64]) -> io::Result<()> {
        let mut text = dataset_name(index).unwrap_or_default();
        for number in without {
            text.push_str(&format!("\n{number}"));
        }
        text.push('\n');
        let new = self.moving.with_extension("moving.new");
        let _ = std::fs::remove_file(&new);
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &self.moving)?;
        File::open(&self.names.folder)?.sync_all()
    }

    /// Returns the moves that an earlier run had begun.
    pub fn moving(&self) -> Option<Moving> {
        let mut text = String::new();
        self.read(&self.moving)?.read_to_string(&mut text).ok()?;
        let mut lines = text.lines();
        let name = lines.next()?;
        let without = lines.map(|line| line.parse().ok()).collect::<Option<Vec<u64>>>()?;
        let index = [&self.index, &self.index_new].into_iter().find_map(|path| {
            self.read_index(path).filter(|index| dataset_name(index).as_deref() == Some(name))
        })?;
        Some(Moving { index, without })
    }

    /// Makes or opens the partial folder and locks it.
    pub fn open_folder(&self) -> Result<Root, PartialError> {
        let failed =
            |doing| move |source| PartialError::Io { doing, path: self.names.part.clone(), source };
        std::fs::create_dir_all(folder_of(&self.names.part))
            .map_err(failed("make the folder of"))?;
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let is_made = match builder.create(&self.names.part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            made => made.map(|()| true).map_err(failed("make"))?,
        };
        let found = self.names.part.symlink_metadata().map_err(failed("look at"))?;
        if !found.is_dir() || is_planted(&found, &folder_of(&self.names.part)) {
            let source = io::Error::other("something else is in the way there");
            return Err(failed("use")(source));
        }
        let owned = self.own(Root::open_itself(&self.names.part).map_err(failed("open"))?);
        if is_made
            && matches!(owned, Err(PartialError::Foreign(_) | PartialError::Elsewhere { .. }))
        {
            let _ = std::fs::remove_dir(&self.names.part);
        }
        owned
    }

    /// Locks the opened partial folder.
    fn own(&self, root: Root) -> Result<Root, PartialError> {
        let failed =
            |doing| move |source| PartialError::Io { doing, path: self.names.part.clone(), source };
        match flock(root.fd(), FlockOperation::NonBlockingLockExclusive) {
            // The previous holder of the lock may have moved the folder to its final name.
            Ok(()) if is_at(&root, &self.names.part) => {}
            Ok(()) | Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(PartialError::Locked(self.destination.clone()));
            }
            Err(error) => return Err(failed("lock")(error.into())),
        }
        let marked = self.marked(&root);
        if marked != Marked::This {
            let is_empty = root.names().map_err(failed("list"))?.len() == 0;
            match marked {
                Marked::Elsewhere => {
                    let folder = (!is_empty).then_some(self.names.part.as_path());
                    let all = folder.into_iter().chain(self.taken()).map(Path::to_owned).collect();
                    return Err(PartialError::Elsewhere { mark: self.mark.clone(), all });
                }
                _ if !is_empty => return Err(PartialError::Foreign(self.names.part.clone())),
                // The partial folder was removed: its records are void.
                Marked::Another => self.forget(),
                Marked::No | Marked::This => {}
            }
            // A copy makes these after its mark and removes them before it.
            if let Some(taken) = self.taken().next() {
                return Err(PartialError::Foreign(taken.to_owned()));
            }
            self.make_mark(&root).map_err(failed("mark"))?;
        }
        // A run that ended right after its partial folder became the destination left its records.
        if let Some(beside) = Paths::at(&self.destination, &self.destination, false)
            && beside.names.part != self.names.part
            && beside.names.part.symlink_metadata().is_err()
            && Root::open(&self.destination).is_ok_and(|it| beside.marked(&it) == Marked::This)
        {
            beside.forget();
        }
        Ok(root)
    }

    /// Writes the mark, durably, before anything is put into the partial folder.
    fn make_mark(&self, folder: &Root) -> io::Result<()> {
        // A killed process leaves no mark or a whole one: half a mark would seem a user's file.
        let mut options = File::options();
        options.write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
        let nameless = || -> io::Result<()> {
            let mark = options.open(folder_of(&self.mark))?;
            mark::write(&mark, folder.fd())?;
            let here = format!("/proc/self/fd/{}", mark.as_raw_fd());
            Ok(linkat(CWD, here, CWD, &self.mark, AtFlags::SYMLINK_FOLLOW)?)
        };
        // Some file systems lack such files, and some machines lack /proc.
        if nameless().is_err() {
            let mut options = File::options();
            let mark = options.write(true).create_new(true).mode(0o600).open(&self.mark)?;
            mark::write(&mark, folder.fd())?;
        }
        File::open(&self.names.folder)?.sync_all()
    }

    /// Returns what the journal records, in the virtual file of `index`, and what is in the partial
    /// folder but no longer belongs there.
    pub fn recover(&self, index: &Index) -> Reusable {
        let Some((durable, old)) = self.left() else { return Reusable::default() };
        if old.digests() == index.digests() {
            return Reusable { durable, ..Reusable::default() };
        }
        reuse::find(&old, &durable, index)
    }

    /// Returns what the journal records, and the index to which it refers.
    fn left(&self) -> Option<(RangeSet, Index)> {
        let file = self.read(&self.names.journal)?;
        let recovered = recover::<State>(BufReader::with_capacity(1 << 16, &file)).ok()?;
        let Recovery::Journal { state, .. } = recovered else { return None };
        // A journal that was about to be replaced refers to the earlier index.
        let index = [&self.index, &self.index_new].into_iter().find_map(|path| {
            let index = self.read_index(path)?;
            let name = dataset_name(&index)?;
            let counts = state.identity.digests.contains(&name);
            if counts && *path == self.index_new {
                // This index was about to get its name.
                std::fs::rename(path, &self.index).ok()?;
            }
            counts.then_some(index)
        })?;
        Some((state.durable, index))
    }

    fn read_index(&self, path: &Path) -> Option<Index> {
        let mut file = self.read(path)?;
        let mut index = Index::new();
        let mut reader = Reader::new(u64::MAX);
        let mut part = vec![0; 1 << 16];
        loop {
            match file.read(&mut part).ok()? {
                0 => break,
                bytes => reader.feed(&mut index, &part[..bytes]).ok()?,
            }
        }
        reader.finish(&mut index).ok()?;
        Some(index)
    }

    fn read(&self, path: &Path) -> Option<File> {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(path).ok()?;
        let found = file.metadata().ok()?;
        (found.is_file() && !is_planted(&found, &folder_of(path))).then_some(file)
    }

    /// Removes everything that an earlier run left.
    pub fn clear(&self, root: &Root, stop: &dyn Fn() -> bool) -> Result<(), PartialError> {
        self.forget_journal();
        root.empty(stop).map_err(|source| match source.kind() {
            io::ErrorKind::Interrupted if stop() => PartialError::Stopped,
            _ => PartialError::Io { doing: "empty", path: self.names.part.clone(), source },
        })
    }

    /// Removes the records after the partial folder has become the destination.
    pub fn forget(&self) {
        self.forget_journal();
        let _ = std::fs::remove_file(&self.mark);
    }

    /// Removes the partial folder if it is empty and nothing can be resumed.
    pub fn give_back(&self, root: &Root) {
        let is_idle = !self.is_left() && is_at(root, &self.names.part);
        if is_idle && std::fs::remove_dir(&self.names.part).is_ok() {
            let _ = std::fs::remove_file(&self.mark);
        }
    }

    pub fn forget_journal(&self) {
        let Names { journal, journal_new, .. } = &self.names;
        // The last of these makes all others void.
        for path in [journal, journal_new, &self.index, &self.index_new, &self.moving] {
            // A missing file is fine; the next run refuses one that cannot be removed.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Begins a journal with these ranges of the virtual file of `index`, which is complete. Keeps
    /// a copy of the index, in case a later run's source has another one. Records of an earlier run
    /// remain valid until this returns.
    pub fn begin_journal(
        &self,
        index: &Index,
        durable: &RangeSet,
    ) -> io::Result<(JournalFile, State)> {
        self.write_index(index)?;
        let mut state = State::default();
        let digests = dataset_name(index).into_iter().collect();
        let identity = Identity { digests, ..Identity::default() };
        state.apply(&Record::Identity { size_bytes: Some(index.size_bytes()), identity });
        state.apply(&Record::Source { id: 0, name: String::new() });
        for range in durable.iter() {
            state.apply(&Record::Durable { range, source: 0 });
        }
        let steps = SystemSteps::new();
        let journal = JournalFile::replace(&steps, &self.names, &state);
        let journal = journal.map_err(AppendError::into_io)?;
        std::fs::rename(&self.index_new, &self.index)?;
        Ok((journal, state))
    }

    fn write_index(&self, index: &Index) -> io::Result<()> {
        let _ = std::fs::remove_file(&self.index_new);
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&self.index_new)?;
        let mut at = 0;
        while at < index.wire_bytes() {
            let part = index.wire_from(at);
            file.write_all(part)?;
            at += part.len() as u64;
        }
        file.sync_data()
    }

    /// Returns the space left for this user in the partial folder's file system.
    pub fn free_space(&self, root: &Root) -> Option<FreeSpace> {
        rustix::fs::fstatvfs(root.fd().as_fd()).ok().map(FreeSpace::of)
    }

    /// Returns the same before the partial folder exists.
    pub fn free_space_ahead(&self) -> Option<FreeSpace> {
        rustix::fs::statvfs(self.folder_above()).ok().map(FreeSpace::of)
    }
}

impl FreeSpace {
    fn of(found: StatVfs) -> FreeSpace {
        FreeSpace {
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            free_entries: (found.f_files > 0).then_some(found.f_favail),
        }
    }
}

/// Returns whether this open folder is the one at that path.
fn is_at(root: &Root, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(open), Ok(named)) = (rustix::fs::fstat(root.fd()), path.symlink_metadata()) else {
        return false;
    };
    (open.st_dev, open.st_ino) == (named.dev(), named.ino())
}

/// Returns a dataset's name for a journal.
fn dataset_name(index: &Index) -> Option<String> {
    let name = blake3::Hash::from_bytes(index.digests()?.dataset);
    Some(format!("dataset:{}", name.to_hex()))
}

/// Limit of all common file systems, minus the longest suffix of a journal's name.
const NAME_BYTES_MAX: usize = 255 - ".index.new".len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_file_has_a_partial_folder_in_its_folder_whatever_a_sender_calls_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["", ".", "..", "../out", "a/b", "/etc/x", "a\0b"] {
            let paths = Paths::of(dir.path(), Some(name));
            assert!(matches!(paths, Err(PartialError::Name(_))), "{name:?}");
        }
        let long = "l".repeat(255);
        for name in ["a", " ", "...", "\u{e9}", &long] {
            let paths = Paths::of(dir.path(), Some(name)).unwrap();
            assert_eq!(paths.names.part.parent(), Some(dir.path()));
            let _ = paths.open_folder().unwrap();
        }
    }

    #[test]
    fn who_waited_while_the_partial_folder_became_the_destination_does_not_clear_it() {
        // A second process had opened the partial folder and got its lock when the first one was done; what it
        // then took for what an earlier run had left was the finished destination.
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::of(&dir.path().join("copy"), None).unwrap();
        let first = paths.open_folder().unwrap();
        std::fs::write(paths.names.part.join("file"), "done").unwrap();
        let second = Root::open(&paths.names.part).unwrap();
        assert!(matches!(paths.own(second.clone()), Err(PartialError::Locked(_))));
        std::fs::rename(&paths.names.part, &paths.destination).unwrap();
        drop(first);
        assert!(matches!(paths.own(second), Err(PartialError::Locked(_))));
        assert_eq!(std::fs::read(paths.destination.join("file")).unwrap(), b"done");
    }
}
