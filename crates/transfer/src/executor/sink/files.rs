//! A set of files: bytes are written as they come, and proved afterwards. Only proved bytes are journaled.

use std::sync::Arc;
use std::time::SystemTime;

use swath_model::pieces::Pieces;
use swath_model::{Buffer, Range, RangeSet};
use swath_source::Pending;
use swath_store::tree::{FileSet, PartialError};
use swath_store::{Disk, ReadError, Record};

use super::{Block, Sink, Written};
use crate::error::GetError;

/// The files of a set in the making.
pub(crate) struct FilesSink {
    pub set: Arc<FileSet>,
    pub disk: Disk,
}

impl FilesSink {
    /// Runs work on the files on a disk thread.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FileSet) -> Result<T, PartialError> + Send + 'static,
    ) -> Result<T, GetError> {
        let set = Arc::clone(&self.set);
        Ok(self.disk.work(move || work(&set)).await.map_err(GetError::Thread)??)
    }
}

impl Sink for FilesSink {
    fn write(self: Arc<Self>, block: Block) -> Pending<'static, Result<Written, GetError>> {
        Box::pin(async move {
            let Block { offset, buffer, .. } = block;
            let write = move |set: &FileSet| set.write(offset, &buffer).map(|()| buffer);
            Ok(Written::Unproved(self.work(write).await?))
        })
    }

    fn read(
        &self,
        offset: u64,
        bytes: usize,
        mut into: Buffer,
    ) -> Pending<'_, Result<Buffer, ReadError>> {
        let set = Arc::clone(&self.set);
        Box::pin(async move {
            let read = self.disk.work(move || {
                into.truncate(0);
                let space = into.spare();
                let most = space.len().min(bytes);
                let read = set.read(offset, &mut space[..most])?;
                into.advance(read);
                Ok(into)
            });
            let failed =
                |source| ReadError { path: "the files of the torrent".into(), offset, source };
            read.await.and_then(|read| read).map_err(failed)
        })
    }

    fn reads_back(&self) -> bool {
        true
    }

    fn end_at(&self, _: u64) -> Result<(), GetError> {
        // The list of files has the size.
        Ok(())
    }

    fn commit(&self, records: Vec<Record>) -> Pending<'_, Result<(), GetError>> {
        let mut proved = RangeSet::new();
        for record in records {
            match record {
                Record::Verified { range } => _ = proved.insert(range),
                Record::Bad { range } => _ = proved.remove(range),
                _ => {}
            }
        }
        Box::pin(self.work(move |set| set.commit(&proved)))
    }

    fn durable_bytes(&self) -> Pending<'_, u64> {
        Box::pin(async { self.set.durable_bytes() })
    }

    fn finish(&self, _: Option<SystemTime>) -> Pending<'_, Result<(), GetError>> {
        Box::pin(self.work(FileSet::finish))
    }

    fn discard(&self) -> Pending<'_, ()> {
        Box::pin(async {
            // A failure shows when the folder is opened again.
            let _ = self.work(FileSet::give_up).await;
        })
    }
}

/// Returns the whole pieces among these bytes.
pub(crate) fn whole_pieces(pieces: &Pieces, durable: &RangeSet, size_bytes: u64) -> RangeSet {
    let mut whole = RangeSet::new();
    for range in durable.iter() {
        let (first, last) = (pieces.piece_at(range.start), pieces.piece_at(range.end - 1));
        for piece in first..=last {
            let piece: Option<Range> = pieces.range_of(piece, size_bytes);
            if let Some(piece) = piece.filter(|piece| range.covers(*piece)) {
                whole.insert(piece);
            }
        }
    }
    whole
}
