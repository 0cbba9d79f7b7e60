//! Rates at which depots fill: means of their durable bytes over the last seconds. A depot reports
//! these in steps, each of which would look like a burst.

use std::collections::VecDeque;

/// Recent bytes of each depot. Pure: time is an argument.
pub(super) struct Rates {
    /// (time in seconds, bytes of each depot), the oldest first.
    looks: VecDeque<(f64, Vec<u64>)>,
}

impl Rates {
    /// Starts with the bytes that they hold at `at_s`.
    pub fn new(at_s: f64, held_bytes: Vec<u64>) -> Rates {
        Rates { looks: VecDeque::from([(at_s, held_bytes)]) }
    }

    /// Takes in the bytes that they hold now.
    pub fn look(&mut self, at_s: f64, held_bytes: Vec<u64>) {
        self.looks.push_back((at_s, held_bytes));
        // The last entry before the window is its beginning.
        while self.looks.get(1).is_some_and(|(second_s, _)| at_s - second_s >= WINDOW_S) {
            self.looks.pop_front();
        }
    }

    /// Returns the bytes per second of the depot of this number.
    pub fn bytes_per_s(&self, depot: usize) -> f64 {
        let (Some((from_s, before)), Some((to_s, after))) = (self.looks.front(), self.looks.back())
        else {
            return 0.0;
        };
        let held = |all: &Vec<u64>| all.get(depot).copied().unwrap_or(0);
        let seconds = to_s - from_s;
        // A depot that lost bytes has rate 0.
        let came = held(after).saturating_sub(held(before)) as f64;
        if seconds > 0.0 { came / seconds } else { 0.0 }
    }
}

/// Depots sync and report twice a second for each fetch, and slow disks take seconds for that.
const WINDOW_S: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_spread_over_the_seconds_in_which_they_came() {
        // A link of 20 MB/s was said to carry 56 MB/s, and 9 a second before.
        let held_bytes = |at_ms: u64| vec![at_ms / 500 * 10_000_000, at_ms / 2000 * 2_000_000, 7];
        let mut rates = Rates::new(0.0, held_bytes(0));
        assert_eq!(rates.bytes_per_s(0), 0.0);
        for at_ms in (200..20_000).step_by(200) {
            let at_s = at_ms as f64 / 1e3;
            rates.look(at_s, held_bytes(at_ms));
            assert!(rates.bytes_per_s(0) <= 20e6 * (1.0 + 0.5 / at_s.min(4.0)), "at {at_s}");
            if at_ms > 4_500 {
                assert!((17e6..23e6).contains(&rates.bytes_per_s(0)), "at {at_s}");
                assert!((0.4e6..1.6e6).contains(&rates.bytes_per_s(1)), "at {at_s}");
            }
            assert_eq!((rates.bytes_per_s(2), rates.bytes_per_s(3)), (0.0, 0.0));
            assert!(rates.looks.len() < 25);
        }
        // When nothing comes any more, it is zero after the window.
        rates.look(21.0, held_bytes(19_800));
        rates.look(24.5, vec![0; 3]);
        assert_eq!(rates.bytes_per_s(0), 0.0);
    }
}
