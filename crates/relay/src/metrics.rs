//! What a relay did, in figures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::cached::Cached;
use swath_serve::Traffic;
use swath_serve::exposition::Page;

/// Counters; all grow only, but for those that say "now".
#[derive(Debug, Default)]
pub(super) struct Metrics {
    answers: [AtomicU64; 5],
    passed_bytes: AtomicU64,
    tunnelled_bytes: AtomicU64,
    answer_us: AtomicU64,
    pub tunnels: AtomicU64,
    pub traffic: Traffic,
}

impl Metrics {
    /// An answer is over.
    pub fn count(&self, status: u16, took: Duration) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.answers[class].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.answer_us.fetch_add(micros, Ordering::Relaxed);
    }

    /// Bytes of bodies went back.
    pub fn passed(&self, bytes: u64) {
        self.passed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes went through a tunnel, either way.
    pub fn tunnelled(&self, bytes: u64) {
        self.tunnelled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All of them, and those of the cache.
    pub fn page(&self, cached: Option<&Cached>) -> Page {
        let mut page = Page::default();
        page.answers(&self.answers);
        page.counter("swath_relay_bytes_total", "Bytes of bodies passed on.", &self.passed_bytes);
        let help = "Bytes passed through tunnels, both ways.";
        page.counter("swath_relay_tunnelled_bytes_total", help, &self.tunnelled_bytes);
        page.counter("swath_relay_tunnels_total", "Tunnels opened.", &self.tunnels);
        let seconds = self.answer_us.load(Ordering::Relaxed) as f64 / 1e6;
        let help = "Time from requests to the last bytes of their answers, summed.";
        page.one("swath_answer_seconds_total", "counter", help, seconds);
        page.traffic(&self.traffic);
        if let Some(cached) = cached {
            cached.tell(&mut page);
        }
        page
    }
}
