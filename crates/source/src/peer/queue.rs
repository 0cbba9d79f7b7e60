//! How much may wait to be sent on a connection: as much as leaves within some milliseconds.
//!
//! Messages leave behind the payload that was queued before them. A peer that has to wait for our
//! requests, or hears late what we have, is slower than its link.

use std::time::{Duration, Instant};

/// Measures the rate at which a connection sends.
pub(super) struct SendQueue {
    since: Instant,
    /// Sent since then.
    bytes: u64,
    bytes_per_s: f64,
    /// What the kernel may hold that was not sent.
    kernel_bytes: usize,
}

impl SendQueue {
    pub fn new() -> SendQueue {
        let kernel_bytes = KERNEL_LEAST_BYTES;
        SendQueue { since: Instant::now(), bytes: 0, bytes_per_s: 0.0, kernel_bytes }
    }

    /// Counts what was sent. Returns what the kernel may hold from now on, if that changes.
    pub fn sent(&mut self, bytes: usize) -> Option<usize> {
        self.sent_within(bytes, self.since.elapsed())
    }

    fn sent_within(&mut self, bytes: usize, elapsed: Duration) -> Option<usize> {
        self.bytes += bytes as u64;
        if elapsed < MEASURED_OVER {
            return None;
        }
        // A pause counts, but whoever begins again after a long one begins anew.
        self.bytes_per_s = (self.bytes_per_s + self.bytes as f64 / elapsed.as_secs_f64()) / 2.0;
        (self.since, self.bytes) = (Instant::now(), 0);
        let wanted = within(KERNEL_AHEAD, self.bytes_per_s);
        let wanted = wanted.clamp(KERNEL_LEAST_BYTES, KERNEL_MOST_BYTES);
        let is_other = wanted >= 2 * self.kernel_bytes || 2 * wanted <= self.kernel_bytes;
        is_other.then(|| {
            self.kernel_bytes = wanted;
            wanted
        })
    }

    /// Returns how much payload may be queued on our side.
    pub fn most_bytes(&self) -> usize {
        within(AHEAD, self.bytes_per_s).clamp(LEAST_BYTES, MOST_BYTES)
    }

    /// Returns what the kernel may hold at first.
    pub fn kernel_bytes(&self) -> usize {
        self.kernel_bytes
    }
}

fn within(time: Duration, bytes_per_s: f64) -> usize {
    (bytes_per_s * time.as_secs_f64()) as usize
}

const MEASURED_OVER: Duration = Duration::from_millis(50);
/// On our side, …
const AHEAD: Duration = Duration::from_millis(20);
/// … and in the kernel, which wakes us when half of it is sent.
const KERNEL_AHEAD: Duration = Duration::from_millis(20);
/// Two blocks.
const LEAST_BYTES: usize = 32 << 10;
const KERNEL_LEAST_BYTES: usize = 32 << 10;
/// Larger reads and writes bring no more.
const MOST_BYTES: usize = 256 << 10;
const KERNEL_MOST_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wait_follows_the_rate() {
        let mut queue = SendQueue::new();
        assert_eq!(queue.most_bytes(), LEAST_BYTES);
        let mut kernel_bytes = queue.kernel_bytes();
        for _ in 0..8 {
            let sent = queue.sent_within(40_000_000, MEASURED_OVER * 2);
            kernel_bytes = sent.unwrap_or(kernel_bytes);
        }
        assert_eq!(queue.most_bytes(), MOST_BYTES);
        assert!(kernel_bytes > KERNEL_MOST_BYTES / 2, "{kernel_bytes}");
        for _ in 0..40 {
            let sent = queue.sent_within(1000, MEASURED_OVER * 2);
            kernel_bytes = sent.unwrap_or(kernel_bytes);
        }
        assert_eq!(queue.most_bytes(), LEAST_BYTES);
        // Small changes are not worth a call.
        assert!(kernel_bytes < 2 * KERNEL_LEAST_BYTES, "{kernel_bytes}");
    }
}
