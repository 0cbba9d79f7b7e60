//! Samples of what relays passed on, held against the source itself, where nothing else proves it.
//!
//! Most servers tell no digest of their files. So of what comes by relays, blocks at random places are
//! asked for once more without them: one of 64 KiB for each of the first 8 MiB of a route, later one for
//! each 4 MiB (2 KiB each where a route is named). A relay that changes what it passes on does not know
//! which. Where a block differs, the route is left, and what came by any of its relays is fetched again
//! without it. That proves nothing (`witness` says so at the end), but whoever changes more than a
//! little is found out, and soon.
//!
//! A block is kept from what arrived, before the disk has it, so that nothing is read back, and a
//! stream is looked at like a file.

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
    /// By the source's number.
    routing: BTreeMap<usize, Way>,
    /// Dropped with the transfer.
    pub(crate) asked: JoinSet<Answer>,
    /// Blocks of what came in earlier runs that are to be asked for, by the journal's number of who
    /// brought them; of which of our sources' origin; how many are being asked for.
    pub(crate) left: Vec<(u32, Range)>,
    pub(crate) left_by: usize,
    pub(crate) left_asked: u32,
    /// Questions without an answer since the last one that had one.
    unanswered: u32,
    /// The source is being asked for its digest, which may prove all.
    pub waits_for_digest: bool,
    /// How many were right, and what they come to.
    pub right: u64,
    pub right_bytes: u64,
    /// On its route to the disk: it must have arrived there before it is fetched again.
    pub(crate) writing: RangeSet,
    /// Whose bytes are to be fetched again, by the journal's numbers.
    condemned: BTreeSet<u32>,
    /// Relays that changed bytes for certain, as nobody else was on the way.
    pub(crate) guilty: BTreeSet<String>,
    /// Since when nothing but answers is waited for.
    waits_since: Option<Time>,
    /// The same between mirrors.
    pub peers: Peers,
}

/// What is looked at of one source.
#[derive(Default)]
struct Way {
    /// A random block of what came since the last question.
    kept: Option<Block>,
    /// What came since then, and in all.
    since_bytes: u64,
    bytes: u64,
    /// How many questions are under way.
    asked: u32,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub at: u64,
    pub bytes: Vec<u8>,
}

/// Who brought a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    /// A source.
    Way(usize),
    /// One that the journal knows by this number, in an earlier run; this source's origin is asked.
    Left { id: u32, by: usize },
    /// A mirror, of which another one is asked.
    Peer { source: usize, peer: usize },
    /// Two mirrors that differ, of which a third one is asked.
    Third { dispute: u32, third: usize },
}

/// What the source itself says of a block.
#[derive(Debug)]
pub(crate) struct Answer {
    pub of: Of,
    pub block: Block,
    pub told: Option<Result<(Facts, Vec<u8>), LaneError>>,
}

impl Samples {
    /// The next answer; for ever none while nothing is asked.
    pub async fn next(samples: &mut Samples) -> Answer {
        match samples.asked.join_next().await {
            Some(Ok(answer)) => answer,
            // None of them panics; if one did, it is not waited for.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }

    /// A block is on its way to the disk.
    pub fn begin(&mut self, range: Range) {
        self.writing.insert(range);
    }

    /// It is there.
    pub fn end(&mut self, range: Range) {
        self.writing.remove(range);
    }

    /// What came of the source that the journal knows by this number counts no more.
    pub(crate) fn void(&mut self, id: u32) {
        self.condemned.insert(id);
    }

    /// Whether the source does not speak with us.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.unanswered >= UNANSWERED_MAX
    }
}

impl Way {
    /// Bytes at `at` arrived: perhaps a block of them is the one that is kept.
    fn see(&mut self, at: u64, bytes: &[u8], block_bytes: usize) {
        let len = bytes.len() as u64;
        self.since_bytes += len;
        self.bytes += len;
        // Each byte since the last question is as likely as any other.
        if len == 0 || fastrand::u64(..self.since_bytes) >= len {
            return;
        }
        let block = bytes.len().min(block_bytes);
        let from = fastrand::usize(..=bytes.len() - block);
        let bytes = bytes[from..from + block].to_vec();
        self.kept = Some(Block { at: at + from as u64, bytes });
    }

    /// The block to be asked for, if it is time; at the end it is.
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
    /// Bytes that count came of this source.
    pub(crate) fn look_at_sample(&mut self, source: usize, at: u64, bytes: &[u8]) {
        let is_wanted =
            !self.is_proved() && !matches!(self.request.destination, Destination::Nowhere { .. });
        if !is_wanted || !self.sources[source].is_exposed() || self.integrity.samples.is_hopeless()
        {
            return;
        }
        // Whoever named a route wants little to go another route.
        let is_named = self.named_relays().is_some();
        let block_bytes = if is_named { BLOCK_NAMED_BYTES } else { BLOCK_BYTES };
        self.integrity.samples.routing.entry(source).or_default().see(at, bytes, block_bytes);
        self.ask_for_samples(source, false);
    }

    fn ask_for_samples(&mut self, source: usize, is_end: bool) {
        if self.integrity.samples.waits_for_digest || self.is_proved() || self.is_mute(source) {
            return;
        }
        // What is asked for takes from what the source sends directly.
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

    /// The source has answered, or has not.
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
                    // It could not be read, which whoever needs it will find out.
                    return Ok(());
                }
                by
            }
            Of::Peer { source, peer } => return self.peer_answered(source, peer, block, told),
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
            Of::Peer { .. } | Of::Third { .. } => Ok(()),
            Of::Left { id, .. } => {
                let when =
                    if self.coverage.resumed.contains(at) { ", in an earlier run," } else { "" };
                let what = format!("passed on{when} what its source does not have");
                self.condemn(id, format!("{what}, at byte {at}"))
            }
            Of::Way(source) => {
                let what = "passed on what its source does not have";
                self.condemn(self.persistence.id_of(source), format!("{what}, at byte {at}"))
            }
        }
    }

    /// The bytes of an answer, if it is about the version that is fetched. What the route said of its
    /// version is not asked: a relay that forges it would not be looked at.
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

    /// Whether the origin of this source has not answered lately.
    pub(crate) fn is_mute(&self, source: usize) -> bool {
        let url = self.sources[source].source.url();
        self.routing.as_ref().is_some_and(|routing| routing.routes.is_mute(url))
    }

    /// The origin of this source does not answer without relays: nobody is to wait for that again soon.
    pub(crate) fn note_mute(&self, source: usize) {
        if let Some(routing) = &self.routing {
            routing.routes.note_mute(self.sources[source].source.url());
        }
    }

    /// What a relay sent is no HTTP. Each answers by itself, so it has lost its place, and perhaps in
    /// the middle of what counted as data before.
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
            "lost its place between two answers".to_owned(),
        )
    }

    /// What came of the source that the journal knows by this number is not what its origin has: it is
    /// left if it is one of this run, and nothing counts that came by its relays, in this run or before.
    pub(crate) fn condemn(&mut self, id: u32, what: String) -> Result<(), Ended> {
        if !self.integrity.proof.is_empty() {
            // They forged a digest, too.
            return self.leave_relays();
        }
        let now = self.persistence.source_of(id).filter(|&source| !self.sources.is_out(source));
        let deliverer = self.persistence.deliverer(id);
        if let Some([relay]) = deliverer.map(|deliverer| &deliverer.name.relays[..]) {
            self.integrity.samples.guilty.insert(relay.clone());
        }
        let is_exposed = self.persistence.is_exposed(id);
        let reason = match is_exposed {
            true => "what it passed on is not what the source has",
            false => "it holds other bytes than the other mirrors",
        };
        let suspects = self.persistence.kin(id, &self.integrity.samples.guilty);
        let brought = suspects.iter().flat_map(|&id| self.coverage.of_deliverer(id));
        let bytes: u64 = brought.map(|range| range.len()).sum();
        let is_left = if now.is_some() { "it is left" } else { "it is not asked again" };
        let again = match bytes {
            _ if self.output.stream.is_some() => {
                "; what is written cannot be taken back".to_owned()
            }
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
        // Whoever is killed now is not to find them again.
        self.persistence.committed_at = Time::ZERO;
        Ok(())
    }

    /// What a source still owes is not waited for: it would count.
    fn cut_off(&mut self, source: usize) {
        for lane in self.lanes.open.values_mut().filter(|lane| lane.source == source) {
            lane.is_void = true;
        }
        let (source, now) = (SourceId(source as u32), self.now());
        self.planner.handle(PlanEvent::SourceBad { source }, now);
        self.planner.handle(PlanEvent::SourceAgain { source }, now);
    }

    /// What condemned sources have brought is fetched again, as soon as all of it lies on the disk: a
    /// block that is written late must not hide the right one.
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

    /// The transfer ends before what condemned sources have brought could be fetched again: no later run
    /// is to find it.
    pub(crate) fn void_condemned(&mut self) {
        for id in std::mem::take(&mut self.integrity.samples.condemned) {
            let brought = self.coverage.of_deliverer(id);
            self.persistence.records.extend(brought.into_iter().map(|range| Record::Bad { range }));
        }
    }

    /// Whether no answer is waited for any more. At the end what is left is asked for, and waited for
    /// a moment.
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
        self.integrity.samples.asked.is_empty() || now.since(since) >= waits
    }

    /// What the samples say, for who is told that nothing else proves it.
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

/// Whether somebody answered, whatever it was.
pub(crate) fn is_answer<T>(told: Option<&Result<T, LaneError>>) -> bool {
    told.is_some_and(|told| told.as_ref().err().is_none_or(LaneError::is_answer))
}

/// What is asked for at a time …
pub(crate) const BLOCK_BYTES: usize = 64 << 10;
/// … and where a route is named: ten clients of a relay that keeps what passes are to fetch one copy and
/// not much more.
const BLOCK_NAMED_BYTES: usize = 2 << 10;
/// For so much of a route a block is asked for often …
pub(crate) const OFTEN_BYTES: u64 = 8 << 20;
/// … which is once in these bytes …
pub(crate) const EVERY_OFTEN_BYTES: u64 = 1 << 20;
/// … and later once in these.
pub(crate) const EVERY_BYTES: u64 = 4 << 20;
/// So many questions of a way may be under way: a source that is far away takes its time for each.
const ASKED_MAX: u32 = 4;
/// Where so many are under way of all ways together, each has one at a time.
const CROWD: usize = 6;
/// A slow source that has much to do may take so long.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// After so many questions without an answer one after the other no more are asked.
const UNANSWERED_MAX: u32 = 4;
/// For so long the end waits for answers.
const WAITS: Duration = Duration::from_millis(1500);
/// The same where what came in earlier runs is looked at: all of it at the end, if nothing was missing.
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
