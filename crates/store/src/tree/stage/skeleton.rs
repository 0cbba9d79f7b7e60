//! What has no bytes: folders, links, empty files.

use std::io;

use rustix::fs::{FileType, symlinkat};
use rustix::io::Errno;
use swath_model::index::{Entry, Kind};

use super::building::{make_file, set_mode, set_times, split};
use super::{Stage, StageError};

impl Stage {
    /// Make what has no bytes among the entries from number `from` on, as far as they have come;
    /// answers the number of the first entry that has not.
    ///
    /// # Errors
    /// [`StageError::Io`].
    pub fn make_skeleton(&self, from: u64) -> Result<u64, StageError> {
        let mut number = from;
        loop {
            // A part at a time, for the index grows meanwhile.
            let some: Vec<(Vec<u8>, Kind, u32, swath_model::index::Mtime)> = {
                let index = self.index();
                let mut cursor = index.cursor_from(number);
                let mut some = Vec::new();
                for _ in 0..ENTRIES {
                    let Some(item) = cursor.next() else { break };
                    number = item.number + 1;
                    let Entry { kind, mode, mtime, .. } = &item.entry;
                    let is_bare = match kind {
                        Kind::File { .. } => item.start == item.end,
                        Kind::Folder | Kind::Symlink(_) => true,
                        Kind::HardLink(_) | Kind::Absent(_) => false,
                    };
                    if is_bare && !self.kept.has(item.number) {
                        some.push((item.path.to_vec(), kind.clone(), *mode, *mtime));
                    }
                }
                if number >= index.entries() && some.is_empty() {
                    return Ok(number);
                }
                some
            };
            for (path, kind, mode, mtime) in some {
                self.make(&path, &kind, mode, mtime)
                    .map_err(|source| self.failed("make", &path, source))?;
            }
        }
    }

    fn make(
        &self,
        path: &[u8],
        kind: &Kind,
        mode: u32,
        mtime: swath_model::index::Mtime,
    ) -> io::Result<()> {
        let (folder, name) = split(path);
        match kind {
            Kind::Folder => self.root.make_folder(path).map(drop),
            Kind::Symlink(target) => {
                let folder = self.root.make_folder(folder)?;
                match symlinkat(target.as_slice(), &folder, name) {
                    // Of an earlier run.
                    Err(Errno::EXIST) => {
                        rustix::fs::unlinkat(&folder, name, rustix::fs::AtFlags::empty())?;
                        symlinkat(target.as_slice(), &folder, name)?;
                    }
                    other => other?,
                }
                if self.preserve.times {
                    let times = super::building::times(mtime);
                    let here = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
                    rustix::fs::utimensat(&folder, name, &times, here)?;
                }
                Ok(())
            }
            Kind::File { size_bytes, .. } => {
                let folder = self.root.make_folder(folder)?;
                let file = make_file(&folder, name, true)?;
                // Nothing but a hole.
                file.set_len(*size_bytes)?;
                set_mode(&file, mode, self.preserve, FileType::RegularFile)?;
                set_times(&file, mtime, self.preserve)
            }
            Kind::HardLink(_) | Kind::Absent(_) => Ok(()),
        }
    }
}

/// Looked at in one go.
const ENTRIES: usize = 4096;
