//! One rate limit shared by many connections.
//!
//! A connection reserves a small share before it reads or writes. Shares queue up in time, and each
//! connection has at most one, so any number of connections divide the limit evenly. The more
//! connections wait, the smaller each share, so that each gets several turns a second: a connection
//! with rare turns looks as if its sender were in trouble. The unused rest of a share goes back,
//! for instance when its connection ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The limit and when the next share is due.
#[derive(Debug)]
pub struct Limiter {
    /// Bytes per second; 0 means no limit.
    rate: AtomicU64,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    next: Option<Instant>,
    waiting: u32,
}

/// The right to move some bytes from a certain time on.
#[derive(Debug)]
pub struct Share {
    limiter: Arc<Limiter>,
    left_bytes: u64,
    due: Instant,
    waits: bool,
}

impl Limiter {
    /// Returns a limiter for this many bytes per second; `None`: no limit.
    pub fn new(bytes_per_s: Option<u64>) -> Self {
        Self { rate: AtomicU64::new(bytes_per_s.unwrap_or(0)), queue: Mutex::default() }
    }

    /// Changes the limit, even while it is used; `None` lifts it.
    pub fn set(&self, bytes_per_s: Option<u64>) {
        self.rate.store(bytes_per_s.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns whether there is a limit.
    pub fn is_on(&self) -> bool {
        self.rate.load(Ordering::Relaxed) != 0
    }

    /// Reserves the next share; `None` if there is no limit.
    pub fn reserve(self: &Arc<Self>, now: Instant) -> Option<Share> {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return None;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let smallest = (rate / TURNS_MAX_PER_S).clamp(SHARE_MIN_BYTES.min(rate), SHARE_FAIR_BYTES);
        let share = rate / CYCLES_PER_S / (1 + u64::from(queue.waiting));
        let share = share.clamp(smallest, SHARE_MAX_BYTES);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let due = queue.next.map_or(earliest, |next| next.max(earliest));
        queue.next = Some(due + lasts(share, rate));
        queue.waiting += 1;
        Some(Share { limiter: Arc::clone(self), left_bytes: share, due, waits: true })
    }
}

impl Share {
    /// Returns the time to wait for before moving anything, if it is still ahead.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        if now < self.due {
            return Some(self.due);
        }
        if std::mem::take(&mut self.waits) {
            self.limiter.queue.lock().unwrap_or_else(PoisonError::into_inner).waiting -= 1;
        }
        None
    }

    /// Returns how many bytes may still be moved.
    pub fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Records that bytes were moved.
    pub fn spend(&mut self, bytes: u64) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.waits && self.left_bytes == 0 {
            return;
        }
        let rate = self.limiter.rate.load(Ordering::Relaxed);
        let mut queue = self.limiter.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting -= u32::from(self.waits);
        if let Some(next) = queue.next.filter(|_| rate != 0) {
            queue.next = next.checked_sub(lasts(self.left_bytes, rate));
        }
    }
}

fn lasts(bytes: u64, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate as f64)
}

/// Turns per second for each connection, if there are not too many of them …
const CYCLES_PER_S: u64 = 50;
/// … with at most this many turns in all, …
const TURNS_MAX_PER_S: u64 = 2500;
/// … each of which moves at least this, or, with a low limit, …
const SHARE_FAIR_BYTES: u64 = 16 * 1024;
/// … at least this, because less is not worth a system call, …
const SHARE_MIN_BYTES: u64 = 1024;
/// … and at most this, because more would be a burst. (No share exceeds a second's worth.)
const SHARE_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// How long unused capacity can be made up for.
const BURST: Duration = Duration::from_millis(50);

#[cfg(test)]
// There is no other way to an instant, and any will do.
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_share_one_rate() {
        let limiter = Arc::new(Limiter::new(Some(1_000_000)));
        let start = Instant::now();
        let mut last = start;
        let mut total = 0;
        while total < 3_000_000 {
            let mut share = limiter.reserve(start).unwrap();
            total += share.left_bytes();
            share.spend(share.left_bytes());
            last = share.due;
        }
        let seconds = last.duration_since(start).as_secs_f64();
        assert!((2.85..=3.0).contains(&seconds), "{seconds}");
        limiter.set(None);
        assert!(limiter.reserve(start).is_none());
    }

    /// Sixteen connections over one limit had their turns 0.3 s apart, which looked to whoever
    /// fetched like senders that are held up.
    #[test]
    fn the_more_wait_the_shorter_is_a_turn() {
        let limiter = Arc::new(Limiter::new(Some(40_000_000)));
        let start = Instant::now();
        let mut shares: Vec<_> = (0..16).map(|_| limiter.reserve(start).unwrap()).collect();
        let (mut bytes, mut now) = (0, start);
        let mut turns = [0; 16];
        while now < start + Duration::from_secs(1) {
            let next = (0..16).min_by_key(|&at| shares[at].due).unwrap();
            now = now.max(shares[next].due);
            assert_eq!(shares[next].due(now), None);
            bytes += shares[next].left_bytes();
            let left = shares[next].left_bytes();
            shares[next].spend(left);
            turns[next] += 1;
            shares[next] = limiter.reserve(now).unwrap();
        }
        assert!((38_000_000..=43_000_000).contains(&bytes), "{bytes}");
        assert!(turns.iter().all(|&turns| turns > 40), "{turns:?}");
        assert!(turns.iter().sum::<u32>() < 2500, "{turns:?}");
    }

    /// Whatever connections do, stall, end half-way or come back, what has moved by a moment is what the
    /// limit allows until then, with what may be caught up with and the last turn.
    #[test]
    fn nothing_moves_beyond_the_limit() {
        const RATE: u64 = 1_000_000;
        for seed in 1..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let limiter = Arc::new(Limiter::new(Some(RATE)));
            let start = Instant::now();
            let (mut now, mut moved) = (start, 0);
            let mut shares: Vec<Option<Share>> = (0..rng.usize(1..9)).map(|_| None).collect();
            while now < start + Duration::from_secs(3) {
                let at = rng.usize(0..shares.len());
                let share = shares[at].get_or_insert_with(|| limiter.reserve(now).unwrap());
                if share.due(now).is_none() {
                    let part = rng.u64(0..=share.left_bytes());
                    share.spend(part);
                    moved += part;
                }
                if share.left_bytes() == 0 || rng.u32(0..20) == 0 {
                    shares[at] = None;
                }
                let stalls = rng.u32(0..200) == 0;
                now += Duration::from_micros(rng.u64(0..if stalls { 500_000 } else { 2_000 }));
                let allowed = now.duration_since(start) + BURST;
                let most = allowed.as_secs_f64() * RATE as f64 + (RATE / CYCLES_PER_S) as f64;
                assert!(moved as f64 <= most, "seed {seed}: {moved} of {most}");
            }
        }
    }

    /// Connections that ended while they waited for their turn took it with them: a second was lost
    /// of four.
    #[test]
    fn what_is_not_used_goes_back() {
        let limiter = Arc::new(Limiter::new(Some(1_000_000)));
        let start = Instant::now();
        let mut first = limiter.reserve(start).unwrap();
        assert_eq!(first.due(start), None);
        for _ in 0..1000 {
            drop(limiter.reserve(start));
        }
        first.spend(5_000);
        drop(first);
        let late = start + BURST;
        let mut next = limiter.reserve(late).unwrap();
        assert_eq!(next.due(late), None);
        assert!(next.due <= start, "{:?}", next.due - start);
        assert_eq!(next.left_bytes(), 20_000, "nobody else waits");
    }
}
