//! Open files, a bounded number of them for all torrents of the process.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Files that were read last. When another one is opened, the one that was unused for longest is
/// closed, as soon as nobody reads it.
#[derive(Debug)]
pub struct OpenFiles {
    max: usize,
    torrents: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// By torrent and number of the file, with the time of the last use.
    files: HashMap<(u64, usize), (Arc<File>, u64)>,
    uses: u64,
}

impl OpenFiles {
    /// Returns an empty cache of at most `max` files.
    pub fn new(max: usize) -> OpenFiles {
        OpenFiles { max: max.max(1), torrents: AtomicU64::new(0), open: Mutex::default() }
    }

    /// Returns the number of another torrent.
    pub(super) fn torrent(&self) -> u64 {
        self.torrents.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a file of a torrent, and opens it with `open` if it is not open.
    pub(super) fn file(
        &self,
        torrent: u64,
        number: usize,
        open: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<Arc<File>> {
        let key = (torrent, number);
        if let Some(file) = self.find(key) {
            return Ok(file);
        }
        // Without the lock: a disk may be slow.
        let file = Arc::new(open()?);
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if all.files.len() >= self.max {
            let oldest = all.files.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
            if let Some(oldest) = oldest {
                all.files.remove(&oldest);
            }
        }
        all.uses += 1;
        let used = all.uses;
        all.files.insert(key, (Arc::clone(&file), used));
        Ok(file)
    }

    /// Closes the files of a torrent that nobody reads.
    pub(super) fn forget(&self, torrent: u64) {
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        all.files.retain(|key, _| key.0 != torrent);
    }

    fn find(&self, key: (u64, usize)) -> Option<Arc<File>> {
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        all.uses += 1;
        let used = all.uses;
        let (file, last) = all.files.get_mut(&key)?;
        *last = used;
        Some(Arc::clone(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_file_is_closed_for_another() {
        let files = OpenFiles::new(2);
        let opened = AtomicU64::new(0);
        let read = |number| {
            let open = || {
                opened.fetch_add(1, Ordering::Relaxed);
                File::open("/dev/null")
            };
            files.file(0, number, open).unwrap();
            opened.load(Ordering::Relaxed)
        };
        assert_eq!([read(1), read(2), read(1), read(3)], [1, 2, 2, 3]);
        assert_eq!([read(1), read(3), read(2)], [3, 3, 4]);
        files.forget(0);
        assert_eq!(read(2), 5);
        assert!(files.file(0, 9, || Err(io::ErrorKind::NotFound.into())).is_err());
    }
}
