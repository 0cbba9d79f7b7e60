//! What has come of a tree, as others get it: the sealed file, made anew of the files.

use std::io;
use std::sync::Arc;

use swath_model::Range;
use swath_model::digest::blake3_tree::{GROUP_BYTES, group_value};
use swath_source::{Pending, UNIT_BYTES};
use swath_store::Disk;
use swath_store::tree::TreeReader;

use crate::discovery::VerifiedContent;
use crate::executor::sink::TreeSink;

/// The sealed file of a tree that is being received, or was.
pub(super) struct SealedContent {
    reader: Arc<TreeReader>,
    disk: Disk,
    plain_bytes: u64,
}

impl SealedContent {
    pub fn of(sink: &TreeSink, plain_bytes: u64) -> io::Result<SealedContent> {
        let reader = Arc::new(sink.stage.reader()?);
        Ok(SealedContent { reader, disk: sink.disk.clone(), plain_bytes })
    }
}

impl VerifiedContent for SealedContent {
    fn read(&self, range: Range) -> Pending<'_, io::Result<Vec<u8>>> {
        let (reader, plain_bytes) = (Arc::clone(&self.reader), self.plain_bytes);
        let read = move || read(&reader, range, plain_bytes);
        Box::pin(async move { self.disk.work(read).await? })
    }

    fn part_bytes(&self) -> u64 {
        UNIT_BYTES
    }
}

/// Reads bytes of the sealed file. Blocks.
fn read(reader: &TreeReader, range: Range, plain_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(range.len()).unwrap_or(0));
    for group in range.start / UNIT_BYTES..range.end.div_ceil(UNIT_BYTES) {
        let start = (group * GROUP_BYTES).min(plain_bytes);
        let plain = Range::new(start, (start + GROUP_BYTES).min(plain_bytes));
        let mut unit = reader.read(plain)?;
        unit.extend_from_slice(&group_value(group, &unit));
        let unit_range = Range::of_len(group * UNIT_BYTES, unit.len() as u64);
        let part = range.intersect(unit_range).ok_or(io::ErrorKind::UnexpectedEof)?;
        let within = |at: u64| (at - unit_range.start) as usize;
        bytes.extend_from_slice(&unit[within(part.start)..within(part.end)]);
    }
    if bytes.len() as u64 != range.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}
