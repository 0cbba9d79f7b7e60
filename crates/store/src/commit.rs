//! Committing: makes written bytes durable and records them in the journal.
//!
//! The data is synced first, then the records are appended, then the journal is synced. Power may
//! fail between any two steps; the journal then records less than is there, never more.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use swath_model::Range;

use crate::journal::{JournalFile, Record, Sum as _};
use crate::sys;
use crate::target::{Inner, Journal, Target};

/// Why records could not be committed. Earlier commits stay valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// A `Durable` record has bytes that no write has completed.
    #[error("{range} of {} was not written", path.display())]
    NotWritten {
        /// The final name.
        path: PathBuf,
        /// The bytes.
        range: Range,
    },
    /// A record is too large for the journal.
    #[error("a record for the journal of {} is too large", .0.display())]
    TooLarge(PathBuf),
    /// The device or the user's quota is full.
    #[error("no space left for the journal of {}", path.display())]
    NoSpace {
        /// The final name.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The data could not be synced, now or earlier. Nothing written since the last commit can be
    /// trusted; open the target again to resume.
    #[error("the data of {} could not be made durable", path.display())]
    DataLost {
        /// The final name.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The target was finished or discarded.
    #[error("{} is finished", .0.display())]
    Closed(PathBuf),
    /// The journal could not be written.
    #[error("cannot write the journal of {}", path.display())]
    Io {
        /// The final name.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Target {
    /// Makes everything written so far durable, then records `records`. When this returns, they
    /// survive `kill -9` and power loss. Records count in their order; if power fails meanwhile, a
    /// prefix of them may count.
    ///
    /// Ranges distrusted since a record was made are left out of it.
    ///
    /// Calls run one after the other, each to its end even if its future is dropped.
    pub async fn commit(&self, mut records: Vec<Record>) -> Result<(), CommitError> {
        let inner = Arc::clone(&self.inner);
        let path = || inner.names.shown.clone();
        {
            let progress = inner.progress();
            if progress.closed {
                return Err(CommitError::Closed(path()));
            }
            let mut kept = Vec::with_capacity(records.len());
            for record in records {
                match record {
                    Record::Durable { range, source } if !progress.written.covers(range) => {
                        let unwritten = progress.written.gaps_within(range);
                        if let Some(&range) =
                            unwritten.iter().find(|&&gap| !progress.distrusted.covers(gap))
                        {
                            return Err(CommitError::NotWritten { path: path(), range });
                        }
                        kept.extend(
                            progress
                                .written
                                .within(range)
                                .map(|range| Record::Durable { range, source }),
                        );
                    }
                    Record::Verified { range } if !progress.written.covers(range) => {}
                    other => kept.push(other),
                }
            }
            records = kept;
        }
        if records.is_empty() {
            return Ok(());
        }
        let mut journal = Arc::clone(&inner.journal).lock_owned().await;
        let for_worker = Arc::clone(&inner);
        let done =
            inner.disk.workers().run(move || commit_now(&for_worker, &mut journal, &records)).await;
        done.map_err(|gone| CommitError::Io { path: path(), source: io::Error::other(gone) })?
    }
}

fn commit_now(inner: &Inner, journal: &mut Journal, records: &[Record]) -> Result<(), CommitError> {
    let path = || inner.names.shown.clone();
    // Records about bytes that are already durable need no sync of the data.
    if records.iter().any(|record| matches!(record, Record::Durable { .. })) {
        sync_data(inner, journal)
            .map_err(|source| CommitError::DataLost { path: path(), source })?;
    }
    let steps = inner.disk.steps().as_ref();
    let appended = match &mut journal.file {
        Some(file) => file.append(steps, &inner.names, &mut journal.state, records),
        None => {
            let mut state = journal.state.clone();
            records.iter().for_each(|record| state.apply(record));
            JournalFile::create(steps, &inner.names, &state).map(|file| {
                journal.file = Some(file);
                journal.state = state;
                inner.progress().journaled = true;
            })
        }
    };
    if appended.is_ok() {
        inner.progress().vouched |= !journal.state.durable.is_empty();
    }
    appended.map_err(|error| match error {
        crate::journal::AppendError::TooLarge => CommitError::TooLarge(path()),
        crate::journal::AppendError::Io(source) if sys::is_full(&source) => {
            CommitError::NoSpace { path: path(), source }
        }
        crate::journal::AppendError::Io(source) => CommitError::Io { path: path(), source },
    })
}

/// Syncs the part file; after a failure never again: see [`Journal::data_lost`].
pub(crate) fn sync_data(inner: &Inner, journal: &mut Journal) -> io::Result<()> {
    if journal.data_lost {
        return Err(io::Error::other("an earlier sync failed"));
    }
    let synced = inner.disk.sync_data(inner.file.plain());
    journal.data_lost = synced.is_err();
    synced
}
