//! A file: blocks are written where they belong, and hashed afterwards.

use std::fs::File;
use std::sync::Arc;
use std::time::SystemTime;

use swath_model::{Buffer, Range};
use swath_source::Pending;
use swath_store::{ReadError, Record, Target};

use super::{Block, Sink, Written};
use crate::error::GetError;

impl Sink for Target {
    fn write(self: Arc<Self>, block: Block) -> Pending<'static, Result<Written, GetError>> {
        Box::pin(async move {
            Ok(Written::Unproved(Target::write(&self, block.offset, block.buffer).await?))
        })
    }

    fn read(
        &self,
        offset: u64,
        bytes: usize,
        into: Buffer,
    ) -> Pending<'_, Result<Buffer, ReadError>> {
        Box::pin(Target::read(self, offset, bytes, into))
    }

    fn file(&self) -> Option<File> {
        File::open(self.part_path()).ok()
    }

    fn reads_back(&self) -> bool {
        true
    }

    fn distrust(&self, range: Range) {
        Target::distrust(self, range);
    }

    fn end_at(&self, size_bytes: u64) -> Result<(), GetError> {
        Ok(self.set_size(size_bytes)?)
    }

    fn commit(&self, records: Vec<Record>) -> Pending<'_, Result<(), GetError>> {
        Box::pin(async { Ok(Target::commit(self, records).await?) })
    }

    fn durable_bytes(&self) -> Pending<'_, u64> {
        Box::pin(Target::durable_bytes(self))
    }

    fn finish(&self, modified: Option<SystemTime>) -> Pending<'_, Result<(), GetError>> {
        Box::pin(async move {
            Target::finish(self, modified).await?;
            Ok(())
        })
    }

    fn discard(&self) -> Pending<'_, ()> {
        Box::pin(async {
            // A failure shows when the target is opened again.
            let _ = Target::discard(self).await;
        })
    }
}
