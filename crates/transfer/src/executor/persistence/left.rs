//! The data that an earlier run left. Until the target is open, mirrors must match it.
//!
//! The same rule holds between two runs as between two mirrors of one run. A mirror that
//! contradicts the kept data is put aside while others may yet have that version. If no mirror has
//! it and a digest proves that it is the wanted version, the transfer ends and keeps the data,
//! since a captive portal or a broken mirror must not cost a download. Without such a digest the
//! file has changed, and the transfer starts again.

use std::collections::BTreeSet;

use std::sync::Arc;
use swath_model::Range;
use swath_store::{Left, OpenError, Verdict};
use tokio::time::timeout;

use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::integrity::agree::Version;
use crate::executor::integrity::samples::{
    ANSWERS_WITHIN, Answer, BLOCK_BYTES, Block, EVERY_BYTES, EVERY_OFTEN_BYTES, OFTEN_BYTES, Of,
};
use crate::executor::lanes::SwathEntry;
use crate::executor::state::Run;
use crate::observe::{Phase, SourceState};

impl Run<'_> {
    /// Chooses random blocks of the bytes that relays brought in an earlier run, to compare them
    /// with the source like those of this run.
    pub(crate) fn choose_samples_of_left(&mut self, source: usize) {
        if self.is_proved() {
            return;
        }
        let ids = self.coverage.deliverers.iter().map(|(_, id)| id);
        let exposed: BTreeSet<u32> = ids.filter(|&id| self.persistence.is_exposed(id)).collect();
        for id in exposed {
            let brought = self.coverage.of_deliverer(id);
            let bytes: u64 = brought.iter().map(|range| range.len()).sum();
            let often = bytes.min(OFTEN_BYTES).div_ceil(EVERY_OFTEN_BYTES);
            for _ in 0..(often + bytes / EVERY_BYTES).min(LEFT_MAX) {
                let mut at = fastrand::u64(..bytes);
                for range in &brought {
                    if at < range.len() {
                        let block = Range::of_len(range.start + at, BLOCK_BYTES as u64);
                        self.integrity
                            .samples
                            .left
                            .extend(block.intersect(*range).map(|it| (id, it)));
                        break;
                    }
                    at -= range.len();
                }
            }
        }
        self.choose_samples_unexposed();
        self.integrity.samples.left_by = source;
    }

    /// Chooses a few blocks of the other kept bytes to compare with the source. Only size and time
    /// say that they are of the same file; both can be equal for other bytes, as when a file was
    /// rewritten and given its old time.
    fn choose_samples_unexposed(&mut self) {
        let kept: Vec<(Range, u32)> = self
            .coverage
            .deliverers
            .iter()
            .filter(|&(_, id)| !self.persistence.is_exposed(id))
            .collect();
        let bytes: u64 = kept.iter().map(|(range, _)| range.len()).sum();
        for _ in 0..KEPT_BLOCKS.min(usize::try_from(bytes).unwrap_or(usize::MAX)) {
            let mut at = fastrand::u64(..bytes);
            for &(range, id) in &kept {
                if at < range.len() {
                    let block = Range::of_len(range.start + at, KEPT_BLOCK_BYTES);
                    self.integrity.samples.left.extend(block.intersect(range).map(|it| (id, it)));
                    break;
                }
                at -= range.len();
            }
        }
    }

    /// Starts again, as the kept bytes differ from the source's, though size and time are equal.
    pub(crate) fn left_is_of_another(&mut self, by: usize, at: u64) -> Result<(), Ended> {
        let name = self.sources[by].source.name().clone();
        self.note(
            format!("the data of an earlier run differs from {name} at byte {at}, though size and version are equal: starting again"),
            true,
        );
        self.persistence.left = None;
        Err(Ended::Restart)
    }

    /// Chooses the last bytes of a swath that ended early for comparison. If a byte was lost on the
    /// way, all bytes after it have moved, and perhaps only these show it.
    pub(crate) fn look_at_tail(&mut self, swath: &SwathEntry) {
        let came = Range::new(swath.range.start, swath.delivered_to.max(swath.range.start));
        let is_whole = came.is_empty() || came.end >= swath.range.end;
        let is_looked_at = !self.dataset.proves_blocks()
            && self.output.stream.is_none()
            && self.phase == Phase::Fetching;
        let is_exposed = self.sources.get(swath.source).is_some_and(|entry| entry.is_exposed());
        if is_whole || !is_looked_at || !is_exposed || self.is_proved() {
            return;
        }
        let tail = Range::new(came.start.max(came.end.saturating_sub(TAIL_BYTES)), came.end);
        self.integrity.samples.left.push((self.persistence.id_of(swath.source), tail));
    }

    /// Does the same for swaths that are still open when everything has come.
    pub(crate) fn look_at_open_tails(&mut self) {
        let open: Vec<SwathEntry> = self.lanes.swaths.values().cloned().collect();
        for swath in &open {
            self.look_at_tail(swath);
        }
    }

    /// Asks the source for some of the chosen blocks.
    pub(crate) fn ask_for_left(&mut self) {
        if self.integrity.samples.left.is_empty() || self.integrity.samples.waits_for_digest {
            return;
        }
        if self.is_proved() || self.integrity.samples.is_hopeless() {
            self.integrity.samples.left.clear();
            return;
        }
        let by = self.integrity.samples.left_by;
        while self.integrity.samples.left_asked < LEFT_AT_ONCE
            && let Some(sink) = self.persistence.readable()
            && let Some((id, range)) = self.integrity.samples.left.pop()
        {
            if self.integrity.samples.writing.within(range).next().is_some() {
                // The bytes on the disk are not yet those that came.
                self.integrity.samples.left.insert(0, (id, range));
                break;
            }
            if !self
                .coverage
                .of_deliverer(id)
                .iter()
                .any(|brought| brought.intersect(range) == Some(range))
            {
                // Another source has brought it since.
                continue;
            }
            self.integrity.samples.left_asked += 1;
            let origin = Arc::clone(&self.sources[by].source);
            let pool = self.engine.read_pool.clone();
            self.integrity.samples.asked.spawn(async move {
                let read = sink.read(range.start, range.len() as usize, pool.take().await).await;
                let bytes = read.map(|buffer| buffer.to_vec()).unwrap_or_default();
                let block = Block { at: range.start, bytes };
                let told = timeout(ANSWERS_WITHIN, origin.fetch_part(range)).await.ok();
                Answer { of: Of::Left { id, by }, block, told }
            });
        }
    }

    /// Takes over the data found at the target, if it can be of the wanted file.
    pub fn hold_to(&mut self, left: Left) {
        if !matches!(
            left.compare(&self.identity(None), self.request.size_bytes),
            Verdict::Different(_)
        ) {
            if let Some(gap) = left.first_missing() {
                // The first requests to the mirrors skip the kept bytes.
                self.planner.begin_within(gap);
            }
            self.persistence.left = Some(left);
        }
    }

    /// Returns whether a digest proves that the kept data is of the wanted file.
    pub(crate) fn left_is_proved(&self) -> bool {
        let identity = self.identity(None);
        identity.proves()
            && self
                .persistence
                .left
                .as_ref()
                .is_some_and(|left| left.compare(&identity, None) == Verdict::Same)
    }

    /// Returns why a source's file cannot be the one that an earlier run began.
    pub(crate) fn contradicts_left(&self, source: usize, version: &Version) -> Option<String> {
        let left = self.persistence.left.as_ref()?;
        let identity = self.identity(Some(source));
        match left.compare(&identity, Some(version.size_bytes)) {
            Verdict::Different(what) => {
                let way_on = if self.left_is_proved() {
                    "; --no-resume starts again without the kept data"
                } else {
                    ""
                };
                Some(format!("an earlier run began another version of the file: {what}{way_on}"))
            }
            Verdict::Unproven if !identity.proves() => {
                Some("nothing proves that its file is the one that an earlier run began".to_owned())
            }
            Verdict::Same | Verdict::Unproven => None,
        }
    }

    /// Puts a source aside that contradicts the kept data, and waits for the answers of others.
    pub(crate) fn put_aside(&mut self, source: usize, reason: String) -> Result<(), Ended> {
        self.sources[source].accepted = Some(false);
        self.sources[source].left_out_for_version = true;
        if !self.sources.others_to_hear(source) && self.give_up_left() {
            return Err(Ended::Restart);
        }
        self.drop_source(source, reason);
        Ok(())
    }

    /// Gives up the kept data, as no source has its version. Returns false if there is none, or if
    /// a digest proves it.
    pub(crate) fn give_up_left(&mut self) -> bool {
        // A file of unknown size cannot be resumed.
        let endless = self.persistence.left.as_ref().is_some_and(|left| left.size_bytes.is_none());
        if self.persistence.left.is_none()
            || (self.left_is_proved() && !endless)
            || !self.sources.iter().any(|entry| entry.left_out_for_version)
        {
            return false;
        }
        self.persistence.left = None;
        for entry in self.sources.iter_mut().filter(|entry| entry.left_out_for_version) {
            entry.left_out_for_version = false;
            entry.state = SourceState::Waiting;
            entry.reason = None;
        }
        true
    }

    /// Handles a target that could not be opened. If the reported size is to blame and other
    /// sources may report another one, this source is dropped.
    pub(crate) fn not_opened(&mut self, source: usize, error: Ended) -> Result<(), Ended> {
        let Ended::Error(GetError::Open(error)) = error else { return Err(error) };
        let is_too_large = match &error {
            OpenError::NoSpace { .. } => true,
            OpenError::Io { source, .. } => source.kind() == std::io::ErrorKind::FileTooLarge,
            _ => false,
        };
        if !is_too_large
            || self.request.size_bytes.is_some()
            || !self.sources.others_to_hear(source)
        {
            return Err(GetError::Open(error).into());
        }
        self.integrity.forget_offers(&mut self.request);
        self.sources[source].accepted = Some(false);
        self.drop_source(source, error.to_string());
        self.persistence.too_large.get_or_insert(error);
        Ok(())
    }
}

/// Bytes compared at the end of a swath that ended early.
const TAIL_BYTES: u64 = 2 << 10;
/// Most blocks compared of one source of earlier runs: 16 MiB.
const LEFT_MAX: u64 = 256;
/// Blocks compared of the kept bytes that relays could not change.
const KEPT_BLOCKS: usize = 4;
/// Size of each: little beside the kept bytes, and two files rarely agree in all of them.
const KEPT_BLOCK_BYTES: u64 = 16 << 10;
/// Most of these questions in flight.
const LEFT_AT_ONCE: u32 = 4;
