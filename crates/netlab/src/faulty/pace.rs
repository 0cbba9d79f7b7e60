//! A shared, smooth rate limit: every slice of a body reserves its place on one time line.
//!
//! Reservations are absolute, so a timer that fires late is caught up with and the average stays
//! exact; a sender that was away longer than [`CATCH_UP`] has lost that time, so a limit never
//! turns into a burst. Connections are served in the order in which they ask.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One time line of bytes.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    free_at: Mutex<Option<Instant>>,
}

impl Pacer {
    /// Reserves `bytes` at this rate and answers when they may leave.
    pub(super) fn reserve(&self, now: Instant, bytes: usize, rate_bytes_per_s: u64) -> Instant {
        if rate_bytes_per_s == 0 {
            return now;
        }
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        let start = free_at.unwrap_or(now).max(earliest);
        *free_at = Some(start + Duration::from_secs_f64(bytes as f64 / rate_bytes_per_s as f64));
        start
    }
}

/// The largest slice to send at once so that the rate is smooth; rates of 0 are no limit.
pub(super) fn slice_bytes(rate_bytes_per_s: u64) -> usize {
    match rate_bytes_per_s {
        0 => MAX_SLICE_BYTES,
        rate => ((rate / SLICES_PER_S) as usize).clamp(MIN_SLICE_BYTES, MAX_SLICE_BYTES),
    }
}

/// How late a sender may be and still catch up: several timer ticks of a loaded machine.
const CATCH_UP: Duration = Duration::from_millis(50);
/// Four milliseconds a slice: finer than any round trip that matters, coarser than the timer.
const SLICES_PER_S: u64 = 250;
const MIN_SLICE_BYTES: usize = 16;
/// Also the size of each connection's buffer.
pub(super) const MAX_SLICE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_exact_and_lateness_is_caught_up() {
        let pacer = Pacer::default();
        let start = Instant::now();
        let mut now = start;
        for slice in 0..1000 {
            let at = pacer.reserve(now, 1000, 1_000_000);
            assert_eq!((at - start).as_millis(), slice);
            // Every wake-up is up to 7 ms late.
            now = now.max(at + Duration::from_millis(slice as u64 % 8));
        }
    }

    #[test]
    fn an_idle_second_is_no_credit() {
        let pacer = Pacer::default();
        let start = Instant::now();
        pacer.reserve(start, 1000, 1000);
        let later = start + Duration::from_secs(10);
        assert_eq!(pacer.reserve(later, 1000, 1000), later - CATCH_UP);
        assert_eq!(pacer.reserve(later, 1, 1000), later - CATCH_UP + Duration::from_secs(1));
    }

    #[test]
    fn slices_fit_their_rate() {
        assert_eq!(slice_bytes(0), MAX_SLICE_BYTES);
        assert_eq!(slice_bytes(180_000_000), MAX_SLICE_BYTES);
        assert_eq!(slice_bytes(20_000_000), 80_000);
        assert_eq!(slice_bytes(100), MIN_SLICE_BYTES);
    }
}
