//! What a walk remembers, and how much of it: servers exist whose pages lead to ever more folders, by
//! mistake or on purpose.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use swath_formats::listing::Listing;
use swath_formats::percent;
use url::Url;

use crate::error::WalkLimit;

/// The limits of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub folders: u64,
    pub entries: u64,
    pub waiting_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            folders: FOLDERS_MAX,
            entries: ENTRIES_MAX,
            waiting_bytes: usize::from(WAITING_MIB_MAX) << 20,
        }
    }
}

/// Folders that wait to be read, the last one first: so fewer wait than level by level.
pub struct Waiting<T> {
    bounds: Bounds,
    folders: Vec<(T, usize)>,
    bytes: usize,
    /// All folders so far.
    count: u64,
    entries: u64,
}

impl<T> Waiting<T> {
    pub fn new(bounds: Bounds) -> Waiting<T> {
        Waiting { bounds, folders: Vec::new(), bytes: 0, count: 0, entries: 0 }
    }

    /// Adds a folder, whose names have `bytes`.
    pub fn push(&mut self, folder: T, bytes: usize) -> Result<(), WalkLimit> {
        let bytes = bytes + size_of::<(T, usize)>();
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.count > self.bounds.folders {
            return Err(WalkLimit::Folders { max: self.bounds.folders });
        }
        if self.bytes > self.bounds.waiting_bytes {
            return Err(WalkLimit::Waiting { max_bytes: self.bounds.waiting_bytes });
        }
        self.folders.push((folder, bytes));
        Ok(())
    }

    pub fn pop(&mut self) -> Option<T> {
        let (folder, bytes) = self.folders.pop()?;
        self.bytes -= bytes;
        Some(folder)
    }

    /// Counts an entry of a listing.
    pub fn count_entry(&mut self) -> Result<(), WalkLimit> {
        self.entries += 1;
        match self.entries > self.bounds.entries {
            true => Err(WalkLimit::Entries { max: self.bounds.entries }),
            false => Ok(()),
        }
    }
}

/// Folders so far, as hashes: by path, and by the address where they were found.
#[derive(Default)]
pub struct Seen(HashSet<u64>);

impl Seen {
    /// Whether the path is new.
    pub fn insert_path(&mut self, path: &str) -> bool {
        self.0.insert(hash(&("path", path)))
    }

    /// Whether the address of a folder is new, in whatever letters it is written.
    pub fn insert_url(&mut self, url: &Url) -> bool {
        let parts = url.path().split('/').filter(|part| !part.is_empty()).map(percent::decode);
        let key = (url.host_str(), url.port_or_known_default(), parts.collect::<Vec<_>>());
        self.0.insert(hash(&key))
    }
}

/// What a listing shows, to compare it with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    pub fn of(listing: &Listing) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        for entry in &listing.entries {
            (entry.path.as_str(), entry.is_folder, entry.size_bytes).hash(&mut hasher);
        }
        listing.refused.len().hash(&mut hasher);
        Fingerprint(hasher.finish())
    }
}

fn hash(key: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// With its two hashes each a walk remembers some 40 MB of them.
const FOLDERS_MAX: u64 = 1_000_000;
/// Each entry that is copied costs a request: a list without end stops here.
const ENTRIES_MAX: u64 = 50_000_000;
const WAITING_MIB_MAX: u16 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_ends_at_each_of_its_limits() {
        let bounds = Bounds { folders: 5, entries: 3, waiting_bytes: 1000 };
        let mut waiting = Waiting::new(bounds);
        assert_eq!(waiting.push("a", 700), Ok(()));
        assert_eq!(waiting.push("b", 700), Err(WalkLimit::Waiting { max_bytes: 1000 }));
        let mut waiting = Waiting::new(bounds);
        for name in ["a", "b", "c", "d", "e"] {
            // One that has been read makes room.
            assert_eq!(waiting.push(name, 700), Ok(()));
            assert_eq!(waiting.pop(), Some(name));
        }
        assert_eq!(waiting.push("f", 1), Err(WalkLimit::Folders { max: 5 }));
        assert_eq!([(); 3].map(|()| waiting.count_entry()), [Ok(()); 3]);
        assert_eq!(waiting.count_entry(), Err(WalkLimit::Entries { max: 3 }));
    }

    #[test]
    fn folders_are_known_by_address_in_any_letters() {
        let mut seen = Seen::default();
        let url = |text: &str| Url::parse(text).unwrap();
        assert!(seen.insert_url(&url("http://h/a%2fb/~c/")) && seen.insert_path("a/c"));
        assert!(!seen.insert_url(&url("http://H:80/a%2Fb/%7ec")) && !seen.insert_path("a/c"));
        assert!(seen.insert_url(&url("http://h/a/b/~c/")) && seen.insert_path("c"));
    }
}
