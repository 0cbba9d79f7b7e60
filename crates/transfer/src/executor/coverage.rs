//! Which bytes of the file are here, which source delivered them, and which are proved.
//!
//! Every byte that is here has a deliverer, identified by its number in the journal.

use swath_model::{Range, RangeMap, RangeSet};

/// The bytes of the file that are here.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Size of the file, once it is known.
    pub size_bytes: Option<u64>,
    /// Bytes received, whether written yet or not.
    pub have: RangeSet,
    /// The deliverer of each byte that is here.
    pub deliverers: RangeMap<u32>,
    /// Bytes kept from an earlier run, without those that proved bad.
    pub resumed: RangeSet,
    /// How many of those bytes count for this run.
    pub resumed_bytes: u64,
    /// Bytes of a tree that are at the destination already and stay as they are.
    pub kept_bytes: u64,
    /// Bytes that piece digests have proved.
    pub verified: RangeSet,
    /// Bytes that are proved.
    pub verified_bytes: u64,
    /// Bytes received in vain.
    pub wasted_bytes: u64,
}

impl Coverage {
    /// Takes over the `durable` bytes of an earlier run, of which it had `verified` some.
    pub fn resume(&mut self, durable: &RangeMap<u32>, verified: &RangeSet) {
        for (range, deliverer) in durable.iter() {
            self.take_in(range, deliverer);
        }
        self.resumed_bytes = self.have.total_bytes();
        self.resumed = self.have.clone();
        self.verified = verified.clone();
        self.verified_bytes = self.verified.total_bytes();
    }

    /// Enters bytes that `deliverer` brought.
    pub fn take_in(&mut self, range: Range, deliverer: u32) {
        self.have.insert(range);
        self.deliverers.set(range, deliverer);
    }

    /// Marks bytes as proved by a digest.
    pub fn prove(&mut self, range: Range) {
        self.verified.insert(range);
        self.verified_bytes = self.verified.total_bytes();
    }

    /// Marks bytes as missing again. Returns how many of them each deliverer brought in this run.
    pub fn reopen(&mut self, range: Range) -> Vec<(u32, u64)> {
        let earlier_bytes = self.resumed.bytes_within(range);
        self.resumed_bytes = self.resumed_bytes.saturating_sub(earlier_bytes);
        self.wasted_bytes += range.len() - earlier_bytes;
        let own = |part: Range| part.len() - self.resumed.bytes_within(part);
        let parts = self.deliverers.within(range).into_iter();
        let wasted = parts.map(|(part, deliverer)| (deliverer, own(part))).collect();
        self.resumed.remove(range);
        self.have.remove(range);
        self.deliverers.clear(range);
        self.verified.remove(range);
        self.verified_bytes = self.verified.total_bytes();
        wasted
    }

    /// Returns the bytes that this source delivered, in this run and in earlier ones.
    pub fn of_deliverer(&self, deliverer: u32) -> Vec<Range> {
        self.deliverers.iter().filter(|&(_, by)| by == deliverer).map(|(range, _)| range).collect()
    }

    /// Returns the deliverers of these bytes, in ascending order.
    pub fn deliverers_of(&self, range: Range) -> Vec<u32> {
        let mut deliverers: Vec<u32> =
            self.deliverers.within(range).into_iter().map(|(_, by)| by).collect();
        deliverers.sort_unstable();
        deliverers.dedup();
        deliverers
    }

    /// Forgets the content; wasted and kept bytes stay counted.
    pub fn reset(&mut self) {
        let (kept_bytes, wasted_bytes) = (self.kept_bytes, self.wasted_bytes);
        *self = Coverage { kept_bytes, wasted_bytes, ..Coverage::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn void_bytes_are_charged_to_who_brought_them_in_this_run() {
        let mut coverage = Coverage::default();
        let mut durable = RangeMap::new();
        durable.set(Range::new(0, 10), 1);
        coverage.resume(&durable, &RangeSet::full(4));
        coverage.take_in(Range::new(10, 30), 1);
        coverage.take_in(Range::new(30, 40), 2);
        coverage.prove(Range::new(4, 20));
        assert_eq!((coverage.resumed_bytes, coverage.verified_bytes), (10, 20));
        assert_eq!(coverage.deliverers_of(Range::new(5, 40)), [1, 2]);

        let wasted = coverage.reopen(Range::new(5, 35));
        let of = |id| wasted.iter().filter(|&&(by, _)| by == id).map(|(_, bytes)| bytes).sum();
        assert_eq!((of(1), of(2)), (20u64, 5u64));
        assert_eq!((coverage.resumed_bytes, coverage.wasted_bytes), (5, 25));
        assert_eq!(coverage.verified_bytes, 5);
        assert_eq!(coverage.of_deliverer(1), [Range::new(0, 5)]);
        assert_eq!(coverage.of_deliverer(2), [Range::new(35, 40)]);

        coverage.reset();
        assert_eq!((coverage.wasted_bytes, coverage.have.total_bytes()), (25, 0));
    }
}
