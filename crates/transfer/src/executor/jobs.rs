//! Disk work that is under way for one transfer.
//!
//! Its futures run within the executor's own task: they do little themselves (hand a buffer to the
//! disk, take it back), and a task each would cost more than that.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use swath_model::digest::Digest;
use swath_model::{Buffer, Range};
use swath_source::{Facts, GroupHash};
use swath_store::ReadError;

use super::dataset::passed_on::Group;
use super::integrity::suspect::PartPrint;
use super::sink::Written;
use crate::error::GetError;
use crate::verify::ReadNumber;

/// The work under way. It advances only while the executor polls it; buffers that the disk already
/// has are written all the same.
#[derive(Default)]
pub(super) struct Jobs {
    running: FuturesUnordered<Pin<Box<dyn Future<Output = JobDone> + Send>>>,
}

impl Jobs {
    /// Adds a job, which begins with the next call of [`Jobs::ended`] or [`Jobs::next`].
    pub fn add(&self, job: impl Future<Output = JobDone> + Send + 'static) {
        self.running.push(Box::pin(job));
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns a job that has ended already, and begins added jobs.
    pub fn ended(&mut self) -> Option<JobDone> {
        self.running.next().now_or_never().flatten()
    }

    /// Waits for the next job to end; for ever if there is none.
    pub async fn next(&mut self) -> JobDone {
        match self.running.next().await {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    /// Drops all work under way.
    pub fn forget(&mut self) {
        self.running.clear();
    }
}

/// The end of a piece of work that was under way.
#[derive(Debug)]
pub(super) enum JobDone {
    /// A block of this source was handed to the sink.
    Written { source: usize, range: Range, result: Result<Written, GetError> },
    /// A block was read back for hashing.
    ReadBack { read: ReadNumber, range: Range, result: Result<Buffer, ReadError> },
    /// A block was compared for the audit; the result has the ranges in which the sources differ.
    Compared { source: usize, result: Result<Vec<Range>, ReadError> },
    /// Records are in the journal.
    Committed { result: Result<(), GetError> },
    /// The free space for a tree was checked.
    RoomChecked { result: Result<(), GetError> },
    /// The source was asked for the hashes of groups that relays forwarded.
    Proved { batch: BTreeMap<u64, Group>, told: Result<Vec<GroupHash>, String> },
    /// The source was asked about its file without relays; `told` is its answer, if it gave one.
    Witnessed { source: usize, is_mute: bool, told: Option<Box<Facts>> },
    /// The parts of a suspect piece were hashed. It has the wrong digest `bad`, or is good now.
    Printed { piece: Range, prints: Vec<PartPrint>, bad: Option<Digest> },
}
