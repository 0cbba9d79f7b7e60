//! The present rate: bytes over a short sliding window.
//!
//! The mean of the last request would hide both slow start and a sudden throttle for as long as a
//! request lasts; a window shows them within a few round trips. At most [`SLOTS`] samples are kept
//! per window, so memory is constant.

use std::collections::VecDeque;

use swath_model::Time;

/// Samples per window; finer ones are merged.
const SLOTS: usize = 16;

/// A counter's growth over the last `window_s` seconds.
#[derive(Clone, Debug)]
pub struct RateWindow {
    window_s: f64,
    /// (time, counter) in order; the first may be older than the window.
    samples: VecDeque<(Time, u64)>,
}

impl RateWindow {
    /// Returns a window of `window_s` seconds.
    pub fn new(window_s: f64) -> Self {
        Self { window_s, samples: VecDeque::with_capacity(SLOTS + 2) }
    }

    /// Changes the window's length (when the round trip is better known).
    pub fn resize(&mut self, window_s: f64) {
        self.window_s = window_s;
    }

    /// Starts anew at `now` with the counter at `total`: earlier time (idle, or waiting for the
    /// first byte) says nothing about the rate.
    pub fn restart(&mut self, now: Time, total: u64) {
        self.samples.clear();
        self.samples.push_back((now, total));
    }

    /// Records the counter's value at `now`.
    pub fn record(&mut self, now: Time, total: u64) {
        let step_s = self.window_s / SLOTS as f64;
        if let [.., (before, _), (last, value)] = self.samples.make_contiguous()
            && last.secs_since(*before) < step_s
        {
            *last = now;
            *value = total;
        } else {
            self.samples.push_back((now, total));
        }
        while self.samples.len() > 2 && now.secs_since(self.samples[1].0) >= self.window_s {
            self.samples.pop_front();
        }
    }

    /// Returns the bytes per second over the window that ends at `now`, or `None` if it spans less
    /// than a hundredth of a second.
    pub fn rate_bytes_per_s(&self, now: Time) -> Option<f64> {
        let &(first, from) = self.samples.front()?;
        let &(_, to) = self.samples.back()?;
        let span_s = now.secs_since(first);
        (span_s >= 0.01).then(|| (to - from) as f64 / span_s)
    }

    /// Returns the seconds that the window covers at `now`.
    pub fn span_s(&self, now: Time) -> f64 {
        self.samples.front().map_or(0.0, |&(first, _)| now.secs_since(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_a_sudden_throttle_within_a_window() {
        let mut window = RateWindow::new(0.4);
        let mut total = 0;
        window.restart(Time::ZERO, 0);
        for ms in (10..=1000).step_by(10) {
            total += 100_000;
            window.record(Time::from_millis(ms), total);
        }
        let before = window.rate_bytes_per_s(Time::from_millis(1000)).unwrap();
        assert!((before / 1e7 - 1.0).abs() < 0.1, "{before}");
        for ms in (1010..=1500).step_by(10) {
            total += 10_000;
            window.record(Time::from_millis(ms), total);
        }
        let after = window.rate_bytes_per_s(Time::from_millis(1500)).unwrap();
        assert!((after / 1e6 - 1.0).abs() < 0.1, "{after}");
        assert!(window.samples.len() <= SLOTS + 4);
        let idle = window.rate_bytes_per_s(Time::from_millis(2500)).unwrap();
        assert!(idle < after / 2.0, "silence shows as a falling rate: {idle}");
    }
}
