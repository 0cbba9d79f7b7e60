//! Why a transfer ended without its file.

use std::io;
use std::path::PathBuf;

use swath_model::digest::Digest;
use swath_model::pieces::PiecesError;
use swath_store::tree::PartialError;
use swath_store::{CommitError, FinishError, OpenError, ReadError, WriteError};

use crate::observe::{Event, Summary, Verified};
use crate::present::Unlike;
use crate::reason::Reason;

/// Why a transfer ended without its file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// The request names no replica.
    #[error("no source was given")]
    NoSources,
    /// The target cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file has the final name already, and is not known to be the wanted one.
    #[error("{} {unlike}", path.display())]
    Present {
        /// The final name.
        path: PathBuf,
        /// How they differ, or why that is unknown.
        unlike: Unlike,
    },
    /// Bytes could not be written to the disk.
    #[error(transparent)]
    Write(WriteError),
    /// Bytes could not be read back from the disk.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The journal could not be written.
    #[error(transparent)]
    Commit(CommitError),
    /// The writer of an ordered stream failed.
    #[error("writing to the output: {0}")]
    Output(#[source] io::Error),
    /// The disk is full, for the data or for the journal.
    #[error("the disk is full")]
    DiskFull {
        /// The final name of the file.
        path: PathBuf,
    },
    /// Every source failed before the end.
    #[error("{}", if *has_some { "no source is left that could deliver the rest" } else { "no source could be used" })]
    Exhausted {
        /// Whether some bytes have come, in this run or an earlier one.
        has_some: bool,
        /// Each with its reason.
        reasons: Vec<Reason>,
    },
    /// Servers answered, but no address is a folder of a swath server.
    #[error("no source could be used")]
    NoTree {
        /// Each with its reason.
        reasons: Vec<Reason>,
    },
    /// No byte of the file arrived for a long time, and this machine did not hold the sources up.
    #[error("nothing arrived from any source for {stall_s} s")]
    Stalled {
        /// How long.
        stall_s: f64,
        /// Each with its reason.
        reasons: Vec<Reason>,
    },
    /// The file does not match its digest, and no other source has a better one.
    #[error("the digest does not match: wanted {wanted}, got {actual}{}", .hint)]
    Digest {
        /// The expected digest.
        wanted: Box<Digest>,
        /// The digest of the file, or of the piece.
        actual: Box<Digest>,
        /// Details, and what was tried.
        hint: String,
    },
    /// A digest is required, but none is known.
    #[error("no digest of it is known, but --require-digest needs one")]
    NoDigest,
    /// Two mirrors hold different bytes, although they agree on size and version, and no third one
    /// could be asked.
    #[error(
        "{one} and {other} hold different bytes from byte {at} on, and nothing shows which is right"
    )]
    Disagreement {
        /// One of them.
        one: String,
        /// The other.
        other: String,
        /// The first byte known to differ.
        at: u64,
    },
    /// Two digests of one algorithm were given for the file, and they differ.
    #[error("two digests contradict each other: {one} and {other}")]
    Contradiction {
        /// One of them.
        one: Box<Digest>,
        /// The other.
        other: Box<Digest>,
    },
    /// The file and its piece digests have different ends, and nothing else would prove it.
    #[error("the file does not fit the piece digests: {0}")]
    Pieces(PiecesError),
    /// An answer turned out to be a Metalink: the caller should read it and ask again.
    #[error("{url} is a Metalink")]
    Metalink {
        /// Where it is.
        url: url::Url,
    },
    /// A tree cannot be written.
    #[error(transparent)]
    Tree(PartialError),
    /// The index of a tree cannot be used.
    #[error("the index of {whose} cannot be used: {reason}")]
    Index {
        /// The name of its source.
        whose: String,
        /// Why.
        reason: String,
    },
    /// Entries that are not in the tree could not be removed; the tree itself is complete.
    #[error("the copy is complete, but surplus entries could not be removed: {0}")]
    Remove(#[source] io::Error),
    /// An entry of the destination would be removed because its kind changed in the tree since the
    /// copy began.
    #[error(
        "{path} changed its kind at the source during the copy, and nothing is removed for that: run the same command again to copy the present state"
    )]
    Turned {
        /// Its path in the tree.
        path: String,
    },
    /// The index of a tree and its group hashes cannot be kept.
    #[error("the index cannot be kept: {0}")]
    Keep(#[source] io::Error),
    /// A source has repeatedly forgotten its walk.
    #[error("the source repeatedly forgets its file list")]
    Forgotten,
    /// A disk thread failed.
    #[error("the disk: {0}")]
    Thread(#[source] io::Error),
    /// Ended by the user.
    #[error("stopped")]
    Stopped,
    /// The final name could not be given.
    #[error(transparent)]
    Finish(#[from] FinishError),
}

impl GetError {
    /// Returns the reason of each failed source, without credentials; empty if no source failed.
    pub fn reasons(&self) -> &[Reason] {
        match self {
            GetError::Exhausted { reasons, .. }
            | GetError::Stalled { reasons, .. }
            | GetError::NoTree { reasons } => reasons,
            _ => &[],
        }
    }

    /// Returns the event for observers. A transfer that failed proves nothing.
    pub(crate) fn event(&self, kept_bytes: u64, mut summary: Summary) -> Event {
        summary.proved = false;
        summary.verified = Verified::None;
        let (path, at_s) = (summary.path.clone(), summary.elapsed_s);
        let stopped = matches!(self, GetError::Stopped);
        Event::Failed { path, at_s, error: self.with_reasons(), stopped, kept_bytes, summary }
    }

    /// Returns the error as one line, with its causes and the reason of each source.
    pub fn with_reasons(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(next) = cause {
            let words = next.to_string();
            if !text.contains(&words) {
                text.push_str(&format!(": {words}"));
            }
            cause = next.source();
        }
        let reasons = self.reasons();
        if !reasons.is_empty() {
            for (at, Reason { of, why }) in reasons.iter().take(REASONS_SHOWN).enumerate() {
                text.push_str(if at == 0 { " (" } else { "; " });
                text.push_str(&format!("{of}: {why}"));
            }
            if reasons.len() > REASONS_SHOWN {
                text.push_str(&format!("; and {} more", reasons.len() - REASONS_SHOWN));
            }
            text.push(')');
        }
        text
    }
}

impl From<WriteError> for GetError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NoSpace { path, .. } => Self::DiskFull { path },
            other => Self::Write(other),
        }
    }
}

impl From<PartialError> for GetError {
    fn from(error: PartialError) -> Self {
        match error {
            PartialError::Stopped => Self::Stopped,
            other => Self::Tree(other),
        }
    }
}

impl From<CommitError> for GetError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::NoSpace { path, .. } => Self::DiskFull { path },
            other => Self::Commit(other),
        }
    }
}

/// Most sources in one line.
const REASONS_SHOWN: usize = 8;
