//! Threads that run verifiers beside the executor, so that hashing never stops a lane.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use swath_model::pool::ALIGN_BYTES;
use swath_model::{Buffer, Range};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::verifier::{Saved, Verdict, Verifier};

/// A report of a verifier to its transfer.
#[derive(Debug)]
pub(crate) struct Report {
    /// New verdicts.
    pub verdicts: Vec<Verdict>,
    /// Bytes to read back because hashing waits for them. Each needs an answer with its number.
    pub wants: Vec<(ReadNumber, Range)>,
}

/// Identifies a read-back of one verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadNumber(u64);

enum Command {
    Add { id: u64, entry: Box<Entry> },
    Accept { id: u64, offset: u64, buffer: Buffer },
    AcceptBack { id: u64, read: ReadNumber, back: Option<(u64, Buffer)> },
    Forget { id: u64, range: Range },
    EndAt { id: u64, size_bytes: u64 },
    Save { id: u64, reply: oneshot::Sender<Vec<Saved>> },
    Remove { id: u64 },
}

/// A fixed set of hashing threads; cheap to clone. They end when the last clone is gone.
#[derive(Clone)]
pub(crate) struct HashThreads {
    hashers: Arc<Vec<Hasher>>,
    next: Arc<AtomicU64>,
    busy_nanos: Arc<AtomicU64>,
}

/// A handle of a verifier on its thread, which removes it when dropped.
pub(crate) struct VerifierHandle {
    id: u64,
    hasher: Hasher,
    hashed_bytes: Arc<AtomicU64>,
}

/// Where verifiers run.
#[derive(Clone)]
enum Hasher {
    /// On another thread.
    Thread(mpsc::Sender<Command>),
    /// In the caller.
    Here(Arc<Mutex<Entries>>),
}

impl HashThreads {
    /// Starts no threads: callers hash the bytes that they hand over.
    pub fn none() -> Self {
        let busy_nanos = Arc::new(AtomicU64::new(0));
        let here = Entries { entries: HashMap::new(), busy_nanos: Arc::clone(&busy_nanos) };
        let hashers = Arc::new(vec![Hasher::Here(Arc::new(Mutex::new(here)))]);
        Self { hashers, next: Arc::new(AtomicU64::new(0)), busy_nanos }
    }

    /// Starts `count` threads.
    pub fn start(count: usize) -> std::io::Result<Self> {
        let busy_nanos = Arc::new(AtomicU64::new(0));
        let mut hashers = Vec::new();
        for number in 0..count.max(1) {
            let (sender, receiver) = mpsc::channel();
            let busy_nanos = Arc::clone(&busy_nanos);
            let mut own = Entries { entries: HashMap::new(), busy_nanos };
            thread::Builder::new()
                .name(format!("swath-hash-{number}"))
                .spawn(move || receiver.into_iter().for_each(|command| own.obey(command)))?;
            hashers.push(Hasher::Thread(sender));
        }
        Ok(Self { hashers: Arc::new(hashers), next: Arc::new(AtomicU64::new(0)), busy_nanos })
    }

    /// Adds a verifier. Its reports go to `reports`; each read-back is at most `most_bytes`, a
    /// multiple of a page.
    pub fn add(
        &self,
        verifier: Verifier,
        reports: UnboundedSender<Report>,
        most_bytes: u64,
    ) -> VerifierHandle {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let hasher = self.hashers[id as usize % self.hashers.len()].clone();
        let hashed_bytes = Arc::new(AtomicU64::new(0));
        let entry = Entry {
            verifier,
            reports,
            backs: Backs::new(most_bytes),
            hashed_bytes: Arc::clone(&hashed_bytes),
        };
        let handle = VerifierHandle { id, hasher, hashed_bytes };
        handle.send(Command::Add { id, entry: Box::new(entry) });
        handle
    }

    /// Returns the total time that the threads have spent hashing.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanos.load(Ordering::Relaxed))
    }
}

impl VerifierHandle {
    fn send(&self, command: Command) {
        match &self.hasher {
            // A thread only ends with the last sender; a failure means that the process is ending.
            Hasher::Thread(sender) => drop(sender.send(command)),
            Hasher::Here(own) => own.lock().unwrap_or_else(PoisonError::into_inner).obey(command),
        }
    }

    /// Returns the number of bytes that every digest has taken in.
    pub fn hashed_bytes(&self) -> u64 {
        self.hashed_bytes.load(Ordering::Relaxed)
    }

    /// See [`Verifier::accept`].
    pub fn accept(&self, offset: u64, buffer: Buffer) {
        self.send(Command::Accept { id: self.id, offset, buffer });
    }

    /// Ends a read that a report asked for; `back` has its offset and bytes, if they still count.
    /// See [`Verifier::accept_back`].
    pub fn accept_back(&self, read: ReadNumber, back: Option<(u64, Buffer)>) {
        self.send(Command::AcceptBack { id: self.id, read, back });
    }

    /// See [`Verifier::forget`].
    pub fn forget(&self, range: Range) {
        self.send(Command::Forget { id: self.id, range });
    }

    /// See [`Verifier::end_at`].
    pub fn end_at(&self, size_bytes: u64) {
        self.send(Command::EndAt { id: self.id, size_bytes });
    }

    /// See [`Verifier::save`]; the answer comes when all bytes handed over before are hashed.
    pub fn ask_to_save(&self) -> oneshot::Receiver<Vec<Saved>> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Save { id: self.id, reply });
        answer
    }
}

impl Drop for VerifierHandle {
    fn drop(&mut self) {
        self.send(Command::Remove { id: self.id });
    }
}

struct Entry {
    verifier: Verifier,
    reports: UnboundedSender<Report>,
    backs: Backs,
    hashed_bytes: Arc<AtomicU64>,
}

impl Entry {
    fn accept_back(&mut self, read: ReadNumber, back: Option<(u64, Buffer)>) {
        self.backs.came(read, back);
        while let Some((offset, buffer)) = self.backs.next_in_order() {
            self.verifier.accept_back(offset, buffer);
        }
    }
}

/// Read-backs for one verifier: several at once, taken in in order.
struct Backs {
    /// Most bytes of one read.
    most_bytes: u64,
    /// Bytes still to read.
    planned: Range,
    /// Reads not taken in yet, in order.
    asked: VecDeque<ReadNumber>,
    /// Reads that ended before their turn.
    early: BTreeMap<ReadNumber, (u64, Buffer)>,
    /// Number of reads that have not ended, including abandoned ones.
    under_way: usize,
    next: u64,
}

impl Backs {
    fn new(most_bytes: u64) -> Self {
        let (planned, asked) = (Range::new(0, 0), VecDeque::new());
        Self { most_bytes, planned, asked, early: BTreeMap::new(), under_way: 0, next: 0 }
    }

    /// Ends a read. Ignores it if it was abandoned meanwhile: its bytes may be old.
    fn came(&mut self, read: ReadNumber, back: Option<(u64, Buffer)>) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(at) = self.asked.iter().position(|&asked| asked == read) {
            match back {
                Some(back) => drop(self.early.insert(read, back)),
                // Its bytes are void; the executor will report that.
                None => drop(self.asked.remove(at)),
            }
        }
    }

    /// Takes the next read in order, if it has ended.
    fn next_in_order(&mut self) -> Option<(u64, Buffer)> {
        let back = self.early.remove(self.asked.front()?)?;
        self.asked.pop_front();
        Some(back)
    }

    /// Abandons all reads.
    fn give_up(&mut self) {
        self.planned = Range::new(0, 0);
        self.asked.clear();
        self.early.clear();
    }

    /// Returns the reads to start now.
    fn wants(&mut self, verifier: &Verifier) -> Vec<(ReadNumber, Range)> {
        let mut wants = Vec::new();
        if self.under_way < READS_AT_ONCE && self.asked.is_empty() && self.planned.is_empty() {
            let stretch_bytes = self.most_bytes.saturating_mul(STRETCH_READS);
            self.planned = verifier.wants(stretch_bytes).unwrap_or(self.planned);
        }
        while self.under_way < READS_AT_ONCE
            && self.asked.len() < READS_AT_ONCE
            && !self.planned.is_empty()
        {
            // All but the first begin at a page, so that they can bypass the page cache.
            let end = self.planned.start.saturating_add(self.most_bytes);
            let end = end - end % ALIGN_BYTES as u64;
            let range = Range::new(self.planned.start, end.min(self.planned.end));
            self.planned.start = range.end;
            let read = ReadNumber(self.next);
            self.next += 1;
            self.under_way += 1;
            self.asked.push_back(read);
            wants.push((read, range));
        }
        wants
    }
}

/// Most reads of one verifier at once. Their pool gives out buffers in the order of requests, so
/// the first read always gets one.
const READS_AT_ONCE: usize = 3;
/// Reads that one query of the verifier plans.
const STRETCH_READS: u64 = 32;

/// The verifiers of one thread.
struct Entries {
    entries: HashMap<u64, Box<Entry>>,
    busy_nanos: Arc<AtomicU64>,
}

impl Entries {
    fn obey(&mut self, command: Command) {
        let Self { entries, busy_nanos } = self;
        let began = Instant::now();
        let id = match command {
            Command::Add { id, mut entry } => {
                entry.verifier.begin();
                entries.insert(id, entry);
                id
            }
            Command::Accept { id, offset, buffer } => {
                if let Some(entry) = entries.get_mut(&id) {
                    entry.verifier.accept(offset, buffer);
                }
                id
            }
            Command::AcceptBack { id, read, back } => {
                if let Some(entry) = entries.get_mut(&id) {
                    entry.accept_back(read, back);
                }
                id
            }
            Command::Forget { id, range } => {
                if let Some(entry) = entries.get_mut(&id) {
                    entry.backs.give_up();
                    entry.verifier.forget(range);
                }
                id
            }
            Command::EndAt { id, size_bytes } => {
                if let Some(entry) = entries.get_mut(&id) {
                    entry.verifier.end_at(size_bytes);
                }
                id
            }
            Command::Save { id, reply } => {
                let saved = entries.get(&id).map(|entry| entry.verifier.save()).unwrap_or_default();
                let _ = reply.send(saved);
                id
            }
            Command::Remove { id } => {
                entries.remove(&id);
                id
            }
        };
        if let Some(entry) = entries.get_mut(&id) {
            let verdicts = entry.verifier.verdicts();
            let wants = entry.backs.wants(&entry.verifier);
            entry.hashed_bytes.store(entry.verifier.hashed_bytes(), Ordering::Relaxed);
            // A report wakes the executor, and most blocks bring no news.
            if !verdicts.is_empty() || !wants.is_empty() {
                let _ = entry.reports.send(Report { verdicts, wants });
            }
        }
        busy_nanos.fetch_add(
            u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{Allowance, Proof};
    use swath_model::Pool;
    use swath_model::digest::{Algorithm, Hasher};

    fn filled(pool: &Pool, data: &[u8]) -> Buffer {
        let mut buffer = pool.try_take().unwrap();
        assert_eq!(buffer.push(data), data.len());
        buffer
    }

    #[test]
    fn reads_that_end_in_any_order_are_taken_in_in_order() {
        let data: Vec<u8> = (0..3_000_001_u32).map(|i| (i % 251) as u8).collect();
        let digest = Hasher::digest(Algorithm::Sha256, &data);
        let proof = Proof { wholes: vec![digest], ..Proof::default() };
        let part = 16 * ALIGN_BYTES;
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let pool = Pool::new(8, part);
            let threads = HashThreads::start(1).unwrap();
            let share = Allowance::new(rng.usize(0..4)).share();
            let verifier = Verifier::new(&proof, data.len() as u64, share);
            let (reports, mut answers) = tokio::sync::mpsc::unbounded_channel();
            let handle = threads.add(verifier, reports, part as u64);
            // Everything comes before its turn but the first bytes, which are at no page's end.
            let mut cuts: Vec<usize> = (1001..data.len()).step_by(part).collect();
            rng.shuffle(&mut cuts);
            cuts.push(0);
            for at in cuts {
                let end = if at == 0 { 1001 } else { (at + part).min(data.len()) };
                while pool.free_slots() == 0 {
                    std::thread::yield_now();
                }
                handle.accept(at as u64, filled(&pool, &data[at..end]));
            }
            let mut under_way: Vec<(ReadNumber, Range)> = Vec::new();
            let mut most = 0;
            let wholes = loop {
                let Report { verdicts, wants } = answers.blocking_recv().unwrap();
                under_way.extend(wants);
                most = most.max(under_way.len());
                if !verdicts.is_empty() {
                    break verdicts;
                }
                while !under_way.is_empty() {
                    let (read, range) = under_way.swap_remove(rng.usize(0..under_way.len()));
                    let after_kept = (range.start - 1001).is_multiple_of(part as u64);
                    let at_page = range.start.is_multiple_of(ALIGN_BYTES as u64);
                    assert!(after_kept || at_page, "{range:?}");
                    while pool.free_slots() == 0 {
                        std::thread::yield_now();
                    }
                    let bytes = &data[range.start as usize..range.end as usize];
                    handle.accept_back(read, Some((range.start, filled(&pool, bytes))));
                }
            };
            assert_eq!(most, READS_AT_ONCE, "seed {seed}");
            assert!(under_way.is_empty());
            assert!(
                matches!(wholes[..], [Verdict::Whole { wanted, actual }] if wanted == actual),
                "seed {seed}: {wholes:?}"
            );
        }
    }

    #[test]
    fn a_read_that_was_given_up_is_not_taken_in_and_counts_until_it_ends() {
        let pool = Pool::new(8, ALIGN_BYTES);
        let size = 64 * ALIGN_BYTES as u64;
        let proof = Proof {
            wholes: vec![Hasher::digest(Algorithm::Sha256, b"of else")],
            ..Proof::default()
        };
        let mut verifier = Verifier::new(&proof, size, Allowance::new(0).share());
        let all = swath_model::RangeSet::full(size);
        verifier.resume(&all, &crate::verify::Hashed::default());
        let mut backs = Backs::new(ALIGN_BYTES as u64);
        let old = backs.wants(&verifier);
        assert_eq!(old.len(), READS_AT_ONCE);
        let page = || filled(&pool, &[1; ALIGN_BYTES]);
        backs.came(old[1].0, Some((old[1].1.start, page())));
        // All is void and wanted again, from the same places; nothing is asked for twice at once.
        backs.give_up();
        assert_eq!(pool.free_slots(), 8, "what had come is let go of");
        let new = backs.wants(&verifier);
        assert_eq!(new.len(), 1, "two old ones are still under way");
        assert_eq!(new[0].1, old[0].1);
        backs.came(old[0].0, Some((old[0].1.start, page())));
        assert!(backs.next_in_order().is_none(), "that was the old one");
        backs.came(old[2].0, None);
        assert_eq!(backs.wants(&verifier).len(), 2);
        backs.came(new[0].0, Some((new[0].1.start, page())));
        assert_eq!(backs.next_in_order().map(|(start, _)| start), Some(0));
    }
}
