//! Compares mirrors with each other if no digest of the file is known.
//!
//! Mirrors that agree on size and version can still hold different bytes: one of them is damaged.
//! So swath keeps a few random blocks of each mirror and requests each of them from another mirror.
//! If two differ, a third one decides: the mirror that stands alone is dropped and reported, and its
//! bytes are fetched again. Without a third one the transfer ends without its file, since nothing
//! shows which of the two is right.
//!
//! Most questions are asked in the last seconds, so that hardly anything waits for their answers; the
//! last bytes of each mirror are compared when everything has come. Each question goes to the
//! mirror that is likely to answer it first, and to another if it does not: the link of a mirror
//! that became slow may be full of bytes that nobody needs any more.
//!
//! Questions take connections of their own. So each mirror gets one at a time until it has answered,
//! then [`QUESTIONS_AT_ONCE`], and servers that limit connections or the rate of each are not asked
//! before the end. At most [`BLOCKS_MAX`] blocks of [`BLOCK_BYTES`] are compared for each
//! mirror, and about a 64th of what it delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use swath_model::{Range, SourceId, Time};
use swath_source::{Facts, LaneError};
use tokio::time::timeout;

use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::integrity::samples::{ANSWERS_WITHIN, Answer, Block, Of};
use crate::executor::state::Run;
use crate::request::Destination;

/// The comparisons of one transfer.
#[derive(Default)]
pub(crate) struct Peers {
    /// Blocks kept of each source, by its number.
    kept: BTreeMap<usize, SeenBlocks>,
    /// Blocks that wait for a mirror to compare them, with their sources.
    left: Vec<(usize, Block)>,
    /// The questions in flight to each mirror.
    asked: BTreeMap<usize, Asked>,
    /// Undecided disputes, by number.
    disputes: BTreeMap<u32, Dispute>,
    disputes_begun: u32,
    /// Mirrors that did not answer a question in time, and whether others are patient with them now.
    mute: BTreeSet<usize>,
    is_patient: bool,
    /// Since when everything has come and only answers are missing.
    waits_since: Option<Time>,
    /// Bytes that were equal.
    pub right_bytes: u64,
}

/// The questions in flight to one mirror.
#[derive(Default)]
struct Asked {
    count: usize,
    /// Whether any was answered.
    has_answered: bool,
}

/// Random blocks of one source; each of its bytes is equally likely.
#[derive(Default)]
struct SeenBlocks {
    /// Bytes since blocks were last taken, and before.
    seen_bytes: u64,
    compared_bytes: u64,
    blocks: Vec<Block>,
}

/// A block that differs between two mirrors.
struct Dispute {
    source: usize,
    peer: usize,
    block: Block,
    theirs: Vec<u8>,
    asked: Vec<usize>,
}

impl Peers {
    /// Notes that a question to this mirror has ended.
    fn ended(&mut self, peer: usize) {
        if let Some(asked) = self.asked.get_mut(&peer) {
            asked.count = asked.count.saturating_sub(1);
        }
    }

    /// Returns whether this mirror may be asked another question now.
    fn is_ready(&self, peer: usize) -> bool {
        self.asked.get(&peer).is_none_or(|asked| match asked.has_answered {
            true => asked.count < QUESTIONS_AT_ONCE,
            false => asked.count == 0,
        })
    }

    /// Returns whether answers are missing.
    fn is_asking(&self) -> bool {
        self.asked.values().any(|asked| asked.count > 0)
    }
}

impl SeenBlocks {
    /// Takes in the `bytes` that came at `at`.
    fn see(&mut self, at: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        if len == 0 {
            return;
        }
        self.seen_bytes += len;
        let size = bytes.len().min(BLOCK_BYTES);
        let pick = || {
            let from = fastrand::usize(..=bytes.len() - size);
            Block { at: at + from as u64, bytes: bytes[from..from + size].to_vec() }
        };
        if self.blocks.is_empty() {
            self.blocks = (0..BLOCKS_MAX).map(|_| pick()).collect();
            return;
        }
        for block in &mut self.blocks {
            if fastrand::u64(..self.seen_bytes) < len {
                *block = pick();
            }
        }
    }

    /// Returns whether its new bytes are worth a question before the end.
    fn is_due(&self) -> bool {
        self.seen_bytes * BLOCKS_MAX as u64 >= self.compared_bytes.max(1)
    }

    /// Takes the blocks to compare: one for each MiB received, and together about a 64th of it. If
    /// earlier bytes were compared, these get their share of all blocks.
    fn take(&mut self) -> Vec<Block> {
        let all_bytes = (self.compared_bytes + self.seen_bytes).max(1);
        // Rounded at random, so that each byte is as likely as in one comparison of all.
        let share = (BLOCKS_MAX as u64 * self.seen_bytes + fastrand::u64(..all_bytes)) / all_bytes;
        let count = self.seen_bytes.div_ceil(1 << 20).min(share);
        let most = (self.seen_bytes / (64 * count.max(1))).max(BLOCK_LEAST_BYTES) as usize;
        self.compared_bytes = all_bytes;
        self.seen_bytes = 0;
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.truncate(count as usize);
        for block in &mut blocks {
            block.bytes.truncate(most);
        }
        blocks
    }
}

impl Run<'_> {
    /// Keeps random blocks of useful bytes of this source, to compare them.
    pub(crate) fn look_at_peers(&mut self, source: usize, at: u64, bytes: &[u8]) {
        let is_wanted = self.sources.len() > 1
            && self.integrity.proof.is_empty()
            && !self.dataset.proves_blocks()
            && !matches!(self.request.destination, Destination::Nowhere { .. });
        if is_wanted {
            self.integrity.samples.peers.kept.entry(source).or_default().see(at, bytes);
        }
    }

    /// Compares what has come since the last time if the transfer ends soon.
    pub(crate) fn compare_before_end(&mut self) {
        let soon = || self.planner.time_left_s(self.now()).is_some_and(|left_s| left_s < BEFORE_S);
        let half = self.coverage.size_bytes.unwrap_or(u64::MAX) / 2;
        if self.integrity.proof.is_empty()
            && !self.planner_done
            && self.coverage.have.total_bytes() >= half
            && soon()
        {
            self.ask_peers(false);
        }
    }

    /// Returns whether answers of other mirrors are missing, now that everything has come.
    pub(crate) fn waits_for_peers(&mut self) -> bool {
        if !self.integrity.proof.is_empty() {
            return false;
        }
        let now = self.now();
        if self.integrity.samples.peers.waits_since.is_none() {
            self.integrity.samples.peers.waits_since = Some(now);
            self.compare_left();
            self.ask_peers(true);
        }
        if !self.integrity.samples.peers.is_asking() {
            self.ask_patiently();
        }
        let since = self.integrity.samples.peers.waits_since.unwrap_or(now);
        self.integrity.samples.peers.is_asking() && now.since(since) < WAITS
    }

    /// Notes that bytes are missing again.
    pub(crate) fn goes_on_beside_peers(&mut self) {
        self.integrity.samples.peers.waits_since = None;
    }

    fn ask_peers(&mut self, is_end: bool) {
        let sources: Vec<usize> = self.integrity.samples.peers.kept.keys().copied().collect();
        for source in sources {
            let Some(kept) = self.integrity.samples.peers.kept.get_mut(&source) else { continue };
            if !is_end && !kept.is_due() {
                continue;
            }
            for block in kept.take() {
                self.compare(source, block);
            }
        }
    }

    /// Asks about the blocks that wait.
    fn compare_left(&mut self) {
        for (source, block) in std::mem::take(&mut self.integrity.samples.peers.left) {
            self.compare(source, block);
        }
    }

    /// Asks mirrors that did not answer in time once more, if nobody else can compare what is left.
    fn ask_patiently(&mut self) {
        let peers = &mut self.integrity.samples.peers;
        if peers.left.is_empty() {
            return;
        }
        if !peers.is_patient {
            peers.is_patient = true;
            peers.mute.clear();
            self.compare_left();
        }
        if !self.integrity.samples.peers.is_asking() {
            self.integrity.samples.peers.left.clear();
        }
    }

    /// Asks another mirror for a block of this source, as soon as one is ready.
    fn compare(&mut self, source: usize, block: Block) {
        if self.sources.is_out(source) {
            return;
        }
        let peer = self.peer_of(&[source], false);
        match peer.filter(|&peer| self.integrity.samples.peers.is_ready(peer)) {
            Some(peer) => self.ask_peer(peer, Of::Peer { source, peer }, block),
            None => self.integrity.samples.peers.left.push((source, block)),
        }
    }

    /// Returns the mirror beside these that is likely to answer first; in a dispute any that there
    /// is.
    fn peer_of(&self, others: &[usize], is_dispute: bool) -> Option<usize> {
        let peers = &self.integrity.samples.peers;
        let url = |at: usize| self.sources[at].source.url();
        let is_limited = |at: usize| {
            let view = self.planner.source(SourceId(at as u32));
            let limits = self.sources[at].source.limits();
            limits.connections.is_some() || view.is_some_and(|view| view.paced)
        };
        let is_free = |at: &usize| {
            self.sources[*at].accepted == Some(true)
                && !self.sources.is_out(*at)
                && !self.is_mute(*at)
                && (is_dispute
                    || !peers.mute.contains(at) && (self.planner_done || !is_limited(*at)))
                && others.iter().all(|&other| url(other) != url(*at))
        };
        // At the end, bytes that nobody needs may still come from those that are busy.
        let wait = |at: usize| {
            let view = self.planner.source(SourceId(at as u32));
            let is_busy = self.planner_done && view.as_ref().is_some_and(|view| view.busy);
            let rtt = view.and_then(|view| view.rtt).unwrap_or(ANSWERS_WITHIN);
            let before = peers.asked.get(&at).map_or(0, |asked| asked.count) / QUESTIONS_AT_ONCE;
            (peers.mute.contains(&at), is_busy, (1 + before) as u32 * rtt)
        };
        (0..self.sources.len()).filter(is_free).min_by_key(|&at| wait(at))
    }

    fn ask_peer(&mut self, peer: usize, of: Of, block: Block) {
        let origin = Arc::clone(&self.sources[peer].source);
        let within = match of {
            Of::Peer { .. } if !self.integrity.samples.peers.is_patient => {
                let view = self.planner.source(SourceId(peer as u32));
                IN_TIME + ROUND_TRIPS * view.and_then(|view| view.rtt).unwrap_or_default()
            }
            _ => ANSWERS_WITHIN,
        };
        self.integrity.samples.peers.asked.entry(peer).or_default().count += 1;
        self.integrity.samples.asked.spawn(async move {
            let range = Range::of_len(block.at, block.bytes.len() as u64);
            let told = timeout(within, origin.fetch_part(range)).await.ok();
            Answer { of, block, told }
        });
    }

    /// Compares a mirror's version of a block with another's, if it has answered.
    pub(crate) fn peer_answered(
        &mut self,
        source: usize,
        peer: usize,
        block: Block,
        told: Option<Result<(Facts, Vec<u8>), LaneError>>,
    ) -> Result<(), Ended> {
        self.integrity.samples.peers.ended(peer);
        let answered = self.compare_with_answer(source, peer, block, told);
        self.compare_left();
        answered
    }

    fn compare_with_answer(
        &mut self,
        source: usize,
        peer: usize,
        block: Block,
        told: Option<Result<(Facts, Vec<u8>), LaneError>>,
    ) -> Result<(), Ended> {
        if self.sources.is_out(source) || self.sources.is_out(peer) {
            return Ok(());
        }
        let Some(theirs) = self.comparable(told) else {
            self.integrity.samples.peers.mute.insert(peer);
            self.compare(source, block);
            return Ok(());
        };
        self.integrity.samples.peers.asked.entry(peer).or_default().has_answered = true;
        self.count_compared(peer, &theirs);
        if theirs == block.bytes {
            self.integrity.samples.peers.right_bytes += theirs.len() as u64;
            return Ok(());
        }
        let asked = vec![source, peer];
        self.ask_a_third(Dispute { source, peer, block, theirs, asked })
    }

    fn ask_a_third(&mut self, dispute: Dispute) -> Result<(), Ended> {
        let Some(third) = self.peer_of(&dispute.asked, true) else {
            return self.undecided(&dispute);
        };
        let block = Block { at: dispute.block.at, bytes: dispute.block.bytes.clone() };
        let number = self.integrity.samples.peers.disputes_begun;
        self.integrity.samples.peers.disputes_begun += 1;
        self.integrity.samples.peers.disputes.insert(number, dispute);
        self.ask_peer(third, Of::Third { dispute: number, third }, block);
        Ok(())
    }

    /// Decides a dispute by a third mirror's version, if it has answered.
    pub(crate) fn third_answered(
        &mut self,
        number: u32,
        third: usize,
        told: Option<Result<(Facts, Vec<u8>), LaneError>>,
    ) -> Result<(), Ended> {
        self.integrity.samples.peers.ended(third);
        let Some(mut dispute) = self.integrity.samples.peers.disputes.remove(&number) else {
            return Ok(());
        };
        if self.sources.is_out(dispute.source) || self.sources.is_out(dispute.peer) {
            return Ok(());
        }
        let Some(word) = self.comparable(told) else {
            dispute.asked.push(third);
            return self.ask_a_third(dispute);
        };
        self.count_compared(third, &word);
        if word == dispute.block.bytes {
            self.leave_mirror(dispute.peer, &dispute)
        } else if word == dispute.theirs {
            self.leave_mirror(dispute.source, &dispute)
        } else {
            self.undecided(&dispute)
        }
    }

    /// Drops the mirror that stands alone, on all its routes.
    fn leave_mirror(&mut self, alone: usize, dispute: &Dispute) -> Result<(), Ended> {
        let url = self.sources[alone].source.url().clone();
        for at in 0..self.sources.len() {
            if *self.sources[at].source.url() == url && !self.sources.is_out(at) {
                let what = format!(
                    "holds other bytes than two other mirrors, at byte {}",
                    dispute.place()
                );
                self.condemn(self.persistence.id_of(at), what)?;
            }
        }
        Ok(())
    }

    /// Ends the transfer because two mirrors differ and nothing shows which is right. The bytes of
    /// both are void.
    fn undecided(&mut self, dispute: &Dispute) -> Result<(), Ended> {
        let name = |at: usize| self.sources[at].source.name().to_string();
        let (one, other) = (name(dispute.source), name(dispute.peer));
        let ids = [dispute.source, dispute.peer].map(|at| self.sources[at].source.url().clone());
        for at in 0..self.sources.len() {
            if ids.contains(self.sources[at].source.url()) {
                self.integrity.samples.void(self.persistence.id_of(at));
            }
        }
        Err(GetError::Disagreement { one, other, at: dispute.place() }.into())
    }

    fn count_compared(&mut self, peer: usize, bytes: &[u8]) {
        let bytes = bytes.len() as u64;
        self.coverage.wasted_bytes += bytes;
        self.sources[peer].figures.wasted_bytes += bytes;
    }
}

impl Dispute {
    /// Returns the first byte that differs.
    fn place(&self) -> u64 {
        let pairs = self.theirs.iter().zip(&self.block.bytes);
        self.block.at + pairs.take_while(|(one, other)| one == other).count() as u64
    }
}

/// Most blocks compared of one mirror: damage in a tenth of its bytes is found with a probability
/// of more than one half, other content for certain.
const BLOCKS_MAX: usize = 8;
/// Most questions in flight to one mirror.
const QUESTIONS_AT_ONCE: usize = 2;
/// Most bytes of one question.
const BLOCK_BYTES: usize = 8 << 10;
/// Fewest bytes of one question.
const BLOCK_LEAST_BYTES: u64 = 512;
/// Seconds before the end when most questions are asked.
const BEFORE_S: f64 = 2.0;
/// After this time and this many round trips another mirror is asked; if none is left, all are asked
/// again and get [`ANSWERS_WITHIN`].
const IN_TIME: Duration = Duration::from_millis(100);
const ROUND_TRIPS: u32 = 4;
/// Longest wait for answers at the end.
const WAITS: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// What is compared is a part of what came, every place is as likely, and it stays small.
    #[test]
    fn blocks_are_chosen_evenly_and_cost_little() {
        let part: Vec<u8> = (0..1 << 17).map(|at: u32| (at / 4096) as u8).collect();
        let mut hits = [0; 16];
        for _ in 0..400 {
            let mut kept = SeenBlocks::default();
            for number in 0..16 {
                kept.see(number << 17, &part);
            }
            let blocks = kept.take();
            assert_eq!(blocks.len(), 2, "one for each MiB");
            assert!(blocks.iter().map(|block| block.bytes.len()).sum::<usize>() <= (2 << 20) / 64);
            for block in blocks {
                let from = (block.at % (1 << 17)) as usize;
                assert_eq!(block.bytes, part[from..from + block.bytes.len()]);
                hits[(block.at >> 17) as usize] += 1;
            }
            assert!(kept.take().is_empty(), "nothing new has come");
            kept.see(0, &part);
            assert!(kept.take().len() <= 1 && !kept.is_due(), "a 17th of all");
            (0..3).for_each(|_| kept.see(0, &part));
            assert!(kept.is_due() && kept.take().len() == 1, "more than an eighth");
        }
        assert!(hits.iter().all(|&hits| (15..110).contains(&hits)), "{hits:?}");
        let mut kept = SeenBlocks::default();
        kept.see(5, b"tiny");
        assert_eq!(kept.take()[0].bytes, b"tiny");
        (0..64).for_each(|number| kept.see(number << 20, &[0; 1 << 20]));
        assert_eq!(kept.take().len(), BLOCKS_MAX);
    }
}
