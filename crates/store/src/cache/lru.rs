//! Which files are cached, how much space they take, and which one is evicted next.
//!
//! Space is taken by groups, when a fetch of one of their bytes begins; the first group whose hash
//! lies in a block takes that block too. Folders take what they are. Always holds: what is taken
//! never exceeds the size, unless the cache was opened with a smaller size and everything is in
//! use; a file with an open handle is not evicted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::entry::Inner;

/// The lru of a cache.
#[derive(Default)]
pub(crate) struct Lru {
    pub(crate) size_bytes: u64,
    pub(crate) taken_bytes: u64,
    /// What the folders themselves take of that.
    own_bytes: u64,
    /// What its disk lets it come to, which may be less than it was given.
    disk_most_bytes: Option<u64>,
    by_url: HashMap<Arc<str>, (u64, Arc<Inner>)>,
    /// By when they were last asked for.
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
}

impl Lru {
    pub(crate) fn new(size_bytes: u64) -> Lru {
        Lru { size_bytes, ..Lru::default() }
    }

    /// The disk has so much beyond what it is to keep free; unknown, nothing is made of it. What is
    /// kept stays where that is nothing, and makes room for what comes.
    pub(crate) fn heed(&mut self, spare_bytes: Option<u64>) {
        self.disk_most_bytes = spare_bytes.map(|spare| self.taken_bytes.saturating_add(spare));
    }

    /// So much do the folders themselves take.
    pub(crate) fn heed_own(&mut self, own_bytes: u64) {
        self.taken_bytes = self.taken_bytes - self.own_bytes + own_bytes;
        self.own_bytes = own_bytes;
    }

    /// How much may be kept now.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.size_bytes.min(self.disk_most_bytes.unwrap_or(u64::MAX))
    }

    /// The file of this address, which is the youngest now.
    pub(crate) fn touch(&mut self, url: &str) -> Option<&Arc<Inner>> {
        let (used, inner) = self.by_url.get_mut(url)?;
        if let Some(url) = self.by_use.remove(used) {
            self.uses += 1;
            *used = self.uses;
            self.by_use.insert(self.uses, url);
        }
        Some(inner)
    }

    /// The file of this address, which stays as old as it is.
    pub(crate) fn peek(&self, url: &str) -> Option<&Arc<Inner>> {
        self.by_url.get(url).map(|(_, inner)| inner)
    }

    /// Enters a file, the youngest.
    pub(crate) fn insert(&mut self, inner: Arc<Inner>) {
        let url: Arc<str> = inner.url().into();
        self.uses += 1;
        self.by_use.insert(self.uses, Arc::clone(&url));
        self.by_url.insert(url, (self.uses, inner));
    }

    /// Strikes a file out. Its space is given back when nobody has it any more.
    pub(crate) fn remove(&mut self, url: &str) -> Option<Arc<Inner>> {
        let (used, inner) = self.by_url.remove(url)?;
        self.by_use.remove(&used);
        Some(inner)
    }

    /// The files to be evicted so that `bytes` more find room, struck out already; as many as
    /// help. Their space counts as free from now on.
    pub(crate) fn make_room(&mut self, bytes: u64) -> Vec<Arc<Inner>> {
        let mut evicted = Vec::new();
        while self.taken_bytes.saturating_add(bytes) > self.most_bytes() {
            // One is ours. Nobody gets another without the lru.
            let is_idle =
                |url: &&Arc<str>| self.peek(url).is_some_and(|inner| Arc::strong_count(inner) == 1);
            let Some(url) = self.by_use.values().find(is_idle).cloned() else { break };
            let Some(inner) = self.remove(&url) else { break };
            self.taken_bytes -= inner.give_all_back();
            evicted.push(inner);
        }
        evicted
    }

    /// How much of all files is here.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.by_url.values().map(|(_, inner)| inner.state().held.total_bytes()).sum()
    }

    /// How many files there are.
    pub(crate) fn count(&self) -> usize {
        self.by_url.len()
    }
}
