//! Finds out which source delivered a piece that does not match its digest.
//!
//! The piece is fetched again from a source that had no part in it. When it proves good, every
//! earlier version was wrong, and a source that delivered one is convicted: dropped and reported.
//! If several sources delivered a version, their parts are compared with the good piece. If every
//! source has delivered the piece alone, and the same bytes came more than once, then the digest is
//! wrong (or all sources hold the same wrong file), and the transfer ends.
//!
//! An only source may try again a few times: a bad cable corrupts now and then, a bad copy does it
//! every time.

use std::collections::{BTreeMap, BTreeSet};

use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_model::{Range, SourceId};
use swath_plan::Event as PlanEvent;
use swath_plan::routes::Fault;

use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::jobs::JobDone;
use crate::executor::state::Run;

/// The fingerprint of one deliverer's part of a piece.
#[derive(Clone, Debug)]
pub(crate) struct PartPrint {
    pub range: Range,
    /// Its journal number.
    pub deliverer: u32,
    pub print: Digest,
}

/// One version of a piece that proved bad.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    /// Journal numbers of the sources of its bytes.
    pub deliverers: Vec<u32>,
    /// Its actual digest.
    pub actual: Digest,
    /// The parts of its deliverers, if there were several and they could be read back.
    pub parts: Vec<PartPrint>,
}

/// A bad piece, until a good version comes.
#[derive(Clone, Debug)]
pub(crate) struct Suspicion {
    pub piece: Range,
    pub tries: Vec<Try>,
    /// Whether all its sources may be asked again, since no other was left.
    pub lifted: bool,
}

/// The blame for bad pieces.
#[derive(Default)]
pub(crate) struct Blame {
    /// Bad pieces until good versions come, by their offset.
    pub suspicions: BTreeMap<u64, Suspicion>,
    /// Journal numbers of the sources reported for corrupt data.
    pub convicted: BTreeSet<u32>,
    /// Number of bad pieces so far.
    pub bad_pieces: u64,
}

impl Blame {
    /// Forgets all blame, as the content starts again.
    pub fn reset(&mut self) {
        self.suspicions.clear();
        self.convicted.clear();
    }
}

impl Run<'_> {
    /// Fetches a bad piece again, from another source if there is one.
    pub(crate) fn suspect(&mut self, piece: Range, bad: Try) -> Result<(), Ended> {
        let last: Vec<usize> =
            bad.deliverers.iter().filter_map(|&id| self.persistence.source_of(id)).collect();
        let actual = bad.actual;
        let suspicion = self.blame.suspicions.entry(piece.start).or_insert_with(|| Suspicion {
            piece,
            tries: Vec::new(),
            lifted: false,
        });
        let repeated = suspicion.tries.iter().any(|other| other.actual == actual);
        suspicion.tries.push(bad);
        suspicion.lifted = false;
        let tries = suspicion.tries.clone();
        let of = |tries: &[Try], alone: bool| -> BTreeSet<usize> {
            tries
                .iter()
                .filter(|one| !alone || one.deliverers.len() == 1)
                .flat_map(|one| &one.deliverers)
                .filter_map(|&id| self.persistence.source_of(id))
                .collect()
        };
        let (involved, alone) = (of(&tries, false), of(&tries, true));
        let usable = |at: &usize| self.sources.is_usable(*at) && self.sources.has_some(*at, piece);
        let usable: Vec<usize> = (0..self.sources.len()).filter(usable).collect();
        let untouched = usable.iter().any(|at| !involved.contains(at));
        // Sources that have not yet delivered the piece alone.
        let fresh: Vec<usize> = usable.iter().copied().filter(|at| !alone.contains(at)).collect();
        if fresh.is_empty() && (repeated || tries.len() >= TRIES_MAX) {
            if let (Some(_), [one]) = (&self.request.discovery, &last[..]) {
                // One peer must not end the transfer: others may come, or get the piece.
                self.drop_corrupt(*one, piece);
                self.reopen(piece);
                return Ok(());
            }
            let hint = match (repeated, usable.len()) {
                (false, _) => "; it differs each time",
                (true, 0 | 1) => {
                    "; the same bytes came more than once, and there is no second source to compare with: either the digest is wrong, or the file at the source is"
                }
                (true, _) => {
                    "; all sources agree with one another: either the digest is wrong, or all hold the same wrong file"
                }
            };
            let hint = format!(" for bytes {}–{}{hint}", piece.start, piece.end);
            return Err(self.wrong_piece(piece, actual, hint));
        }
        for &at in &usable {
            let source = SourceId(at as u32);
            let again = match (untouched, fresh.first()) {
                (true, _) => !involved.contains(&at),
                // All had a part in it, so one delivers it alone; if that is bad too, the next one.
                (false, Some(&first)) => at == first,
                (false, None) => usable.len() == 1 || !last.contains(&at),
            };
            let event = match again {
                true => PlanEvent::Allowed { source, range: piece },
                false => PlanEvent::Forbidden { source, range: piece },
            };
            self.planner.handle(event, self.now());
        }
        if self.blame.bad_pieces <= NOTES_MAX {
            let whose = match (&last[..], tries.last().map_or(0, |last| last.deliverers.len())) {
                ([one], 1) => self.sources[*one].source.name().to_string(),
                (_, 1) => "an earlier run".to_owned(),
                _ => "several sources".to_owned(),
            };
            let from = if untouched || fresh.len() + alone.len() > 1 { "elsewhere" } else { "" };
            let text = format!(
                "a piece from {whose} does not match its digest (bytes {}–{}); fetching it again {from}",
                piece.start, piece.end
            );
            self.note(text.trim_end().to_owned(), true);
        }
        if let ([one], [by]) = (&usable[..], &last[..])
            && one == by
        {
            self.sources[*one].figures.corrupt += 1;
            if self.sources[*one].figures.corrupt >= ALONE_TRIES {
                self.drop_corrupt(*one, piece);
            }
        }
        self.reopen(piece);
        Ok(())
    }

    /// Returns the error that ends the transfer because of a piece.
    pub(crate) fn wrong_piece(&self, piece: Range, actual: Digest, hint: String) -> Ended {
        let wanted = self
            .integrity
            .proof
            .pieces
            .as_ref()
            .and_then(|pieces| pieces.digest(pieces.piece_at(piece.start)));
        Ended::Error(GetError::Digest {
            // A bad piece has a digest.
            wanted: Box::new(wanted.unwrap_or(actual)),
            actual: Box::new(actual),
            hint,
        })
    }

    /// Convicts the deliverers of earlier versions of pieces that proved good.
    pub(crate) fn healed(&mut self, range: Range) {
        let pieces: Vec<u64> =
            self.blame.suspicions.range(range.start..range.end).map(|(&start, _)| start).collect();
        for start in pieces {
            let Some(suspicion) = self.blame.suspicions.get(&start) else { continue };
            let piece = suspicion.piece;
            let lone: BTreeSet<u32> = suspicion
                .tries
                .iter()
                .filter_map(|one| match one.deliverers[..] {
                    [only] => Some(only),
                    _ => None,
                })
                .collect();
            for deliverer in lone {
                self.convict(deliverer, piece);
            }
            if self.blame.suspicions[&start].tries.iter().any(|one| !one.parts.is_empty()) {
                self.print_parts(piece, None);
            } else {
                self.blame.suspicions.remove(&start);
            }
        }
    }

    /// Reports a source that delivered corrupt data, and drops it unless it is the last.
    fn convict(&mut self, deliverer: u32, range: Range) {
        let source = self.persistence.source_of(deliverer);
        if source.is_some_and(|at| self.sources.is_out(at)) {
            return;
        }
        let (start, end) = (range.start, range.end);
        if self.blame.convicted.insert(deliverer) {
            let name = self.persistence.name_of(deliverer);
            self.note(
                format!("{name} delivered corrupt data (within bytes {start}–{end}); replaced"),
                true,
            );
        }
        let Some(at) = source else { return };
        if (0..self.sources.len()).any(|other| other != at && self.sources.is_usable(other)) {
            self.drop_corrupt(at, range);
        }
    }

    /// Drops a source that delivered corrupt data within `range`. Whoever found it lets it in no more.
    pub(crate) fn drop_corrupt(&mut self, at: usize, range: Range) {
        if self.sources.is_out(at) {
            return;
        }
        self.sources[at].fault = Fault::Corrupt;
        let (start, end) = (range.start, range.end);
        let why = format!("it delivered corrupt data (within bytes {start}–{end})");
        if let Some(discovery) = &self.request.discovery {
            discovery.convicted(&*self.sources[at].source, range, &why);
        }
        self.drop_source(at, why);
    }

    /// Hashes each deliverer's part of a piece as it lies on the disk. For a piece that is good
    /// now, these are the parts of its earlier versions; otherwise it has the wrong digest `bad`.
    pub(crate) fn print_parts(&mut self, piece: Range, bad: Option<Digest>) {
        let parts: Vec<(Range, u32)> = match (bad, self.blame.suspicions.get(&piece.start)) {
            (Some(_), _) => self.coverage.deliverers.within(piece),
            (None, Some(suspicion)) => suspicion
                .tries
                .iter()
                .flat_map(|one| &one.parts)
                .map(|part| (part.range, part.deliverer))
                .collect(),
            (None, None) => return,
        };
        let Some(sink) = self.persistence.readable() else { return };
        let pool = self.engine.read_pool.clone();
        self.jobs.add(async move {
            let mut prints = Vec::new();
            'parts: for (range, deliverer) in parts {
                let mut hasher = Hasher::new(Algorithm::Blake3);
                let mut at = range.start;
                while at < range.end {
                    let bytes = (range.end - at).min(pool.slot_bytes() as u64);
                    let buffer = pool.take().await;
                    match sink.read(at, bytes as usize, buffer).await {
                        Ok(read) => hasher.update(&read),
                        // Without its print a part neither convicts nor clears its source.
                        Err(_) => continue 'parts,
                    }
                    at += bytes;
                }
                prints.push(PartPrint { range, deliverer, print: hasher.finish() });
            }
            JobDone::Printed { piece, prints, bad }
        });
    }

    /// Stores the hashed parts of a bad piece, or compares those of a good one.
    pub(crate) fn printed(
        &mut self,
        piece: Range,
        prints: Vec<PartPrint>,
        bad: Option<Digest>,
    ) -> Result<(), Ended> {
        if let Some(actual) = bad {
            let deliverers = self.coverage.deliverers_of(piece);
            return self.suspect(piece, Try { deliverers, actual, parts: prints });
        }
        let Some(suspicion) = self.blame.suspicions.remove(&piece.start) else { return Ok(()) };
        for part in suspicion.tries.iter().flat_map(|one| &one.parts) {
            let now = prints.iter().find(|print| print.range == part.range);
            if now.is_some_and(|now| now.print != part.print) {
                self.convict(part.deliverer, part.range);
            }
        }
        Ok(())
    }

    /// Allows sources that had a part in a suspect piece to be asked again, as no other may deliver
    /// the missing bytes. Returns whether that helps: it does once for each version.
    pub(crate) fn lift_suspicions(&mut self) -> bool {
        let usable: Vec<usize> =
            (0..self.sources.len()).filter(|&at| self.sources.is_usable(at)).collect();
        let mut lifted = Vec::new();
        for suspicion in self.blame.suspicions.values_mut().filter(|suspicion| !suspicion.lifted) {
            suspicion.lifted = true;
            lifted.push(suspicion.piece);
        }
        let now = self.now();
        for &range in &lifted {
            for &at in &usable {
                let source = SourceId(at as u32);
                self.planner.handle(PlanEvent::Allowed { source, range }, now);
            }
        }
        !lifted.is_empty() && !usable.is_empty()
    }
}

/// Most versions of one piece, all different, before it is given up.
const TRIES_MAX: usize = 8;
/// Most corrupt pieces of an only source before it is given up.
const ALONE_TRIES: u32 = 4;
/// Most notes on single bad pieces; the sources of further ones are reported in the end.
const NOTES_MAX: u64 = 16;

#[cfg(test)]
mod tests {
    use swath_model::digest::Hasher;
    use swath_source::MemorySource;

    use super::*;
    use crate::engine::{Engine, EngineOptions};
    use crate::observe::Event;
    use crate::request::Request;

    /// Pieces that a liar delivered were charged to the only source that was left, once the liar was
    /// out: after four of them nobody was left.
    #[tokio::test]
    async fn what_a_source_that_is_out_delivered_is_not_charged_to_the_last_one() {
        let engine = Engine::start(EngineOptions::default()).unwrap();
        let mut observer = |_: &Event| {};
        let mut request = Request::to_writer(tokio::io::sink());
        for name in ["liar", "good"] {
            request = request.source(MemorySource::of(name, vec![0; 100]));
        }
        let mut run = Run::new(&engine, request, &mut observer);
        for at in [0, 1] {
            run.sources[at].accepted = Some(true);
        }
        run.drop_source(0, "it delivered corrupt data");
        let liar = run.persistence.id_of(0);
        for number in 0..2 * u64::from(ALONE_TRIES) {
            let actual = Hasher::digest(Algorithm::Blake3, &number.to_le_bytes());
            let bad = Try { deliverers: vec![liar], actual, parts: Vec::new() };
            run.suspect(Range::of_len(number * 10, 10), bad).unwrap();
        }
        assert!(run.sources.is_usable(1));
        assert_eq!(run.sources[1].figures.corrupt, 0);
    }
}
