//! One digest in the making: of the whole file, of each piece, or of each group of a BLAKE3 tree.
//!
//! All three are the same thing: segments, each hashed from its start to its end. A whole file is
//! one segment. `hashed` is what a hasher has taken in, `behind` is what was seen and could not
//! be taken in yet because bytes before it in its segment are missing.

use std::collections::BTreeMap;

use swath_model::digest::blake3_tree::GroupHasher;
use swath_model::digest::{Blake3Tree, Digest, Hasher};
use swath_model::pieces::Pieces;
use swath_model::{Range, RangeSet};

use super::verifier::Verdict;

/// What a track computes.
pub(super) enum Kind {
    /// A digest of everything, front to back.
    Whole(Digest),
    /// A digest of each piece.
    Pieces(Pieces),
    /// BLAKE3 of everything, in any order; the digest is what it must come to.
    Tree(Box<Blake3Tree>, Digest),
}

enum SegmentHasher {
    Plain(Hasher),
    Group(GroupHasher),
}

struct Open {
    hasher: SegmentHasher,
    at: u64,
}

pub(super) struct Track {
    pub kind: Kind,
    segment_bytes: u64,
    size_bytes: u64,
    open: BTreeMap<u64, Open>,
    pub hashed: RangeSet,
    pub behind: RangeSet,
    ended: bool,
}

impl Track {
    pub fn new(kind: Kind, size_bytes: u64) -> Self {
        let segment_bytes = match &kind {
            Kind::Whole(_) => u64::MAX,
            Kind::Pieces(pieces) => pieces.length_bytes(),
            Kind::Tree(tree, _) => tree.group_bytes(),
        };
        Self {
            kind,
            segment_bytes,
            size_bytes,
            open: BTreeMap::new(),
            hashed: RangeSet::new(),
            behind: RangeSet::new(),
            ended: false,
        }
    }

    pub fn is_whole(&self) -> bool {
        matches!(self.kind, Kind::Whole(_))
    }

    /// Go on from a saved hasher that has taken in everything before `at`.
    pub fn resume_whole(&mut self, hasher: Hasher, at: u64) {
        self.hashed.insert(Range::new(0, at));
        self.open.insert(0, Open { hasher: SegmentHasher::Plain(hasher), at });
    }

    /// The state of a whole-file hasher: how far it is, and the hasher.
    pub fn whole_state(&self) -> Option<(u64, &Hasher)> {
        let open = self.open.get(&0).filter(|_| self.is_whole())?;
        match &open.hasher {
            SegmentHasher::Plain(hasher) => Some((open.at, hasher)),
            SegmentHasher::Group(_) => None,
        }
    }

    pub fn set_size(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
    }

    fn segment_of(&self, offset: u64) -> u64 {
        offset / self.segment_bytes
    }

    fn segment_range(&self, segment: u64) -> Range {
        let start = segment.saturating_mul(self.segment_bytes);
        Range::new(start, start.saturating_add(self.segment_bytes).min(self.size_bytes))
    }

    /// Where hashing of the segment at `offset` stands.
    fn position(&self, segment: u64) -> u64 {
        self.open.get(&segment).map_or(self.segment_range(segment).start, |open| open.at)
    }

    /// Take in as much of `data`, which stands at `offset`, as follows what was taken in before;
    /// `limit` is the end of what may be taken in at all. Returns whether anything was.
    pub fn absorb(
        &mut self,
        offset: u64,
        data: &[u8],
        limit: u64,
        verdicts: &mut Vec<Verdict>,
    ) -> bool {
        let range = Range::of_len(offset, data.len() as u64);
        let mut at = range.start;
        let mut took = false;
        while at < range.end {
            let segment = self.segment_of(at);
            let bounds = self.segment_range(segment);
            let position = self.position(segment);
            let part = Range::new(position.max(at), bounds.end.min(range.end).min(limit));
            at = bounds.end.max(at + 1);
            if part.start != position || part.is_empty() || self.hashed.contains(part.start) {
                continue;
            }
            let slice = &data[(part.start - offset) as usize..(part.end - offset) as usize];
            self.update(segment, part, slice);
            took = true;
            if part.end == bounds.end
                && bounds.end == self.segment_range(segment).end
                && !self.is_whole()
            {
                self.complete(segment, bounds, verdicts);
            }
        }
        took
    }

    fn update(&mut self, segment: u64, part: Range, slice: &[u8]) {
        let kind = &self.kind;
        let open = self.open.entry(segment).or_insert_with(|| Open {
            hasher: match kind {
                Kind::Whole(digest) => SegmentHasher::Plain(Hasher::new(digest.algorithm())),
                Kind::Pieces(pieces) => SegmentHasher::Plain(Hasher::new(pieces.algorithm())),
                Kind::Tree(tree, digest) => match tree.start(segment) {
                    Ok(hasher) => SegmentHasher::Group(hasher),
                    // The caller stays within the size for which the tree was made.
                    Err(_) => SegmentHasher::Plain(Hasher::new(digest.algorithm())),
                },
            },
            at: part.start,
        });
        match &mut open.hasher {
            SegmentHasher::Plain(hasher) => hasher.update(slice),
            SegmentHasher::Group(hasher) => hasher.update(slice),
        }
        open.at = part.end;
        self.hashed.insert(part);
        self.behind.remove(part);
    }

    /// A segment is whole: judge it.
    fn complete(&mut self, segment: u64, bounds: Range, verdicts: &mut Vec<Verdict>) {
        let Some(open) = self.open.remove(&segment) else { return };
        match (&mut self.kind, open.hasher) {
            (Kind::Pieces(pieces), SegmentHasher::Plain(hasher)) => {
                let actual = hasher.finish();
                match verdicts.last_mut() {
                    _ if pieces.digest(segment) != Some(actual) => {
                        verdicts.push(Verdict::Bad { piece: bounds, actual });
                    }
                    Some(Verdict::Good(last)) if last.end == bounds.start => last.end = bounds.end,
                    _ => verdicts.push(Verdict::Good(bounds)),
                }
            }
            (Kind::Tree(tree, _), SegmentHasher::Group(hasher)) => {
                if let Ok(value) = tree.add_hashed(hasher) {
                    verdicts.push(Verdict::Group { index: segment, value });
                }
            }
            _ => {}
        }
    }

    /// The verdict on the whole file, once, when everything has been taken in.
    pub fn finish(&mut self) -> Option<Verdict> {
        if self.ended || self.hashed.total_bytes() < self.size_bytes {
            return None;
        }
        let (wanted, actual) = match &self.kind {
            Kind::Pieces(_) => return None,
            Kind::Whole(wanted) => {
                let actual = match self.whole_state() {
                    Some((_, hasher)) => hasher.finish(),
                    None => Hasher::digest(wanted.algorithm(), &[]),
                };
                (*wanted, actual)
            }
            Kind::Tree(tree, wanted) => (*wanted, tree.root()?),
        };
        self.ended = true;
        Some(Verdict::Whole { wanted, actual })
    }

    /// These bytes are void and will come again.
    pub fn forget(&mut self, range: Range, seen: &RangeSet) {
        self.ended = false;
        let mut at = range.start;
        while at < range.end {
            let segment = self.segment_of(at);
            let bounds = self.segment_range(segment);
            let touched = self
                .hashed
                .bytes_within(Range::new(bounds.start.max(range.start), bounds.end.min(range.end)))
                > 0;
            if touched {
                // A hasher cannot unlearn: the segment starts again, from what is still there.
                self.open.remove(&segment);
                self.hashed.remove(bounds);
                for still in seen.within(bounds) {
                    self.behind.insert(still);
                }
                if let Kind::Tree(tree, _) = &mut self.kind {
                    tree.forget(segment);
                }
            }
            at = bounds.end.max(at + 1);
        }
        self.behind.remove(range);
    }

    /// The first bytes, up to `most_bytes`, that were seen, could be taken in now, and are not
    /// kept; `limit` as in [`Track::absorb`]. `absent` tells how far nothing is kept from a
    /// position on: not at all if it answers with that position.
    pub fn wants(&self, most_bytes: u64, limit: u64, absent: impl Fn(u64) -> u64) -> Option<Range> {
        for run in self.behind.iter() {
            let mut at = run.start;
            while at < run.end {
                let segment = self.segment_of(at);
                let bounds = self.segment_range(segment);
                if self.position(segment) == at && at < limit {
                    let end = run.end.min(bounds.end).min(limit).min(absent(at));
                    if end > at {
                        return Some(Range::new(at, end.min(at.saturating_add(most_bytes))));
                    }
                }
                at = bounds.end.max(at + 1);
            }
        }
        None
    }

    /// Positions at which hashing could go on and `seen` bytes wait.
    pub fn continuations(&self, around: Range) -> Vec<u64> {
        let mut out = Vec::new();
        if around.is_empty() {
            return out;
        }
        let (first, last) = (self.segment_of(around.start), self.segment_of(around.end - 1));
        for segment in first..=last {
            let at = self.position(segment);
            if at < self.segment_range(segment).end && self.behind.contains(at) {
                out.push(at);
            }
        }
        out
    }
}
