//! Where the blocks of a dataset go: a file, a tree, a stream.
//!
//! A sink gets every block once, in any order. It checks blocks that come with group hashes before it
//! writes them. It returns the bytes of other blocks, so that the verifier can hash them. Written bytes
//! are durable when [`Sink::commit`] has returned. Only [`Sink::finish`] gives them their final name.

mod file;
mod files;
mod output;
mod stream;
mod tree;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use swath_model::{Buffer, Range, RangeSet};
use swath_source::{GroupHash, Pending};
use swath_store::{ReadError, Record};

use crate::error::GetError;

pub(crate) use files::{FilesSink, whole_pieces};
pub(crate) use output::Output;
pub(crate) use stream::{Stream, StreamReport};
pub(crate) use tree::TreeSink;

/// A destination. To add one: implement this, and choose it in `arrive` (`open`).
pub(crate) trait Sink: Send + Sync {
    /// Writes a block.
    fn write(self: Arc<Self>, block: Block) -> Pending<'static, Result<Written, GetError>>;

    /// Reads up to `bytes` bytes at `offset` back into a buffer.
    fn read(
        &self,
        offset: u64,
        bytes: usize,
        into: Buffer,
    ) -> Pending<'_, Result<Buffer, ReadError>> {
        let (_, path) = ((bytes, into), "the output".into());
        let source = io::ErrorKind::Unsupported.into();
        Box::pin(async move { Err(ReadError { path, offset, source }) })
    }

    /// Returns a file that has all written bytes where they belong, open for reading.
    fn file(&self) -> Option<File> {
        None
    }

    /// Returns whether written bytes can be read back.
    fn reads_back(&self) -> bool {
        false
    }

    /// Marks bytes as wrong: they do not count as written until they are written again.
    fn distrust(&self, _: Range) {}

    /// Sets the size, which was unknown so far.
    ///
    /// # Errors
    /// More than that was written already.
    fn end_at(&self, size_bytes: u64) -> Result<(), GetError>;

    /// Makes all written bytes durable, then appends these records to the journal.
    fn commit(&self, _: Vec<Record>) -> Pending<'_, Result<(), GetError>> {
        Box::pin(async { Ok(()) })
    }

    /// Returns how many bytes a later run need not fetch.
    fn durable_bytes(&self) -> Pending<'_, u64> {
        Box::pin(async { 0 })
    }

    /// Gives the complete and verified data its final name and modification time.
    fn finish(&self, modified: Option<SystemTime>) -> Pending<'_, Result<(), GetError>>;

    /// Removes everything that was written.
    fn discard(&self) -> Pending<'_, ()> {
        Box::pin(async {})
    }
}

/// A block of received bytes.
pub(crate) struct Block {
    /// Where they belong, in bytes of the dataset.
    pub offset: u64,
    pub buffer: Buffer,
    /// How they can be checked before they are written.
    pub checks: Option<Checks>,
}

impl Block {
    /// Returns the range of the dataset that it holds.
    pub fn range(&self) -> Range {
        Range::of_len(self.offset, self.buffer.len() as u64)
    }
}

/// How to check a block that comes with group hashes.
pub(crate) struct Checks {
    /// One hash for each group.
    pub hashes: Vec<GroupHash>,
    /// The wanted parts of the block, in bytes of the sealed file.
    pub wanted: Vec<Range>,
    /// Bytes that are written even if their source says that they differ from the index.
    pub takes_void: RangeSet,
}

/// The result of writing a block.
#[derive(Debug)]
pub(crate) enum Written {
    /// Written (not synced); its bytes are not proved yet.
    Unproved(Buffer),
    /// Its groups were checked, and the correct ones written.
    Checked(Checked),
    /// The sink reports later when the block is written and proved.
    HandedOver,
}

/// The result of checking groups.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Correct groups, which are written: their bytes of the dataset, numbers and hashes.
    pub good: Vec<(Range, u64, GroupHash)>,
    /// Groups with bytes that differ from the index, as their source says, and whether they are
    /// written all the same.
    pub void: Vec<(Range, bool)>,
    /// Groups that do not match their hashes.
    pub bad: Vec<Range>,
}
