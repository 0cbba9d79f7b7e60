//! The way to the disk: writes, read-backs, commits, the end.
//!
//! A buffer is written first, then hashed, then returned to the pool; it is never copied. What is
//! written and synced is journaled, in that order, about once a second.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use swath_model::digest::Digest;
use swath_model::{Buffer, Range};
use swath_source::{Facts, GroupHash};
use swath_store::{CommitError, ReadError, Record, WriteError};

use super::Ended;
use super::passed_on::Group;
use super::persistence::hash_record;
use super::sealed::Placed;
use super::state::Run;
use super::suspect::PartPrint;
use crate::error::GetError;
use crate::observe::Phase;
use crate::verify::{ReadNumber, Report};

/// The end of a piece of work with the disk.
#[derive(Debug)]
pub(super) enum JobDone {
    /// A block is written (not synced).
    Written { range: Range, result: Result<Buffer, WriteError> },
    /// A block was read back for hashing.
    ReadBack { read: ReadNumber, range: Range, result: Result<Buffer, ReadError> },
    /// A block was compared for the audit: the ranges in which the two sources differ.
    Compared { source: usize, result: Result<Vec<Range>, ReadError> },
    /// Records are in the journal.
    Committed { result: Result<(), CommitError> },
    /// Groups of a tree were checked and written.
    Placed { source: usize, result: Result<Placed, GetError> },
    /// The destination can hold a tree, or not.
    TreeChecked { result: Result<(), GetError> },
    /// What came of a tree so far is in its journal.
    TreeCommitted { result: Result<(), GetError> },
    /// The source has told the group hashes of groups that relays passed on, or why it has not.
    Proved { batch: BTreeMap<u64, Group>, told: Result<Vec<GroupHash>, String> },
    /// What a source says of its file without relays, where it has said it.
    Witnessed { source: usize, is_mute: bool, told: Option<Box<Facts>> },
    /// The parts of a suspect piece were hashed: of a piece that came to `bad`, or that is good now.
    Printed { piece: Range, prints: Vec<PartPrint>, bad: Option<Digest> },
}

impl Run<'_> {
    /// Send a block to the disk or into the ordered stream.
    pub(super) fn store(&mut self, range: Range, buffer: Buffer) {
        if let Some(ordered) = &self.output.ordered {
            ordered.accept(range.start, buffer);
            return;
        }
        let Some(target) = self.persistence.target.clone() else { return };
        if self.ways.is_some() {
            self.integrity.samples.begin(range);
        }
        if let Some(in_order) = &mut self.integrity.in_order {
            in_order.begin(range);
        }
        self.jobs.add(async move {
            let result = target.write(range.start, buffer).await;
            JobDone::Written { range, result }
        });
    }

    pub(super) fn job_done(&mut self, done: JobDone) -> Result<(), Ended> {
        match done {
            JobDone::Written { range, result } => {
                let buffer = result?;
                self.persistence.written(range, &self.coverage);
                if self.ways.is_some() {
                    self.integrity.samples.end(range);
                    self.fetch_condemned_again();
                }
                let Some(verifier) = &self.integrity.verifier else { return Ok(()) };
                match &mut self.integrity.in_order {
                    None => verifier.accept(range.start, buffer),
                    Some(in_order) => {
                        for (start, buffer) in in_order.end(range, buffer) {
                            verifier.accept(start, buffer);
                        }
                    }
                }
            }
            JobDone::ReadBack { read, range, result } => {
                let buffer = result?;
                if (buffer.len() as u64) < range.len() {
                    // To ask again would not bring back what somebody cut off.
                    return Err(Ended::from(ReadError {
                        path: self.request.destination_name().into(),
                        offset: range.start,
                        source: io::ErrorKind::UnexpectedEof.into(),
                    }));
                }
                if let Some(verifier) = &self.integrity.verifier {
                    let counts = self.coverage.have.covers(range);
                    verifier.accept_back(read, counts.then_some((range.start, buffer)));
                }
            }
            JobDone::Committed { result } => {
                self.persistence.committing = false;
                result?;
            }
            JobDone::Placed { source, result } => self.placed(source, result?),
            JobDone::TreeChecked { result } => result?,
            JobDone::Proved { batch, told } => self.proved(batch, told)?,
            JobDone::Witnessed { source, is_mute, told } => {
                self.witnessed(source, is_mute, told.as_deref())?;
            }
            JobDone::TreeCommitted { result } => {
                self.persistence.committing = false;
                result?;
            }
            JobDone::Compared { source, result } => self.compared(source, &result?),
            JobDone::Printed { piece, prints, bad } => self.printed(piece, prints, bad)?,
        }
        Ok(())
    }

    /// The verifier has something to say.
    pub(super) fn hash_report(&mut self, report: Report) -> Result<(), Ended> {
        for (read, range) in report.wants {
            let Some(target) = self.persistence.target.clone() else { break };
            let pool = self.engine.read_pool.clone();
            self.jobs.add(async move {
                let buffer = pool.take().await;
                let result = target.read(range.start, range.len() as usize, buffer).await;
                JobDone::ReadBack { read, range, result }
            });
        }
        self.verdicts(report.verdicts)
    }

    /// Journal what has been written and hashed since the last time.
    pub(super) fn commit(&mut self) {
        if self.tree.is_some() {
            self.commit_tree();
            return;
        }
        let Some(target) = self.persistence.target.clone() else { return };
        if self.persistence.committing
            || self.persistence.records.is_empty()
            || self.phase == Phase::Disputing
        {
            return;
        }
        self.persistence.committing = true;
        let mut records = std::mem::take(&mut self.persistence.records);
        let identity = self.identity(None);
        records.insert(0, Record::Identity { size_bytes: self.coverage.size_bytes, identity });
        let save = self.integrity.verifier.as_ref().map(|verifier| verifier.ask_to_save());
        self.jobs.add(async move {
            if let Some(save) = save {
                for saved in save.await.unwrap_or_default() {
                    records.push(hash_record(saved));
                }
            }
            JobDone::Committed { result: target.commit(records).await }
        });
    }

    /// Everything is right: give the file its name.
    pub(super) async fn finish(&mut self) -> Result<(), GetError> {
        self.phase = Phase::Finishing;
        self.close_lanes();
        if let Some(ordered) = self.output.ordered.take() {
            ordered.finish().await.map_err(GetError::Output)?;
        }
        let Some(target) = self.persistence.target.take() else { return Ok(()) };
        // The target waits for whoever is under way in it; here nobody would go on.
        self.jobs.forget();
        let modified = self.request.modified.or_else(|| self.newest_modified());
        target.finish(modified).await?;
        Ok(())
    }

    /// Stopped early: journal what there is; returns the bytes kept for the next run.
    pub(super) async fn keep(&mut self) -> u64 {
        self.close_lanes();
        let Some(target) = self.persistence.target.take() else { return 0 };
        // What is on its way to the disk may still arrive there.
        let deadline = tokio::time::Instant::now() + KEEP_WITHIN;
        while !self.jobs.is_empty() {
            match tokio::time::timeout_at(deadline, self.jobs.next()).await {
                Ok(JobDone::Written { range, result: Ok(_) }) => {
                    self.persistence.written(range, &self.coverage)
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.jobs.forget();
        self.void_condemned();
        let mut records = std::mem::take(&mut self.persistence.records);
        if let Some(verifier) = self.integrity.verifier.take() {
            let saved = tokio::time::timeout_at(deadline, verifier.ask_to_save()).await;
            if let Ok(Ok(saved)) = saved {
                for saved in saved {
                    records.push(hash_record(saved));
                }
            }
        }
        if self.coverage.have.is_empty() {
            let _ = target.discard().await;
            return 0;
        }
        let identity = self.identity(None);
        records.insert(0, Record::Identity { size_bytes: self.coverage.size_bytes, identity });
        if self.comparison.mismatch {
            records.push(Record::Mismatch);
        }
        // On a full disk this may fail; what was committed before is still there.
        let _ = target.commit(records).await;
        target.durable_bytes().await
    }

    pub(super) fn target_handle(&self) -> Option<Arc<swath_store::Target>> {
        self.persistence.target.clone()
    }
}

/// Ctrl-C must end the program within a second: what is not on the disk by then is fetched again.
const KEEP_WITHIN: std::time::Duration = std::time::Duration::from_millis(600);
