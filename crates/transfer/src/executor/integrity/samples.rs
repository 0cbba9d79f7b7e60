//! Compares samples of forwarded bytes with the source itself, if nothing else proves them.
//!
//! Most servers send no digest of their files. So swath requests random blocks of forwarded bytes
//! once more without relays: one of 64 KiB for each of the first 8 MiB of a route, later one for
//! each 4 MiB (2 KiB each on a route that the user chose). A relay cannot know which blocks. If a
//! block differs, the route is dropped, and all bytes that came by any of its relays are fetched
//! again without it. That proves nothing (`witness` says so at the end), but a relay that changes
//! more than a little is soon found out.
//!
//! Samples are copied when bytes arrive, before they are written, so that nothing is read back, and
//! streams are sampled like files.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::reason::Reason;
use std::sync::Arc;
use swath_model::{Range, RangeSet, SourceId, SourceName, Time};
use swath_plan::Event as PlanEvent;
use swath_plan::routes::Fault;
use swath_source::{Facts, LaneError};
use swath_store::Record;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::integrity::agree::Version;
use crate::executor::integrity::peers::Peers;
use crate::executor::state::Run;
use crate::request::Destination;
use swath_model::units;

/// The samples of one transfer.
#[derive(Default)]
pub(crate) struct Samples {
    /// Sampled routes, by the number of their source.
    routing: BTreeMap<usize, Way>,
    /// Questions in flight, dropped with the transfer.
    pub(crate) asked: JoinSet<Answer>,
    /// Blocks of earlier runs to ask for, with the journal number of their deliverer; the source
    /// whose origin is asked; the number of these questions in flight.
    pub(crate) left: Vec<(u32, Range)>,
    pub(crate) left_by: usize,
    pub(crate) left_asked: u32,
    /// Questions without an answer since the last answer.
    unanswered: u32,
    /// Whether the source is being asked for its digest, which may prove all.
    pub waits_for_digest: bool,
    /// Number and bytes of blocks that were equal.
    pub right: u64,
    pub right_bytes: u64,
    /// Bytes on their way to the disk: they must be written before they are fetched again.
    pub(crate) writing: RangeSet,
    /// Journal numbers of sources whose bytes must be fetched again.
    condemned: BTreeSet<u32>,
    /// Relays that certainly changed bytes, as no other was on the route.
    pub(crate) guilty: BTreeSet<String>,
    /// Since when only answers are missing.
    waits_since: Option<Time>,
    /// Comparisons between mirrors.
    pub peers: Peers,
}

/// The samples of one source.
#[derive(Default)]
struct Way {
    /// A random block of the bytes since the last question.
    kept: Option<Block>,
    /// Bytes received since then, and in all.
    since_bytes: u64,
    bytes: u64,
    /// Questions in flight.
    asked: u32,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub at: u64,
    pub bytes: Vec<u8>,
}

impl Block {
    /// Returns the bytes of the file that it holds.
    pub fn range(&self) -> Range {
        Range::of_len(self.at, self.bytes.len() as u64)
    }
}

/// The deliverer of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    /// A source.
    Way(usize),
    /// A source with this journal number, in an earlier run; the origin of source `by` is asked.
    Left { id: u32, by: usize },
    /// A mirror; another one is asked.
    Peer { source: usize, peer: usize },
    /// A mirror, in an earlier run; its block was read back, and nobody asked yet.
    ReadBack { source: usize },
    /// Two mirrors that differ; a third one is asked.
    Third { dispute: u32, third: usize },
}

/// The source's own version of a block.
#[derive(Debug)]
pub(crate) struct Answer {
    pub of: Of,
    pub block: Block,
    pub told: Option<Result<(Facts, Vec<u8>), LaneError>>,
}

impl Samples {
    /// Waits for the next answer; for ever if nothing is asked.
    pub async fn next(samples: &mut Samples) -> Answer {
        match samples.asked.join_next().await {
            Some(Ok(answer)) => answer,
            // None of them panics; if one did, it is ignored.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }

    /// Notes that the write of a block begins.
    pub fn begin(&mut self, range: Range) {
        self.writing.insert(range);
    }

    /// Notes that the write has ended.
    pub fn end(&mut self, range: Range) {
        self.writing.remove(range);
    }

    /// Marks all bytes of the source with this journal number as void.
    pub(crate) fn void(&mut self, id: u32) {
        self.condemned.insert(id);
    }

    /// Returns whether the bytes of this source are about to be fetched again.
    pub(crate) fn is_void(&self, id: u32) -> bool {
        self.condemned.contains(&id)
    }

    /// Returns whether the source has stopped answering.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.unanswered >= UNANSWERED_MAX
    }
}

impl Way {
    /// Takes in the bytes that arrived at `at`, and perhaps keeps a block of them.
    fn see(&mut self, at: u64, bytes: &[u8], block_bytes: usize) {
        let len = bytes.len() as u64;
        self.since_bytes += len;
        self.bytes += len;
        // Each byte since the last question is equally likely.
        if len == 0 || fastrand::u64(..self.since_bytes) >= len {
            return;
        }
        let block = bytes.len().min(block_bytes);
        let from = fastrand::usize(..=bytes.len() - block);
        let bytes = bytes[from..from + block].to_vec();
        self.kept = Some(Block { at: at + from as u64, bytes });
    }

    /// Takes the block to ask for if it is time; at the end it always is.
    fn due(&mut self, is_end: bool, asked_max: u32) -> Option<Block> {
        let every = if self.bytes <= OFTEN_BYTES { EVERY_OFTEN_BYTES } else { EVERY_BYTES };
        if self.asked >= asked_max || !is_end && self.since_bytes < every {
            return None;
        }
        let block = self.kept.take()?;
        self.since_bytes = 0;
        self.asked += 1;
        Some(block)
    }
}

impl Run<'_> {
    /// Samples useful bytes that came from this source.
    pub(crate) fn look_at_sample(&mut self, source: usize, at: u64, bytes: &[u8]) {
        let is_wanted =
            !self.is_proved() && !matches!(self.request.destination, Destination::Nowhere { .. });
        if !is_wanted || !self.sources[source].is_exposed() || self.integrity.samples.is_hopeless()
        {
            return;
        }
        // A user who chose a route wants little traffic on another.
        let is_named = self.named_relays().is_some();
        let block_bytes = if is_named { BLOCK_NAMED_BYTES } else { BLOCK_BYTES };
        self.integrity.samples.routing.entry(source).or_default().see(at, bytes, block_bytes);
        self.ask_for_samples(source, false);
    }

    fn ask_for_samples(&mut self, source: usize, is_end: bool) {
        if self.integrity.samples.waits_for_digest || self.is_proved() || self.is_mute(source) {
            return;
        }
        // Questions compete with what the source sends directly.
        let asked_max = if self.integrity.samples.asked.len() < CROWD { ASKED_MAX } else { 1 };
        let routed_id = self.integrity.samples.routing.get_mut(&source);
        let Some(block) = routed_id.and_then(|routed_id| routed_id.due(is_end, asked_max)) else {
            return;
        };
        let origin = Arc::clone(&self.sources[source].source);
        self.integrity.samples.asked.spawn(async move {
            let range = Range::of_len(block.at, block.bytes.len() as u64);
            let told = timeout(ANSWERS_WITHIN, origin.fetch_part(range)).await.ok();
            Answer { of: Of::Way(source), block, told }
        });
    }

    /// Handles an answer of the source, or its absence.
    pub(crate) fn sampled(&mut self, answer: Answer) -> Result<(), Ended> {
        let Answer { of, block, told } = answer;
        let source = match of {
            Of::Way(source) => {
                if let Some(routed_id) = self.integrity.samples.routing.get_mut(&source) {
                    routed_id.asked = routed_id.asked.saturating_sub(1);
                }
                source
            }
            Of::Left { by, .. } => {
                self.integrity.samples.left_asked =
                    self.integrity.samples.left_asked.saturating_sub(1);
                if block.bytes.is_empty() {
                    // It could not be read; the code that needs it will report that.
                    return Ok(());
                }
                by
            }
            Of::Peer { source, peer } => return self.peer_answered(source, peer, block, told),
            Of::ReadBack { source } => {
                self.read_back(source, block);
                return Ok(());
            }
            Of::Third { dispute, third } => return self.third_answered(dispute, third, told),
        };
        if !is_answer(told.as_ref()) && self.integrity.samples.unanswered + 1 >= UNANSWERED_MAX {
            self.note_mute(source);
        }
        let Some(theirs) = self.comparable(told) else {
            self.integrity.samples.unanswered += 1;
            return Ok(());
        };
        self.integrity.samples.unanswered = 0;
        if theirs == block.bytes {
            self.integrity.samples.right += 1;
            self.integrity.samples.right_bytes += block.bytes.len() as u64;
            return Ok(());
        }
        let differs = theirs.iter().zip(&block.bytes).position(|(one, other)| one != other);
        let at = block.at + differs.unwrap_or(0) as u64;
        match of {
            Of::Left { id, by } if !self.persistence.is_exposed(id) => {
                self.left_is_of_another(by, at)
            }
            Of::Peer { .. } | Of::ReadBack { .. } | Of::Third { .. } => Ok(()),
            Of::Left { id, .. } => {
                let when =
                    if self.coverage.resumed.contains(at) { ", in an earlier run," } else { "" };
                let what = format!("delivered{when} other bytes than its source has");
                self.condemn(id, format!("{what}, at byte {at}"))
            }
            Of::Way(source) => {
                let what = "delivered other bytes than its source has";
                self.condemn(self.persistence.id_of(source), format!("{what}, at byte {at}"))
            }
        }
    }

    /// Returns the bytes of an answer if it is about the fetched version. The version that the
    /// route reported does not count: a relay that forges it would escape the check.
    pub(crate) fn comparable(
        &self,
        told: Option<Result<(Facts, Vec<u8>), LaneError>>,
    ) -> Option<Vec<u8>> {
        let (facts, bytes) = told?.ok()?;
        let theirs = Version::of(&facts)?;
        let mut accepted = self.sources.accepted();
        let ours = accepted.find_map(|entry| Version::of(entry.facts.as_ref()?))?;
        ours.admits(&theirs, false).is_ok().then_some(bytes)
    }

    /// Returns whether the origin of this source has not answered lately.
    pub(crate) fn is_mute(&self, source: usize) -> bool {
        let url = self.sources[source].source.url();
        self.routing.as_ref().is_some_and(|routing| routing.routes.is_mute(url))
    }

    /// Remembers that this source's origin does not answer without relays, to save waits.
    pub(crate) fn note_mute(&self, source: usize) {
        if let Some(routing) = &self.routing {
            routing.routes.note_mute(self.sources[source].source.url());
        }
    }

    /// Handles bytes from a relay that are no HTTP. A relay writes its own answers, so it has lost
    /// its place, perhaps in the middle of bytes that counted as data.
    pub(crate) fn garbled(&mut self, source: usize) -> Result<(), Ended> {
        let is_passed = self.sources[source].is_passed();
        if !is_passed
            || self.is_proved()
            || self.dataset.proves_blocks()
            || self.sources.is_out(source)
        {
            return Ok(());
        }
        self.condemn(
            self.persistence.id_of(source),
            "sent bytes that are no HTTP between two answers".to_owned(),
        )
    }

    /// Drops a source, by its journal number, that delivered other bytes than its origin has. All
    /// bytes that came by its relays are void, in this run or before.
    pub(crate) fn condemn(&mut self, id: u32, what: String) -> Result<(), Ended> {
        if !self.integrity.proof.is_empty() {
            // The relays forged a digest, too.
            return self.leave_relays();
        }
        let now = self.persistence.source_of(id).filter(|&source| !self.sources.is_out(source));
        let deliverer = self.persistence.deliverer(id);
        if let Some([relay]) = deliverer.map(|deliverer| &deliverer.name.relays[..]) {
            self.integrity.samples.guilty.insert(relay.clone());
        }
        let is_exposed = self.persistence.is_exposed(id);
        let reason = match is_exposed {
            true => "it delivered other bytes than the source has",
            false => "it holds other bytes than the other mirrors",
        };
        let suspects = self.persistence.kin(id, &self.integrity.samples.guilty);
        let brought = suspects.iter().flat_map(|&id| self.coverage.of_deliverer(id));
        let bytes: u64 = brought.map(|range| range.len()).sum();
        let is_left = if now.is_some() { "it is dropped" } else { "it is not used again" };
        let again = match bytes {
            _ if self.output.stream.is_some() => "; written bytes cannot be taken back".to_owned(),
            0 => String::new(),
            _ => {
                let from = if is_exposed { "by its relays" } else { "from it" };
                format!(", and the {} that came {from} are fetched again", units::bytes(bytes))
            }
        };
        let name = self.persistence.name_of(id);
        self.note(format!("{name} {what}: {is_left}{again}"), true);
        if let Some(source) = self.persistence.source_of(id) {
            self.sources[source].figures.corrupt += 1;
        }
        if let Some(source) = now {
            self.sources[source].fault = Fault::Corrupt;
            self.drop_source(source, reason);
            self.wake_beside();
        }
        if self.output.stream.is_some() {
            let hint = if is_exposed { " (--route direct goes without relays)" } else { "" };
            let why = format!("{reason}, and some of it may be written{hint}");
            let name = self.persistence.deliverer(id).map(|deliverer| deliverer.name.clone());
            let name = name.unwrap_or_else(|| SourceName::direct(self.persistence.name_of(id)));
            let reasons = vec![Reason::of_source(name, why)];
            return Err(GetError::Exhausted { has_some: true, reasons }.into());
        }
        self.integrity.samples.left.retain(|(other, _)| !suspects.contains(other));
        for &suspect in &suspects {
            let source = self.persistence.source_of(suspect);
            if let Some(routed_id) =
                source.and_then(|source| self.integrity.samples.routing.get_mut(&source))
            {
                routed_id.kept = None;
            }
            if let Some(source) = source.filter(|&source| !self.sources.is_bad(source)) {
                self.cut_off(source);
            }
        }
        self.integrity.samples.condemned.extend(suspects);
        self.fetch_condemned_again();
        // If the process is killed now, the next run must not use these bytes.
        self.persistence.committed_at = Time::ZERO;
        Ok(())
    }

    /// Cuts off the requests in flight of a source: their bytes would count.
    fn cut_off(&mut self, source: usize) {
        for lane in self.lanes.open.values_mut().filter(|lane| lane.source == source) {
            lane.is_void = true;
        }
        let (source, now) = (SourceId(source as u32), self.now());
        self.planner.handle(PlanEvent::SourceBad { source }, now);
        self.planner.handle(PlanEvent::SourceAgain { source }, now);
    }

    /// Fetches the bytes of condemned sources again, once all of them are on the disk: a late write
    /// must not overwrite the right bytes.
    pub(crate) fn fetch_condemned_again(&mut self) {
        for id in std::mem::take(&mut self.integrity.samples.condemned) {
            let brought = self.coverage.of_deliverer(id);
            if brought
                .iter()
                .any(|&range| self.integrity.samples.writing.within(range).next().is_some())
            {
                self.integrity.samples.condemned.insert(id);
                continue;
            }
            for range in brought {
                self.reopen(range);
            }
        }
    }

    /// Voids the bytes of condemned sources in the journal when the transfer ends before they were
    /// fetched again.
    pub(crate) fn void_condemned(&mut self) {
        for id in std::mem::take(&mut self.integrity.samples.condemned) {
            let brought = self.coverage.of_deliverer(id);
            self.persistence.records.extend(brought.into_iter().map(|range| Record::Bad { range }));
        }
    }

    /// Returns whether no answer is missing. At the end it asks for the remaining samples and waits
    /// for a moment.
    pub(crate) fn are_sampled(&mut self) -> bool {
        if !self.integrity.samples.condemned.is_empty() {
            return false;
        }
        self.ask_for_left();
        if !self.planner_done {
            self.integrity.samples.waits_since = None;
            self.goes_on_beside_peers();
            return true;
        }
        if self.waits_for_peers() {
            return false;
        }
        if self.integrity.samples.is_hopeless() || self.integrity.samples.waits_for_digest {
            return true;
        }
        if self.integrity.samples.waits_since.is_none() {
            let routing: Vec<usize> = self.integrity.samples.routing.keys().copied().collect();
            for source in routing {
                self.ask_for_samples(source, true);
            }
            self.look_at_open_tails();
            self.ask_for_left();
        }
        let now = self.now();
        let since = *self.integrity.samples.waits_since.get_or_insert(now);
        let waits = if self.integrity.samples.left_asked > 0 { LEFT_WAITS } else { WAITS };
        let samples = &self.integrity.samples;
        // Other mirrors have had their time.
        samples.asked.len() <= samples.peers.asking() || now.since(since) >= waits
    }

    /// Returns the result of the samples, for the warning that nothing else proves the file.
    pub(crate) fn word_of_samples(&self) -> Option<String> {
        let samples = &self.integrity.samples;
        (samples.right > 0).then(|| {
            format!(
                "{} at random places were compared with the source and are right",
                units::bytes(samples.right_bytes)
            )
        })
    }
}

/// Returns whether there was any answer.
pub(crate) fn is_answer<T>(told: Option<&Result<T, LaneError>>) -> bool {
    told.is_some_and(|told| told.as_ref().err().is_none_or(LaneError::is_answer))
}

/// Bytes of a sample.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;
/// Bytes of a sample on a route that the user chose: ten clients of a caching relay should fetch
/// little more than one copy from the source.
const BLOCK_NAMED_BYTES: usize = 2 << 10;
/// The first bytes of a route, which are sampled more often.
pub(crate) const OFTEN_BYTES: u64 = 8 << 20;
/// Bytes for each sample there.
pub(crate) const EVERY_OFTEN_BYTES: u64 = 1 << 20;
/// Bytes for each later sample.
pub(crate) const EVERY_BYTES: u64 = 4 << 20;
/// Most questions in flight for a route: a distant source takes its time for each.
const ASKED_MAX: u32 = 4;
/// From this many questions in flight for all routes together, each route has one at a time.
const CROWD: usize = 6;
/// Longest wait for one answer, for slow and busy sources.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// Unanswered questions in a row after which swath asks no more.
const UNANSWERED_MAX: u32 = 4;
/// Longest wait for answers at the end.
const WAITS: Duration = Duration::from_millis(1500);
/// The same with blocks of earlier runs: all are asked for at the end if nothing was missing.
const LEFT_WAITS: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept is a part of what came, and every place is as likely.
    #[test]
    fn every_byte_is_as_likely_to_be_looked_at() {
        let file: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 4096) as u8).collect();
        let mut hits = [0; 16];
        for _ in 0..1600 {
            let mut routed_id = Way::default();
            for (number, part) in file.chunks(1 << 17).enumerate() {
                routed_id.see((number as u64) << 17, part, BLOCK_BYTES);
            }
            let block = routed_id.due(true, ASKED_MAX).unwrap();
            assert_eq!(block.bytes, file[block.at as usize..][..BLOCK_BYTES]);
            hits[(block.at >> 16) as usize] += 1;
        }
        // Blocks that cross the end of a part are never kept, so the last ones begin less often there.
        let halves = (hits[..8].iter().sum::<u32>(), hits[8..].iter().sum::<u32>());
        assert!(halves.0.abs_diff(halves.1) < 300, "{hits:?}");
    }

    #[test]
    fn the_first_of_a_way_is_looked_at_closely() {
        let mut routed_id = Way::default();
        let part = vec![0; 1 << 18];
        let mut asked = Vec::new();
        for number in 0..256 {
            routed_id.see(number << 18, &part, BLOCK_BYTES);
            if routed_id.due(false, ASKED_MAX).is_some() {
                asked.push(routed_id.bytes >> 20);
                routed_id.asked = 0;
            }
        }
        assert_eq!(asked[..10], [1, 2, 3, 4, 5, 6, 7, 8, 12, 16]);
        assert_eq!(asked.last(), Some(&64));
        // A few at a time, and none without anything new.
        for _ in 0..ASKED_MAX {
            routed_id.see(0, &part, BLOCK_BYTES);
            assert!(
                routed_id.due(true, ASKED_MAX).is_some()
                    && routed_id.due(true, ASKED_MAX).is_none()
            );
        }
        routed_id.see(0, &part, BLOCK_BYTES);
        assert!(routed_id.due(true, ASKED_MAX).is_none());
        routed_id.asked -= 1;
        assert!(routed_id.due(true, ASKED_MAX).is_some());
    }
}
