//! One live allocation: its stored bytes, its writers, and how bytes become durable.
//!
//! A commit writes bytes and group hashes, syncs the file, appends to the journal and syncs the
//! journal; only then are the bytes held. A commit that arrives during another one waits for the
//! next, which serves all that wait. Invariant: a held byte never changes, unless it is found
//! damaged.
//!
//! Locks: `journal` before `book` before the depot's ledger; `book` is never held during disk
//! access.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use swath_model::{Range, RangeSet, Time};

use super::Shared;
use super::capability::LeaseId;
use super::clock::Term;
use super::contents::{Contents, Fact};
use super::ledger::{Medium, Refusal, Space};
use super::settle::{Parts, settle};
use crate::hashed_file::{HashedFile, Layout, blocks};
use crate::journal::{JournalEnd, JournalFile, Sum as _};
use crate::sys;

pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) medium: Medium,
    pub(crate) layout: Layout,
    pub(crate) space: Space,
    /// Nanoseconds since the machine started, or [`GIVEN_UP`].
    ends: AtomicU64,
    book: Mutex<Book>,
    journal: Mutex<Journal>,
    committed: Condvar,
    /// It was found without its files.
    lost: AtomicBool,
}

/// What is known of the bytes.
pub(crate) struct Book {
    pub(crate) contents: Contents,
    /// Ranges that writers have claimed but not committed.
    pub(crate) writing: RangeSet,
    /// Blocks whose space is taken, if space is taken as bytes are stored.
    covered: RangeSet,
    /// Whole groups found right since they were stored or the depot was opened. (As ranges: an
    /// allocation may be much larger than its stored part.)
    pub(crate) checked: RangeSet,
    /// Number of failed syncs. Bytes written before one may be lost, whatever later syncs report.
    pub(crate) epoch: u32,
    pending: Vec<Pending>,
    is_committing: bool,
    /// Open as long as anyone uses it.
    file: Weak<HashedFile>,
    /// The only copy of the bytes if they are in memory.
    kept: Option<Arc<HashedFile>>,
}

impl Book {
    /// Records that a whole group fits its group hash, if it is still held. Another thread may have
    /// found it damaged since, and pieces stored after that are unchecked.
    pub(crate) fn found_right(&mut self, group: Range) {
        if self.contents.held.covers(group) {
            self.checked.insert(group);
        }
    }
}

enum Journal {
    /// No journal: the bytes are in memory.
    None,
    Ends(JournalEnd),
    /// The allocation is gone: nothing may be written any more.
    Gone,
}

struct Pending {
    parts: Parts,
    epoch: u32,
    answer: Arc<OnceLock<Result<(), Fault>>>,
}

/// Why a commit failed; shared by all callers that it served.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    Gone,
    /// The written bytes may be lost.
    Lost(Arc<io::Error>),
    Io(Arc<io::Error>),
}

impl Lease {
    /// Returns an allocation on the disk whose journal ends at `end`.
    pub(crate) fn on_disk(id: LeaseId, ends: Time, contents: Contents, end: JournalEnd) -> Lease {
        Lease::new(id, Medium::Disk, ends, contents, Journal::Ends(end), None)
    }

    /// Returns an allocation in memory.
    pub(crate) fn in_memory(id: LeaseId, ends: Time, contents: Contents, file: File) -> Lease {
        let file = Arc::new(HashedFile::new(file, contents.layout()));
        Lease::new(id, Medium::Memory, ends, contents, Journal::None, Some(file))
    }

    fn new(
        id: LeaseId,
        medium: Medium,
        ends: Time,
        contents: Contents,
        journal: Journal,
        kept: Option<Arc<HashedFile>>,
    ) -> Lease {
        let (layout, space) = (contents.layout(), contents.space());
        let book = Book {
            covered: if space == Space::AsStored { contents.covered() } else { RangeSet::new() },
            contents,
            writing: RangeSet::new(),
            checked: RangeSet::new(),
            epoch: 0,
            pending: Vec::new(),
            is_committing: false,
            file: kept.as_ref().map_or_else(Weak::new, Arc::downgrade),
            kept,
        };
        Lease {
            id,
            medium,
            layout,
            space,
            ends: AtomicU64::new(ends.as_nanos()),
            book: Mutex::new(book),
            journal: Mutex::new(journal),
            committed: Condvar::new(),
            lost: AtomicBool::new(false),
        }
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ends(&self) -> Time {
        Time::from_nanos(self.ends.load(Ordering::Acquire))
    }

    /// Restores a lease that seemed to have ended; it runs until `ends`.
    pub(crate) fn revive(&self, ends: Time) {
        self.ends.store(ends.as_nanos(), Ordering::Release);
    }

    pub(crate) fn is_live(&self, depot: &Shared) -> bool {
        self.ends() > depot.clock.now().since_boot
    }

    /// Returns whether it is being removed, or was: its space belongs to others, or soon will.
    pub(crate) fn is_given_up(&self) -> bool {
        self.ends.load(Ordering::Acquire) == GIVEN_UP
    }

    /// Returns whether a file of it was removed or truncated from outside. Open files live on and
    /// do not show that.
    pub(crate) fn is_lost(&self, depot: &Shared) -> bool {
        if self.medium == Medium::Memory {
            return false;
        }
        let Ok(names) = depot.names(self.id) else { return false };
        let is_missing = |path: &std::path::Path, least_bytes| match path.symlink_metadata() {
            Ok(found) => found.len() < least_bytes,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        // A lease that is being given up loses its files too, and is marked before that.
        let is_lost = (is_missing(&names.part, self.layout.file_bytes())
            || is_missing(&names.journal, 0))
            && !self.is_given_up();
        if is_lost && !self.lost.swap(true, Ordering::Relaxed) {
            depot.lost.fetch_add(1, Ordering::Relaxed);
        }
        is_lost
    }

    /// Returns the space that it takes.
    pub(crate) fn taken_bytes(&self) -> u64 {
        match self.space {
            Space::Reserved => blocks(self.layout.size_bytes),
            Space::AsStored => self.book().covered.total_bytes(),
        }
    }

    /// Takes the space for bytes to be stored at `range`.
    pub(crate) fn cover(
        &self,
        depot: &Shared,
        book: &mut Book,
        range: Range,
    ) -> Result<(), Refusal> {
        if self.space == Space::Reserved {
            return Ok(());
        }
        let wanted = self.layout.blocks_of(range);
        let more_bytes = wanted.len() - book.covered.bytes_within(wanted);
        if more_bytes > 0 {
            depot.leases().ledger.grow(self.id, more_bytes)?;
            book.covered.insert(wanted);
        }
        Ok(())
    }

    /// Returns the file; opens it if it is not open.
    pub(crate) fn file(&self, depot: &Shared) -> io::Result<Arc<HashedFile>> {
        let mut book = self.book();
        if let Some(file) = book.file.upgrade() {
            return Ok(file);
        }
        let names = depot.names(self.id)?;
        let file = sys::no_follow().read(true).write(true).open(&names.part)?;
        let file = Arc::new(HashedFile::new(file, self.layout));
        book.file = Arc::downgrade(&file);
        Ok(file)
    }

    /// Makes written bytes durable and then held. Ends their claims in any case.
    pub(crate) fn commit(
        &self,
        depot: &Shared,
        file: &HashedFile,
        parts: Parts,
        epoch: u32,
    ) -> Result<(), Fault> {
        let answer = Arc::new(OnceLock::new());
        let pending = Pending { parts, epoch, answer: Arc::clone(&answer) };
        let mut book = self.book();
        book.pending.push(pending);
        while book.is_committing {
            book = self.committed.wait(book).unwrap_or_else(PoisonError::into_inner);
            // Another thread has committed ours.
            if let Some(done) = answer.get() {
                return done.clone();
            }
        }
        book.is_committing = true;
        drop(book);
        let mut journal = self.journal();
        let (batch, epoch) = {
            let mut book = self.book();
            (std::mem::take(&mut book.pending), book.epoch)
        };
        let (batch, lost): (Vec<_>, Vec<_>) = batch.into_iter().partition(|one| one.epoch == epoch);
        let parts: Vec<&Parts> = batch.iter().map(|one| &one.parts).collect();
        let outcome = self.commit_batch(depot, file, &mut journal, &parts);
        let earlier = Err(Fault::Lost(Arc::new(io::Error::other("an earlier sync failed"))));
        let mut book = self.book();
        for (one, outcome) in
            batch.iter().map(|one| (one, &outcome)).chain(lost.iter().map(|one| (one, &earlier)))
        {
            for range in one.parts.ranges() {
                book.writing.remove(range);
            }
            let _ = one.answer.set(outcome.clone());
        }
        book.is_committing = false;
        drop(book);
        // Wake all at once, so that callers that return soon share the next commit.
        self.committed.notify_all();
        answer.get().cloned().unwrap_or(Err(Fault::Gone))
    }

    fn commit_batch(
        &self,
        depot: &Shared,
        file: &HashedFile,
        journal: &mut Journal,
        parts: &[&Parts],
    ) -> Result<(), Fault> {
        if matches!(journal, Journal::Gone) {
            return Err(Fault::Gone);
        }
        if parts.is_empty() {
            return Ok(());
        }
        let facts = settle(file, || self.book(), parts)?;
        if self.medium == Medium::Disk
            && let Err(error) = depot.steps.sync_data(file.file())
        {
            self.book().epoch += 1;
            return Err(Fault::Lost(Arc::new(error)));
        }
        self.enter(depot, journal, &facts)
    }

    /// Writes facts to the journal and applies them.
    fn enter(&self, depot: &Shared, journal: &mut Journal, facts: &[Fact]) -> Result<(), Fault> {
        let end = match journal {
            Journal::Gone => return Err(Fault::Gone),
            Journal::None => {
                self.apply(depot, facts);
                return Ok(());
            }
            Journal::Ends(end) => end,
        };
        let io_fault = |error| Fault::Io(Arc::new(error));
        let names = depot.names(self.id).map_err(io_fault)?;
        let mut file = JournalFile::reopen(&names, *end).map_err(io_fault)?;
        let steps = depot.steps.as_ref();
        let mut append = || {
            if file.is_broken() {
                let contents = self.book().contents.clone();
                file.compact(steps, &names, &contents)?;
            }
            file.append_only::<Contents>(steps, facts)
        };
        let appended = append();
        if appended.is_ok() {
            self.apply(depot, facts);
            if file.is_long() {
                let contents = self.book().contents.clone();
                file.shorten(steps, &names, &contents);
            }
        }
        *end = file.end();
        appended.map_err(|error| io_fault(error.into_io()))
    }

    fn apply(&self, depot: &Shared, facts: &[Fact]) {
        let mut book = self.book();
        let before = book.contents.pieces.len();
        for fact in facts {
            if let Fact::Whole { range } | Fact::Bad { range } = fact {
                for group in self.layout.groups_of(*range) {
                    book.checked.remove(group);
                }
            }
            book.contents.apply(fact);
        }
        let after = book.contents.pieces.len();
        depot.pieces.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Extends it durably to another term, and has `enter` put that into the ledger. Returns its
    /// end, which is later if another caller was promised more.
    pub(crate) fn extend(
        &self,
        depot: &Shared,
        term: Term,
        enter: impl FnOnce(Time) -> bool,
    ) -> Result<Time, Fault> {
        let mut journal = self.journal();
        let ends = term.from.since_boot + term.length;
        // It may have been extended since the caller looked.
        let promised = self.ends();
        if promised >= ends {
            return Ok(promised);
        }
        self.enter(depot, &mut journal, &[Fact::Term(term)])?;
        if !enter(ends) {
            return Err(Fault::Gone);
        }
        // A thread that gives it up waits for the journal; nothing may live on after that.
        let later = |ends_now| (ends_now != GIVEN_UP).then_some(ends.as_nanos());
        let extended = self.ends.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
        extended.map(|_| ends).map_err(|_| Fault::Gone)
    }

    /// Checks again bytes that did not fit their group hashes. If they still do not fit, they are
    /// not held any more and may be stored again.
    pub(crate) fn suspect(
        &self,
        depot: &Shared,
        file: &HashedFile,
        range: Range,
    ) -> io::Result<()> {
        let mut journal = self.journal();
        if matches!(*journal, Journal::Gone) {
            return Ok(());
        }
        let pieces: Vec<_> = self.book().contents.pieces_within(range).collect();
        let held = self.book().contents.held.covers(range);
        let group_hash = match pieces.as_slice() {
            [] if self.layout.is_whole(range) => file.read_group_hash(range.start)?,
            [(piece, group_hash)] if *piece == range => *group_hash,
            _ => return Ok(()),
        };
        if !held || file.fits(range, &group_hash)? {
            return Ok(());
        }
        tracing::warn!(lease = %self.id, %range, "stored bytes are damaged");
        let bad = [Fact::Bad { range }];
        if self.enter(depot, &mut journal, &bad).is_err() {
            // The journal still vouches for them; the next reader finds the damage again.
            self.apply(depot, &bad);
        }
        Ok(())
    }

    /// Gives up the allocation: nothing is stored any more, and reading ends. Once its folder is
    /// synced, power loss cannot restore it; call [`Lease::clear`] only then. Changes nothing on
    /// error.
    pub(crate) fn give_up(&self, depot: &Shared) -> io::Result<()> {
        let names = match self.medium {
            Medium::Disk => Some(depot.names(self.id)?),
            Medium::Memory => None,
        };
        let steps = depot.steps.as_ref();
        let promised = self.ends.swap(GIVEN_UP, Ordering::AcqRel);
        // After this, no commit restores anything.
        let mut journal = self.journal();
        if let Some(names) = &names {
            let removed = remove(steps, &names.journal_new);
            if let Err(error) = removed.and_then(|()| remove(steps, &names.journal)) {
                self.ends.store(promised, Ordering::Release);
                return Err(error);
            }
        }
        *journal = Journal::Gone;
        let mut book = self.book();
        let pieces = book.contents.pieces.len();
        book.contents = Contents::default();
        book.covered = RangeSet::new();
        book.checked = RangeSet::new();
        depot.pieces.fetch_sub(pieces, Ordering::Relaxed);
        Ok(())
    }

    /// Frees the space of an allocation that was given up. (After its journal, so that an
    /// allocation restored by power loss finds its bytes.)
    pub(crate) fn clear(&self, depot: &Shared) {
        let file = {
            let mut book = self.book();
            book.kept.take().or_else(|| book.file.upgrade())
        };
        // Readers that keep it open must not keep its space.
        if let Some(file) = file {
            file.empty();
        }
        if self.medium == Medium::Disk
            && let Ok(names) = depot.names(self.id)
        {
            // A file without a journal is removed when the depot is opened.
            let _ = remove(depot.steps.as_ref(), &names.part);
        }
    }
}

impl Parts {
    fn ranges(&self) -> impl Iterator<Item = Range> + '_ {
        self.whole.iter().chain(self.pieces.iter().map(|(range, _)| *range))
    }
}

/// Removes a name that may not exist.
pub(crate) fn remove(steps: &dyn crate::steps::Steps, path: &std::path::Path) -> io::Result<()> {
    match steps.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Stands in for the end of the lease.
const GIVEN_UP: u64 = 0;

#[cfg(test)]
impl Lease {
    /// Returns how many callers wait for the next commit.
    pub(crate) fn pending(&self) -> usize {
        self.book().pending.len()
    }

    /// Writes any facts to the journal.
    pub(crate) fn note(&self, depot: &Shared, facts: &[Fact]) {
        assert!(self.enter(depot, &mut self.journal(), facts).is_ok());
    }
}
