//! The seam for whoever finds sources while a transfer runs: a swarm, or another list that changes.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use swath_model::digest::Digest;
use swath_model::{Pool, Range};
use swath_source::{Pending, Source};
use tokio::sync::mpsc;

use crate::executor::Sink;

/// Finds sources of one dataset, and hears what a transfer has of it.
pub trait Discovery: fmt::Debug + Send + Sync {
    /// Returns the sources that are known, then those that are found. Its end means that there will be no
    /// more. A transfer that starts again asks again.
    fn sources(&self) -> mpsc::Receiver<Arc<dyn Source>>;

    /// The transfer begins with no verified bytes; `content` reads those that it verifies from now on.
    fn begun(&self, content: Arc<dyn VerifiedContent>);

    /// These bytes are verified, and stay so.
    fn verified(&self, range: Range);

    /// This source delivered wrong bytes within `range`, and is asked for nothing any more. `why` is for
    /// the user.
    fn convicted(&self, source: &dyn Source, range: Range, why: &str);

    /// Who vouches for blocks of the content, where no digests of its pieces are known; nobody by default.
    fn voucher(self: Arc<Self>) -> Option<Arc<dyn Voucher>> {
        None
    }

    /// The whole has the wrong digest: what anybody vouched for may be wrong.
    fn refuted(&self) {}
}

/// Vouches for blocks of a content of which no digests are known.
///
/// That proves nothing to the user. It finds out who of several sources changes bytes.
pub trait Voucher: fmt::Debug + Send + Sync {
    /// Returns the size of a block, which is at most [`BLOCK_BYTES_MAX`].
    fn block_bytes(&self) -> u64;

    /// Judges a block by its BLAKE3 hash, before anybody is told that it is verified.
    fn judge(&self, block: u64, actual: Digest, from: CameFrom) -> Judgement;
}

/// Where a block has come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameFrom {
    /// All of it from sources that the user named.
    Named,
    /// Some of it from an earlier run, which does not say from whom; nothing from sources that were found.
    EarlierRun,
    /// Some of it from sources that were found, and some from sources that the user named.
    Mixed,
    /// All of it from sources that were found, but for what an earlier run left.
    Found,
}

/// What somebody says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is right.
    Right,
    /// It is wrong, and so is whoever delivered it.
    Wrong,
    /// Nobody knows: it is to be fetched again.
    Unknown,
}

/// The largest block that anybody vouches for.
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// The verified bytes of a transfer that runs, or has ended well.
pub trait VerifiedContent: Send + Sync {
    /// Reads verified bytes.
    ///
    /// # Errors
    /// They cannot be read, or the transfer has ended and moved them.
    fn read(&self, range: Range) -> Pending<'_, io::Result<Vec<u8>>>;

    /// Opens the file that has the verified bytes where they belong, if there is one. It stays open when
    /// the transfer ends.
    fn open(&self) -> Option<File> {
        None
    }
}

/// What a sink has, as content.
pub(crate) struct SinkContent {
    pub sink: Arc<dyn Sink>,
    /// Buffers for reading.
    pub pool: Pool,
}

impl VerifiedContent for SinkContent {
    fn open(&self) -> Option<File> {
        self.sink.file()
    }

    fn read(&self, range: Range) -> Pending<'_, io::Result<Vec<u8>>> {
        Box::pin(async move {
            let mut bytes = Vec::new();
            let mut at = range.start;
            while at < range.end {
                let buffer = self.pool.take().await;
                let most = (range.end - at).min(self.pool.slot_bytes() as u64);
                let read = self.sink.read(at, most as usize, buffer).await;
                let buffer = read.map_err(|error| error.source)?;
                if buffer.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                at += buffer.len() as u64;
                bytes.extend_from_slice(&buffer);
            }
            Ok(bytes)
        })
    }
}
