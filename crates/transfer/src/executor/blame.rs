//! Verdicts and blame: a block that proves bad is charged to whoever delivered it.
//!
//! A piece that one source delivered alone convicts it. A piece of several deliverers is fetched
//! again from somebody else; once it proves good, the parts are compared with what had come
//! before, and whoever's part differs is convicted. A convicted source is dropped and named,
//! unless it is the only one: then it may try again a few times.

use swath_model::digest::{Algorithm, Blake3Tree, Hasher};
use swath_model::{Range, SourceId};
use swath_plan::Event as PlanEvent;
use swath_store::Record;

use super::Ended;
use super::ordered::Word;
use super::sink::JobDone;
use super::state::Run;
use crate::error::GetError;
use crate::observe::Phase;
use crate::verify::Verdict;

/// The fingerprint of one deliverer's part of a piece.
#[derive(Clone, Debug)]
pub(super) struct PartPrint {
    pub range: Range,
    /// In the journal's numbering.
    pub deliverer: u32,
    pub print: Vec<u8>,
}

/// A bad piece of several deliverers, until it comes right.
#[derive(Clone, Debug)]
pub(super) struct Suspicion {
    pub piece: Range,
    pub parts: Vec<PartPrint>,
}

impl Run<'_> {
    pub(super) fn verdicts(&mut self, verdicts: Vec<Verdict>) -> Result<(), Ended> {
        for verdict in verdicts {
            match verdict {
                Verdict::Good(range) => self.proved_good(range),
                Verdict::Bad(range) => self.proved_bad(range)?,
                Verdict::Group { index, value } => {
                    if let Some(range) = self.size_bytes.and_then(|size| group_range(index, size)) {
                        self.records.push(Record::Group { index, range, cv: value });
                    }
                }
                Verdict::Whole { good, actual } => self.whole_verdict = Some((good, actual)),
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
            Word::Good(range) => {
                self.verified.insert(range);
                self.verified_bytes = self.verified.total_bytes();
            }
            Word::Bad(range) => self.proved_bad(range)?,
            Word::Whole { good, actual } => self.whole_verdict = Some((good, actual)),
            Word::Failed(error) => {
                return Err(
                    GetError::Write { what: "writing to the output".to_owned(), error }.into()
                );
            }
        }
        Ok(())
    }

    fn proved_good(&mut self, range: Range) {
        self.verified.insert(range);
        self.verified_bytes = self.verified.total_bytes();
        self.records.push(Record::Verified { range });
        if self.suspicions.iter().any(|suspicion| suspicion.piece == range) {
            self.print_parts(range, true);
        }
    }

    fn proved_bad(&mut self, range: Range) -> Result<(), Ended> {
        self.bad_pieces += 1;
        let mut deliverers: Vec<u32> =
            self.deliverers.within(range).into_iter().map(|(_, id)| id).collect();
        deliverers.sort_unstable();
        deliverers.dedup();
        if let [only] = deliverers[..] {
            let name = self
                .journal_names
                .get(&only)
                .cloned()
                .unwrap_or_else(|| "an earlier source".to_owned());
            self.note(
                format!(
                    "{name} delivered corrupt data (bytes {}–{}); fetched again elsewhere",
                    range.start, range.end
                ),
                true,
            );
            if let Some(at) = self.source_of_journal_id(only) {
                self.convict(at, range)?;
            }
            self.reopen(range);
        } else if self.target.is_some() {
            self.print_parts(range, false);
        } else {
            self.reopen(range);
        }
        Ok(())
    }

    /// A source is proved to have delivered corrupt data.
    fn convict(&mut self, at: usize, range: Range) -> Result<(), Ended> {
        if self.is_bad(at) {
            return Ok(());
        }
        let others = (0..self.sources.len()).any(|other| other != at && self.is_usable(other));
        let entry = &mut self.sources[at];
        entry.figures.corrupt += 1;
        if others || entry.figures.corrupt >= ALONE_TRIES {
            self.drop_source(
                at,
                format!("it delivered corrupt data (bytes {}–{})", range.start, range.end),
            );
        }
        Ok(())
    }

    /// Accepted, or not asked yet; not out.
    pub(super) fn is_usable(&self, at: usize) -> bool {
        !self.is_bad(at) && self.sources[at].accepted != Some(false)
    }

    /// These bytes are void: fetch them again.
    pub(super) fn reopen(&mut self, range: Range) {
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
        self.wasted_bytes += range.len();
        self.planner_done = false;
        self.planner.handle(PlanEvent::Reopened { range }, self.now());
    }

    /// Hash each deliverer's part of a piece as it lies on the disk.
    fn print_parts(&mut self, piece: Range, healed: bool) {
        let parts: Vec<(Range, u32)> = if healed {
            self.suspicions
                .iter()
                .filter(|suspicion| suspicion.piece == piece)
                .flat_map(|suspicion| {
                    suspicion.parts.iter().map(|part| (part.range, part.deliverer))
                })
                .collect()
        } else {
            self.deliverers.within(piece)
        };
        let Some(target) = self.target_handle() else { return };
        let pool = self.engine.read_pool.clone();
        self.jobs.spawn(async move {
            let mut prints = Vec::new();
            let mut buffer = pool.take().await;
            'parts: for (range, deliverer) in parts {
                let mut hasher = Hasher::new(Algorithm::Blake3);
                let mut at = range.start;
                while at < range.end {
                    let bytes = (range.end - at).min(pool.buffer_bytes() as u64);
                    match target.read(at, bytes as usize, buffer).await {
                        Ok(read) => {
                            hasher.update(&read);
                            buffer = read;
                        }
                        Err(_) => {
                            // Without its print a part can neither be convicted nor cleared.
                            buffer = pool.take().await;
                            continue 'parts;
                        }
                    }
                    at += bytes;
                }
                prints.push(PartPrint {
                    range,
                    deliverer,
                    print: hasher.finish().as_bytes().to_vec(),
                });
            }
            JobDone::Printed { piece, prints, healed }
        });
    }

    /// The parts of a piece have been hashed: remember them (it was bad) or compare (it is good).
    pub(super) fn printed(&mut self, piece: Range, prints: Vec<PartPrint>, healed: bool) {
        if healed {
            let Some(at) = self.suspicions.iter().position(|suspicion| suspicion.piece == piece)
            else {
                return;
            };
            let suspicion = self.suspicions.swap_remove(at);
            for part in suspicion.parts {
                let now = prints.iter().find(|print| print.range == part.range);
                if now.is_none_or(|now| now.print == part.print) {
                    continue;
                }
                let name = self.journal_names.get(&part.deliverer).cloned().unwrap_or_default();
                self.note(
                    format!(
                        "{name} delivered corrupt data (within bytes {}–{}); replaced",
                        part.range.start, part.range.end
                    ),
                    true,
                );
                if let Some(at) = self.source_of_journal_id(part.deliverer) {
                    // An error here would only repeat what the planner says by itself.
                    let _ = self.convict(at, part.range);
                }
            }
            return;
        }
        let mut share: Vec<(u64, usize)> = Vec::new();
        for part in &prints {
            if let Some(at) = self.source_of_journal_id(part.deliverer) {
                match share.iter_mut().find(|(_, known)| *known == at) {
                    Some((bytes, _)) => *bytes += part.range.len(),
                    None => share.push((part.range.len(), at)),
                }
            }
        }
        share.sort_unstable();
        let others = (0..self.sources.len())
            .any(|at| self.is_usable(at) && !share.iter().any(|&(_, known)| known == at));
        if !others {
            // Somebody must fetch it: the one who delivered most of it.
            share.pop();
        }
        for (_, at) in share {
            let source = SourceId(at as u32);
            self.planner.handle(PlanEvent::Forbidden { source, range: piece }, self.now());
        }
        self.suspicions.retain(|suspicion| suspicion.piece != piece);
        self.suspicions.push(Suspicion { piece, parts: prints });
        self.note(
            format!(
                "a piece from several sources is corrupt (bytes {}–{}); fetched again from one",
                piece.start, piece.end
            ),
            true,
        );
        self.reopen(piece);
    }

    /// Bytes that piece digests have yet to prove.
    pub(super) fn unproved_pieces(&self) -> u64 {
        match (&self.proof.pieces, self.size_bytes) {
            (Some(_), Some(size)) => size.saturating_sub(self.verified.total_bytes()),
            _ => 0,
        }
    }

    /// Whether the digest of the whole is still to come.
    pub(super) fn awaits_whole(&self) -> bool {
        self.whole_wanted && self.digest.is_none() && self.phase != Phase::Finishing
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

/// The only source may send so many corrupt pieces before it is given up: a bad cable or memory
/// in between corrupts now and then, a bad copy does it every time.
const ALONE_TRIES: u32 = 4;
