//! A cache of files of other servers, by address and strong validator, as far as fetched.
//!
//! A reader asks a file's [`Entry`] what to do about the next bytes: send what is here, wait for a
//! fetch, or fetch them for all. So bytes that many clients want at once are fetched once, and all
//! can read them as they arrive.
//!
//! Each file is stored as one file: a head, its bytes, and a group hash for each group of 256 KiB,
//! written when the group is whole. Nothing is synced, and there is no journal: after a restart a
//! group counts if it matches its hash, which is checked when the group is read. So restarts and
//! crashes keep whatever reached the disk, cost nothing in between, and nothing wrong is ever read.
//!
//! Invariants: the cache never exceeds its size (counting whole groups, with the blocks of heads
//! and hashes, and the folders), and leaves the last part of its disk free. The file requested the
//! longest ago is evicted first, but never one with an open handle. Bytes of two versions never
//! mix. All functions block, except [`Wait::changed`].

mod entry;
mod fetch;
mod head;
mod lru;
mod open;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::sys;
use entry::{Inner, State};
use head::Head;
use lru::Lru;

pub use entry::{Entry, Part, Step};
pub use fetch::{Fetch, Wait};
pub use open::{CacheOpenError, Recovered};

/// A cache. Clones share it; it stays open and locked as long as a clone or an entry exists.
#[derive(Clone)]
pub struct Cache {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    folder: PathBuf,
    lru: Mutex<Lru>,
    lock: File,
}

/// What identifies a cached file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The whole address.
    pub url: String,
    /// A strong validator: files of this address with the same one are identical, byte for byte.
    pub validator: String,
}

/// The use of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUsage {
    /// Most bytes it may keep.
    pub size_bytes: u64,
    /// Bytes it takes on its disk, overhead included.
    pub taken_bytes: u64,
    /// Number of files.
    pub files: usize,
}

/// Why a file is not cached. Fetch it without the cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// It is empty, its validator is weak or missing, or its address is too long.
    #[error("this file cannot be cached")]
    NotCacheable,
    /// Everything that is kept is in use.
    #[error("the cache is full, and all of it is in use")]
    Full,
    /// Anything else.
    #[error("the cache's folder cannot be used")]
    Io(#[source] io::Error),
}

impl Cache {
    /// Returns the file of this key, `size_bytes` long, with what is here of it. A file with the
    /// same address but another validator or size is dropped; its readers can continue.
    pub fn lookup(&self, key: &Key, size_bytes: u64) -> Result<Entry, LookupError> {
        let shared = &self.shared;
        let is_strong = !key.validator.is_empty() && !key.validator.starts_with("W/");
        let head = Head {
            nonce: [0; 32],
            size_bytes,
            url: key.url.clone(),
            validator: key.validator.clone(),
        };
        if !is_strong || !head.is_possible() {
            return Err(LookupError::NotCacheable);
        }
        if let Some(inner) = shared.find(key, size_bytes) {
            match inner.file() {
                Ok(file) => {
                    // A restart orders files by this time.
                    let _ = file.file().set_modified(SystemTime::now());
                    return Ok(Entry { inner, file, shared: Arc::clone(shared) });
                }
                // Another version has replaced it, or its file was removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => shared.forget_this(&inner),
                Err(error) => return Err(LookupError::Io(error)),
            }
        }
        self.create(head)
    }

    /// Returns the validator and size of the file of this address, if known.
    pub fn known(&self, url: &str) -> Option<(String, u64)> {
        let lru = self.shared.lru();
        let head = &lru.peek(url)?.head;
        Some((head.validator.clone(), head.size_bytes))
    }

    /// Forgets the file of this address. Its readers can continue.
    pub fn forget(&self, url: &str) {
        self.shared.forget(url);
    }

    /// Returns how much it can keep at most: its size, or less if its disk has less.
    pub fn most_bytes(&self) -> u64 {
        let spare_bytes = self.shared.spare_bytes();
        let mut lru = self.shared.lru();
        lru.heed(spare_bytes);
        lru.most_bytes()
    }

    /// Returns the use of the cache.
    pub fn usage(&self) -> CacheUsage {
        let lru = self.shared.lru();
        let (size_bytes, taken_bytes) = (lru.size_bytes, lru.taken_bytes);
        CacheUsage { size_bytes, taken_bytes, files: lru.count() }
    }

    fn create(&self, mut head: Head) -> Result<Entry, LookupError> {
        let shared = &self.shared;
        let (path, nonce) = shared.new_name().map_err(LookupError::Io)?;
        head.nonce = nonce;
        let (url, size_bytes) = (head.url.clone(), head.size_bytes);
        let key = Key { url, validator: head.validator.clone() };
        if let Err(error) = make_file(&path, &head) {
            let _ = std::fs::remove_file(&path);
            return Err(LookupError::Io(error));
        }
        let made = Arc::new(Inner::new(head, path, State::default(), shared));
        let file = match made.file() {
            Ok(file) => file,
            Err(error) => {
                shared.remove_files(&[made]);
                return Err(LookupError::Io(error));
            }
        };
        let bytes = made.taken_bytes();
        // Dropping these needs the lru, which is locked here.
        let mut going = Vec::new();
        // Measured now, as the new name may have grown the folder.
        let (spare_bytes, own_bytes) = (shared.spare_bytes(), shared.own_bytes());
        let entered = {
            let mut lru = shared.lru();
            lru.heed_own(own_bytes);
            lru.heed(spare_bytes);
            let there = lru.touch(&key.url).cloned();
            // Opened with the lru locked, so that nobody can remove its name meanwhile.
            let same = there.as_ref().filter(|there| is_copy_of(there, &key, size_bytes));
            match same.and_then(|same| Some((Arc::clone(same), same.file().ok()?))) {
                // Another caller was faster.
                Some(same) => {
                    going.push(made);
                    Ok(same)
                }
                None => {
                    if there.is_some() {
                        going.extend(lru.remove(&key.url));
                        going.iter().for_each(|old| old.is_going());
                    }
                    going.extend(there);
                    going.extend(lru.make_room(bytes));
                    if lru.taken_bytes.saturating_add(bytes) > lru.most_bytes() {
                        going.push(made);
                        Err(LookupError::Full)
                    } else {
                        lru.taken_bytes += bytes;
                        lru.insert(Arc::clone(&made));
                        Ok((made, file))
                    }
                }
            }
        };
        shared.remove_files(&going);
        let (inner, file) = entered?;
        Ok(Entry { inner, file, shared: Arc::clone(shared) })
    }
}

impl Shared {
    pub(crate) fn lru(&self) -> MutexGuard<'_, Lru> {
        self.lru.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the free bytes of the disk beyond the part left to others; `None` if unknown.
    pub(crate) fn spare_bytes(&self) -> Option<u64> {
        sys::free_and_all_bytes(&self.lock).ok().map(|(free, all)| spare(free, all))
    }

    /// Returns what the cache's folder and the folder of its files take of the disk.
    fn own_bytes(&self) -> u64 {
        let folders = [Some(self.folder.as_path()), self.folder.parent()];
        let found = folders.into_iter().flatten().filter_map(|folder| folder.metadata().ok());
        found.map(|folder| sys::taken_bytes(&folder)).sum()
    }

    fn find(&self, key: &Key, size_bytes: u64) -> Option<Arc<Inner>> {
        let mut lru = self.lru();
        let inner = lru.touch(&key.url)?;
        is_copy_of(inner, key, size_bytes).then(|| Arc::clone(inner))
    }

    fn forget(&self, url: &str) {
        let old = self.lru().remove(url);
        if let Some(old) = old {
            old.is_going();
            self.remove_files(&[old]);
        }
    }

    /// Forgets this file, unless another one already has its address.
    fn forget_this(&self, inner: &Arc<Inner>) {
        let old = {
            let mut lru = self.lru();
            let is_known = lru.peek(inner.url()).is_some_and(|known| Arc::ptr_eq(known, inner));
            if is_known { lru.remove(inner.url()) } else { None }
        };
        if let Some(old) = old {
            old.is_going();
            self.remove_files(&[old]);
        }
    }

    /// Removes the names of files taken out of the lru. Their readers can continue.
    pub(crate) fn remove_files(&self, files: &[Arc<Inner>]) {
        for inner in files {
            if let Err(error) = std::fs::remove_file(&inner.path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(%error, path = %inner.path.display(), "a cached file could not be removed");
            }
        }
    }

    /// Returns an unused name, and a nonce.
    fn new_name(&self) -> io::Result<(PathBuf, [u8; 32])> {
        let nonce = crate::depot::random()?;
        let name = crate::depot::LeaseId::random()?;
        Ok((self.folder.join(name.to_string()), nonce))
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache({})", self.shared.folder.display())
    }
}

fn is_copy_of(inner: &Inner, key: &Key, size_bytes: u64) -> bool {
    inner.head.validator == key.validator && inner.head.size_bytes == size_bytes
}

/// Returns how many of the free bytes may be used. Some are left: otherwise others would find the
/// disk full, and data fetched for several clients at once would find no room.
fn spare(free_bytes: u64, all_bytes: u64) -> u64 {
    free_bytes.saturating_sub((all_bytes / LEFT_PART).clamp(LEFT_MIN, LEFT_MAX))
}

/// This part of the disk is left free …
const LEFT_PART: u64 = 50;
/// … but at least what several clients fetch ahead …
const LEFT_MIN: u64 = 64 << 20;
/// … and at most what no one misses.
const LEFT_MAX: u64 = 2 << 30;

fn make_file(path: &Path, head: &Head) -> io::Result<()> {
    let file = sys::no_follow().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(head.layout().file_bytes())?;
    file.write_all_at(&head.encode(), 0)
}

/// Reads any bytes as the head of a file: an accepted head is written as it was read.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz_head(bytes: &[u8]) {
    if let Some(head) = Head::decode(bytes) {
        let again = head.encode();
        assert!(head.is_possible() && bytes.starts_with(&again));
    }
    // Again with a correct sum, which no fuzzer finds.
    let mut summed = b"swath cache 1  \n".to_vec();
    summed.resize(48, 0);
    summed.extend_from_slice(bytes);
    summed.resize(summed.len().next_multiple_of(4096), 0);
    let sum = blake3::hash(&summed[48..]);
    summed[16..48].copy_from_slice(sum.as_bytes());
    if let Some(head) = Head::decode(&summed) {
        assert_eq!(head.encode(), summed[..head.layout().head_bytes as usize]);
    }
}
