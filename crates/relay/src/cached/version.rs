//! One version of a file: who wants which part of it, so that nothing is fetched for nobody, and
//! what its fetchers learn.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use swath_formats::Etag;
use swath_model::Range;
use swath_source::AnswerHead;
use swath_store::cache::Key;
use tokio::sync::watch;
use url::Url;

/// A version of a file.
pub(super) struct Version {
    pub url: Url,
    pub etag: Etag,
    pub size_bytes: u64,
    /// There is another one now, or this one cannot be fetched in parts.
    is_over: AtomicBool,
    /// What is still wanted, by readers' numbers.
    wanted: Mutex<Wanted>,
    /// Changes when somebody wants less than before.
    less: watch::Sender<()>,
    /// Digests that came with its bytes.
    digests: OnceLock<Vec<(String, String)>>,
    /// What is told of the hops that its bytes came by.
    timing: Mutex<String>,
}

#[derive(Default)]
struct Wanted {
    ranges: HashMap<u64, Range>,
    next: u64,
}

/// Somebody wants a range of a version as long as this is there.
pub(super) struct Interest {
    version: Arc<Version>,
    number: u64,
}

impl Version {
    pub fn new(url: &Url, etag: Etag, size_bytes: u64) -> Version {
        Version {
            url: url.clone(),
            etag,
            size_bytes,
            is_over: AtomicBool::new(false),
            wanted: Mutex::default(),
            less: watch::Sender::new(()),
            digests: OnceLock::new(),
            timing: Mutex::default(),
        }
    }

    /// Returns the key under which the store knows it.
    pub fn key(&self) -> Key {
        Key { url: self.url.as_str().to_owned(), validator: self.etag.as_str().to_owned() }
    }

    /// Whether nothing more of it can come.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.less.send_replace(());
    }

    /// Whether anybody waits for some of `range`.
    pub fn is_wanted(&self, range: Range) -> bool {
        self.wanted().ranges.values().any(|one| one.intersect(range).is_some())
    }

    /// Some of it comes, with this head; `hop` is what we know of the way there.
    pub fn comes(&self, answer: &AnswerHead, hop: &str) {
        let is_digest = |name: &str| matches!(name, "repr-digest" | "digest");
        self.digests.get_or_init(|| {
            let all = answer.fields.iter().filter(|(name, _)| is_digest(name));
            all.filter(|(_, value)| value.len() <= TOLD_BYTES_MAX).take(TOLD_MAX).cloned().collect()
        });
        let farther = answer.fields.iter().filter(|(name, _)| name == "server-timing");
        let farther = farther.filter(|(_, value)| value.len() <= TOLD_BYTES_MAX).take(TOLD_MAX);
        let mut timing: String = farther.map(|(_, value)| format!("{value}, ")).collect();
        timing.push_str(hop);
        *self.timing.lock().unwrap_or_else(PoisonError::into_inner) = timing;
    }

    pub fn digests(&self) -> &[(String, String)] {
        self.digests.get().map_or(&[], Vec::as_slice)
    }

    pub fn timing(&self) -> String {
        self.timing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interest {
    /// For `range` of this version.
    pub fn new(version: &Arc<Version>, range: Range) -> Interest {
        let mut wanted = version.wanted();
        wanted.next += 1;
        let number = wanted.next;
        wanted.ranges.insert(number, range);
        drop(wanted);
        Interest { version: Arc::clone(version), number }
    }

    /// No more than `range` is wanted.
    pub fn only(&self, range: Range) {
        self.version.wanted().ranges.insert(self.number, range);
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.version.wanted().ranges.remove(&self.number);
        self.version.less.send_replace(());
    }
}

/// Longer values, and more of them, are not kept in memory.
const TOLD_BYTES_MAX: usize = 1 << 10;
const TOLD_MAX: usize = 8;

/// Whether what is fetched is still wanted.
pub(super) struct Need {
    less: watch::Receiver<()>,
    version: Arc<Version>,
    pub range: Range,
}

impl Need {
    pub fn new(version: &Arc<Version>, range: Range) -> Need {
        Need { less: version.less.subscribe(), version: Arc::clone(version), range }
    }

    pub fn is_not(&self) -> bool {
        self.version.is_over() || !self.version.is_wanted(self.range)
    }

    /// Resolves when it is not.
    pub async fn ends(&mut self) {
        while !self.is_not() {
            // The sender lives as long as the version.
            let _ = self.less.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_wants_is_not_wanted() {
        let url = Url::parse("http://a/f").unwrap();
        let version = Arc::new(Version::new(&url, Etag::parse("\"a\"").unwrap(), 100));
        let range = |start, end| Range::new(start, end);
        assert!(!version.is_wanted(range(0, 100)));
        let need = Need::new(&version, range(50, 60));
        assert!(need.is_not());
        let (one, two) =
            (Interest::new(&version, range(0, 50)), Interest::new(&version, range(40, 60)));
        assert!(version.is_wanted(range(0, 1)) && version.is_wanted(range(59, 100)));
        assert!(!version.is_wanted(range(60, 100)));
        one.only(range(45, 50));
        assert!(!version.is_wanted(range(0, 40)) && version.is_wanted(range(0, 41)));
        assert!(!need.is_not());
        drop(two);
        assert!(need.is_not() && need.less.has_changed().unwrap());
        assert!(!version.is_wanted(range(0, 45)) && version.is_wanted(range(0, 46)));
    }
}
