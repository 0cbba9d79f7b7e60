//! Decides which of two mirrors is right about a block that differs.
//!
//! A third mirror decides: the mirror that stands alone is dropped and reported, and its bytes are
//! fetched again. If relays delivered the block, its own source is asked without them first: if that
//! has other bytes than came, the relays are to blame and the mirror is not.
//!
//! Third mirrors are asked one after another, with little time for each. If none of them has
//! answered, all are asked once more, at the same time and with patience. Without any answer the
//! transfer ends without its file, since nothing shows which of the two is right; a dispute is never
//! forgotten while its block is in the file.

use std::collections::{BTreeSet, VecDeque};

use swath_model::Time;
use swath_source::{Facts, LaneError};

use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::integrity::peers::{WAITS, Wish};
use crate::executor::integrity::samples::{Block, Of};
use crate::executor::state::Run;

/// The disputes of one transfer.
#[derive(Default)]
pub(crate) struct Disputes {
    /// The undecided ones. Third mirrors are asked about the first one only: once it is decided,
    /// most others are about bytes that are fetched again.
    open: VecDeque<Dispute>,
    /// The number of the first one.
    number: u32,
    /// Sources of mirrors that stood alone.
    liars: BTreeSet<usize>,
}

/// A block that differs between two mirrors.
struct Dispute {
    source: usize,
    peer: usize,
    block: Block,
    theirs: Vec<u8>,
    /// These two, and those that were asked since.
    asked: Vec<usize>,
    /// Questions in flight.
    asking: usize,
    /// Whether all are asked once more, with patience.
    is_patient: bool,
    /// Whether the source confirmed without relays what they delivered.
    is_confirmed: bool,
    /// When the first question about it was asked.
    since: Option<Time>,
}

impl Disputes {
    /// Returns whether any is undecided.
    pub fn is_any(&self) -> bool {
        !self.open.is_empty()
    }

    /// Ends all: a digest decides.
    pub fn leave_to_digest(&mut self) {
        while self.close().is_some() {}
    }

    /// Ends the first one.
    fn close(&mut self) -> Option<Dispute> {
        self.number += 1;
        self.open.pop_front()
    }
}

impl Dispute {
    /// Returns the first byte that differs.
    fn place(&self) -> u64 {
        let pairs = self.theirs.iter().zip(&self.block.bytes);
        self.block.at + pairs.take_while(|(one, other)| one == other).count() as u64
    }
}

impl Run<'_> {
    fn disputes(&mut self) -> &mut Disputes {
        &mut self.integrity.samples.peers.disputes
    }

    /// Returns whether this source's mirror stood alone in a dispute.
    pub(super) fn is_liar(&self, source: usize) -> bool {
        self.integrity.samples.peers.disputes.liars.contains(&source)
    }

    /// Begins a dispute: `peer` has `theirs` where `source` delivered `block`.
    pub(super) fn dispute(
        &mut self,
        source: usize,
        peer: usize,
        block: Block,
        theirs: Vec<u8>,
    ) -> Result<(), Ended> {
        self.disputes().open.push_back(Dispute {
            source,
            peer,
            block,
            theirs,
            asked: vec![source, peer],
            asking: 0,
            is_patient: false,
            is_confirmed: false,
            since: None,
        });
        self.ask_thirds()
    }

    /// Asks about the first dispute that still matters, unless answers are on their way.
    fn ask_thirds(&mut self) -> Result<(), Ended> {
        while let Some(first) = self.integrity.samples.peers.disputes.open.front() {
            if !self.is_in_file(first.source, &first.block) {
                self.disputes().close();
                continue;
            }
            if self.is_liar(first.peer) {
                if let Some(Dispute { source, block, .. }) = self.disputes().close() {
                    self.compare(source, block);
                }
                continue;
            }
            if first.asking > 0 {
                break;
            }
            let thirds = self.thirds(first);
            if let Some(first) = self.disputes().open.front_mut()
                && thirds.is_empty()
            {
                if first.is_patient {
                    return self.undecided();
                }
                first.is_patient = true;
                first.asked.truncate(2);
            }
            for third in thirds {
                self.ask_third(third);
            }
        }
        Ok(())
    }

    /// Returns whom to ask next.
    fn thirds(&self, dispute: &Dispute) -> Vec<usize> {
        let &Dispute { source, is_patient, is_confirmed, .. } = dispute;
        let wish = Wish { is_dispute: true, is_patient };
        let asks_source = self.sources[source].is_exposed()
            && !is_confirmed
            && !dispute.asked[2..].contains(&source)
            && !self.is_mute(source);
        let mut thirds: Vec<usize> = asks_source.then_some(source).into_iter().collect();
        let mut asked = dispute.asked.clone();
        while (thirds.is_empty() || is_patient)
            && let Some(third) = self.peer_of(&asked, dispute.block.range(), wish)
        {
            asked.push(third);
            thirds.push(third);
        }
        thirds
    }

    fn ask_third(&mut self, third: usize) {
        let (now, number) = (self.now(), self.disputes().number);
        let Some(first) = self.disputes().open.front_mut() else { return };
        first.since.get_or_insert(now);
        first.asked.push(third);
        first.asking += 1;
        let block = Block { at: first.block.at, bytes: first.block.bytes.clone() };
        let is_patient = first.is_patient;
        self.ask_peer(third, Of::Third { dispute: number, third }, block, is_patient);
    }

    /// Decides a dispute by a third mirror's version, if it has answered.
    pub(crate) fn third_answered(
        &mut self,
        number: u32,
        third: usize,
        told: Option<Result<(Facts, Vec<u8>), LaneError>>,
    ) -> Result<(), Ended> {
        self.peer_ended(third);
        let word = self.comparable(told);
        let disputes = self.disputes();
        let Some(first) = disputes.open.front_mut().filter(|_| disputes.number == number) else {
            return Ok(());
        };
        first.asking = first.asking.saturating_sub(1);
        if let Some(word) = word {
            self.count_compared(third, &word);
            self.decide(third, &word)?;
        }
        self.ask_thirds()?;
        self.compare_left();
        Ok(())
    }

    /// Decides the first dispute by the word of this mirror.
    fn decide(&mut self, third: usize, word: &[u8]) -> Result<(), Ended> {
        let Some(first) = self.integrity.samples.peers.disputes.open.front() else {
            return Ok(());
        };
        if !self.is_in_file(first.source, &first.block) || self.is_liar(first.peer) {
            return Ok(());
        }
        let (is_ours, is_theirs) = (word == first.block.bytes, word == first.theirs);
        if third == first.source && is_ours {
            if let Some(first) = self.disputes().open.front_mut() {
                first.is_confirmed = true;
            }
            return Ok(());
        }
        if !is_ours && !is_theirs && third != first.source {
            return self.undecided();
        }
        let Some(dispute) = self.disputes().close() else { return Ok(()) };
        let (source, at) = (dispute.source, dispute.place());
        if is_ours {
            return self.leave_mirror(dispute.peer, at);
        }
        if self.sources[source].is_exposed() && !dispute.is_confirmed {
            let others = if third == source { "its source has" } else { "two other mirrors hold" };
            let what = format!("delivered other bytes than {others}, at byte {at}");
            return self.condemn(self.persistence.id_of(source), what);
        }
        self.leave_mirror(source, at)
    }

    /// Drops the mirror that stands alone, on all its routes, and voids its bytes.
    fn leave_mirror(&mut self, alone: usize, byte: u64) -> Result<(), Ended> {
        for at in 0..self.sources.len() {
            if !self.are_one_mirror(at, alone) {
                continue;
            }
            self.disputes().liars.insert(at);
            let id = self.persistence.id_of(at);
            if !self.sources.is_out(at) || !self.coverage.of_deliverer(id).is_empty() {
                let what = format!("holds other bytes than two other mirrors, at byte {byte}");
                self.condemn(id, what)?;
            }
        }
        Ok(())
    }

    /// Ends the transfer if nobody has decided a dispute when all other answers are overdue.
    pub(crate) fn look_at_disputes(&mut self) -> Result<(), Ended> {
        if self.is_overdue() {
            // Perhaps it is about bytes that are fetched again.
            self.ask_thirds()?;
        }
        if self.is_overdue() { self.undecided() } else { Ok(()) }
    }

    fn is_overdue(&self) -> bool {
        let peers = &self.integrity.samples.peers;
        let asked_at = peers.disputes.open.front().and_then(|first| first.since);
        match (asked_at, peers.waits_since.filter(|_| self.planner_done)) {
            (Some(asked_at), Some(waits_since)) => {
                self.now().since(asked_at.max(waits_since)) >= WAITS
            }
            _ => false,
        }
    }

    /// Ends the transfer because two mirrors differ and nothing shows which is right. The bytes of
    /// both are void.
    fn undecided(&mut self) -> Result<(), Ended> {
        let Some(dispute) = self.disputes().close() else { return Ok(()) };
        let name = |at: usize| self.sources[at].source.name().to_string();
        let (one, other) = (name(dispute.source), name(dispute.peer));
        for at in 0..self.sources.len() {
            if [dispute.source, dispute.peer].iter().any(|&it| self.are_one_mirror(it, at)) {
                self.integrity.samples.void(self.persistence.id_of(at));
            }
        }
        Err(GetError::Disagreement { one, other, at: dispute.place() }.into())
    }
}

#[cfg(test)]
mod tests {
    use swath_model::Range;
    use swath_source::{MemorySource, RelayMode};
    use url::Url;

    use super::*;
    use crate::engine::{Engine, EngineOptions};
    use crate::executor::sources::SourceEntry;
    use crate::observe::{Event, Observer};
    use crate::request::Request;

    fn facts() -> Facts {
        Facts { size_bytes: Some(100), ranges: true, ..Facts::default() }
    }

    /// A run with the mirrors `a`, which relays lead to as well (source 3), `b` and `c`, in which the
    /// relays brought everything.
    fn run<'a>(engine: &'a Engine, observer: &'a mut dyn Observer) -> Run<'a> {
        let request = Request::to_writer(tokio::io::sink()).url("http://127.0.0.1:1/a").unwrap();
        let request = ["b", "c"]
            .into_iter()
            .fold(request, |request, name| request.source(MemorySource::of(name, vec![0; 100])));
        let mut run = Run::new(engine, request, observer);
        let relay = Url::parse("http://127.0.0.1:2/").unwrap();
        let origin = std::sync::Arc::clone(&run.sources[0].source);
        let routed = origin.by_way_of(&[relay], RelayMode::Forward, std::time::Duration::ZERO);
        run.enter_source(SourceEntry::new(routed.unwrap()));
        for at in 0..4 {
            run.sources[at].accepted = Some(true);
            run.sources[at].facts = Some(facts());
        }
        run.coverage.take_in(Range::new(0, 100), run.persistence.id_of(ROUTED));
        run
    }

    fn asked(run: &Run) -> Vec<usize> {
        run.integrity.samples.peers.disputes.open.front().unwrap().asked[2..].to_vec()
    }

    fn out(run: &Run) -> Vec<usize> {
        (0..run.sources.len()).filter(|&at| run.sources.is_out(at)).collect()
    }

    const ROUTED: usize = 3;
    const B: usize = 1;

    /// The mirror behind the relays was dropped on all routes, or the transfer ended without a file.
    #[tokio::test]
    async fn relays_that_change_bytes_are_not_laid_on_their_mirror() {
        let engine = Engine::start(EngineOptions::default()).unwrap();
        let mut observer = |_: &Event| {};
        let mut run = run(&engine, &mut observer);
        let block = Block { at: 10, bytes: vec![7; 10] };
        run.dispute(ROUTED, B, block, vec![0; 10]).unwrap();
        assert_eq!(asked(&run), [ROUTED], "the source itself is asked");
        run.third_answered(0, ROUTED, Some(Ok((facts(), vec![0; 10])))).unwrap();
        assert_eq!(out(&run), [ROUTED]);
        assert!(run.coverage.have.is_empty(), "its bytes are fetched again");
    }

    #[tokio::test]
    async fn a_mirror_is_wrong_on_all_routes() {
        let engine = Engine::start(EngineOptions::default()).unwrap();
        let mut observer = |_: &Event| {};
        let mut run = run(&engine, &mut observer);
        let block = Block { at: 10, bytes: vec![7; 10] };
        run.dispute(ROUTED, B, block, vec![0; 10]).unwrap();
        run.third_answered(0, ROUTED, Some(Ok((facts(), vec![7; 10])))).unwrap();
        assert_eq!(asked(&run), [ROUTED, 2], "that is no third mirror");
        run.third_answered(0, 2, Some(Ok((facts(), vec![0; 10])))).unwrap();
        assert_eq!(out(&run), [0, ROUTED]);
    }

    /// One server by http and https was taken for two, so that its wrong file outvoted the right one.
    #[tokio::test]
    async fn one_server_has_one_word() {
        let engine = Engine::start(EngineOptions::default()).unwrap();
        let mut observer = |_: &Event| {};
        let urls = ["http://a.example/f", "https://a.example/f", "https://b.example/f"];
        let request =
            urls.into_iter().try_fold(Request::to_writer(tokio::io::sink()), Request::url);
        let mut run = Run::new(&engine, request.unwrap(), &mut observer);
        for at in 0..3 {
            run.sources[at].accepted = Some(true);
            run.sources[at].facts = Some(facts());
        }
        run.coverage.take_in(Range::new(0, 100), run.persistence.id_of(0));
        let wish = Wish { is_dispute: false, is_patient: true };
        assert_eq!(run.peer_of(&[0], Range::new(0, 10), wish), Some(2));
        run.sources[2].lacks.insert(Range::new(5, 100));
        assert_eq!(run.peer_of(&[0], Range::new(0, 10), wish), None, "it holds a part of it");
        run.sources[2].lacks = Default::default();
        let ended = run.dispute(0, 2, Block { at: 0, bytes: vec![7; 10] }, vec![0; 10]);
        assert!(matches!(ended, Err(Ended::Error(GetError::Disagreement { .. }))), "{ended:?}");
    }
}
