//! How much of a payload must be there before its reader is woken: as much as comes within some
//! milliseconds.
//!
//! A wake-up per packet costs a busy site more than all its reading.

use std::time::{Duration, Instant};

/// Measures the rate at which payload comes, and keeps the mark of a socket.
pub(super) struct LowWater {
    since: Instant,
    /// Came since then.
    bytes: u64,
    bytes_per_s: f64,
    mark: usize,
}

impl LowWater {
    pub fn new() -> LowWater {
        LowWater { since: Instant::now(), bytes: 0, bytes_per_s: 0.0, mark: LEAST }
    }

    /// Counts payload that came.
    pub fn came(&mut self, bytes: usize) {
        self.came_within(bytes, self.since.elapsed());
    }

    fn came_within(&mut self, bytes: usize, elapsed: Duration) {
        self.bytes += bytes as u64;
        if elapsed >= MEASURED_OVER {
            self.bytes_per_s = self.bytes as f64 / elapsed.as_secs_f64();
            (self.since, self.bytes) = (Instant::now(), 0);
        }
    }

    /// `coming` bytes of a payload are waited for, or a message of unknown length if `None`. Returns
    /// the socket's new mark, if it changes.
    pub fn wait_for(&mut self, coming: Option<usize>) -> Option<usize> {
        let within = (self.bytes_per_s * WAIT.as_secs_f64()) as usize;
        let mark = match coming.map_or(LEAST, |coming| coming.min(within)) {
            // Not worth a call.
            few if few < WORTH_BYTES => LEAST,
            many => many,
        };
        (mark != std::mem::replace(&mut self.mark, mark)).then_some(mark)
    }

    /// Nothing came lately: what is below the mark must not stay in the socket. Returns the socket's
    /// new mark, if it changes.
    pub fn slow_down(&mut self) -> Option<usize> {
        self.bytes_per_s = 0.0;
        self.wait_for(None)
    }
}

const MEASURED_OVER: Duration = Duration::from_millis(50);
/// Nobody notices that bytes are taken so much later.
const WAIT: Duration = Duration::from_millis(10);
/// Every byte wakes the reader.
const LEAST: usize = 1;
/// Three packets.
const WORTH_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_follows_the_rate_and_ends_with_the_payload() {
        let mut mark = LowWater::new();
        assert_eq!(mark.wait_for(Some(16 << 10)), None, "the rate is not known");
        mark.came_within(100_000, MEASURED_OVER);
        assert_eq!(mark.wait_for(Some(16 << 10)), Some(16 << 10));
        assert_eq!(mark.wait_for(Some(16 << 10)), None, "it is set");
        assert_eq!(mark.wait_for(Some(5000)), Some(5000));
        assert_eq!(mark.wait_for(None), Some(1));
        mark.came_within(30_000, MEASURED_OVER);
        assert_eq!(mark.wait_for(Some(16 << 10)), Some(6000));
        assert_eq!(mark.slow_down(), Some(1));
        assert_eq!(mark.wait_for(Some(16 << 10)), None, "a slow peer is heard at once");
    }
}
