//! One cached file: which bytes are here, who fetches what, and who waits.

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

/// What the cache keeps of a file.
pub(crate) struct Inner {
    pub(crate) head: Head,
    pub(crate) path: PathBuf,
    pub(crate) layout: Layout,
    state: Mutex<State>,
    /// What it takes of the cache's size; changed by who holds the lru.
    taken_bytes: AtomicU64,
    /// Struck out of the lru.
    gone: AtomicBool,
    shared: Weak<Shared>,
    /// Changes whenever something of the state does that others wait for.
    changes: watch::Sender<u64>,
    file: Mutex<Weak<HashedFile>>,
}

#[derive(Default)]
pub(crate) struct State {
    /// What can be read, or could when the cache was last open.
    pub(crate) held: RangeSet,
    /// By the number of the fetch.
    pub(crate) fetching: RangeMap<u32>,
    fetches: u32,
    /// Groups that space is taken for. (As ranges: how large a file is, its server says, and what is
    /// kept of it alone may cost memory.)
    pub(crate) taken: RangeSet,
    /// Groups that came in this run, or were held against their group hashes in it.
    pub(crate) proven: RangeSet,
    /// Groups whose group hashes in the file are right, as far as is known.
    pub(crate) hashed: RangeSet,
}

/// A handle of a cached file; as long as there is one, the file is not evicted.
#[derive(Clone)]
pub struct Entry {
    pub(crate) inner: Arc<Inner>,
    pub(crate) file: Arc<HashedFile>,
    pub(crate) shared: Arc<Shared>,
}

/// What is to be done about the next bytes of a range.
#[derive(Debug)]
pub enum Step {
    /// They are here.
    Held(Part),
    /// Somebody is fetching them. They can be read as they come.
    Wait(Wait),
    /// They are yours to fetch. Others wait for you.
    Fetch(Fetch),
    /// They are not here and there is no room for them: fetch these without the cache.
    Pass(Range),
}

/// Cached bytes as a part of an open file, to be sent by `sendfile` or read at `position`.
#[derive(Clone, Debug)]
pub struct Part {
    entry: Entry,
    /// The bytes of the file that is cached.
    pub range: Range,
    /// Where in the open file they begin.
    pub position: u64,
}

impl Part {
    /// Reads from `position` on, or somewhat behind it: fills `bytes` with what lies at `at` in the open
    /// file. It blocks.
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
    /// How large the file is.
    pub fn size_bytes(&self) -> u64 {
        self.inner.layout.size_bytes
    }

    /// What of it is here, as far as is known: what an earlier run has left counts, and is held
    /// against its group hashes only by [`Entry::next`].
    pub fn held(&self) -> RangeSet {
        self.inner.state().held.clone()
    }

    /// What to do about the first bytes of `range`: as many of them as can be treated alike. Reads
    /// from the disk at times, so it blocks.
    ///
    /// # Errors
    /// What the system says, `InvalidInput` for a range that is empty or beyond the end. The file
    /// is to be fetched without the cache then.
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
            // Up to what is here or is being fetched.
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
                // Dropped, it gives back what it claimed.
                None => Step::Pass(gap),
            });
        }
    }

    /// Takes space for the groups of `gap`: for how much of it there is some.
    fn take_room(&self, gap: Range) -> Option<Range> {
        let spare_bytes = self.shared.spare_bytes();
        let mut lru = self.shared.lru();
        lru.heed(spare_bytes);
        let mut evicted = Vec::new();
        let mut got = None;
        for group in self.inner.layout.groups_of(gap) {
            // Kept, so that what its group hashes take is counted once.
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
                // Whatever comes, comes in this run.
                state.proven.insert(group);
            }
            got = Some(Range::new(gap.start, gap.end.min(group.end)));
        }
        drop(lru);
        self.shared.remove_files(&evicted);
        got
    }

    /// Holds groups that an earlier run has left against their group hashes: how much of `wanted`, which
    /// is held, can be believed. `None` if its first byte cannot, and is not held any more.
    fn prove(&self, wanted: Range) -> io::Result<Option<Range>> {
        if self.file.file().metadata()?.len() < self.inner.layout.file_bytes() {
            // Somebody has cut it: whoever is being sent some of it ends there, and the next one begins
            // another file. Filled again, this one would have holes that nobody looks at any more.
            if !self.inner.gone.load(Ordering::Acquire) {
                tracing::warn!(url = %self.shown_url(), "a cached file was cut off: it is given up");
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
            // Another reader may have found out before us.
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

    /// Queries open things, as signed ones do: they are for no log.
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

    /// It takes no less than this, as its disk has it. For who has just made it.
    pub(crate) fn takes_at_least(&self, bytes: u64) {
        self.taken_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// What `group`, which is none of `taken`, takes beside these: its blocks, and one for group hashes if
    /// nothing else has its group hash there.
    fn bytes_of(&self, taken: &RangeSet, group: Range) -> u64 {
        let is_first = taken.bytes_within(self.layout.sharing_hash_block(group.start)) == 0;
        blocks(group.len()) + if is_first { BLOCK_BYTES } else { 0 }
    }

    /// What it took is taken no more; for who holds the lru.
    pub(crate) fn give_all_back(&self) -> u64 {
        self.taken_bytes.swap(0, Ordering::Relaxed)
    }

    /// It is struck out of the lru: what it takes comes back when nobody has it any more.
    pub(crate) fn is_going(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// A group hash as it is in the file, or the other way round.
    pub(crate) fn masked(&self, mut group_hash: GroupHash) -> GroupHash {
        group_hash.iter_mut().zip(&self.head.nonce).for_each(|(byte, mask)| *byte ^= mask);
        group_hash
    }

    /// Its file, opened if nobody has it open.
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

    /// Gives back the space of groups in `range` that nothing is left of and nobody fetches.
    pub(crate) fn release(&self, file: &HashedFile, range: Range) {
        let mut bytes = 0;
        for group in self.layout.groups_of(range) {
            let mut state = self.state();
            let is_empty =
                state.held.bytes_within(group) == 0 && state.fetching.within(group).is_empty();
            if is_empty && state.taken.covers(group) {
                // With the state held: who claims it next finds a hole and nothing else.
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

/// Proving so much takes about a millisecond, so that the first byte does not wait for the last.
const PART_BYTES_MAX: u64 = 16 * GROUP_BYTES;
