//! The journal's file: created, appended to, rewritten when it has grown too long.
//!
//! Invariant: everything before `end_bytes` is durable and accepted by recovery; `state` is its
//! sum. A failed append is cut off again, so that the next one continues the chain. All methods
//! block.

use std::fs::File;
use std::io;

use super::frame::{Chain, Opening};
use super::sum::Sum;
use crate::names::Names;
use crate::steps::Steps;
use crate::sys;

/// An open journal. Belongs to the holder of the part file's lock.
pub(crate) struct JournalFile {
    file: File,
    end: JournalEnd,
}

/// The end of a journal: all that must be kept of one that is closed meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalEnd {
    chain: Chain,
    end_bytes: u64,
    /// Length after its creation or last rewrite.
    compact_bytes: u64,
    /// A failed append could not be cut off: nothing may follow it.
    broken: bool,
}

/// Why records could not be appended.
pub(crate) enum AppendError {
    /// A record is too large for a frame; nothing was written.
    TooLarge,
    /// The file system failed; nothing of this call counts.
    Io(io::Error),
}

impl JournalFile {
    /// Creates the journal with the records of the present state. Its name is durable when this
    /// returns.
    pub(crate) fn create<S: Sum>(
        steps: &dyn Steps,
        names: &Names,
        state: &S,
    ) -> Result<JournalFile, AppendError> {
        let journal = write_new(steps, &names.journal, state)?;
        if let Err(error) = steps.sync_folder(&names.folder) {
            let _ = steps.remove(&names.journal);
            return Err(AppendError::Io(error));
        }
        Ok(journal)
    }

    /// Creates the journal like [`JournalFile::create`], in place of an existing one: at any time
    /// one of the two has the name.
    pub(crate) fn replace<S: Sum>(
        steps: &dyn Steps,
        names: &Names,
        state: &S,
    ) -> Result<JournalFile, AppendError> {
        let journal = write_new(steps, &names.journal_new, state)?;
        let renamed = steps.rename(&names.journal_new, &names.journal, true);
        if let Err(error) = renamed.and_then(|()| steps.sync_folder(&names.folder)) {
            let _ = steps.remove(&names.journal_new);
            return Err(AppendError::Io(error));
        }
        Ok(journal)
    }

    /// Continues a journal that was read: cuts off the rest that is not believed.
    pub(crate) fn resume(
        steps: &dyn Steps,
        file: File,
        chain: Chain,
        valid_bytes: u64,
        dropped_bytes: u64,
    ) -> io::Result<JournalFile> {
        if dropped_bytes > 0 {
            steps.set_size(&file, valid_bytes)?;
        }
        let end = JournalEnd { chain, end_bytes: valid_bytes, compact_bytes: 0, broken: false };
        Ok(JournalFile { file, end })
    }

    /// Continues a journal that was closed, at its end.
    pub(crate) fn reopen(names: &Names, end: JournalEnd) -> io::Result<JournalFile> {
        let file = sys::no_follow().read(true).write(true).open(&names.journal)?;
        Ok(JournalFile { file, end })
    }

    /// Returns its present end.
    pub(crate) fn end(&self) -> JournalEnd {
        self.end
    }

    /// Appends `records` and makes them durable; `state` becomes their sum.
    pub(crate) fn append<S: Sum>(
        &mut self,
        steps: &dyn Steps,
        names: &Names,
        state: &mut S,
        records: &[S::Record],
    ) -> Result<(), AppendError> {
        if self.is_broken() {
            self.compact(steps, names, state)?;
        }
        self.append_only::<S>(steps, records)?;
        for record in records {
            state.apply(record);
        }
        if self.is_long() {
            self.shorten(steps, names, state);
        }
        Ok(())
    }

    /// Appends `records` and makes them durable, for owners that keep the sum elsewhere. A broken
    /// journal must be rewritten first.
    pub(crate) fn append_only<S: Sum>(
        &mut self,
        steps: &dyn Steps,
        records: &[S::Record],
    ) -> Result<(), AppendError> {
        let mut chain = self.end.chain;
        let mut bytes = Vec::new();
        if !records.iter().all(|record| chain.append(record, &mut bytes)) {
            return Err(AppendError::TooLarge);
        }
        let written = steps
            .append_journal(&self.file, self.end.end_bytes, &bytes)
            .and_then(|()| steps.sync_journal(&self.file));
        if let Err(error) = written {
            self.end.broken = steps.set_size(&self.file, self.end.end_bytes).is_err();
            return Err(AppendError::Io(error));
        }
        self.end.chain = chain;
        self.end.end_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Returns whether it must be rewritten before the next append.
    pub(crate) fn is_broken(&self) -> bool {
        self.end.broken
    }

    /// Returns whether it has grown so much that a rewrite pays.
    pub(crate) fn is_long(&self) -> bool {
        self.end.end_bytes > COMPACT_FROM_BYTES
            && self.end.end_bytes / COMPACT_GROWTH > self.end.compact_bytes
    }

    /// Rewrites it if possible. A failure does not matter: the journal is intact without it.
    pub(crate) fn shorten<S: Sum>(&mut self, steps: &dyn Steps, names: &Names, state: &S) {
        if let Err(AppendError::Io(error)) = self.compact(steps, names, state) {
            tracing::warn!(%error, journal = %names.journal.display(), "journal could not be shortened");
            self.end.compact_bytes = self.end.end_bytes;
        }
    }

    /// Replaces the journal by the shortest one with the same effect.
    pub(crate) fn compact<S: Sum>(
        &mut self,
        steps: &dyn Steps,
        names: &Names,
        state: &S,
    ) -> Result<(), AppendError> {
        match JournalFile::replace(steps, names, state) {
            Ok(new) => {
                *self = new;
                Ok(())
            }
            Err(error) => {
                // It is unknown which of the two has the name, so neither may be appended to.
                self.end.broken = true;
                Err(error)
            }
        }
    }
}

/// Writes a new, synced journal of `state` to `path`, replacing any file there.
fn write_new<S: Sum>(
    steps: &dyn Steps,
    path: &std::path::Path,
    state: &S,
) -> Result<JournalFile, AppendError> {
    let opening = Opening::fresh::<S>();
    let mut chain = opening.chain();
    let mut bytes = opening.bytes().to_vec();
    // Every record of a state came through a frame, but texts may have been merged since.
    if !state.records().all(|record| chain.append(&record, &mut bytes)) {
        return Err(AppendError::TooLarge);
    }
    let write = || {
        match steps.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = sys::no_follow().read(true).write(true).create_new(true).open(path)?;
        // Optional: with it, even a full disk still takes records.
        let _ = sys::reserve(&file, 0, bytes.len() as u64 + state.room_bytes());
        steps.append_journal(&file, 0, &bytes)?;
        steps.sync_journal(&file)?;
        Ok(file)
    };
    let end_bytes = bytes.len() as u64;
    match write() {
        Ok(file) => {
            let end = JournalEnd { chain, end_bytes, compact_bytes: end_bytes, broken: false };
            Ok(JournalFile { file, end })
        }
        Err(error) => {
            let _ = steps.remove(path);
            Err(AppendError::Io(error))
        }
    }
}

/// Shorter journals are read in no time.
const COMPACT_FROM_BYTES: u64 = 1 << 20;
/// Rewriting at every doubling writes at most one more byte per byte appended.
const COMPACT_GROWTH: u64 = 2;

impl AppendError {
    /// Returns the error as one of the file system.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            AppendError::TooLarge => io::Error::from_raw_os_error(libc::EFBIG),
            AppendError::Io(error) => error,
        }
    }
}
