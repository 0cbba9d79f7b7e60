//! The progress of one proof of a file.
//!
//! `hashed` are the bytes that its verifier has taken in, `behind` are bytes that were seen but
//! must wait because bytes before them in their block are missing.

use std::collections::BTreeMap;

use swath_model::{Range, RangeSet};

use super::blocks::{BlockVerifier, Hashed};
use super::verifier::{Saved, Verdict};

pub(super) struct Track {
    verifier: Box<dyn BlockVerifier>,
    size_bytes: u64,
    /// End of the hashed bytes of each incomplete block.
    open: BTreeMap<u64, u64>,
    pub hashed: RangeSet,
    pub behind: RangeSet,
    ended: bool,
}

impl Track {
    pub fn new(verifier: Box<dyn BlockVerifier>, size_bytes: u64) -> Self {
        Self {
            verifier,
            size_bytes,
            open: BTreeMap::new(),
            hashed: RangeSet::new(),
            behind: RangeSet::new(),
            ended: false,
        }
    }

    /// Returns whether all of the file is one block, which is hashed from front to back.
    pub fn is_whole(&self) -> bool {
        self.verifier.is_whole()
    }

    /// Resumes from the data of an earlier run: `seen` is on the disk.
    pub fn resume(&mut self, left: &Hashed, seen: &RangeSet) {
        for range in self.verifier.resume(left, &|range| seen.covers(range)) {
            self.hashed.insert(range);
            if self.is_whole() {
                self.open.insert(0, range.end);
            }
        }
        self.behind = seen.clone();
        self.behind.subtract(&self.hashed);
    }

    /// Returns the state of a hash from front to back, for the journal.
    pub fn save(&self) -> Option<Saved> {
        self.verifier.save()
    }

    /// Returns how far a hash from front to back has come.
    pub fn front(&self) -> u64 {
        self.open.get(&0).copied().filter(|_| self.is_whole()).unwrap_or(0)
    }

    pub fn set_size(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
    }

    fn block_of(&self, offset: u64) -> u64 {
        self.verifier.block_at(offset)
    }

    fn range_of(&self, block: u64) -> Range {
        self.verifier.range_of(block, self.size_bytes)
    }

    /// Returns the end of the hashed bytes of a block.
    fn position(&self, block: u64) -> u64 {
        self.open.get(&block).copied().unwrap_or_else(|| self.range_of(block).start)
    }

    /// Takes in the part of `data`, which is at `offset`, that follows the bytes taken in before;
    /// `limit` is the end of the allowed bytes. Returns whether it took anything.
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
            let block = self.block_of(at);
            let bounds = self.range_of(block);
            let position = self.position(block);
            let part = Range::new(position.max(at), bounds.end.min(range.end).min(limit));
            at = bounds.end.max(at + 1);
            if part.start != position || part.is_empty() || self.hashed.contains(part.start) {
                continue;
            }
            let slice = &data[(part.start - offset) as usize..(part.end - offset) as usize];
            self.verifier.update(block, slice);
            self.open.insert(block, part.end);
            self.hashed.insert(part);
            self.behind.remove(part);
            took = true;
            if part.end == bounds.end && !self.is_whole() {
                self.open.remove(&block);
                match (self.verifier.complete(block, bounds), verdicts.last_mut()) {
                    (Some(Verdict::Good(new)), Some(Verdict::Good(last)))
                        if last.end == new.start =>
                    {
                        last.end = new.end;
                    }
                    (verdict, _) => verdicts.extend(verdict),
                }
            }
        }
        took
    }

    /// Returns the verdict on the whole file, once, when everything has been taken in.
    pub fn finish(&mut self) -> Option<Verdict> {
        if self.ended || self.hashed.total_bytes() < self.size_bytes {
            return None;
        }
        let verdict = self.verifier.finish();
        self.ended = verdict.is_some();
        verdict
    }

    /// Forgets bytes that are void and will come again.
    pub fn forget(&mut self, range: Range, seen: &RangeSet) {
        self.ended = false;
        let mut at = range.start;
        while at < range.end {
            let block = self.block_of(at);
            let bounds = self.range_of(block);
            let touched = self
                .hashed
                .bytes_within(Range::new(bounds.start.max(range.start), bounds.end.min(range.end)))
                > 0;
            if touched {
                // A hasher cannot remove bytes: the block starts again, from the bytes still there.
                self.open.remove(&block);
                self.hashed.remove(bounds);
                for still in seen.within(bounds) {
                    self.behind.insert(still);
                }
                self.verifier.forget(block);
            }
            at = bounds.end.max(at + 1);
        }
        self.behind.remove(range);
    }

    /// Returns the first bytes, up to `most_bytes`, that were seen, could be taken in now, and are
    /// not kept in memory; `limit` as in [`Track::absorb`]. `absent` returns where the next kept
    /// bytes begin, from a position on: that position itself if it is kept.
    pub fn wants(&self, most_bytes: u64, limit: u64, absent: impl Fn(u64) -> u64) -> Option<Range> {
        for run in self.behind.iter() {
            let mut at = run.start;
            while at < run.end {
                let block = self.block_of(at);
                let bounds = self.range_of(block);
                if self.position(block) == at && at < limit {
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

    /// Returns positions at which hashing could go on with bytes that wait.
    pub fn continuations(&self, around: Range) -> Vec<u64> {
        if around.is_empty() {
            return Vec::new();
        }
        let (first, last) = (self.block_of(around.start), self.block_of(around.end - 1));
        (first..=last)
            .filter_map(|block| {
                let at = self.position(block);
                (at < self.range_of(block).end && self.behind.contains(at)).then_some(at)
            })
            .collect()
    }
}
