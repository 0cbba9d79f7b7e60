//! Handles verdicts: good bytes count as done and go into the journal, bad ones are fetched again
//! (`suspect` finds out whose fault it was).

use swath_model::Range;
use swath_model::digest::{Blake3Tree, Digest};
use swath_plan::Event as PlanEvent;
use swath_store::Record;

use crate::discovery::{CameFrom, Judgement};
use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::integrity::suspect::Try;
use crate::executor::sink::StreamReport;
use crate::executor::state::Run;
use crate::verify::Verdict;

impl Run<'_> {
    pub(crate) fn verdicts(&mut self, verdicts: Vec<Verdict>) -> Result<(), Ended> {
        for verdict in verdicts {
            match verdict {
                Verdict::Good(range) => self.proved_good(range),
                Verdict::Bad { piece, actual } => self.proved_bad(piece, actual)?,
                Verdict::Block { index, range, actual } => {
                    self.judge_block(index, range, actual)?;
                }
                Verdict::Group { index, value } => {
                    if let Some(range) =
                        self.coverage.size_bytes.and_then(|size| group_range(index, size))
                    {
                        self.persistence.records.push(Record::Group { index, range, cv: value });
                    }
                }
                Verdict::Whole { wanted, actual } => self.integrity.whole_told(wanted, actual),
            }
        }
        Ok(())
    }

    /// Handles a report of the ordered stream.
    pub(crate) fn stream_report(&mut self, report: StreamReport) -> Result<(), Ended> {
        match report {
            StreamReport::Written(up_to) => {
                self.output.consumed = up_to;
                self.planner.handle(PlanEvent::Consumed { up_to }, self.now());
            }
            StreamReport::Good(range) => self.proved_good(range),
            StreamReport::Bad(piece, actual) => self.proved_bad(piece, actual)?,
            StreamReport::TooLate(piece, actual) => {
                let hint = format!(
                    "; bytes {}–{} are wrong, and their beginning is written already",
                    piece.start, piece.end
                );
                return Err(self.wrong_piece(piece, actual, hint));
            }
            StreamReport::Whole { wanted, actual } => self.integrity.whole_told(wanted, actual),
            StreamReport::Shed(range) => self.reopen(range),
            StreamReport::Failed(error) => {
                return Err(GetError::Output(error).into());
            }
        }
        Ok(())
    }

    fn proved_good(&mut self, range: Range) {
        self.coverage.prove(range);
        if self.integrity.proof.pieces.is_some() {
            self.persistence.verified(range);
        }
        if let Some(discovery) = &self.request.discovery {
            discovery.verified(range);
        }
        self.healed(range);
    }

    /// Asks whoever vouches for blocks about one that has come.
    fn judge_block(&mut self, index: u64, range: Range, actual: Digest) -> Result<(), Ended> {
        let Some(voucher) = &self.integrity.proof.voucher else { return Ok(()) };
        let deliverers = self.coverage.deliverers_of(range);
        let sources = || deliverers.iter().map(|&id| self.persistence.source_of(id));
        let has_found = sources().flatten().any(|at| self.sources[at].is_found);
        let has_named = sources().flatten().any(|at| !self.sources[at].is_found);
        let from = match (has_found, has_named) {
            (true, true) => CameFrom::Mixed,
            (true, false) => CameFrom::Found,
            (false, _) if sources().any(|source| source.is_none()) => CameFrom::EarlierRun,
            (false, _) => CameFrom::Named,
        };
        match voucher.judge(index, actual, from) {
            Judgement::Right => self.proved_good(range),
            Judgement::Wrong => return self.proved_bad(range, actual),
            Judgement::Unknown => self.reopen(range),
        }
        Ok(())
    }

    fn proved_bad(&mut self, piece: Range, actual: Digest) -> Result<(), Ended> {
        self.blame.bad_pieces += 1;
        let deliverers = self.coverage.deliverers_of(piece);
        if deliverers.len() > 1 && self.persistence.readable().is_some() {
            self.print_parts(piece, Some(actual));
            return Ok(());
        }
        self.suspect(piece, Try { deliverers, actual, parts: Vec::new() })
    }

    /// Marks bytes as missing, to fetch them again.
    pub(crate) fn reopen(&mut self, range: Range) {
        for (deliverer, bytes) in self.coverage.reopen(range) {
            if let Some(at) = self.persistence.source_of(deliverer) {
                let figures = &mut self.sources[at].figures;
                figures.bytes = figures.bytes.saturating_sub(bytes);
                figures.wasted_bytes += bytes;
            }
        }
        if let Some(verifier) = &self.integrity.verifier {
            verifier.forget(range);
        }
        if let Some(sink) = &self.persistence.sink {
            sink.distrust(range);
        }
        self.persistence.records.push(Record::Bad { range });
        self.planner_done = false;
        // The next source has the usual time to bring it.
        self.clock.last_arrival = self.now();
        self.planner.handle(PlanEvent::Reopened { range }, self.now());
    }
}

/// Returns the bytes of a group of the BLAKE3 tree of a file of `size_bytes`.
fn group_range(index: u64, size_bytes: u64) -> Option<Range> {
    Blake3Tree::new(0).ok().map(|tree| {
        let start = index.saturating_mul(tree.group_bytes());
        Range::new(start, start.saturating_add(tree.group_bytes()).min(size_bytes))
    })
}
