//! Threads that run verifiers beside the executor, so that hashing never stops a lane.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use swath_model::{Buffer, Range};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::verifier::{Saved, Verdict, Verifier};

/// What a verifier tells its transfer.
#[derive(Debug)]
pub(crate) struct Report {
    /// New verdicts.
    pub verdicts: Vec<Verdict>,
    /// Bytes to read back and hand over, if hashing waits for them.
    pub wants: Option<Range>,
}

enum Command {
    Add { id: u64, entry: Box<Entry> },
    Accept { id: u64, offset: u64, buffer: Buffer },
    AcceptBack { id: u64, offset: u64, buffer: Buffer },
    Forget { id: u64, range: Range },
    EndAt { id: u64, size_bytes: u64 },
    Save { id: u64, reply: oneshot::Sender<Vec<Saved>> },
    Remove { id: u64 },
}

/// A fixed set of hashing threads; cheap to clone. They end when the last clone is gone.
#[derive(Clone)]
pub(crate) struct HashThreads {
    senders: Arc<Vec<mpsc::Sender<Command>>>,
    next: Arc<AtomicU64>,
    busy_nanos: Arc<AtomicU64>,
}

/// One verifier on its thread; removed from there when dropped.
pub(crate) struct VerifierHandle {
    id: u64,
    sender: mpsc::Sender<Command>,
    hashed_bytes: Arc<AtomicU64>,
}

impl HashThreads {
    /// Start `count` threads.
    pub fn start(count: usize) -> std::io::Result<Self> {
        let busy_nanos = Arc::new(AtomicU64::new(0));
        let mut senders = Vec::new();
        for number in 0..count.max(1) {
            let (sender, receiver) = mpsc::channel();
            let busy = Arc::clone(&busy_nanos);
            thread::Builder::new()
                .name(format!("swath-hash-{number}"))
                .spawn(move || run(&receiver, &busy))?;
            senders.push(sender);
        }
        Ok(Self { senders: Arc::new(senders), next: Arc::new(AtomicU64::new(0)), busy_nanos })
    }

    /// Hand a verifier over; its reports go to `reports`, read-backs are at most `most_bytes`.
    pub fn add(
        &self,
        verifier: Verifier,
        reports: UnboundedSender<Report>,
        most_bytes: u64,
    ) -> VerifierHandle {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let sender = self.senders[id as usize % self.senders.len()].clone();
        let hashed_bytes = Arc::new(AtomicU64::new(0));
        let entry = Entry {
            verifier,
            reports,
            most_bytes,
            asked: None,
            wanted: None,
            hashed_bytes: Arc::clone(&hashed_bytes),
        };
        let handle = VerifierHandle { id, sender, hashed_bytes };
        handle.send(Command::Add { id, entry: Box::new(entry) });
        handle
    }

    /// Time that the threads have spent hashing, summed.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanos.load(Ordering::Relaxed))
    }
}

impl VerifierHandle {
    fn send(&self, command: Command) {
        // A thread only ends with the last sender; a failure means the process is on its way out.
        let _ = self.sender.send(command);
    }

    /// Bytes that every digest has taken in.
    pub fn hashed_bytes(&self) -> u64 {
        self.hashed_bytes.load(Ordering::Relaxed)
    }

    /// See [`Verifier::accept`].
    pub fn accept(&self, offset: u64, buffer: Buffer) {
        self.send(Command::Accept { id: self.id, offset, buffer });
    }

    /// See [`Verifier::accept_back`].
    pub fn accept_back(&self, offset: u64, buffer: Buffer) {
        self.send(Command::AcceptBack { id: self.id, offset, buffer });
    }

    /// See [`Verifier::forget`].
    pub fn forget(&self, range: Range) {
        self.send(Command::Forget { id: self.id, range });
    }

    /// See [`Verifier::end_at`].
    pub fn end_at(&self, size_bytes: u64) {
        self.send(Command::EndAt { id: self.id, size_bytes });
    }

    /// See [`Verifier::save`]; the answer comes when everything handed over before is hashed.
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
    most_bytes: u64,
    /// What is being read back.
    asked: Option<Range>,
    /// What to ask the transfer for with the next report.
    wanted: Option<Range>,
    hashed_bytes: Arc<AtomicU64>,
}

impl Entry {
    fn accept_back(&mut self, offset: u64, buffer: Buffer) {
        if self.asked.is_some_and(|range| range.start == offset) {
            self.asked = None;
        }
        self.verifier.accept_back(offset, buffer);
    }

    /// Find out what has to be read back next, unless something is already.
    fn ask(&mut self) {
        if self.asked.is_none() {
            self.asked = self.verifier.wants(self.most_bytes);
            self.wanted = self.wanted.or(self.asked);
        }
    }
}

fn run(commands: &mpsc::Receiver<Command>, busy_nanos: &AtomicU64) {
    let mut entries: HashMap<u64, Box<Entry>> = HashMap::new();
    while let Ok(command) = commands.recv() {
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
            Command::AcceptBack { id, offset, buffer } => {
                if let Some(entry) = entries.get_mut(&id) {
                    entry.accept_back(offset, buffer);
                }
                id
            }
            Command::Forget { id, range } => {
                if let Some(entry) = entries.get_mut(&id) {
                    entry.asked = None;
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
            entry.ask();
            let wants = entry.wanted.take();
            entry.hashed_bytes.store(entry.verifier.hashed_bytes(), Ordering::Relaxed);
            // Whoever is told wakes up; most blocks are no news.
            if !verdicts.is_empty() || wants.is_some() {
                let _ = entry.reports.send(Report { verdicts, wants });
            }
        }
        busy_nanos.fetch_add(
            u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }
}
