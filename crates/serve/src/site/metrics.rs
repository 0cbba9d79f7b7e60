//! What was done, in the form that Prometheus reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::exposition::Page;
use crate::http::Response;
use crate::server::Traffic;

/// Counters; all grow only, but for those that say "now".
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    answers: [AtomicU64; 5],
    body_bytes: AtomicU64,
    /// Of files that others sent, whichever way.
    pub received_bytes: Arc<AtomicU64>,
    answer_us: AtomicU64,
    pub traffic: Traffic,
    pub walks: AtomicU64,
}

impl Metrics {
    pub fn count(&self, status: u16, bytes: u64, took: Duration) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.answers[class].fetch_add(1, Ordering::Relaxed);
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.answer_us.fetch_add(micros, Ordering::Relaxed);
    }

    pub fn page(&self) -> Response {
        let mut page = Page::default();
        page.answers(&self.answers);
        page.counter("swath_body_bytes_total", "Bytes of body sent.", &self.body_bytes);
        let help = "Bytes of files received, by PUT and in trees.";
        page.counter("swath_received_bytes_total", help, &self.received_bytes);
        let seconds = self.answer_us.load(Ordering::Relaxed) as f64 / 1e6;
        let help = "Time from requests to the last bytes of their answers, summed.";
        page.one("swath_answer_seconds_total", "counter", help, seconds);
        page.traffic(&self.traffic);
        page.counter("swath_walks_total", "Folders walked for an index.", &self.walks);
        page.response()
    }
}
