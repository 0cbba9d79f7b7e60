//! Where a tree is received: the stage, the journal and the copy of the index.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use swath_model::RangeSet;
use swath_model::index::{Index, Reader};

use super::{StageError, carry};
use crate::journal::{AppendError, JournalFile, Recovery, State, recover};
use crate::names::{Names, folder_of};
use crate::place::is_planted;
use crate::steps::SystemSteps;
use crate::tree::root::Root;

/// The names around one destination.
pub(super) struct Place {
    pub destination: PathBuf,
    /// The destination does not exist: the stage becomes it.
    pub is_new: bool,
    pub names: Names,
    index: PathBuf,
}

impl Place {
    pub fn of(destination: &Path) -> Result<Place, StageError> {
        let name = || StageError::Name(destination.to_owned());
        // "there/" and "there/." are "there".
        let destination: PathBuf = destination.components().collect();
        let found = destination.metadata();
        let is_new = match &found {
            Ok(found) if found.is_dir() => false,
            Ok(_) => return Err(StageError::NoFolder(destination)),
            Err(_) => true,
        };
        // What lies beside the destination may lie on another file system, if it is there already.
        let base = if is_new { destination.clone() } else { destination.join(".swath-stage") };
        let names = Names::of(&base, NAME_BYTES_MAX).ok_or_else(name)?;
        let mut index = names.journal.clone().into_os_string();
        index.push(".index");
        Ok(Place { destination, is_new, names, index: index.into() })
    }

    pub fn journal_exists(&self) -> bool {
        self.names.journal.symlink_metadata().is_ok_and(|found| found.is_file())
    }

    /// Make the stage, or open the one that is there. Nobody else may use it meanwhile.
    pub fn open_stage(&self) -> Result<Root, StageError> {
        let failed =
            |doing| move |source| StageError::Io { doing, path: self.names.part.clone(), source };
        std::fs::create_dir_all(folder_of(&self.names.part))
            .map_err(failed("make the folder of"))?;
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        match builder.create(&self.names.part) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("make")(error));
            }
            _ => {}
        }
        let found = self.names.part.symlink_metadata().map_err(failed("look at"))?;
        if !found.is_dir() || is_planted(&found, &folder_of(&self.names.part)) {
            let source = io::Error::other("something else is in the way there");
            return Err(failed("use")(source));
        }
        let root = Root::open(&self.names.part).map_err(failed("open"))?;
        match flock(root.fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(root),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StageError::Locked(self.destination.clone())),
            Err(error) => Err(failed("lock")(error.into())),
        }
    }

    /// What the journal vouches for, in the virtual file of `index`.
    pub fn recover(&self, index: &Index) -> RangeSet {
        let Some((durable, old)) = self.left() else { return RangeSet::new() };
        if old.digests().is_some() && old.digests() == index.digests() {
            return durable;
        }
        carry::over(&old, &durable, index)
    }

    fn left(&self) -> Option<(RangeSet, Index)> {
        let file = self.read(&self.names.journal)?;
        let recovered = recover(BufReader::with_capacity(1 << 16, &file)).ok()?;
        let Recovery::Journal { state, .. } = recovered else { return None };
        let mut file = self.read(&self.index)?;
        let mut reader = Reader::new(u64::MAX);
        let mut part = vec![0; 1 << 16];
        loop {
            match file.read(&mut part).ok()? {
                0 => break,
                bytes => reader.feed(&part[..bytes]).ok()?,
            }
        }
        Some((state.durable, reader.finish().ok()?))
    }

    fn read(&self, path: &Path) -> Option<File> {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
        let file = options.open(path).ok()?;
        let found = file.metadata().ok()?;
        (found.is_file() && !is_planted(&found, &folder_of(path))).then_some(file)
    }

    /// Forget what an earlier run left.
    pub fn clear(&self, root: &Root) -> Result<(), StageError> {
        self.forget_journal();
        root.empty().map_err(|source| StageError::Io {
            doing: "empty",
            path: self.names.part.clone(),
            source,
        })
    }

    pub fn forget_journal(&self) {
        for path in [&self.names.journal, &self.names.journal_new, &self.index] {
            // What is not there need not go; what will not go is refused by the next run.
            let _ = std::fs::remove_file(path);
        }
    }

    pub fn create_journal(&self, state: &State) -> io::Result<JournalFile> {
        JournalFile::create(&SystemSteps::new(), &self.names, state).map_err(AppendError::into_io)
    }

    /// Keep a copy of the index, for a run whose source has another one.
    pub fn keep_index(&self, index: &Index) -> io::Result<()> {
        // An index that still grows is kept by a later call.
        if index.digests().is_none() {
            return Ok(());
        }
        let _ = std::fs::remove_file(&self.index);
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&self.index)?;
        let mut at = 0;
        while at < index.wire_bytes() {
            let part = index.wire_from(at);
            file.write_all(part)?;
            at += part.len() as u64;
        }
        file.sync_data()
    }

    /// What the user may still write there.
    pub fn free_bytes(&self, root: &Root) -> Option<u64> {
        let found = rustix::fs::fstatvfs(root.fd().as_fd()).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

/// Of all common file systems.
const NAME_BYTES_MAX: usize = 255;
