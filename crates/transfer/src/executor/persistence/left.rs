//! What an earlier run left, until the target is open: the reference that mirrors are held to.
//!
//! The rule between two runs is the one between two mirrors of one run. Whoever contradicts what
//! an earlier run began is put aside while others may yet have that version. If nobody has it:
//! where a digest says that it is the version wanted, the transfer ends and keeps what there is,
//! since a captive portal or a broken mirror must not cost a download; else the file has changed,
//! and it is begun again.

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
    /// What relays brought in an earlier run is taken up: blocks at random places of it are to be held
    /// against the source, as those of this run are.
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

    /// Size and time say that the file is the one that an earlier run began, and nothing proves it: both
    /// can be the same for other bytes, as where a file was written anew and given its old time. A few
    /// blocks of what is kept are held against the source, too.
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

    /// What an earlier run left is not what the source has, though size and time are the same.
    pub(crate) fn left_is_of_another(&mut self, by: usize, at: u64) -> Result<(), Ended> {
        let name = self.sources[by].source.name().clone();
        self.note(
            format!("what an earlier run left differs from what {name} has, at byte {at}, though size and version are the same: starting again"),
            true,
        );
        self.persistence.left = None;
        Err(Ended::Restart)
    }

    /// What came of a swath that ended before its end: where a byte was lost on the way, all behind it
    /// has moved, to the last one that came, and nothing else may show that.
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

    /// The same of those that are open when everything has come.
    pub(crate) fn look_at_open_tails(&mut self) {
        let open: Vec<SwathEntry> = self.lanes.swaths.values().cloned().collect();
        for swath in &open {
            self.look_at_tail(swath);
        }
    }

    /// Ask for some of these blocks.
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
                // What lies there is not what came.
                self.integrity.samples.left.insert(0, (id, range));
                break;
            }
            if !self
                .coverage
                .of_deliverer(id)
                .iter()
                .any(|brought| brought.intersect(range) == Some(range))
            {
                // Somebody else has brought it since.
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

    /// Take up what was found at the target's place, if it can be of what is wanted.
    pub fn hold_to(&mut self, left: Left) {
        if !matches!(
            left.compare(&self.identity(None), self.request.size_bytes),
            Verdict::Different(_)
        ) {
            if let Some(gap) = left.first_missing() {
                // What is there already is not asked for while the mirrors are looked at.
                self.planner.begin_within(gap);
            }
            self.persistence.left = Some(left);
        }
    }

    /// Whether a digest says that what is left is of the file that is wanted.
    pub(crate) fn left_is_proved(&self) -> bool {
        let identity = self.identity(None);
        identity.proves()
            && self
                .persistence
                .left
                .as_ref()
                .is_some_and(|left| left.compare(&identity, None) == Verdict::Same)
    }

    /// Why a source's file cannot be the one that an earlier run began.
    pub(crate) fn contradicts_left(&self, source: usize, version: &Version) -> Option<String> {
        let left = self.persistence.left.as_ref()?;
        let identity = self.identity(Some(source));
        match left.compare(&identity, Some(version.size_bytes)) {
            Verdict::Different(what) => {
                let way_on = if self.left_is_proved() {
                    "; --no-resume starts again without what is kept"
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

    /// A source contradicts what an earlier run began: wait for what others say, if there are any.
    pub(crate) fn put_aside(&mut self, source: usize, reason: String) -> Result<(), Ended> {
        self.sources[source].accepted = Some(false);
        self.sources[source].left_out_for_version = true;
        if !self.sources.others_to_hear(source) && self.give_up_left() {
            return Err(Ended::Restart);
        }
        self.drop_source(source, reason);
        Ok(())
    }

    /// Nobody has the version that an earlier run began: do without. False if there is none, or if
    /// that would throw away what a digest vouches for.
    pub(crate) fn give_up_left(&mut self) -> bool {
        // Of a stream whose end nobody knew, and nobody knows now, nothing can be gone on with.
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

    /// The target could not be opened. Where the size is to blame and others may tell another one,
    /// whoever told this one is put aside.
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

/// So much of the end of what came by an answer that was left.
const TAIL_BYTES: u64 = 2 << 10;
/// So many blocks of one source of earlier runs are looked at: 16 MiB of them.
const LEFT_MAX: u64 = 256;
/// So many blocks of what an earlier run left are compared …
const KEPT_BLOCKS: usize = 4;
/// … each of so many bytes: little beside what is kept, and two files rarely agree in all of them.
const KEPT_BLOCK_BYTES: u64 = 16 << 10;
/// So many at a time.
const LEFT_AT_ONCE: u32 = 4;
