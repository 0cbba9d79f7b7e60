//! The ordered stream that replaces the file, if there is one.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use swath_model::{Range, Time};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Stream, StreamReport};
use crate::executor::coverage::Coverage;
use crate::verify::Proof;

/// The ordered stream.
pub(crate) struct Output {
    pub stream: Option<Arc<Stream>>,
    /// Bytes that it has written.
    pub consumed: u64,
    /// Time spent waiting for its reader.
    pub nanos: Arc<AtomicU64>,
    /// Since when it waits for bytes that have no buffer.
    pub starved_since: Option<Time>,
    /// Receives its reports.
    pub reports: UnboundedReceiver<StreamReport>,
    /// Sends its reports.
    pub sender: UnboundedSender<StreamReport>,
}

impl Default for Output {
    fn default() -> Self {
        let (sender, reports) = unbounded_channel();
        Output {
            stream: None,
            consumed: 0,
            nanos: Arc::default(),
            starved_since: None,
            reports,
            sender,
        }
    }
}

impl Output {
    /// Returns whether the stream (if there is one) has been written to the end of the file.
    pub fn is_done(&self, size_bytes: Option<u64>) -> bool {
        self.stream.is_none() || Some(self.consumed) == size_bytes
    }

    /// Returns whether bytes wait only for the reader. A piece with a digest can be written when
    /// all of it is here.
    pub fn reader_is_behind(&self, coverage: &Coverage, proof: &Proof) -> bool {
        let Some(stream) = &self.stream else { return false };
        let size = coverage.size_bytes.unwrap_or(u64::MAX);
        let rest = Range::new(self.consumed.min(size), size);
        let here = coverage.have.gaps_within(rest).first().map_or(size, |gap| gap.start);
        let writable = match &proof.pieces {
            Some(pieces) if here < size && stream.holds_pieces() => {
                pieces.range_of(pieces.piece_at(here), size).map_or(here, |piece| piece.start)
            }
            _ => here,
        };
        writable > self.consumed
    }
}
