//! Opens a cache and takes over what earlier runs left, as far as it can be trusted.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use swath_model::Range;

use super::entry::{Inner, State};
use super::head::{HEAD_BYTES_MAX, Head};
use super::lru::Lru;
use super::{Cache, Shared};
use crate::depot::LeaseId;
use crate::hashed_file::HashedFile;
use crate::sys;

/// What earlier runs left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Files with any bytes here.
    pub files: usize,
    /// Bytes of these files, if they fit their group hashes.
    pub bytes: u64,
    /// Files removed because they were invalid, had nothing to keep, or found no room.
    pub removed: usize,
}

/// Why a cache could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheOpenError {
    /// Another process has it open.
    #[error("the cache in {} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// The folder cannot be used.
    #[error("cannot open the cache in {}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Cache {
    /// Opens the cache in this folder, or makes it if it is new. The folder must be the cache's
    /// alone. It keeps at most `size_bytes`.
    ///
    /// # Errors
    /// See [`CacheOpenError`]. Damaged files are no error: they are removed.
    pub fn open(folder: &Path, size_bytes: u64) -> Result<(Cache, Recovered), CacheOpenError> {
        let files = folder.join("files");
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| CacheOpenError::Io { path, source }
        };
        std::fs::create_dir_all(&files).map_err(at(&files))?;
        let path = folder.join("lock");
        let lock = sys::lock_file(&path).map_err(at(&path))?;
        let lock = lock.ok_or_else(|| CacheOpenError::Locked(folder.to_owned()))?;
        let lru = Mutex::new(Lru::new(size_bytes));
        let shared = Arc::new(Shared { folder: files.clone(), lru, lock });
        let mut recovered = Recovered::default();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&files).map_err(at(&files))? {
            let entry = entry.map_err(at(&files))?;
            // Files without such a name are not ours.
            if entry.file_name().to_str().and_then(LeaseId::of).is_none() {
                continue;
            }
            match read(&entry.path(), &shared) {
                Ok(Some(left)) => found.push(left),
                Ok(None) | Err(_) => {
                    let _ = std::fs::remove_file(entry.path());
                    recovered.removed += 1;
                }
            }
        }
        found.sort_by_key(|(used, _)| *used);
        let mut going = Vec::new();
        {
            let mut lru = shared.lru();
            for (_, inner) in found {
                // Two files of one address are two versions; keep the younger one.
                if let Some(old) = lru.remove(inner.url()) {
                    lru.taken_bytes -= old.give_all_back();
                    going.push(old);
                }
                lru.taken_bytes += inner.taken_bytes();
                lru.insert(inner);
            }
            lru.heed_own(shared.own_bytes());
            going.extend(lru.make_room(0));
            recovered.files = lru.count();
            recovered.bytes = lru.held_bytes();
        }
        recovered.removed += going.len();
        shared.remove_files(&going);
        Ok((Cache { shared }, recovered))
    }
}

/// Returns the file that an earlier run left at `path`, and its last use; `None` if it is not worth
/// keeping.
fn read(path: &Path, shared: &Arc<Shared>) -> io::Result<Option<(SystemTime, Arc<Inner>)>> {
    let file = sys::no_follow().read(true).write(true).open(path)?;
    let found = file.metadata()?;
    let mut bytes = vec![0; found.len().min(HEAD_BYTES_MAX) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let Some(head) = Head::decode(&bytes) else { return Ok(None) };
    let layout = head.layout();
    if found.len() != layout.file_bytes() {
        return Ok(None);
    }
    let file = HashedFile::new(file, layout);
    let mut state = State::default();
    for (group, _) in file.group_hashes()? {
        state.held.insert(layout.group_at(group));
        state.taken.insert(layout.group_at(group));
    }
    if state.held.is_empty() {
        return Ok(None);
    }
    // Incomplete groups take space but are of no use.
    for gap in state.held.gaps_within(Range::new(0, layout.size_bytes)) {
        let start = file.position_of(gap.start);
        if sys::first_data(file.file(), start).is_some_and(|data| data < file.position_of(gap.end))
        {
            file.make_hole(gap);
        }
    }
    let inner = Inner::new(head, path.to_owned(), state, shared);
    // The file system may need more space of its own, or may have freed nothing.
    inner.takes_at_least(sys::taken_bytes(&file.file().metadata()?));
    Ok(Some((found.modified()?, Arc::new(inner))))
}
