//! A tree: every group is checked before it is written, and wrong groups are not written.
//!
//! Files get their final names after the last pass over the tree (`crate::tree`), not here.

use std::sync::Arc;
use std::time::SystemTime;

use swath_model::digest::blake3_tree::{GROUP_BYTES, group_value};
use swath_model::{Range, RangeSet};
use swath_source::{GroupHash, Pending};
use swath_store::tree::{KeptIndexWriter, PartialError, PartialTree};
use swath_store::{Disk, Record};

use super::{Block, Checked, Checks, Sink, Written};
use crate::error::GetError;
use crate::executor::dataset::sealed_of;

/// The files of a tree in the making.
pub(crate) struct TreeSink {
    pub stage: Arc<PartialTree>,
    /// Saves the hashes of correct groups.
    pub keeper: Option<Arc<KeptIndexWriter>>,
    pub disk: Disk,
}

impl TreeSink {
    /// Runs work on the files on a disk thread.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PartialTree) -> Result<T, PartialError> + Send + 'static,
    ) -> Result<T, GetError> {
        let stage = Arc::clone(&self.stage);
        Ok(self.disk.work(move || work(&stage)).await.map_err(GetError::Thread)??)
    }
}

impl Sink for TreeSink {
    fn write(self: Arc<Self>, block: Block) -> Pending<'static, Result<Written, GetError>> {
        Box::pin(async move {
            let keeper = self.keeper.clone();
            let write = move |stage: &PartialTree| {
                let Block { offset, buffer, checks } = block;
                let checked = checks.map_or_else(
                    || Ok(Checked::default()),
                    |it| place(stage, offset, &buffer, &it),
                )?;
                keep(keeper.as_deref(), &checked.good)?;
                Ok(checked)
            };
            Ok(Written::Checked(self.work(write).await?))
        })
    }

    fn end_at(&self, _: u64) -> Result<(), GetError> {
        // The index has the size.
        Ok(())
    }

    fn commit(&self, records: Vec<Record>) -> Pending<'_, Result<(), GetError>> {
        let durable = records.into_iter().filter_map(|record| match record {
            Record::Durable { range, .. } => Some(range),
            _ => None,
        });
        // In as few ranges as possible.
        let durable: RangeSet = durable.collect();
        let durable: Vec<Range> = durable.iter().collect();
        Box::pin(async move {
            match durable.is_empty() {
                true => Ok(()),
                false => self.work(move |stage| stage.commit(&durable)).await,
            }
        })
    }

    fn durable_bytes(&self) -> Pending<'_, u64> {
        Box::pin(async { self.stage.durable_bytes() })
    }

    fn finish(&self, _: Option<SystemTime>) -> Pending<'_, Result<(), GetError>> {
        Box::pin(async { Ok(()) })
    }
}

/// Checks the wanted groups against their hashes and writes the correct ones, and those void ones
/// that `takes_void` covers. Blocks.
fn place(
    stage: &PartialTree,
    offset: u64,
    bytes: &[u8],
    checks: &Checks,
) -> Result<Checked, PartialError> {
    let Checks { hashes, wanted, takes_void } = checks;
    let mut checked = Checked::default();
    // Neighbouring groups are written in one go.
    let mut run: Option<Range> = None;
    let write = |run: &mut Option<Range>| match run.take() {
        Some(range) => {
            let (from, to) = ((range.start - offset) as usize, (range.end - offset) as usize);
            stage.write(range.start, &bytes[from..to])
        }
        None => Ok(()),
    };
    for (at, group_hash) in hashes.iter().enumerate() {
        let start = offset + at as u64 * GROUP_BYTES;
        let end = (start + GROUP_BYTES).min(offset + bytes.len() as u64);
        let group = Range::new(start, end.max(start));
        let sealed = sealed_of(group);
        if !wanted.iter().any(|range| range.start <= sealed.start && sealed.end <= range.end) {
            write(&mut run)?;
            continue;
        }
        let number = start / GROUP_BYTES;
        let data = &bytes[(start - offset) as usize..(group.end - offset) as usize];
        let value = group_value(number, data);
        let is_void = value.iter().zip(group_hash).all(|(own, theirs)| *theirs == !*own);
        if value != *group_hash && !is_void {
            write(&mut run)?;
            checked.bad.push(group);
            continue;
        }
        if is_void {
            let is_taken = takes_void.covers(sealed);
            checked.void.push((group, is_taken));
            if !is_taken {
                write(&mut run)?;
                continue;
            }
        } else {
            checked.good.push((group, number, *group_hash));
        }
        run = match run {
            Some(before) => Some(Range::new(before.start, group.end)),
            None => Some(group),
        };
    }
    write(&mut run)?;
    Ok(checked)
}

/// Saves the hashes of correct groups.
fn keep(
    keeper: Option<&KeptIndexWriter>,
    good: &[(Range, u64, GroupHash)],
) -> Result<(), PartialError> {
    let Some(keeper) = keeper else { return Ok(()) };
    for (_, number, group_hash) in good {
        let kept = keeper.keep(*number, group_hash);
        let path = keeper.path().to_owned();
        kept.map_err(|source| PartialError::Io { doing: "write", path, source })?;
    }
    Ok(())
}
