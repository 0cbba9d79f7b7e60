//! Where the blocks of a dataset go: a file, a tree, a stream.
//!
//! A sink gets every block once, in any order. Blocks that come with their own group hashes it checks
//! before it lays them down; the bytes of others it gives back, to be hashed. What it has laid down is
//! durable when [`Sink::commit`] has returned, and gets its final name by [`Sink::finish`] alone.

mod file;
mod output;
mod stream;
mod tree;

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use swath_model::{Buffer, Range, RangeSet};
use swath_source::{GroupHash, Pending};
use swath_store::{ReadError, Record};

use crate::error::GetError;

pub(crate) use output::Output;
pub(crate) use stream::{Stream, StreamReport};
pub(crate) use tree::TreeSink;

/// A destination. To add one: implement this, and choose it in `arrive` (`open`).
pub(crate) trait Sink: Send + Sync {
    /// Lays a block down.
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

    /// Whether what was laid down can be read back.
    fn reads_back(&self) -> bool {
        false
    }

    /// These bytes turned out wrong: until they are written again nothing vouches for them.
    fn distrust(&self, _: Range) {}

    /// The size became known only now.
    ///
    /// # Errors
    /// More than that was written already.
    fn end_at(&self, size_bytes: u64) -> Result<(), GetError>;

    /// Makes what was laid down durable, then writes these records down.
    fn commit(&self, _: Vec<Record>) -> Pending<'_, Result<(), GetError>> {
        Box::pin(async { Ok(()) })
    }

    /// How many bytes a later run need not fetch.
    fn durable_bytes(&self) -> Pending<'_, u64> {
        Box::pin(async { 0 })
    }

    /// Everything is there and right: gives it its final name, and the time of its last change.
    fn finish(&self, modified: Option<SystemTime>) -> Pending<'_, Result<(), GetError>>;

    /// Nothing of it is of use.
    fn discard(&self) -> Pending<'_, ()> {
        Box::pin(async {})
    }
}

/// Bytes that came.
pub(crate) struct Block {
    /// Where they belong, in bytes of the dataset.
    pub offset: u64,
    pub buffer: Buffer,
    /// How they can be checked on their way.
    pub checks: Option<Checks>,
}

impl Block {
    /// The bytes of the dataset that it has.
    pub fn range(&self) -> Range {
        Range::of_len(self.offset, self.buffer.len() as u64)
    }
}

/// Of a block that comes with group hashes.
pub(crate) struct Checks {
    /// One for each group.
    pub hashes: Vec<GroupHash>,
    /// What of the block is wanted, as sources count.
    pub wanted: Vec<Range>,
    /// What is laid down even where its source says that it is not as the index has it.
    pub takes_void: RangeSet,
}

/// What became of a block.
#[derive(Debug)]
pub(crate) enum Written {
    /// It is written (not synced), and its bytes are still to be proved.
    Unproved(Buffer),
    /// Its groups were checked, and those that are right are written.
    Checked(Checked),
    /// The sink tells by itself when it has been written and proved.
    Told,
}

/// Groups that were checked.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Whole groups that are written and right: in bytes of the dataset, their numbers and hashes.
    pub good: Vec<(Range, u64, GroupHash)>,
    /// With bytes in them that the source says are not as in its index, and whether they are written
    /// all the same.
    pub void: Vec<(Range, bool)>,
    /// Not what their group hashes say.
    pub bad: Vec<Range>,
}
