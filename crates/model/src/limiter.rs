//! One rate limit for many connections together.
//!
//! A connection reserves a small amount before it reads or writes; reservations queue up in time,
//! each connection has one at most, so connections share the limit evenly however many there are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The limit and when the next reservation is due.
#[derive(Debug)]
pub struct Limiter {
    /// Bytes per second; 0 stands for no limit.
    rate: AtomicU64,
    next: Mutex<Option<Instant>>,
}

impl Limiter {
    /// A limit in bytes per second; without one nothing is limited.
    pub fn new(bytes_per_s: Option<u64>) -> Self {
        Self { rate: AtomicU64::new(bytes_per_s.unwrap_or(0)), next: Mutex::new(None) }
    }

    /// Change the limit, also while it is used; `None` lifts it.
    pub fn set(&self, bytes_per_s: Option<u64>) {
        self.rate.store(bytes_per_s.unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether there is a limit.
    pub fn is_on(&self) -> bool {
        self.rate.load(Ordering::Relaxed) != 0
    }

    /// The right to move that many bytes from that moment on; `None` if there is no limit.
    pub fn reserve(&self, now: Instant) -> Option<(usize, Instant)> {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return None;
        }
        // No share is more than a second's worth.
        let share = (rate / SHARES_PER_S).clamp(SHARE_MIN_BYTES.min(rate), SHARE_MAX_BYTES);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let due = next.map_or(earliest, |next| next.max(earliest));
        *next = Some(due + Duration::from_secs_f64(share as f64 / rate as f64));
        Some((share as usize, due.max(now)))
    }
}

/// A share lasts about this part of a second, so that the flow is smooth …
const SHARES_PER_S: u64 = 50;
/// … but is never so small that moving it becomes expensive, or so large that it is a burst.
const SHARE_MIN_BYTES: u64 = 1024;
const SHARE_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// What was not used of the last moments may be caught up with.
const BURST: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // There is no other way to an instant, and any will do.
    #[allow(clippy::disallowed_methods)]
    fn many_connections_share_one_rate() {
        let limiter = Limiter::new(Some(1_000_000));
        let start = Instant::now();
        let mut last = start;
        let mut total = 0;
        while total < 3_000_000 {
            let (bytes, due) = limiter.reserve(start).unwrap();
            total += bytes as u64;
            last = due;
        }
        let seconds = last.duration_since(start).as_secs_f64();
        assert!((2.85..=3.0).contains(&seconds), "{seconds}");
        limiter.set(None);
        assert!(limiter.reserve(start).is_none());
    }
}
