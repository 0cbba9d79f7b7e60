//! Fetching bytes once for all readers, and waiting for a fetch.

use std::io;

use swath_model::Range;
use tokio::sync::watch;

use super::entry::Entry;
use crate::hashed_file::{PieceHasher, group_hash_of};

/// Bytes that this reader fetches; others can read them as they are written. Dropping it gives back
/// the missing ones: then others may fetch them.
///
/// Others wait for it, so it belongs to a task that only fetches, not to one as slow as its own
/// client.
pub struct Fetch {
    entry: Entry,
    at: u64,
    end: u64,
    number: u32,
    /// Hash of the current group, from where this fetch began in it.
    hasher: Option<(u64, PieceHasher)>,
}

impl Fetch {
    pub(crate) fn new(entry: Entry, range: Range, number: u32) -> Fetch {
        Fetch { entry, at: range.start, end: range.end, number, hasher: None }
    }

    /// Shortens it to `end` and gives the rest back.
    pub(crate) fn cut_to(mut self, end: u64) -> Fetch {
        if end < self.end {
            self.entry.inner.state().fetching.clear(Range::new(end, self.end));
            self.end = end;
            self.entry.inner.notify();
        }
        self
    }

    /// Returns the bytes still to come.
    pub fn range(&self) -> Range {
        Range::new(self.at, self.end)
    }

    /// Writes the next bytes of [`Fetch::range`]; they can be read when this returns.
    ///
    /// # Errors
    /// The system's error, and `InvalidInput` for more bytes than there are to come. Some of them
    /// may have been written.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if bytes.len() as u64 > self.range().len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        while !bytes.is_empty() {
            let group = self.entry.inner.layout.group_at(self.at);
            let count = bytes.len().min((group.end - self.at) as usize);
            let (now, later) = bytes.split_at(count);
            self.put(group, now)?;
            bytes = later;
        }
        Ok(())
    }

    fn put(&mut self, group: Range, bytes: &[u8]) -> io::Result<()> {
        self.entry.file.write(self.at, bytes)?;
        let (start, hasher) =
            self.hasher.get_or_insert_with(|| (self.at, PieceHasher::new(self.at)));
        hasher.update(bytes);
        let written = Range::of_len(self.at, bytes.len() as u64);
        self.at = written.end;
        let is_whole = {
            let mut state = self.entry.inner.state();
            state.held.insert(written);
            state.fetching.clear(written);
            state.held.covers(group)
        };
        self.entry.inner.notify();
        if is_whole {
            let group_hash = if *start == group.start && self.at == group.end {
                hasher.finish()
            } else {
                let mut bytes = vec![0; group.len() as usize];
                self.entry.file.read(group.start, &mut bytes)?;
                group_hash_of(group.start, &bytes)
            };
            // Without its hash, a restart forgets the group.
            self.entry.file.write_group_hash(group.start, &self.entry.inner.masked(group_hash))?;
            self.entry.inner.state().hashed.insert(group);
        }
        if self.at == group.end {
            self.hasher = None;
        }
        Ok(())
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        let rest = self.range();
        if !rest.is_empty() {
            self.entry.inner.state().fetching.clear(rest);
            self.entry.inner.release(&self.entry.file, rest);
            self.entry.inner.notify();
        }
    }
}

impl std::fmt::Debug for Fetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fetch({:?} {} as {})", self.entry, self.range(), self.number)
    }
}

/// Bytes that another reader is fetching.
#[derive(Debug)]
pub struct Wait {
    entry: Entry,
    range: Range,
    changes: watch::Receiver<u64>,
}

impl Wait {
    pub(crate) fn new(entry: Entry, range: Range) -> Wait {
        let changes = entry.changes();
        Wait { entry, range, changes }
    }

    /// Returns the bytes, from the requested one to the last that is being fetched.
    pub fn range(&self) -> Range {
        self.range
    }

    /// Waits until the first of them is here, or its fetch has ended; then ask [`Entry::next`].
    pub async fn changed(mut self) {
        loop {
            // Mark as seen before looking, so that no later change is missed.
            self.changes.borrow_and_update();
            let goes_on = {
                let state = self.entry.inner.state();
                let first = Range::of_len(self.range.start, 1);
                !state.fetching.within(first).is_empty()
            };
            // The sender lives as long as our handle of the file.
            if !goes_on || self.changes.changed().await.is_err() {
                return;
            }
        }
    }
}
