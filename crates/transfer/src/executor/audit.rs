//! Only a digest of the whole is known, and it does not match: somebody lied.
//!
//! Nothing is fetched into the file again at first. Every range is asked for from a source that
//! did not deliver it and compared with what lies on the disk. Where the two differ, one of the
//! two sources is wrong. The source on most sides of differences is suspected first: what it
//! delivered in the disputed ranges is replaced by the others' version and the file is hashed
//! again. If that is right, the suspect is convicted and named; else the next one is tried.

use std::collections::BTreeMap;

use swath_model::digest::Digest;
use swath_model::{Buffer, Range, RangeSet, SourceId, SwathId};
use swath_plan::{Config, Event as PlanEvent, Planner, PolicyKind};

use super::Ended;
use super::sink::JobDone;
use super::state::Run;
use crate::engine::Stop;
use crate::error::GetError;
use crate::observe::Phase;

/// A comparison of what lies on the disk with what other sources deliver.
pub(super) struct Audit {
    compared: RangeSet,
    /// (range, who delivered what is on the disk, who says otherwise), journal numbers.
    disputes: Vec<(Range, u32, u32)>,
}

impl Run<'_> {
    /// Find who lied and put it right; returns when the file is ready to be hashed again.
    pub(super) async fn audit(&mut self, actual: Digest, stop: &Stop) -> Result<(), Ended> {
        let failed = |run: &Self, hint: &str| {
            let wanted = run.proof.whole.as_ref().map(ToString::to_string).unwrap_or_default();
            Err(Ended::Error(GetError::Digest {
                wanted,
                actual: actual.to_string(),
                hint: hint.to_owned(),
            }))
        };
        if self.target.is_none() {
            return failed(self, "; what was written to the output is wrong");
        }
        self.audits += 1;
        let usable = (0..self.sources.len()).filter(|&at| self.is_usable(at)).count();
        if usable < 2
            && self.disputed.is_empty()
            && self.other_version("its file does not have the digest")
        {
            return Err(Ended::Restart);
        }
        if self.audits > AUDITS_MAX || (usable < 2 && self.disputed.is_empty()) {
            self.void = true;
            return failed(
                self,
                match usable {
                    0 | 1 => "; there is no second source to compare with",
                    _ => "; replacing what was in dispute did not help",
                },
            );
        }
        if self.disputed.is_empty() {
            self.note(
                "the digest does not match: comparing what the sources deliver".to_owned(),
                true,
            );
            self.compare_all(stop).await?;
        }
        let Some((suspect, ranges)) = self.next_suspect() else {
            if self.other_version("its file does not have the digest") {
                return Err(Ended::Restart);
            }
            self.void = true;
            return failed(
                self,
                "; all sources agree with one another: either the digest is wrong, or all hold the same wrong file",
            );
        };
        let name = self.journal_names.get(&suspect).cloned().unwrap_or_default();
        let bytes: u64 = ranges.iter().map(|range| range.len()).sum();
        self.suspect = Some((
            suspect,
            format!(
                "{name} delivered {bytes} bytes that other sources contradict, first at byte {}",
                ranges[0].start
            ),
        ));
        // The whole file is fetched already; only the disputed ranges are, from anybody else.
        self.new_planner(RangeSet::new());
        if let Some(at) = self.source_of_journal_id(suspect) {
            for range in &ranges {
                let source = SourceId(at as u32);
                self.planner.handle(PlanEvent::Forbidden { source, range: *range }, self.now());
            }
        }
        for range in ranges {
            self.reopen(range);
        }
        self.phase = Phase::Fetching;
        self.drive(stop).await?;
        self.phase = Phase::Verifying;
        self.close_lanes();
        Ok(())
    }

    /// The version fetched is no good. Where mirrors were left out because theirs is another one,
    /// those in use are dropped in their favour.
    pub(super) fn other_version(&mut self, reason: &str) -> bool {
        let others: Vec<usize> = (0..self.sources.len())
            .filter(|&at| {
                self.sources[at].accepted == Some(false) && self.sources[at].left_out_for_version
            })
            .collect();
        if others.is_empty() || self.digests_offered {
            return false;
        }
        for at in 0..self.sources.len() {
            if self.sources[at].accepted == Some(true) {
                self.sources[at].accepted = Some(false);
                self.sources[at].left_out_for_version = false;
                self.drop_source(at, reason.to_owned());
            }
        }
        for at in others {
            let entry = &mut self.sources[at];
            entry.left_out_for_version = false;
            entry.state = crate::observe::SourceState::Waiting;
            entry.reason = None;
        }
        self.note(
            "starting again with the mirrors that hold another version of the file".to_owned(),
            true,
        );
        true
    }

    /// Ask for every range from somebody who did not deliver it, and compare.
    async fn compare_all(&mut self, stop: &Stop) -> Result<(), Ended> {
        let Some(size_bytes) = self.size_bytes else { return Ok(()) };
        self.phase = Phase::Disputing;
        self.audit = Some(Audit { compared: RangeSet::new(), disputes: Vec::new() });
        self.new_planner(RangeSet::full(size_bytes));
        let delivered: Vec<(Range, u32)> = self.deliverers.iter().collect();
        for (range, id) in delivered {
            if let Some(at) = self.source_of_journal_id(id) {
                self.planner.handle(
                    PlanEvent::Forbidden { source: SourceId(at as u32), range },
                    self.now(),
                );
            }
        }
        let result = self.drive(stop).await;
        self.close_lanes();
        if let Some(audit) = self.audit.take() {
            self.disputed = audit.disputes;
        }
        result
    }

    /// A fresh planner that knows all sources and has `missing` to fetch.
    fn new_planner(&mut self, missing: RangeSet) {
        let config =
            Config { policy: PolicyKind::Swath, window_bytes: None, ..self.request.plan.clone() };
        self.planner = Planner::new(config);
        self.planner_done = false;
        let now = self.now();
        self.last_arrival = now;
        for at in 0..self.sources.len() {
            let source = SourceId(at as u32);
            self.planner.handle(PlanEvent::SourceAdded { source, max_lanes: None }, now);
            if !self.is_usable(at) {
                self.planner.handle(PlanEvent::SourceBad { source }, now);
            }
        }
        let size_bytes = self.size_bytes.unwrap_or(0);
        self.planner.handle(PlanEvent::Layout { size_bytes, missing }, now);
    }

    /// Bytes came for comparison.
    pub(super) fn audit_chunk(
        &mut self,
        source: usize,
        swath: SwathId,
        range: Range,
        buffer: Buffer,
    ) {
        self.wasted_bytes += range.len();
        self.planner.handle(PlanEvent::Delivered { swath, range }, self.now());
        let Some(audit) = &mut self.audit else { return };
        if audit.compared.covers(range) {
            return;
        }
        audit.compared.insert(range);
        let Some(target) = self.target.clone() else { return };
        let pool = self.engine.read_pool.clone();
        self.jobs.spawn(async move {
            let own = pool.take().await;
            let read = target.read(range.start, buffer.len(), own).await;
            JobDone::Compared { range, source, result: read.map(|read| *read == *buffer) }
        });
    }

    pub(super) fn compared(&mut self, range: Range, source: usize, equal: bool) {
        let other = self.journal_ids[source];
        let parts = self.deliverers.within(range);
        let Some(audit) = &mut self.audit else { return };
        if equal || audit.disputes.len() >= DISPUTES_MAX {
            return;
        }
        for (part, deliverer) in parts {
            audit.disputes.push((part, deliverer, other));
        }
    }

    /// The deliverer most often in dispute who has not been tried yet, and its disputed ranges.
    fn next_suspect(&mut self) -> Option<(u32, Vec<Range>)> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for &(_, deliverer, other) in &self.disputed {
            *counts.entry(deliverer).or_default() += 1;
            *counts.entry(other).or_default() += 1;
        }
        let suspect = self
            .disputed
            .iter()
            .map(|&(_, deliverer, _)| deliverer)
            .filter(|deliverer| !self.tried.contains(deliverer))
            .max_by_key(|deliverer| counts.get(deliverer).copied().unwrap_or(0))?;
        self.tried.push(suspect);
        let ranges = self
            .disputed
            .iter()
            .filter(|&&(_, deliverer, _)| deliverer == suspect)
            .map(|&(range, _, _)| range)
            .collect();
        Some((suspect, ranges))
    }

    /// The digest is right now: whoever was suspected last is convicted.
    pub(super) fn convict_suspect(&mut self) {
        let Some((suspect, text)) = self.suspect.take() else { return };
        self.note(format!("{text}: replaced, and the digest is right"), true);
        if let Some(at) = self.source_of_journal_id(suspect) {
            self.drop_source(at, "it delivered corrupt data".to_owned());
        }
    }
}

/// Most tries to put a file right.
const AUDITS_MAX: u32 = 8;
/// Most differences noted; a file that differs in more places has other troubles.
const DISPUTES_MAX: usize = 100_000;
