//! What a lost packet holds up: whatever arrives behind it can be read only when it has come
//! again, all at once.

use std::collections::VecDeque;

use swath_model::Time;

/// What has arrived on one connection and cannot be read yet.
#[derive(Debug, Default)]
pub(super) struct Holes {
    /// When a hole is filled, and the bytes between it and the next one.
    behind: VecDeque<(Time, u64)>,
}

impl Holes {
    /// A packet is missed; it comes again at `filled_at`.
    pub fn open(&mut self, filled_at: Time) {
        let before = self.behind.back().map_or(Time::ZERO, |hole| hole.0);
        self.behind.push_back((filled_at.max(before), 0));
    }

    /// `bytes` bytes arrive; answers how many of them can be read.
    pub fn arrive(&mut self, bytes: u64) -> u64 {
        match self.behind.back_mut() {
            Some(hole) => {
                hole.1 += bytes;
                0
            }
            None => bytes,
        }
    }

    /// Returns what can be read now that could not before.
    pub fn fill(&mut self, now: Time) -> u64 {
        let filled = self.behind.partition_point(|hole| hole.0 <= now);
        self.behind.drain(..filled).map(|hole| hole.1).sum()
    }

    /// The link was silent for a while: everything is so much later.
    pub fn delay(&mut self, lasted: std::time::Duration) {
        for hole in &mut self.behind {
            hole.0 = hole.0 + lasted;
        }
    }

    /// Returns what waits.
    pub fn bytes(&self) -> u64 {
        self.behind.iter().map(|hole| hole.1).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.behind.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_a_hole_comes_when_it_is_filled() {
        let mut holes = Holes::default();
        assert_eq!((holes.arrive(10), holes.is_empty()), (10, true));
        holes.open(Time::from_millis(100));
        assert_eq!(holes.arrive(20), 0);
        holes.open(Time::from_millis(50));
        assert_eq!((holes.arrive(5), holes.bytes()), (0, 25));
        assert_eq!(holes.fill(Time::from_millis(99)), 0, "the second waits for the first");
        assert_eq!((holes.fill(Time::from_millis(100)), holes.is_empty()), (25, true));
    }
}
