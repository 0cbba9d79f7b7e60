//! The seam for whoever finds sources while a transfer runs: a swarm, a cluster, or another list that
//! changes.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use swath_model::digest::blake3_tree::subtree_value;
use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_model::{Pool, Range};
use swath_source::{Pending, SealedLength, Source};
use tokio::sync::mpsc;

use crate::executor::Sink;

/// Finds sources of one dataset, and hears what a transfer has of it.
pub trait Discovery: fmt::Debug + Send + Sync {
    /// Returns the sources that are known, then those that are found. Its end means that there will be no
    /// more. A transfer that starts again asks again.
    fn sources(&self) -> mpsc::Receiver<Arc<dyn Source>>;

    /// Returns a source that the user named as it is to be asked: for everything, by default.
    fn named(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        source
    }

    /// The transfer begins with no verified bytes; `content` reads those that it verifies from now on.
    fn begun(&self, content: Arc<dyn VerifiedContent>);

    /// These bytes are here, and are not fetched any more. They are not verified.
    fn unverified(&self, _: Range) {}

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

/// Finds sources of a tree once its index is known.
///
/// To whoever does, the content is the sealed file: all ranges count bytes of the virtual file with its
/// group hashes, and sources deliver both. What a source that was found delivers is verified when the
/// replica itself has told the same group hashes.
pub trait TreeDiscovery: fmt::Debug + Send + Sync {
    /// Returns who finds sources of this tree; `None` if nobody does.
    fn of(&self, tree: IndexedTree) -> Option<Arc<dyn Discovery>>;
}

/// A tree whose index is complete.
#[derive(Debug)]
pub struct IndexedTree {
    /// BLAKE3 of the index: the name of the dataset.
    pub index_digest: [u8; 32],
    /// Bytes of the virtual file.
    pub plain_bytes: u64,
    /// The same, for sources of the sealed file.
    pub length: Arc<SealedLength>,
}

/// Vouches for blocks of a content of which no digests are known.
///
/// That proves nothing to the user. It finds out who of several sources changes bytes.
pub trait Voucher: fmt::Debug + Send + Sync {
    /// Returns the size of a block, which is at most [`BLOCK_BYTES_MAX`].
    fn block_bytes(&self) -> u64;

    /// Judges a block by its [`block_hash`], before anybody is told that it is verified.
    fn judge(&self, block: u64, actual: Digest, from: CameFrom) -> Judgement;
}

/// Returns the hash by which a block of a file of `size_bytes` is judged. If blocks are subtrees of BLAKE3's
/// tree, a power of two of at least 1 KiB, it is the value of the subtree; else the BLAKE3 hash of the block.
pub fn block_hash(block: u64, block_bytes: u64, size_bytes: u64, bytes: &[u8]) -> [u8; 32] {
    let is_subtree = block_bytes.is_power_of_two() && block_bytes >= CHUNK_BYTES;
    // The value of all of a tree is the BLAKE3 hash.
    match is_subtree && size_bytes > block_bytes {
        true => subtree_value(block.saturating_mul(block_bytes), bytes),
        false => Hasher::digest(Algorithm::Blake3, bytes).as_bytes().try_into().unwrap_or_default(),
    }
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

/// Of BLAKE3: nothing smaller is a tree.
const CHUNK_BYTES: u64 = 1024;
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

    /// Returns the size of the parts, counted from the first byte, in which reading costs least.
    fn part_bytes(&self) -> u64 {
        PART_BYTES
    }
}

/// Usual size of what is read at a time.
const PART_BYTES: u64 = 256 << 10;

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

#[cfg(test)]
mod tests {
    use swath_model::digest::Blake3Tree;

    use super::*;

    #[test]
    fn a_block_has_the_hash_of_its_subtree() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 7) as u8).collect();
        for (size, block_bytes) in [(1_000_000, 256 << 10), (1_000_000, 512 << 10), (9, 256 << 10)]
        {
            let bytes = &bytes[..size];
            let mut tree = Blake3Tree::with_group(size as u64, block_bytes).unwrap();
            for (at, block) in bytes.chunks(block_bytes as usize).enumerate() {
                let value = tree.add(at as u64, block).unwrap();
                assert_eq!(block_hash(at as u64, block_bytes, size as u64, block), value);
            }
            assert_eq!(tree.root(), Some(Hasher::digest(Algorithm::Blake3, bytes)));
        }
        let odd = block_hash(1, 300_000, 1_000_000, &bytes[300_000..600_000]);
        let plain = Hasher::digest(Algorithm::Blake3, &bytes[300_000..600_000]);
        assert_eq!(plain.as_bytes(), odd);
    }
}
