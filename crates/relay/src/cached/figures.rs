//! Metrics of the cache.

use std::sync::atomic::{AtomicU64, Ordering};

use swath_store::cache::CacheUsage;

use super::reader::CacheStatus;
use swath_serve::exposition::Page;

/// Counters; all grow only.
#[derive(Debug, Default)]
pub(super) struct Figures {
    answers: [AtomicU64; 3],
    /// Bytes of bodies that left from the cache.
    pub sent: AtomicU64,
    /// Bytes that came for it.
    pub fetched: AtomicU64,
}

impl Figures {
    /// An answer begins.
    pub fn count(&self, how: CacheStatus) {
        self.answers[how as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn tell(&self, page: &mut Page, room: CacheUsage) {
        let ways = [CacheStatus::Hit, CacheStatus::Follow, CacheStatus::Miss];
        let lines: Vec<(String, f64)> = ways
            .map(|how| {
                let count = self.answers[how as usize].load(Ordering::Relaxed) as f64;
                (format!("{{how=\"{}\"}}", how.name()), count)
            })
            .to_vec();
        let help = "Answers by way of the cache: it had all, others were fetching it, or it was \
                    fetched for them.";
        page.family("swath_relay_cache_answers_total", "counter", help, &lines);
        let help = "Bytes of bodies that left from the cache.";
        page.counter("swath_relay_cache_sent_bytes_total", help, &self.sent);
        let help = "Bytes that were fetched into the cache.";
        page.counter("swath_relay_cache_fetched_bytes_total", help, &self.fetched);
        let mut now = |name: &str, help: &str, value: u64| {
            page.one(name, "gauge", help, value as f64);
        };
        now("swath_relay_cache_files", "Files that something is kept of.", room.files as u64);
        now("swath_relay_cache_bytes", "Bytes of its disk that the cache takes.", room.taken_bytes);
        now("swath_relay_cache_size_bytes", "Bytes that may be kept.", room.size_bytes);
    }
}
