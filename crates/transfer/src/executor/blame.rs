//! Verdicts are entered into the books: what proved good counts as done and goes into the
//! journal, what proved bad is fetched again (`suspect` finds out whose fault it was).

use swath_model::Range;
use swath_model::digest::{Blake3Tree, Digest};
use swath_plan::Event as PlanEvent;
use swath_store::Record;

use super::Ended;
use super::ordered::Word;
use super::state::Run;
use super::suspect::Try;
use crate::error::GetError;
use crate::observe::Phase;
use crate::verify::Verdict;

impl Run<'_> {
    pub(super) fn verdicts(&mut self, verdicts: Vec<Verdict>) -> Result<(), Ended> {
        for verdict in verdicts {
            match verdict {
                Verdict::Good(range) => self.proved_good(range),
                Verdict::Bad { piece, actual } => self.proved_bad(piece, actual)?,
                Verdict::Group { index, value } => {
                    if let Some(range) = self.size_bytes.and_then(|size| group_range(index, size)) {
                        self.records.push(Record::Group { index, range, cv: value });
                    }
                }
                Verdict::Whole { wanted, actual } => self.whole_told(wanted, actual),
            }
        }
        Ok(())
    }

    /// The ordered stream has something to say.
    pub(super) fn ordered_word(&mut self, word: Word) -> Result<(), Ended> {
        match word {
            Word::Written(up_to) => {
                self.consumed = up_to;
                self.planner.handle(PlanEvent::Consumed { up_to }, self.now());
            }
            Word::Good(range) => self.proved_good(range),
            Word::Bad(piece, actual) => self.proved_bad(piece, actual)?,
            Word::TooLate(piece, actual) => {
                let hint = format!(
                    "; bytes {}–{} are wrong, and their beginning is written already",
                    piece.start, piece.end
                );
                return Err(self.wrong_piece(piece, actual, hint));
            }
            Word::Whole { wanted, actual } => self.whole_told(wanted, actual),
            Word::Shed(range) => self.reopen(range),
            Word::Failed(error) => {
                return Err(GetError::Output(error).into());
            }
        }
        Ok(())
    }

    fn proved_good(&mut self, range: Range) {
        self.verified.insert(range);
        self.verified_bytes = self.verified.total_bytes();
        match self.records.last_mut() {
            Some(Record::Verified { range: last }) if last.end == range.start => {
                last.end = range.end;
            }
            _ => self.records.push(Record::Verified { range }),
        }
        self.healed(range);
    }

    fn proved_bad(&mut self, piece: Range, actual: Digest) -> Result<(), Ended> {
        self.bad_pieces += 1;
        let mut deliverers: Vec<u32> =
            self.deliverers.within(piece).into_iter().map(|(_, id)| id).collect();
        deliverers.sort_unstable();
        deliverers.dedup();
        if deliverers.len() > 1 && self.target.is_some() {
            self.print_parts(piece, Some(actual));
            return Ok(());
        }
        self.suspect(piece, Try { deliverers, actual, parts: Vec::new() })
    }

    /// Accepted, or not asked yet; not out.
    pub(super) fn is_usable(&self, at: usize) -> bool {
        !self.is_bad(at) && self.sources[at].accepted != Some(false)
    }

    /// These bytes are void: fetch them again.
    pub(super) fn reopen(&mut self, range: Range) {
        self.uncount(range);
        self.have.remove(range);
        self.deliverers.clear(range);
        self.verified.remove(range);
        self.verified_bytes = self.verified.total_bytes();
        if let Some(verifier) = &self.verifier {
            verifier.forget(range);
        }
        if let Some(target) = &self.target {
            target.distrust(range);
        }
        self.records.push(Record::Bad { range });
        self.planner_done = false;
        self.planner.handle(PlanEvent::Reopened { range }, self.now());
    }

    /// What these bytes count for was for nothing.
    fn uncount(&mut self, range: Range) {
        let earlier_bytes = self.resumed.bytes_within(range);
        self.resumed_bytes = self.resumed_bytes.saturating_sub(earlier_bytes);
        self.wasted_bytes += range.len() - earlier_bytes;
        for (part, id) in self.deliverers.within(range) {
            let own = part.len() - self.resumed.bytes_within(part);
            if let Some(at) = self.source_of_journal_id(id) {
                let figures = &mut self.sources[at].figures;
                figures.bytes = figures.bytes.saturating_sub(own);
                figures.wasted_bytes += own;
            }
        }
        self.resumed.remove(range);
    }

    /// Bytes that piece digests have yet to prove.
    pub(super) fn unproved_pieces(&self) -> u64 {
        match (&self.proof.pieces, self.size_bytes) {
            (Some(_), Some(size)) => size.saturating_sub(self.verified.total_bytes()),
            _ => 0,
        }
    }

    /// A digest of the whole came to `actual`; what an earlier try came to is forgotten.
    fn whole_told(&mut self, wanted: Digest, actual: Digest) {
        self.wholes.retain(|&(known, _)| known != wanted);
        self.wholes.push((wanted, actual));
    }

    /// When each digest of the whole has been told: one that is not as wanted, else the first,
    /// with what it came to.
    pub(super) fn take_whole(&mut self) -> Option<(Digest, Digest)> {
        if self.wholes.is_empty() || self.wholes.len() < self.proof.wholes.len() {
            return None;
        }
        let told = std::mem::take(&mut self.wholes);
        let first = self.proof.wholes.first();
        let wrong = told.iter().find(|(wanted, actual)| wanted != actual);
        wrong.or_else(|| told.iter().find(|(wanted, _)| Some(wanted) == first)).copied()
    }

    /// Whether the digest of the whole is still to come.
    pub(super) fn awaits_whole(&self) -> bool {
        !self.proof.wholes.is_empty() && self.digest.is_none() && self.phase != Phase::Finishing
    }

    /// Whether the ordered stream (if there is one) has been written to its end.
    pub(super) fn ordered_done(&self) -> bool {
        !self.is_stream || Some(self.consumed) == self.size_bytes
    }
}

/// The bytes of a group of the BLAKE3 tree of a file of `size_bytes`.
fn group_range(index: u64, size_bytes: u64) -> Option<Range> {
    Blake3Tree::new(0).ok().map(|tree| {
        let start = index.saturating_mul(tree.group_bytes());
        Range::new(start, start.saturating_add(tree.group_bytes()).min(size_bytes))
    })
}
