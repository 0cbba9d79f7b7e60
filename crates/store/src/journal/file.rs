//! The journal's file: created, appended to, rewritten when it has grown too long.
//!
//! Always holds: everything before `end_bytes` is durable and believed by recovery; `state` is its
//! sum. A failed append is cut away again, so that the next one continues the chain. All methods
//! block.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use super::frame::{Chain, Opening};
use super::record::Record;
use super::state::State;
use crate::names::Names;
use crate::steps::Steps;
use crate::sys;

/// An open journal. Belongs to whoever holds the lock of the part file.
pub(crate) struct JournalFile {
    file: File,
    chain: Chain,
    end_bytes: u64,
    /// Length after it was last rewritten, or created.
    compact_bytes: u64,
    /// The tail could not be cut away after a failed append: nothing may follow it.
    broken: bool,
}

/// Why records could not be appended.
pub(crate) enum AppendError {
    /// A record is larger than a frame may be; nothing was written.
    TooLarge,
    /// The file system failed; nothing of this call counts.
    Io(io::Error),
}

impl JournalFile {
    /// Create the journal with the state so far as its first records. The name is durable when
    /// this returns.
    pub(crate) fn create(
        steps: &dyn Steps,
        names: &Names,
        state: &State,
    ) -> Result<JournalFile, AppendError> {
        let (file, chain, end_bytes) = write_new(steps, &names.journal, state)?;
        if let Err(error) = steps.sync_folder(&names.folder) {
            let _ = steps.remove(&names.journal);
            return Err(AppendError::Io(error));
        }
        Ok(JournalFile { file, chain, end_bytes, compact_bytes: end_bytes, broken: false })
    }

    /// As [`JournalFile::create`], in place of one that may be there: at any time one of the two
    /// carries the name.
    pub(crate) fn replace(
        steps: &dyn Steps,
        names: &Names,
        state: &State,
    ) -> Result<JournalFile, AppendError> {
        let (file, chain, end_bytes) = write_new(steps, &names.journal_new, state)?;
        let renamed = steps.rename(&names.journal_new, &names.journal, true);
        if let Err(error) = renamed.and_then(|()| steps.sync_folder(&names.folder)) {
            let _ = steps.remove(&names.journal_new);
            return Err(AppendError::Io(error));
        }
        Ok(JournalFile { file, chain, end_bytes, compact_bytes: end_bytes, broken: false })
    }

    /// Go on with a journal that was read: cut what is not believed, append behind it.
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
        Ok(JournalFile { file, chain, end_bytes: valid_bytes, compact_bytes: 0, broken: false })
    }

    /// Append `records` and make them durable; `state` becomes their sum.
    pub(crate) fn append(
        &mut self,
        steps: &dyn Steps,
        names: &Names,
        state: &mut State,
        records: &[Record],
    ) -> Result<(), AppendError> {
        if self.broken {
            // A rewrite gives a whole journal again.
            self.compact(steps, names, state)?;
        }
        let mut chain = self.chain;
        let mut bytes = Vec::new();
        if !records.iter().all(|record| chain.append(record, &mut bytes)) {
            return Err(AppendError::TooLarge);
        }
        let written = steps
            .append_journal(&self.file, self.end_bytes, &bytes)
            .and_then(|()| steps.sync_journal(&self.file));
        if let Err(error) = written {
            self.broken = steps.set_size(&self.file, self.end_bytes).is_err();
            return Err(AppendError::Io(error));
        }
        self.chain = chain;
        self.end_bytes += bytes.len() as u64;
        for record in records {
            state.apply(record);
        }
        if self.end_bytes > COMPACT_FROM_BYTES
            && self.end_bytes / COMPACT_GROWTH > self.compact_bytes
        {
            // The journal is whole without it: failing to shorten it is no failure.
            if let Err(AppendError::Io(error)) = self.compact(steps, names, state) {
                tracing::warn!(%error, journal = %names.journal.display(), "journal could not be shortened");
                self.compact_bytes = self.end_bytes;
            }
        }
        Ok(())
    }

    /// Replace the journal by the shortest one that says the same.
    fn compact(
        &mut self,
        steps: &dyn Steps,
        names: &Names,
        state: &State,
    ) -> Result<(), AppendError> {
        match JournalFile::replace(steps, names, state) {
            Ok(new) => {
                *self = new;
                Ok(())
            }
            Err(error) => {
                // Which of the two carries the name is not known, so neither may be appended to.
                self.broken = true;
                Err(error)
            }
        }
    }
}

/// Write a new, synced journal of `state` to `path`, whatever was there.
fn write_new(
    steps: &dyn Steps,
    path: &std::path::Path,
    state: &State,
) -> Result<(File, Chain, u64), AppendError> {
    let opening = Opening::fresh();
    let mut chain = opening.chain();
    let mut bytes = opening.bytes().to_vec();
    // Every record of a state came through a frame, but texts can have been merged since.
    if !state.records().all(|record| chain.append(&record, &mut bytes)) {
        return Err(AppendError::TooLarge);
    }
    let write = || {
        match steps.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let file = options.open(path)?;
        // Only a convenience: with it a disk that has become full still takes what comes.
        let _ = sys::reserve(&file, 0, bytes.len() as u64 + ROOM_BYTES);
        steps.append_journal(&file, 0, &bytes)?;
        steps.sync_journal(&file)?;
        Ok(file)
    };
    match write() {
        Ok(file) => Ok((file, chain, bytes.len() as u64)),
        Err(error) => {
            let _ = steps.remove(path);
            Err(AppendError::Io(error))
        }
    }
}

/// Some hundred records, several of them states of hashes.
const ROOM_BYTES: u64 = 64 << 10;
/// Shorter journals are read in no time.
const COMPACT_FROM_BYTES: u64 = 1 << 20;
/// Rewriting at every doubling costs at most one more byte written per byte appended.
const COMPACT_GROWTH: u64 = 2;

impl AppendError {
    /// The error as the file system would name it.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            AppendError::TooLarge => io::Error::from_raw_os_error(libc::EFBIG),
            AppendError::Io(error) => error,
        }
    }
}
