//! Finds the source to blame when only a digest of the whole is known and does not match.
//!
//! At first nothing is fetched into the file again. Every range is fetched from a source that did
//! not deliver it and compared with the disk. Where they differ, one of the two sources is wrong.
//! Routes over a common relay cannot judge each other: that relay may be the one that changes
//! bytes. Then hypotheses are tried in turn, the likeliest first: that one source alone is wrong,
//! then, with more than two in dispute, that one alone is right. Disputed ranges that are wrong by
//! the hypothesis are replaced, wherever they came from by then, and the file is hashed again. If
//! the digest matches, the contradicted sources are convicted and reported.

use std::collections::{BTreeMap, VecDeque};

use swath_model::digest::Digest;
use swath_model::{Buffer, Range, RangeMap, RangeSet, SourceId, SwathId};
use swath_plan::routes::Fault;
use swath_plan::{Config, Event as PlanEvent, PolicyKind};

use crate::engine::Stop;
use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::jobs::JobDone;
use crate::executor::state::Run;
use crate::observe::Phase;

/// A comparison of the bytes on the disk with those of other sources.
pub(crate) struct Audit {
    compared: RangeSet,
    /// (deliverer of the bytes on the disk, source that contradicts it), journal numbers.
    disputes: RangeMap<(u32, u32)>,
}

impl Audit {
    /// Returns how many bytes have been compared so far.
    pub(crate) fn compared_bytes(&self) -> u64 {
        self.compared.total_bytes()
    }

    /// Starts a comparison.
    pub(crate) fn new() -> Audit {
        Audit { compared: RangeSet::new(), disputes: RangeMap::new() }
    }
}

/// The results of comparisons.
#[derive(Default)]
pub(crate) struct Comparison {
    /// The running comparison.
    pub running: Option<Audit>,
    /// (deliverer, contradicted by), in journal numbers.
    pub disputed: RangeMap<(u32, u32)>,
    /// Bytes that no second source could deliver.
    pub uncompared_bytes: u64,
    /// Hypotheses still to try; the first is being tried.
    pub hypotheses: VecDeque<Hypothesis>,
    /// Ranges fetched again for it.
    pub replaced: Vec<Range>,
    /// Whether all bytes are there but do not match the digest.
    pub mismatch: bool,
}

/// A hypothesis that could explain all disputes; sources by their journal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hypothesis {
    /// This source is wrong in all its disputes, all others are right.
    Liar(u32),
    /// This source is right, and those that contradict it are wrong.
    Honest(u32),
}

impl Hypothesis {
    /// Returns whether it considers the bytes of this source wrong.
    fn blames(self, deliverer: u32) -> bool {
        match self {
            Hypothesis::Liar(liar) => deliverer == liar,
            Hypothesis::Honest(honest) => deliverer != honest,
        }
    }
}

/// Returns all hypotheses for these disputes, the likeliest first. A source that delivered none of
/// the disputed bytes on the disk cannot alone be to blame for the digest.
fn hypotheses(disputes: &RangeMap<(u32, u32)>) -> VecDeque<Hypothesis> {
    let mut bytes: BTreeMap<u32, (u64, bool)> = BTreeMap::new();
    for (range, (deliverer, other)) in disputes.iter() {
        let entry = bytes.entry(deliverer).or_default();
        entry.0 += range.len();
        entry.1 = true;
        bytes.entry(other).or_default().0 += range.len();
    }
    let mut by_bytes: Vec<(u32, u64, bool)> =
        bytes.into_iter().map(|(id, (bytes, delivered))| (id, bytes, delivered)).collect();
    by_bytes.sort_by_key(|&(id, bytes, _)| (std::cmp::Reverse(bytes), id));
    let mut all: VecDeque<Hypothesis> = by_bytes
        .iter()
        .filter(|&&(_, _, delivered)| delivered)
        .map(|&(id, _, _)| Hypothesis::Liar(id))
        .collect();
    // With two sources, "one is the liar" and "the other is honest" are the same.
    if by_bytes.len() > 2 {
        all.truncate(HYPOTHESES_MAX / 2);
        all.extend(by_bytes.iter().rev().map(|&(id, _, _)| Hypothesis::Honest(id)));
    }
    all.truncate(HYPOTHESES_MAX);
    all
}

/// Finds where two readings of a range that begins at `at` differ, to the byte. Differences less
/// than a page apart are joined.
fn differences(at: u64, one: &[u8], other: &[u8], found: &mut Vec<Range>) {
    let blocks = one.len().max(other.len()).div_ceil(NEAR_BYTES);
    for block in 0..blocks {
        let start = block * NEAR_BYTES;
        let of = |whole: &[u8]| {
            let end = (start + NEAR_BYTES).min(whole.len());
            start.min(end)..end
        };
        let (one, other) = (&one[of(one)], &other[of(other)]);
        if one == other {
            continue;
        }
        let unlike = |(a, b): (&u8, &u8)| a != b;
        let (common, longest) = (one.len().min(other.len()), one.len().max(other.len()));
        let first = one.iter().zip(other).position(unlike).unwrap_or(common);
        let end = match one[..common].iter().zip(&other[..common]).rposition(unlike) {
            Some(last) if longest == common => last + 1,
            _ => longest,
        };
        let range = Range::new(at + (start + first) as u64, at + (start + end) as u64);
        match found.last_mut() {
            Some(last) if range.start - last.end < NEAR_BYTES as u64 => last.end = range.end,
            _ => found.push(range),
        }
    }
}

impl Run<'_> {
    /// Finds the wrong source and replaces its bytes; returns when the file can be hashed again.
    pub(crate) async fn audit(
        &mut self,
        wanted: Digest,
        actual: Digest,
        stop: &Stop,
    ) -> Result<(), Ended> {
        let by = if self.integrity.digests_offered { "; a server sent this digest" } else { "" };
        let failed = |hint: &str| {
            Err(Ended::Error(GetError::Digest {
                wanted: Box::new(wanted),
                actual: Box::new(actual),
                hint: format!("{by}{hint}"),
            }))
        };
        if self
            .integrity
            .proof
            .pieces
            .as_ref()
            .is_some_and(|pieces| pieces.algorithm().resists_malice())
        {
            self.comparison.mismatch = true;
            return failed(
                "; each piece is right by its own digest, so the two contradict each other",
            );
        }
        if self.persistence.readable().is_none() {
            return failed("; what was written to the output is wrong");
        }
        if self.sources.iter().any(|entry| entry.source.end_was_cut()) {
            let text = "the connection was cut before the end of the file, as the digest shows: starting again";
            self.note(text.to_owned(), true);
            return Err(Ended::Restart);
        }
        if self.comparison.mismatch {
            // The last hypothesis was wrong.
            self.comparison.hypotheses.pop_front();
        } else {
            if let Some(discovery) = &self.request.discovery {
                discovery.refuted();
                self.look_at_holdings();
            }
            if self.nobody_to_compare_with() {
                if self.other_version("its file does not have the digest") {
                    return Err(Ended::Restart);
                }
                self.comparison.mismatch = true;
                return failed("; there is no second source to compare with");
            }
            let text = "the digest does not match: fetching everything once more, each part from another source, to compare";
            self.note(text.to_owned(), true);
            self.compare_all(stop).await?;
            self.comparison.hypotheses = hypotheses(&self.comparison.disputed);
            self.comparison.mismatch = true;
        }
        while let Some(&hypothesis) = self.comparison.hypotheses.front() {
            let ranges = self.wrong_under(hypothesis);
            if !ranges.is_empty() && self.can_try(hypothesis, &ranges) {
                return self.replace(ranges, stop).await;
            }
            self.comparison.hypotheses.pop_front();
        }
        if self.other_version("its file does not have the digest") {
            return Err(Ended::Restart);
        }
        let hint = match self.comparison.disputed.iter().next() {
            None if self.comparison.uncompared_bytes > 0 => format!(
                "; {} could not be compared, in all else the sources agree with one another",
                swath_model::units::bytes(self.comparison.uncompared_bytes)
            ),
            None => "; all sources agree with one another: either the digest is wrong, or all hold the same wrong file".to_owned(),
            Some((range, (one, other))) => format!(
                "; {} and {} contradict each other, first at byte {}, and neither version matches the digest",
                self.persistence.name_of(one),
                self.persistence.name_of(other),
                range.start
            ),
        };
        failed(&hint)
    }

    /// Returns whether every usable source could be compared only with itself.
    fn nobody_to_compare_with(&self) -> bool {
        let whole = Range::new(0, self.coverage.size_bytes.unwrap_or(0));
        let parts = self.coverage.deliverers.within(whole);
        !(0..self.sources.len()).any(|at| {
            let mut others = parts.iter().filter(|&&(_, id)| id != self.persistence.id_of(at));
            self.sources.is_usable(at) && others.any(|&(range, _)| self.sources.has_some(at, range))
        })
    }

    /// Returns whether the sources that the hypothesis trusts can deliver all these ranges.
    fn can_try(&self, hypothesis: Hypothesis, ranges: &[Range]) -> bool {
        let mut left: RangeSet = ranges.iter().copied().collect();
        for at in 0..self.sources.len() {
            if self.sources.is_usable(at) && !hypothesis.blames(self.persistence.id_of(at)) {
                left = left.iter().flat_map(|range| self.sources[at].lacks.within(range)).collect();
            }
        }
        left.is_empty()
    }

    /// Returns the ranges that are wrong under the hypothesis. Earlier tries have replaced some
    /// bytes, so the present deliverers count. If only one source is honest, others may have agreed
    /// on wrong bytes, so none of their bytes count, in dispute or not.
    fn wrong_under(&self, hypothesis: Hypothesis) -> Vec<Range> {
        let within: Vec<Range> = match hypothesis {
            Hypothesis::Liar(_) => {
                self.comparison.disputed.iter().map(|(range, _)| range).collect()
            }
            Hypothesis::Honest(_) => vec![Range::new(0, self.coverage.size_bytes.unwrap_or(0))],
        };
        within
            .into_iter()
            .flat_map(|range| self.coverage.deliverers.within(range))
            .filter(|&(_, deliverer)| hypothesis.blames(deliverer))
            .map(|(range, _)| range)
            .collect()
    }

    /// Fetches these ranges again from the sources that the hypothesis trusts.
    async fn replace(&mut self, ranges: Vec<Range>, stop: &Stop) -> Result<(), Ended> {
        // The whole file is fetched already; only these ranges are fetched, from trusted sources.
        self.comparison.replaced.clone_from(&ranges);
        self.new_planner(RangeSet::new());
        for range in ranges {
            self.reopen(range);
        }
        self.phase = Phase::Fetching;
        self.drive(stop).await?;
        self.phase = Phase::Verifying;
        self.close_lanes();
        Ok(())
    }

    /// Drops the sources of the wrong version in favour of mirrors that were left out because they
    /// have another version. Returns whether there are any.
    pub(crate) fn other_version(&mut self, reason: &str) -> bool {
        let others: Vec<usize> = (0..self.sources.len())
            .filter(|&at| {
                self.sources[at].accepted == Some(false) && self.sources[at].left_out_for_version
            })
            .collect();
        if others.is_empty() || self.integrity.digests_offered {
            return false;
        }
        for at in 0..self.sources.len() {
            if self.sources[at].accepted == Some(true) {
                self.sources[at].accepted = Some(false);
                self.sources[at].left_out_for_version = false;
                self.drop_source(at, reason.to_owned());
            }
        }
        for at in others {
            let entry = &mut self.sources[at];
            entry.left_out_for_version = false;
            entry.state = crate::observe::SourceState::Waiting;
            entry.reason = None;
        }
        self.note(
            "starting again with the mirrors that hold another version of the file".to_owned(),
            true,
        );
        true
    }

    /// Fetches every range from a source that did not deliver it, and compares.
    async fn compare_all(&mut self, stop: &Stop) -> Result<(), Ended> {
        let Some(size_bytes) = self.coverage.size_bytes else { return Ok(()) };
        self.phase = Phase::Disputing;
        self.comparison.running = Some(Audit::new());
        self.new_planner(RangeSet::full(size_bytes));
        let result = self.drive(stop).await;
        self.close_lanes();
        let mut has_compared = false;
        if let Some(audit) = self.comparison.running.take() {
            has_compared = !audit.compared.is_empty();
            self.comparison.uncompared_bytes =
                size_bytes.saturating_sub(audit.compared.total_bytes());
            self.comparison.disputed = audit.disputes;
        }
        match result {
            // The sources for the rest are silent; the compared part may be enough.
            Err(Ended::Error(GetError::Stalled { .. })) if has_compared => Ok(()),
            result => result,
        }
    }

    /// Returns the ranges that this source may not deliver while sources are compared or a liar's
    /// bytes replaced: its own, and those that came by a relay on its own route, if another source
    /// has them. That also holds for routes that the router opens meanwhile.
    pub(crate) fn may_not_judge(&self, at: usize) -> Vec<Range> {
        let own = self.persistence.id_of(at);
        let mut strangers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut is_barred = |id: u32, range: Range| {
            if id == own || !self.is_kin(at, id) {
                return id == own;
            }
            let others = strangers.entry(id).or_insert_with(|| self.strangers_to(id));
            others.iter().any(|&it| self.sources[it].lacks.within(range).next().is_none())
        };
        if self.comparison.running.is_some() {
            let delivered = self.coverage.deliverers.iter();
            return delivered
                .filter(|&(range, id)| is_barred(id, range))
                .map(|(range, _)| range)
                .collect();
        }
        let replaced = self.comparison.replaced.iter().copied();
        match self.comparison.hypotheses.front().filter(|_| self.comparison.mismatch) {
            Some(&Hypothesis::Liar(liar)) => {
                replaced.filter(|&range| is_barred(liar, range)).collect()
            }
            Some(hypothesis) if hypothesis.blames(own) => replaced.collect(),
            _ => Vec::new(),
        }
    }

    /// Returns whether bytes that a hypothesis calls wrong are being replaced.
    pub(crate) fn is_replacing(&self) -> bool {
        self.comparison.mismatch
            && self.comparison.running.is_none()
            && !self.comparison.hypotheses.is_empty()
    }

    /// Returns whether the routes of this source and of the deliverer `id` share a relay.
    pub(crate) fn is_kin(&self, at: usize, id: u32) -> bool {
        let route = |at: usize| self.sources[at].on_route.as_ref().map(|own| &own.route);
        match self.persistence.source_of(id) {
            Some(other) => {
                let (Some(own), Some(other)) = (route(at), route(other)) else { return false };
                other.relays().iter().any(|&relay| own.contains(relay))
            }
            // A deliverer of an earlier run is known by its name alone.
            None => {
                self.persistence.id_of(at) != id
                    && self
                        .persistence
                        .kin(self.persistence.id_of(at), &self.integrity.samples.guilty)
                        .contains(&id)
            }
        }
    }

    /// Returns the sources that may be asked and share no relay with the deliverer `id`.
    fn strangers_to(&self, id: u32) -> Vec<usize> {
        let is_one = |&at: &usize| {
            let may_be_asked = self.sources.is_usable(at) && !self.is_closed_route(at);
            may_be_asked && self.persistence.id_of(at) != id && !self.is_kin(at, id)
        };
        (0..self.sources.len()).filter(is_one).collect()
    }

    /// Starts a new planner that knows all sources and has `missing` to fetch.
    fn new_planner(&mut self, missing: RangeSet) {
        self.reset_planner();
        let size_bytes = self.coverage.size_bytes.unwrap_or(0);
        self.planner.handle(PlanEvent::Layout { size_bytes, missing }, self.now());
    }

    /// Starts a new planner that knows all sources, but not yet the missing bytes.
    pub(crate) fn reset_planner(&mut self) {
        let config =
            Config { policy: PolicyKind::Swath, window_bytes: None, ..self.request.plan.clone() };
        self.change_planner(config);
        self.planner_done = false;
        let now = self.now();
        self.clock.last_arrival = now;
        for at in 0..self.sources.len() {
            let source = SourceId(at as u32);
            self.plan_source(at);
            if !self.sources.is_usable(at) {
                self.planner.handle(PlanEvent::SourceBad { source }, now);
            }
        }
    }

    /// Compares received bytes with those on the disk.
    pub(crate) fn audit_chunk(
        &mut self,
        source: usize,
        swath: SwathId,
        range: Range,
        buffer: Buffer,
    ) {
        self.coverage.wasted_bytes += range.len();
        self.sources[source].figures.wasted_bytes += range.len();
        self.planner.handle(PlanEvent::Delivered { swath, range }, self.now());
        let Some(audit) = &mut self.comparison.running else { return };
        if audit.compared.covers(range) {
            return;
        }
        audit.compared.insert(range);
        let Some(sink) = self.persistence.readable() else { return };
        let pool = self.engine.read_pool.clone();
        self.jobs.add(async move {
            let mut at = range.start;
            let mut differing = Vec::new();
            for part in buffer.chunks(pool.slot_bytes()) {
                let own = pool.take().await;
                match sink.read(at, part.len(), own).await {
                    Ok(read) => differences(at, &read, part, &mut differing),
                    Err(error) => return JobDone::Compared { source, result: Err(error) },
                }
                at += part.len() as u64;
            }
            JobDone::Compared { source, result: Ok(differing) }
        });
    }

    pub(crate) fn compared(&mut self, source: usize, differing: &[Range]) {
        let other = self.persistence.id_of(source);
        let Some(audit) = &mut self.comparison.running else { return };
        // With many disputes already, all those of a block are joined.
        let span = match differing {
            [first, .., last] if audit.disputes.count() >= DISPUTES_MAX / 2 => {
                &[Range::new(first.start, last.end)]
            }
            _ => differing,
        };
        for &range in span {
            if audit.disputes.count() >= DISPUTES_MAX {
                return;
            }
            for (part, deliverer) in self.coverage.deliverers.within(range) {
                audit.disputes.set(part, (deliverer, other));
            }
        }
    }

    /// Convicts the sources that the right bytes contradict, once the digest matches.
    pub(crate) fn convict_contradicted(&mut self) {
        let Some(&hypothesis) =
            self.comparison.hypotheses.front().filter(|_| self.comparison.mismatch)
        else {
            return;
        };
        self.comparison.mismatch = false;
        let mut liars: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (range, (deliverer, other)) in self.comparison.disputed.iter() {
            // If both are blamed, this dispute does not show which was wrong here.
            let liar = match (hypothesis.blames(deliverer), hypothesis.blames(other)) {
                (true, false) => deliverer,
                (false, true) => other,
                _ => continue,
            };
            liars.entry(liar).or_insert((range.start, 0)).1 += range.len();
        }
        if let (Hypothesis::Honest(honest), true) = (hypothesis, liars.is_empty()) {
            let name = self.persistence.name_of(honest);
            self.note(format!("the digest is right with what {name} alone delivers"), true);
        }
        for (liar, (first, bytes)) in liars {
            let name = self.persistence.name_of(liar);
            let bytes = swath_model::units::bytes(bytes);
            self.note(
                format!("{name} delivered {bytes} that other sources contradict, first at byte {first}: replaced, and the digest is right"),
                true,
            );
            if let Some(at) = self.persistence.source_of(liar) {
                self.sources[at].fault = Fault::Corrupt;
                self.drop_source(at, "it delivered corrupt data");
            }
        }
    }
}

/// Most hypotheses tried.
const HYPOTHESES_MAX: usize = 8;
/// Differences nearer to each other than this are joined: a page.
const NEAR_BYTES: usize = 4096;
/// Most disputes recorded; a file with more has other troubles.
const DISPUTES_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn disputes(of: &[(u64, u64, u32, u32)]) -> RangeMap<(u32, u32)> {
        let mut map = RangeMap::new();
        for &(start, end, deliverer, other) in of {
            map.set(Range::new(start, end), (deliverer, other));
        }
        map
    }

    /// With two sources both are in every dispute. Whichever is tried first, the other's turn must
    /// come, and it must be about what lies on the disk by then.
    #[test]
    fn of_two_both_are_tried() {
        let both = hypotheses(&disputes(&[(0, 10, 4, 7), (10, 30, 7, 4)]));
        assert_eq!(both, [Hypothesis::Liar(4), Hypothesis::Liar(7)]);
        // All that is on the disk came from one: that the other lied explains nothing.
        assert_eq!(hypotheses(&disputes(&[(0, 10, 4, 7)])), [Hypothesis::Liar(4)]);
    }

    #[test]
    fn of_several_the_one_most_contradicted_first_then_each_as_the_only_honest_one() {
        use Hypothesis::{Honest, Liar};
        let all = hypotheses(&disputes(&[(0, 10, 1, 2), (20, 30, 3, 1), (40, 45, 2, 3)]));
        assert_eq!(all, [Liar(1), Liar(2), Liar(3), Honest(3), Honest(2), Honest(1)]);
    }

    #[test]
    fn differences_are_told_to_the_byte() {
        let told = |one: &[u8], other: &[u8]| {
            let mut found = Vec::new();
            differences(100, one, other, &mut found);
            found
        };
        assert_eq!(told(b"as it is", b"as it is"), []);
        assert_eq!(told(b"as it is", b"as at is"), [Range::new(103, 104)]);
        assert_eq!(told(b"as it is", b"is it as"), [Range::new(100, 107)]);
        // What the disk lost at its end differs too.
        assert_eq!(told(b"as it", b"as it is"), [Range::new(105, 108)]);
        assert_eq!(told(b"is it", b"as it is"), [Range::new(100, 108)]);
        // Far apart they are told one by one; near one another, or one behind the other, as one.
        let right = vec![0; 5 * NEAR_BYTES];
        let mut wrong = right.clone();
        for at in [7, 3 * NEAR_BYTES, 3 * NEAR_BYTES + 9, 4 * NEAR_BYTES + 1] {
            wrong[at] = 1;
        }
        let far = 100 + 3 * NEAR_BYTES as u64;
        let near = Range::new(far, far + NEAR_BYTES as u64 + 2);
        assert_eq!(told(&right, &wrong), [Range::new(107, 108), near]);
        assert_eq!(
            told(&right, &vec![1; 5 * NEAR_BYTES]),
            [Range::of_len(100, right.len() as u64)]
        );
        assert_eq!(told(&right, &[]), [Range::of_len(100, right.len() as u64)]);
    }

    #[test]
    fn nothing_in_dispute_is_explained_by_nobody() {
        assert!(hypotheses(&disputes(&[])).is_empty());
    }
}
