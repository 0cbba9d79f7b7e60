//! Metrics of a server, in Prometheus' text format.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::exposition::{Answers, Page};
use crate::http::Response;
use crate::server::Traffic;

/// Counters; all grow only, but for those that say "now".
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    answers: Answers,
    body_bytes: AtomicU64,
    /// Of files that others sent, whichever way.
    pub received_bytes: Arc<AtomicU64>,
    pub traffic: Traffic,
    pub walks: AtomicU64,
}

impl Metrics {
    pub fn count(&self, status: u16, bytes: u64, took: Duration) {
        self.answers.count(status, took);
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns all figures, with those that `more` adds.
    pub fn page(&self, more: impl FnOnce(&mut Page)) -> Response {
        let mut page = Page::default();
        page.answers(&self.answers);
        page.counter("swath_body_bytes_total", "Bytes of body sent.", &self.body_bytes);
        let help = "Bytes of files received, by PUT and in trees.";
        page.counter("swath_received_bytes_total", help, &self.received_bytes);
        page.traffic(&self.traffic);
        page.counter("swath_walks_total", "Folders walked for an index.", &self.walks);
        more(&mut page);
        page.response()
    }
}
