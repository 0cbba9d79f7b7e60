//! Metrics of a relay.

use std::sync::atomic::{AtomicU64, Ordering};

use super::cached::Cached;
use swath_serve::Traffic;
use swath_serve::exposition::{Answers, Page};

/// Counters; all grow only, but for those that say "now".
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub answers: Answers,
    passed_bytes: AtomicU64,
    tunnelled_bytes: AtomicU64,
    pub tunnels: AtomicU64,
    pub traffic: Traffic,
}

impl Metrics {
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
        page.traffic(&self.traffic);
        if let Some(cached) = cached {
            cached.tell(&mut page);
        }
        page
    }
}
