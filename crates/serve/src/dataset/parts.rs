//! Ranges of a dataset on their way to a client: read and sealed part by part, ahead of what is
//! being sent.
//!
//! One part ahead is enough while files lie in memory. Where readers had to sleep for a disk,
//! several parts are read at the same time: a small file is a request or more, and disks, far ones
//! above all, answer many requests in the time of one. They are sent in their order.
//!
//! What all clients together have in memory is bounded: there are so many whole parts and no more.
//! Who gets none does with parts of a group, and one of them at a time.

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
    /// Of this one, until the next is asked for.
    sending: Option<OwnedSemaphorePermit>,
    /// The part that was begun with last is a whole one.
    had_whole: bool,
    /// For whole parts.
    whole: Arc<Semaphore>,
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
    Data(Box<Reader>),
    Sealed(Box<Sealed>),
}

struct Reading {
    task: JoinHandle<Part>,
    permit: Option<OwnedSemaphorePermit>,
}

struct Part {
    source: Source,
    bytes: Vec<u8>,
    /// Its reader had to wait for a disk.
    slept: bool,
}

impl Parts {
    /// `range` of this walk's file; `whole` permits whole parts.
    pub fn new(walk: Arc<Walk>, form: Form, range: Range, whole: Arc<Semaphore>) -> Parts {
        let (length, depth) = (range.len(), walk.parts_at_once());
        let (reading, spare) = (VecDeque::new(), Vec::new());
        let (sending, had_whole) = (None, false);
        Parts { walk, rest: range, length, form, reading, spare, depth, sending, had_whole, whole }
    }

    /// Have as many parts read as is good.
    fn read_ahead(&mut self) {
        while !self.rest.is_empty() && self.reading.len() < self.depth {
            // The fewer there are left, the fewer one alone may have, and then not always the same one.
            let left = self.whole.available_permits();
            if self.reading.len() > left / 2 {
                return;
            }
            let is_others_turn = left < WHOLE_PARTS / 2 && std::mem::take(&mut self.had_whole);
            let permit = match is_others_turn {
                true => None,
                false => Arc::clone(&self.whole).try_acquire_owned().ok(),
            };
            if permit.is_none() && !self.reading.is_empty() {
                return;
            }
            self.had_whole = permit.is_some();
            let groups = if self.had_whole { PART_GROUPS } else { 1 };
            let unit = match self.form {
                Form::Sealed { .. } => GROUP_BYTES + SEAL_BYTES,
                Form::Data => GROUP_BYTES,
            };
            let end = (self.rest.start / unit + groups) * unit;
            let part = Range::new(self.rest.start, end.min(self.rest.end));
            self.rest.start = part.end;
            let source = self.spare.pop().unwrap_or_else(|| Source::new(&self.walk, self.form));
            let task = spawn_blocking(move || source.part(part));
            self.reading.push_back(Reading { task, permit });
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
            self.sending = None;
            self.read_ahead();
            // It stays in its place until it is there: nothing of it is lost if we are not.
            let Some(first) = self.reading.front_mut() else { return Ok(Vec::new()) };
            let part = (&mut first.task).await.map_err(io::Error::other)?;
            self.sending = self.reading.pop_front().and_then(|read| read.permit);
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
            Form::Data => Source::Data(Box::new(Reader::new(Arc::clone(walk)))),
            Form::Sealed { size_bytes } => {
                Source::Sealed(Box::new(Sealed::new(Arc::clone(walk), size_bytes)))
            }
        }
    }

    fn part(mut self, range: Range) -> Part {
        let before = sleeps();
        let mut bytes = Vec::new();
        let was_direct = match &mut self {
            Source::Sealed(sealed) => {
                bytes.reserve_exact(range.len() as usize);
                sealed.read(range, &mut bytes);
                sealed.rest()
            }
            Source::Data(reader) => {
                bytes.resize(range.len() as usize, 0);
                if !reader.read(range.start, &mut bytes) {
                    // Without a seal only the end of the connection can say so.
                    bytes.clear();
                }
                reader.rest()
            }
        };
        // Past the cache nothing but ourselves reads ahead.
        Part { source: self, bytes, slept: was_direct || sleeps() - before >= SLEEPS_MIN }
    }
}

/// Whole parts that all clients together may have in memory: 24 MiB. With the two groups that each
/// of 200 clients has besides, and the pieces that are being read, that is about 140 MB.
pub(crate) const WHOLE_PARTS: usize = 24;
/// Groups that are read and sealed in one go.
const PART_GROUPS: u64 = 4;
/// Parts of one answer that are read at the same time.
const DEPTH_MAX: usize = 8;
/// Whoever slept once may have waited for the walk.
const SLEEPS_MIN: u64 = 3;
