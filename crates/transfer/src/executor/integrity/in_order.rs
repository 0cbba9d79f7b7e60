//! Buffers on their way from the disk to a hash that goes from front to back.
//!
//! Writes end in any order. A slow one would leave a gap before the buffers after it: the verifier
//! would have to drop them and read them back. So buffers that follow a write under way wait for it
//! here. That keeps them from the lanes, so a slow disk slows the network down, as it should.
//! Nothing waits here for bytes that are still to come from a source.

use std::collections::BTreeMap;

use swath_model::{Buffer, Range};

/// Writes under way, and written buffers that follow one of them.
#[derive(Default)]
pub(crate) struct InOrder {
    /// Start and end of each write under way.
    writing: BTreeMap<u64, u64>,
    /// Waiting buffers, by their offset.
    written: BTreeMap<u64, Buffer>,
}

impl InOrder {
    /// Notes that a write begins.
    pub fn begin(&mut self, range: Range) {
        self.writing.insert(range.start, range.end);
    }

    /// Ends a write. Returns the buffers that may be hashed now, with their offsets.
    pub fn end(&mut self, range: Range, buffer: Buffer) -> Vec<(u64, Buffer)> {
        self.writing.remove(&range.start);
        if self.follows(range.start) {
            self.written.insert(range.start, buffer);
            return Vec::new();
        }
        let mut ready = vec![(range.start, buffer)];
        let mut next = range.end;
        while let Some(buffer) = self.written.remove(&next) {
            let start = next;
            next += buffer.len() as u64;
            ready.push((start, buffer));
        }
        ready
    }

    /// Returns whether a write or a waiting buffer ends at `start`.
    fn follows(&self, start: u64) -> bool {
        let writing = self.writing.range(..start).next_back().map(|(_, &end)| end);
        let written =
            self.written.range(..start).next_back().map(|(at, buffer)| at + buffer.len() as u64);
        writing == Some(start) || written == Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swath_model::Pool;

    fn buffer(pool: &Pool, bytes: usize) -> Buffer {
        let mut buffer = pool.try_take().unwrap();
        buffer.push(&vec![0; bytes]);
        buffer
    }

    fn starts(ready: &[(u64, Buffer)]) -> Vec<u64> {
        ready.iter().map(|&(start, _)| start).collect()
    }

    #[test]
    fn what_follows_a_slow_write_waits_for_it_and_nothing_else_does() {
        let pool = Pool::new(8, 4096);
        let mut order = InOrder::default();
        for start in [0, 100, 200, 300, 1000] {
            order.begin(Range::new(start, start + 100));
        }
        assert!(order.end(Range::new(100, 200), buffer(&pool, 100)).is_empty());
        // It follows what waits.
        assert!(order.end(Range::new(200, 300), buffer(&pool, 100)).is_empty());
        // Bytes before it are not here yet: nothing to wait for.
        assert_eq!(starts(&order.end(Range::new(1000, 1100), buffer(&pool, 100))), [1000]);
        assert_eq!(starts(&order.end(Range::new(0, 100), buffer(&pool, 100))), [0, 100, 200]);
        assert_eq!(starts(&order.end(Range::new(300, 400), buffer(&pool, 100))), [300]);
        assert!(order.writing.is_empty() && order.written.is_empty());
        assert_eq!(pool.free_slots(), 8);
    }

    #[test]
    fn everything_is_handed_over_once_whatever_the_order() {
        let pool = Pool::new(64, 4096);
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut at = 0;
            let mut writes: Vec<Range> = (0..40)
                .map(|_| {
                    at += if rng.u8(0..5) == 0 { 50 } else { 0 };
                    let range = Range::of_len(at, rng.u64(1..4000));
                    at = range.end;
                    range
                })
                .collect();
            rng.shuffle(&mut writes);
            let (mut order, mut begun, mut told) = (InOrder::default(), 0, Vec::new());
            let mut under_way: Vec<Range> = Vec::new();
            while begun < writes.len() || !under_way.is_empty() {
                if begun < writes.len() && (under_way.is_empty() || rng.bool()) {
                    order.begin(writes[begun]);
                    under_way.push(writes[begun]);
                    begun += 1;
                } else {
                    let range = under_way.swap_remove(rng.usize(0..under_way.len()));
                    let ready = order.end(range, buffer(&pool, range.len() as usize));
                    told.extend(ready.iter().map(|(at, buffer)| (*at, at + buffer.len() as u64)));
                }
            }
            told.sort_unstable();
            writes.sort_unstable_by_key(|range| range.start);
            let wanted: Vec<_> = writes.iter().map(|range| (range.start, range.end)).collect();
            assert_eq!(told, wanted, "seed {seed}");
            assert_eq!(pool.free_slots(), 64, "seed {seed}");
        }
    }
}
