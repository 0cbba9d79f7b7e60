//! One cached file: which bytes are here, which are being fetched, and who waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::{Range, RangeMap, RangeSet};
use tokio::sync::watch;

use super::Shared;
use super::fetch::{Fetch, Wait};
use super::head::Head;
use crate::hashed_file::{BLOCK_BYTES, GroupHash, HashedFile, Layout, blocks};
use crate::sys;

/// The cache's record of a file.
pub(crate) struct Inner {
    pub(crate) head: Head,
    pub(crate) path: PathBuf,
    pub(crate) layout: Layout,
    state: Mutex<State>,
    /// Its space in the cache; changed only with the lru locked.
    taken_bytes: AtomicU64,
    /// Removed from the lru.
    gone: AtomicBool,
    shared: Weak<Shared>,
    /// Signals changes of the state to those who wait.
    changes: watch::Sender<u64>,
    file: Mutex<Weak<HashedFile>>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Bytes that can be read, or could when the cache was last open.
    pub(crate) held: RangeSet,
    /// Ranges being fetched, by the number of the fetch.
    pub(crate) fetching: RangeMap<u32>,
    fetches: u32,
    /// Groups whose space is taken. (As ranges: the server decides the file's size, and only the
    /// kept part may cost memory.)
    pub(crate) taken: RangeSet,
    /// Groups fetched in this run, or checked against their group hashes in it.
    pub(crate) proven: RangeSet,
    /// Groups whose group hashes in the file are right, as far as known.
    pub(crate) hashed: RangeSet,
}

/// A handle of a cached file, which is not evicted as long as one exists.
#[derive(Clone)]
pub struct Entry {
    pub(crate) inner: Arc<Inner>,
    pub(crate) file: Arc<HashedFile>,
    pub(crate) shared: Arc<Shared>,
}

/// What to do about the next bytes of a range.
#[derive(Debug)]
pub enum Step {
    /// They are here.
    Held(Part),
    /// Another reader is fetching them. They can be read as they arrive.
    Wait(Wait),
    /// Fetch them. Others wait for you.
    Fetch(Fetch),
    /// They are not here and there is no room for them: fetch them without the cache.
    Pass(Range),
}

/// Cached bytes as a part of an open file, to be sent by `sendfile` or read at `position`.
#[derive(Clone, Debug)]
pub struct Part {
    entry: Entry,
    /// Their place in the cached file.
    pub range: Range,
    /// Their offset in the open file.
    pub position: u64,
}

impl Part {
    /// Fills `bytes` from offset `at` of the open file, at or somewhat behind `position`. Blocks.
    pub fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.entry.file.file().read_exact_at(bytes, at)
    }
}

impl AsFd for Part {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.entry.file.as_fd()
    }
}

impl Entry {
    /// Returns the size of the file.
    pub fn size_bytes(&self) -> u64 {
        self.inner.layout.size_bytes
    }

    /// Returns the bytes that are here, as far as known. Those of an earlier run count, but only
    /// [`Entry::next`] checks them against their group hashes.
    pub fn held(&self) -> RangeSet {
        self.inner.state().held.clone()
    }

    /// Returns what to do about the first bytes of `range`: as many as can be treated alike. May
    /// read from the disk, so it blocks.
    ///
    /// # Errors
    /// The system's error, or `InvalidInput` if the range is empty or beyond the end. Fetch the
    /// file without the cache then.
    pub fn next(&self, range: Range) -> io::Result<Step> {
        if range.is_empty() || range.end > self.size_bytes() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        loop {
            let mut state = self.inner.state();
            if let Some(run) =
                state.held.first_from(range.start).filter(|run| run.start == range.start)
            {
                let first = self.inner.layout.group_at(range.start);
                let end = run.end.min(range.end).min(first.start + PART_BYTES_MAX);
                let wanted = Range::new(range.start, end);
                drop(state);
                let Some(range) = self.prove(wanted)? else { continue };
                let position = self.file.position_of(range.start);
                return Ok(Step::Held(Part { entry: self.clone(), range, position }));
            }
            let busy = state.fetching.within(range).first().map(|(run, _)| *run);
            if let Some(busy) = busy.filter(|busy| busy.start == range.start) {
                drop(state);
                return Ok(Step::Wait(Wait::new(self.clone(), busy)));
            }
            // Up to the next bytes that are here or being fetched.
            let next_held = state.held.first_from(range.start).map_or(u64::MAX, |run| run.start);
            let next_busy = busy.map_or(u64::MAX, |busy| busy.start);
            let gap = Range::new(range.start, range.end.min(next_held).min(next_busy));
            state.fetches = state.fetches.wrapping_add(1);
            let number = state.fetches;
            state.fetching.set(gap, number);
            drop(state);
            let fetch = Fetch::new(self.clone(), gap, number);
            return Ok(match self.take_room(gap) {
                Some(range) => Step::Fetch(fetch.cut_to(range.end)),
                // Dropping the fetch gives back what it claimed.
                None => Step::Pass(gap),
            });
        }
    }

    /// Takes space for the groups of `gap`; returns the part that found some.
    fn take_room(&self, gap: Range) -> Option<Range> {
        let spare_bytes = self.shared.spare_bytes();
        let mut lru = self.shared.lru();
        lru.heed(spare_bytes);
        let mut evicted = Vec::new();
        let mut got = None;
        for group in self.inner.layout.groups_of(gap) {
            // Kept locked, so that the space of its group hashes is counted once.
            let mut state = self.inner.state();
            if !state.taken.covers(group) {
                let bytes = self.inner.bytes_of(&state.taken, group);
                evicted.extend(lru.make_room(bytes));
                if lru.taken_bytes.saturating_add(bytes) > lru.most_bytes() {
                    break;
                }
                lru.taken_bytes += bytes;
                self.inner.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
                state.taken.insert(group);
                // Its bytes will arrive in this run.
                state.proven.insert(group);
            }
            got = Some(Range::new(gap.start, gap.end.min(group.end)));
        }
        drop(lru);
        self.shared.remove_files(&evicted);
        got
    }

    /// Checks groups of an earlier run against their group hashes; returns the sound part of
    /// `wanted`, which is held. `None` if its first byte is bad, and so not held any more.
    fn prove(&self, wanted: Range) -> io::Result<Option<Range>> {
        if self.file.file().metadata()?.len() < self.inner.layout.file_bytes() {
            // The file was truncated: answers in progress end, and the next request makes a new
            // file. If this one were filled again, it would have holes that are never checked.
            if !self.inner.gone.load(Ordering::Acquire) {
                tracing::warn!(url = %self.shown_url(), "a cached file was truncated: dropping it");
                self.shared.forget(self.inner.url());
            }
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for group in self.inner.layout.groups_of(wanted) {
            let is_proven = {
                let state = self.inner.state();
                let may_rot = state.hashed.covers(group) && state.held.covers(group);
                let is_proven = state.proven.covers(group);
                if is_proven && !(may_rot && self.file.is_looked_at_again(group)) {
                    continue;
                }
                is_proven
            };
            let group_hash = self.inner.masked(self.file.read_group_hash(group.start)?);
            let fits = self.file.fits(group, &group_hash)?;
            let mut state = self.inner.state();
            // Another reader may have found this first.
            let was_found = state.proven.insert(group) == 0 && !is_proven;
            if fits {
                state.hashed.insert(group);
            }
            if fits || was_found || is_proven && !state.hashed.covers(group) {
                continue;
            }
            state.hashed.remove(group);
            tracing::warn!(url = %self.shown_url(), range = %group, "cached bytes are damaged");
            state.held.remove(group);
        }
        let held = self.inner.state().held.first_from(wanted.start);
        let held = held.filter(|run| run.start == wanted.start);
        Ok(held.map(|run| Range::new(wanted.start, wanted.end.min(run.end))))
    }

    /// Returns the address without its query, which may grant access and must not be logged.
    fn shown_url(&self) -> &str {
        self.inner.head.url.split('?').next().unwrap_or_default()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }
}

impl Inner {
    pub(crate) fn new(head: Head, path: PathBuf, state: State, shared: &Arc<Shared>) -> Inner {
        let layout = head.layout();
        let taken_bytes = layout.head_bytes + layout.taken_bytes(&state.taken);
        Inner {
            layout,
            path,
            state: Mutex::new(state),
            taken_bytes: AtomicU64::new(taken_bytes),
            gone: AtomicBool::new(false),
            shared: Arc::downgrade(shared),
            changes: watch::Sender::new(0),
            file: Mutex::default(),
            head,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.head.url
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Raises its space to what its disk reports, for a file just made.
    pub(crate) fn takes_at_least(&self, bytes: u64) {
        self.taken_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Returns the space of `group`, which is not in `taken`: its blocks, plus one for group hashes
    /// if no other group has its hash there.
    fn bytes_of(&self, taken: &RangeSet, group: Range) -> u64 {
        let is_first = taken.bytes_within(self.layout.sharing_hash_block(group.start)) == 0;
        blocks(group.len()) + if is_first { BLOCK_BYTES } else { 0 }
    }

    /// Returns its space and resets it; only with the lru locked.
    pub(crate) fn give_all_back(&self) -> u64 {
        self.taken_bytes.swap(0, Ordering::Relaxed)
    }

    /// Marks it as removed from the lru: its space comes back when the last handle is gone.
    pub(crate) fn is_going(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Masks a group hash as in the file, or unmasks it.
    pub(crate) fn masked(&self, mut group_hash: GroupHash) -> GroupHash {
        group_hash.iter_mut().zip(&self.head.nonce).for_each(|(byte, mask)| *byte ^= mask);
        group_hash
    }

    /// Returns its file; opens it if it is not open.
    pub(crate) fn file(&self) -> io::Result<Arc<HashedFile>> {
        let mut known = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = known.upgrade() {
            return Ok(file);
        }
        let file = sys::no_follow().read(true).write(true).open(&self.path)?;
        let file = Arc::new(HashedFile::new(file, self.layout));
        *known = Arc::downgrade(&file);
        Ok(file)
    }

    /// Gives back the space of groups in `range` that are empty and not being fetched.
    pub(crate) fn release(&self, file: &HashedFile, range: Range) {
        let mut bytes = 0;
        for group in self.layout.groups_of(range) {
            let mut state = self.state();
            let is_empty =
                state.held.bytes_within(group) == 0 && state.fetching.within(group).is_empty();
            if is_empty && state.taken.covers(group) {
                // With the state locked: the next claim finds a clean hole.
                file.make_hole(group);
                state.taken.remove(group);
                let group_bytes = self.bytes_of(&state.taken, group);
                if group_bytes > blocks(group.len()) {
                    file.make_group_hashes_hole(group.start);
                }
                bytes += group_bytes;
            }
        }
        if bytes > 0
            && let Some(shared) = self.shared.upgrade()
        {
            let mut lru = shared.lru();
            lru.taken_bytes -= bytes;
            self.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.gone.load(Ordering::Acquire)
            && let Some(shared) = self.shared.upgrade()
        {
            shared.lru().taken_bytes -= self.give_all_back();
        }
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry({} {})", self.inner.head.url, self.inner.head.validator)
    }
}

/// Proving this much takes about a millisecond; more would delay the first byte.
const PART_BYTES_MAX: u64 = 16 * GROUP_BYTES;
