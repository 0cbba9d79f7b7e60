//! The cached files, the space they take, and which one is evicted next.
//!
//! Space is taken by groups, when a fetch of one of their bytes begins; the first group whose hash
//! lies in a block takes that block too. Folders take their own size. Invariants: the space taken
//! never exceeds the size, unless the cache was opened with a smaller size and everything is in
//! use. A file with an open handle is not evicted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::entry::Inner;

/// The files of a cache, by last use.
#[derive(Default)]
pub(crate) struct Lru {
    pub(crate) size_bytes: u64,
    pub(crate) taken_bytes: u64,
    /// Space that the folders themselves take.
    own_bytes: u64,
    /// Most bytes that its disk allows, which may be less than its size.
    disk_most_bytes: Option<u64>,
    by_url: HashMap<Arc<str>, (u64, Arc<Inner>)>,
    /// Addresses, by last use.
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
}

impl Lru {
    pub(crate) fn new(size_bytes: u64) -> Lru {
        Lru { size_bytes, ..Lru::default() }
    }

    /// Records the free bytes of the disk; `None` (unknown) removes the limit. Without free bytes,
    /// kept files stay and make room for new ones.
    pub(crate) fn heed(&mut self, spare_bytes: Option<u64>) {
        self.disk_most_bytes = spare_bytes.map(|spare| self.taken_bytes.saturating_add(spare));
    }

    /// Records the space that the folders themselves take.
    pub(crate) fn heed_own(&mut self, own_bytes: u64) {
        self.taken_bytes = self.taken_bytes - self.own_bytes + own_bytes;
        self.own_bytes = own_bytes;
    }

    /// Returns how much may be kept now.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.size_bytes.min(self.disk_most_bytes.unwrap_or(u64::MAX))
    }

    /// Returns the file of this address and makes it the youngest.
    pub(crate) fn touch(&mut self, url: &str) -> Option<&Arc<Inner>> {
        let (used, inner) = self.by_url.get_mut(url)?;
        if let Some(url) = self.by_use.remove(used) {
            self.uses += 1;
            *used = self.uses;
            self.by_use.insert(self.uses, url);
        }
        Some(inner)
    }

    /// Returns the file of this address and leaves its age alone.
    pub(crate) fn peek(&self, url: &str) -> Option<&Arc<Inner>> {
        self.by_url.get(url).map(|(_, inner)| inner)
    }

    /// Enters a file as the youngest.
    pub(crate) fn insert(&mut self, inner: Arc<Inner>) {
        let url: Arc<str> = inner.url().into();
        self.uses += 1;
        self.by_use.insert(self.uses, Arc::clone(&url));
        self.by_url.insert(url, (self.uses, inner));
    }

    /// Removes a file. Its space is given back when its last handle is gone.
    pub(crate) fn remove(&mut self, url: &str) -> Option<Arc<Inner>> {
        let (used, inner) = self.by_url.remove(url)?;
        self.by_use.remove(&used);
        Some(inner)
    }

    /// Removes files until there is room for `bytes` more, as far as possible, and returns them for
    /// deletion. Their space counts as free from now on.
    pub(crate) fn make_room(&mut self, bytes: u64) -> Vec<Arc<Inner>> {
        let mut evicted = Vec::new();
        while self.taken_bytes.saturating_add(bytes) > self.most_bytes() {
            // The lru holds one handle, and nobody gets another without it.
            let is_idle =
                |url: &&Arc<str>| self.peek(url).is_some_and(|inner| Arc::strong_count(inner) == 1);
            let Some(url) = self.by_use.values().find(is_idle).cloned() else { break };
            let Some(inner) = self.remove(&url) else { break };
            self.taken_bytes -= inner.give_all_back();
            evicted.push(inner);
        }
        evicted
    }

    /// Returns how many bytes of all files are here.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.by_url.values().map(|(_, inner)| inner.state().held.total_bytes()).sum()
    }

    /// Returns the number of files.
    pub(crate) fn count(&self) -> usize {
        self.by_url.len()
    }
}
