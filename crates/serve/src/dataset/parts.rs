//! Ranges of a dataset on their way to a client: read and hashed part by part, ahead of what is
//! sent.
//!
//! While files are in memory, two parts are read at a time: otherwise small files would need one
//! core longer than everything else needs the others. If readers had to wait for a disk, more parts
//! are read at a time, because disks, and remote ones most of all, answer many requests in the time
//! of one. Parts are sent in order.
//!
//! All clients together hold a limited number of whole parts in memory. A client that gets none
//! reads parts of one group, one at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use swath_model::Range;
use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_store::sleeps;
use tokio::task::{JoinHandle, spawn_blocking};

use super::reader::{GROUP_HASH_BYTES, Reader, Sealed, set_length};
use super::walks::Walk;
use super::whole::{WHOLE_PARTS, Whole, WholeParts};
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
    /// For what is being sent, if that is a whole part.
    sending: Option<Whole>,
    /// The part that was begun with last is a whole one.
    had_whole: bool,
    whole: Arc<WholeParts>,
}

/// Which file it is a range of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The virtual file itself.
    Data,
    /// With its group hashes; so many bytes of the virtual file are known.
    Sealed { size_bytes: u64 },
}

enum Source {
    Data(Box<Reader>),
    Sealed(Box<Sealed>),
}

struct Reading {
    task: JoinHandle<Part>,
    whole: Option<Whole>,
}

struct Part {
    source: Source,
    bytes: Vec<u8>,
    /// Its reader had to wait for a disk.
    slept: bool,
}

impl Parts {
    /// `range` of this walk's file; `whole` has memory for whole parts.
    pub fn new(walk: Arc<Walk>, form: Form, range: Range, whole: Arc<WholeParts>) -> Parts {
        let (length, depth) = (range.len(), walk.parts_at_once());
        let (reading, spare) = (VecDeque::new(), Vec::new());
        let (sending, had_whole) = (None, false);
        Parts { walk, rest: range, length, form, reading, spare, depth, sending, had_whole, whole }
    }

    /// Has as many parts read as is good. A group is read ahead of nothing: as many clients as are
    /// too many for whole parts need no more than one each.
    fn read_ahead(&mut self, is_needed: bool) {
        while !self.rest.is_empty() && self.reading.len() < self.depth {
            // The fewer there are left, the fewer one alone may have, and then not always the same one.
            let left = self.whole.left();
            if self.reading.len() > left / 2 {
                return;
            }
            let is_others_turn = left < WHOLE_PARTS / 2 && std::mem::take(&mut self.had_whole);
            let whole = if is_others_turn { None } else { self.whole.take() };
            if whole.is_none() && !(is_needed && self.reading.is_empty()) {
                return;
            }
            self.had_whole = whole.is_some();
            let groups = if self.had_whole { PART_GROUPS } else { 1 };
            let unit = match self.form {
                Form::Sealed { .. } => GROUP_BYTES + GROUP_HASH_BYTES,
                Form::Data => GROUP_BYTES,
            };
            let end = (self.rest.start / unit + groups) * unit;
            let part = Range::new(self.rest.start, end.min(self.rest.end));
            self.rest.start = part.end;
            let source = self.spare.pop().unwrap_or_else(|| Source::new(&self.walk, self.form));
            let memory = whole.as_ref().map(Whole::memory).unwrap_or_default();
            let task = spawn_blocking(move || source.part(part, memory));
            self.reading.push_back(Reading { task, whole });
        }
    }

    /// More at a time where one had to wait, fewer again where none does.
    fn learn(&mut self, slept: bool) {
        self.depth = match slept {
            true => (2 * self.depth).min(DEPTH_MAX),
            false => (self.depth - 1).max(PARTS_AT_ONCE),
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
            self.read_ahead(true);
            // It stays in its place until it is there: nothing of it is lost if we are not.
            let Some(first) = self.reading.front_mut() else { return Ok(Vec::new()) };
            let part = (&mut first.task).await.map_err(io::Error::other)?;
            self.sending = self.reading.pop_front().and_then(|read| read.whole);
            if part.bytes.is_empty() {
                return Err(io::Error::other("a file is not as it was"));
            }
            self.spare.push(part.source);
            self.learn(part.slept);
            self.read_ahead(false);
            Ok(part.bytes)
        })
    }

    fn take_back(&mut self, sent: Vec<u8>) {
        if let Some(whole) = self.sending.take() {
            whole.give_back(sent);
        }
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

    /// Reads a part into some memory, whatever was in it before.
    fn part(mut self, range: Range, memory: Vec<u8>) -> Part {
        let before = sleeps();
        let mut bytes = memory;
        let was_direct = match &mut self {
            Source::Sealed(sealed) => {
                sealed.read(range, &mut bytes);
                sealed.rest()
            }
            Source::Data(reader) => {
                set_length(&mut bytes, range.len() as usize);
                if !reader.read(range.start, &mut bytes) {
                    // Without a group hash only the end of the connection can say so.
                    bytes.clear();
                }
                reader.rest()
            }
        };
        // Past the cache nothing but ourselves reads ahead.
        Part { source: self, bytes, slept: was_direct || sleeps() - before >= SLEEPS_MIN }
    }
}

/// Groups that are read and sealed in one go.
const PART_GROUPS: u64 = 4;
/// Parts of one answer that are read at the same time: at first …
pub(super) const PARTS_AT_ONCE: usize = 2;
/// … and at most.
const DEPTH_MAX: usize = 8;
/// Whoever slept once may have waited for the walk.
const SLEEPS_MIN: u64 = 3;
