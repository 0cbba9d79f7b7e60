//! Compares mirrors with each other if no digest of the file is known.
//!
//! Mirrors that agree on size and version can still hold different bytes: one of them is damaged.
//! So swath keeps a few random blocks of each mirror and requests each of them from another mirror.
//! If two differ, `disputes` finds out which one is right. A mirror that left or refuses by then is
//! compared like the others, as long as its bytes are in the file. The same address by another scheme
//! is the same mirror.
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

use swath_model::{Range, RangeSet, SourceId, Time};
use swath_source::{Class, Facts, LaneError};
use tokio::time::{sleep, timeout};

use crate::executor::Ended;
use crate::executor::integrity::disputes::Disputes;
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
    /// The mirror to which each source leads: the first number of such a source.
    mirrors: Vec<usize>,
    /// The questions in flight to each mirror.
    asked: BTreeMap<usize, Asked>,
    pub(super) disputes: Disputes,
    /// Mirrors that did not answer a question in time, and whether they are asked with patience now.
    pub(super) mute: BTreeSet<usize>,
    is_patient: bool,
    /// Whether blocks of an earlier run were chosen, and how many are being read.
    has_read_back: bool,
    reading: usize,
    /// Since when everything has come and only answers are missing.
    pub(super) waits_since: Option<Time>,
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

    /// Returns the number of questions in flight, those that are being read from the disk included.
    pub fn asking(&self) -> usize {
        self.reading + self.asked.values().map(|asked| asked.count).sum::<usize>()
    }
}

/// The kind of mirror to ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// Whether any will do, be it mute or not asked for anything yet.
    pub is_dispute: bool,
    /// Whether there is time: for those that limit connections, and for those that want to rest.
    pub is_patient: bool,
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
            && !self.is_vouched_for(source)
            && self.integrity.proof.is_empty()
            && !self.dataset.proves_blocks()
            && !matches!(self.request.destination, Destination::Nowhere { .. });
        if is_wanted {
            self.integrity.samples.peers.kept.entry(source).or_default().see(at, bytes);
        }
    }

    /// Returns whether somebody vouches for what this source delivers: it has that from the other sources.
    fn is_vouched_for(&self, at: usize) -> bool {
        self.integrity.proof.voucher.is_some() && self.sources[at].is_found
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
        if !self.integrity.samples.peers.kept.is_empty() {
            self.close_idle_lanes();
        }
        if self.integrity.samples.peers.waits_since.is_none() {
            self.integrity.samples.peers.waits_since = Some(now);
            self.compare_left();
            self.ask_peers(true);
            self.read_blocks_back();
        }
        if self.integrity.samples.peers.asking() == 0 {
            self.ask_patiently();
        }
        let peers = &self.integrity.samples.peers;
        let waits = now.since(peers.waits_since.unwrap_or(now)) < WAITS;
        // A dispute ends by itself: with its decision, or with the transfer.
        peers.asking() > 0 && waits || peers.disputes.is_any()
    }

    /// Closes lanes without requests to servers that limit connections: questions can use theirs, and
    /// others would be refused. In a dispute any server may be one, as a short transfer does not learn.
    fn close_idle_lanes(&self) {
        let is_any = self.integrity.samples.peers.disputes.is_any();
        for (&id, entry) in &self.lanes.open {
            let is_limited =
                is_any || self.sources[entry.source].source.limits().connections.is_some();
            if is_limited && self.lanes.swaths_of(id).is_empty() {
                entry.lane.close();
            }
        }
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

    /// Reads random blocks that the mirrors of this run brought in an earlier one, to compare them,
    /// too: that one ended before it compared anything.
    fn read_blocks_back(&mut self) {
        let Some(sink) = self.persistence.readable() else { return };
        let has_read_back = &mut self.integrity.samples.peers.has_read_back;
        if std::mem::replace(has_read_back, true) || self.sources.len() < 2 {
            return;
        }
        for source in 0..self.sources.len() {
            let id = self.persistence.id_of(source);
            let brought = self.coverage.of_deliverer(id).into_iter();
            let brought: RangeSet = brought
                .flat_map(|range| self.coverage.resumed.within(range).collect::<Vec<_>>())
                .collect();
            for range in random_blocks(&brought) {
                let (sink, pool) = (Arc::clone(&sink), self.engine.read_pool.clone());
                self.integrity.samples.peers.reading += 1;
                self.integrity.samples.asked.spawn(async move {
                    let into = pool.take().await;
                    let read = sink.read(range.start, range.len() as usize, into).await;
                    let bytes = read.map(|buffer| buffer.to_vec()).unwrap_or_default();
                    let block = Block { at: range.start, bytes };
                    Answer { of: Of::ReadBack { source }, block, told: None }
                });
            }
        }
    }

    /// Compares a block that was read back.
    pub(crate) fn read_back(&mut self, source: usize, block: Block) {
        let peers = &mut self.integrity.samples.peers;
        peers.reading = peers.reading.saturating_sub(1);
        // If it could not be read, the code that needs it will report that.
        if !block.bytes.is_empty() {
            self.compare(source, block);
        }
    }

    /// Asks about the blocks that wait.
    pub(super) fn compare_left(&mut self) {
        for at in self.integrity.samples.peers.mirrors.len()..self.sources.len() {
            let mirror = self.find_mirror(at);
            self.integrity.samples.peers.mirrors.push(mirror);
        }
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
        if self.integrity.samples.peers.asking() == 0 {
            self.integrity.samples.peers.left.clear();
        }
    }

    /// Asks another mirror for a block of this source, as soon as one is ready.
    pub(super) fn compare(&mut self, source: usize, block: Block) {
        if !self.is_in_file(source, &block) {
            return;
        }
        let peers = &self.integrity.samples.peers;
        let wish = Wish { is_dispute: false, is_patient: peers.is_patient };
        let peer = self.peer_of(&[source], block.range(), wish);
        match peer.filter(|&peer| peers.is_ready(self.mirror_of(peer))) {
            Some(peer) => self.ask_peer(peer, Of::Peer { source, peer }, block, wish.is_patient),
            None => self.integrity.samples.peers.left.push((source, block)),
        }
    }

    /// Returns whether the file still has this block as this source delivered it.
    pub(super) fn is_in_file(&self, source: usize, block: &Block) -> bool {
        let id = self.persistence.id_of(source);
        let parts = self.coverage.deliverers.within(block.range());
        let own_bytes: u64 =
            parts.iter().filter(|&&(_, by)| by == id).map(|(range, _)| range.len()).sum();
        own_bytes == block.range().len() && !self.integrity.samples.is_void(id)
    }

    /// Returns the mirror beside these that holds this range and is likely to answer first.
    pub(super) fn peer_of(&self, others: &[usize], range: Range, wish: Wish) -> Option<usize> {
        let peers = &self.integrity.samples.peers;
        let now = self.now();
        let is_limited = |at: usize| {
            let view = self.planner.source(SourceId(at as u32));
            let limits = self.sources[at].source.limits();
            limits.connections.is_some() || view.is_some_and(|view| view.paced)
        };
        let is_asked_now = |at: usize| match wish.is_patient {
            true => self.rest_of(at, now) < WAITS,
            false => self.rest_of(at, now).is_zero() && (self.planner_done || !is_limited(at)),
        };
        let is_free = |at: &usize| {
            let entry = &self.sources[*at];
            (entry.accepted == Some(true) || wish.is_dispute && entry.accepted.is_none())
                && !self.is_vouched_for(*at)
                && !self.sources.is_out(*at)
                && !self.is_mute(*at)
                && (wish.is_dispute || !peers.mute.contains(&self.mirror_of(*at)))
                && entry.lacks.within(range).next().is_none()
                && others.iter().all(|&other| !self.are_one_mirror(other, *at))
                && is_asked_now(*at)
        };
        // At the end, bytes that nobody needs may still come from those that are busy.
        let wait = |at: usize| {
            let view = self.planner.source(SourceId(at as u32));
            let is_busy = self.planner_done && view.as_ref().is_some_and(|view| view.busy);
            let rtt = view.and_then(|view| view.rtt).unwrap_or(ANSWERS_WITHIN);
            let mirror = self.mirror_of(at);
            let before =
                peers.asked.get(&mirror).map_or(0, |asked| asked.count) / QUESTIONS_AT_ONCE;
            (peers.mute.contains(&mirror), is_busy, (1 + before) as u32 * rtt)
        };
        (0..self.sources.len()).filter(is_free).min_by_key(|&at| wait(at))
    }

    /// Returns how long this source must not be asked, as it wished or because it failed.
    fn rest_of(&self, at: usize, now: Time) -> Duration {
        let view = self.planner.source(SourceId(at as u32));
        view.and_then(|view| view.retry_at).map_or(Duration::ZERO, |until| until.since(now))
    }

    /// Returns whether these sources lead to one mirror.
    pub(super) fn are_one_mirror(&self, one: usize, other: usize) -> bool {
        self.mirror_of(one) == self.mirror_of(other)
    }

    /// Returns the mirror to which a source leads.
    fn mirror_of(&self, at: usize) -> usize {
        let known = self.integrity.samples.peers.mirrors.get(at);
        known.copied().unwrap_or_else(|| self.find_mirror(at))
    }

    /// Finds the first source with the same copy of the file: others lead to it by relays, or by
    /// another scheme.
    fn find_mirror(&self, at: usize) -> usize {
        let place = |at: usize| {
            let url = self.sources[at].source.url();
            (url.host_str(), url.port(), url.path(), url.query())
        };
        (0..at).find(|&other| place(other) == place(at)).unwrap_or(at)
    }

    /// Asks a mirror for its version of a block. With patience it has more time, and is asked again
    /// if it is busy.
    pub(super) fn ask_peer(&mut self, peer: usize, of: Of, block: Block, is_patient: bool) {
        let origin = Arc::clone(&self.sources[peer].source);
        let rest = self.rest_of(peer, self.now());
        let rtt = self.planner.source(SourceId(peer as u32)).and_then(|view| view.rtt);
        let within = match is_patient {
            false => IN_TIME + ROUND_TRIPS * rtt.unwrap_or_default(),
            true => ANSWERS_WITHIN,
        };
        let mirror = self.mirror_of(peer);
        self.integrity.samples.peers.asked.entry(mirror).or_default().count += 1;
        self.integrity.samples.asked.spawn(async move {
            let ask = async {
                sleep(rest).await;
                loop {
                    let told = origin.fetch_part(block.range()).await;
                    match told.as_ref().map_err(LaneError::class) {
                        Err(Class::Busy(wait)) if is_patient && wait < WAITS => {
                            sleep(wait.max(BUSY_LEAST)).await;
                        }
                        _ => break told,
                    }
                }
            };
            let told = timeout(within, ask).await.ok();
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
        self.peer_ended(peer);
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
        if !self.is_in_file(source, &block) {
            return Ok(());
        }
        let mirror = self.mirror_of(peer);
        let Some(theirs) = self.comparable(told).filter(|_| !self.is_liar(peer)) else {
            self.integrity.samples.peers.mute.insert(mirror);
            self.compare(source, block);
            return Ok(());
        };
        self.integrity.samples.peers.asked.entry(mirror).or_default().has_answered = true;
        self.count_compared(peer, &theirs);
        if theirs == block.bytes {
            self.integrity.samples.peers.right_bytes += theirs.len() as u64;
            return Ok(());
        }
        self.dispute(source, peer, block, theirs)
    }

    /// Notes that a question to this mirror has ended.
    pub(super) fn peer_ended(&mut self, peer: usize) {
        let mirror = self.mirror_of(peer);
        self.integrity.samples.peers.ended(mirror);
    }

    pub(super) fn count_compared(&mut self, peer: usize, bytes: &[u8]) {
        let bytes = bytes.len() as u64;
        self.coverage.wasted_bytes += bytes;
        self.sources[peer].figures.wasted_bytes += bytes;
    }
}

/// Returns random blocks of these bytes: one for each MiB, and together about a 64th.
fn random_blocks(brought: &RangeSet) -> Vec<Range> {
    let bytes = brought.total_bytes();
    let count = bytes.div_ceil(1 << 20).min(BLOCKS_MAX as u64);
    let most = (bytes / (64 * count.max(1))).clamp(BLOCK_LEAST_BYTES, BLOCK_BYTES as u64);
    let block = |_| {
        let mut at = fastrand::u64(..bytes);
        let part = brought.iter().find(|part| {
            let is_it = at < part.len();
            at -= if is_it { 0 } else { part.len() };
            is_it
        })?;
        Range::of_len(part.start + at, most).intersect(part)
    };
    (0..count).filter_map(block).collect()
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
/// Shortest pause before a busy mirror is asked again.
const BUSY_LEAST: Duration = Duration::from_secs(1);
/// Longest wait for answers at the end.
pub(super) const WAITS: Duration = Duration::from_secs(10);

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
