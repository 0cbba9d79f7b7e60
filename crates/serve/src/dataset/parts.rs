//! Ranges of a dataset on their way to a client: read and sealed part by part, ahead of what is
//! being sent.
//!
//! One part ahead is enough while files lie in memory. Where readers had to sleep for a disk,
//! several parts are read at the same time: a small file is a request or more, and disks, far ones
//! above all, answer many requests in the time of one. They are sent in their order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use swath_model::Range;
use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_store::sleeps;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};

use super::reader::{Reader, SEAL_BYTES, Sealed};
use super::walks::Walk;
use crate::http::{Made, Make};

/// A range of the virtual file, or of the sealed one.
pub(crate) struct Parts {
    walk: Arc<Walk>,
    /// What has not been begun with.
    rest: Range,
    length: u64,
    form: Form,
    /// Read, or being read, in order.
    reading: VecDeque<Reading>,
    /// Readers that nobody uses just now.
    spare: Vec<Source>,
    /// So many parts are read at a time.
    depth: usize,
    /// For what is more than one.
    further: Arc<Semaphore>,
}

/// Which file it is a range of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The virtual file itself.
    Data,
    /// With its seals; so many bytes of the virtual file are known.
    Sealed { size_bytes: u64 },
}

enum Source {
    Data(Reader),
    Sealed(Box<Sealed>),
}

struct Reading {
    task: JoinHandle<Part>,
    _further: Option<OwnedSemaphorePermit>,
}

struct Part {
    source: Source,
    bytes: Vec<u8>,
    /// Its reader had to wait for a disk.
    slept: bool,
}

impl Parts {
    /// `range` of this walk's file; `further` permits what is read beyond one part at a time.
    pub fn new(walk: Arc<Walk>, form: Form, range: Range, further: Arc<Semaphore>) -> Parts {
        let depth = walk.parts_at_once();
        let (reading, spare) = (VecDeque::new(), Vec::new());
        Parts { walk, rest: range, length: range.len(), form, reading, spare, depth, further }
    }

    /// Have as many parts read as is good.
    fn read_ahead(&mut self) {
        while !self.rest.is_empty() && self.reading.len() < self.depth {
            let further = match self.reading.is_empty() {
                true => None,
                false => match Arc::clone(&self.further).try_acquire_owned() {
                    Ok(permit) => Some(permit),
                    Err(_) => return,
                },
            };
            let unit = match self.form {
                Form::Sealed { .. } => GROUP_BYTES + SEAL_BYTES,
                Form::Data => GROUP_BYTES,
            };
            let end = (self.rest.start / unit + PART_GROUPS) * unit;
            let part = Range::new(self.rest.start, end.min(self.rest.end));
            self.rest.start = part.end;
            let source = self.spare.pop().unwrap_or_else(|| Source::new(&self.walk, self.form));
            let task = spawn_blocking(move || source.part(part));
            self.reading.push_back(Reading { task, _further: further });
        }
    }

    /// More at a time where one had to wait, fewer again where none does.
    fn learn(&mut self, slept: bool) {
        self.depth = match slept {
            true => (2 * self.depth).min(DEPTH_MAX),
            false => (self.depth - 1).max(1),
        };
        self.walk.note_parts_at_once(self.depth);
    }
}

impl Make for Parts {
    fn length(&self) -> Option<u64> {
        Some(self.length)
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            self.read_ahead();
            // It stays in its place until it is there: nothing of it is lost if we are not.
            let Some(first) = self.reading.front_mut() else { return Ok(Vec::new()) };
            let part = (&mut first.task).await.map_err(io::Error::other)?;
            self.reading.pop_front();
            if part.bytes.is_empty() {
                return Err(io::Error::other("a file is not as it was"));
            }
            self.spare.push(part.source);
            self.learn(part.slept);
            self.read_ahead();
            Ok(part.bytes)
        })
    }
}

impl Source {
    fn new(walk: &Arc<Walk>, form: Form) -> Source {
        match form {
            Form::Data => Source::Data(Reader::new(Arc::clone(walk))),
            Form::Sealed { size_bytes } => {
                Source::Sealed(Box::new(Sealed::new(Arc::clone(walk), size_bytes)))
            }
        }
    }

    fn part(mut self, range: Range) -> Part {
        let before = sleeps();
        let mut bytes = Vec::new();
        match &mut self {
            Source::Sealed(sealed) => {
                bytes.reserve_exact(range.len() as usize);
                sealed.read(range, &mut bytes);
            }
            Source::Data(reader) => {
                bytes.resize(range.len() as usize, 0);
                if !reader.read(range.start, &mut bytes) {
                    // Without a seal only the end of the connection can say so.
                    bytes.clear();
                }
            }
        }
        Part { source: self, bytes, slept: sleeps() - before >= SLEEPS_MIN }
    }
}

/// Parts that all clients together may have read beyond one each: 64 MiB.
pub(crate) const FURTHER_PARTS: usize = 64;
/// Groups that are read and sealed in one go.
const PART_GROUPS: u64 = 4;
/// Parts of one answer that are read at the same time.
const DEPTH_MAX: usize = 8;
/// Whoever slept once may have waited for the walk.
const SLEEPS_MIN: u64 = 3;
