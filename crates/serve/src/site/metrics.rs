//! What was done, in the form that Prometheus reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::http::{Content, Response};

/// Counters; all grow only, but for those that say "now".
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    answers: [AtomicU64; 5],
    body_bytes: AtomicU64,
    /// Of files that others sent, whichever way.
    pub received_bytes: Arc<AtomicU64>,
    answer_us: AtomicU64,
    pub connections: AtomicU64,
    pub connections_now: AtomicU64,
    pub connections_waited: AtomicU64,
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
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, lines: &[(String, f64)]| {
            text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
            for (labels, value) in lines {
                text.push_str(&format!("{name}{labels} {value}\n"));
            }
        };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let one = |counter: &AtomicU64| vec![(String::new(), read(counter))];
        let answers: Vec<(String, f64)> = (1..=5)
            .map(|class| (format!("{{class=\"{class}xx\"}}"), read(&self.answers[class - 1])))
            .collect();
        family("swath_answers_total", "counter", "Requests answered.", &answers);
        let help = "Bytes of body sent.";
        family("swath_body_bytes_total", "counter", help, &one(&self.body_bytes));
        let help = "Bytes of files received, by PUT and in trees.";
        family("swath_received_bytes_total", "counter", help, &one(&self.received_bytes));
        let seconds = vec![(String::new(), read(&self.answer_us) / 1e6)];
        let help = "Time from requests to the last bytes of their answers, summed.";
        family("swath_answer_seconds_total", "counter", help, &seconds);
        let help = "Connections accepted.";
        family("swath_connections_total", "counter", help, &one(&self.connections));
        let help = "Connections that are open.";
        family("swath_connections", "gauge", help, &one(&self.connections_now));
        let help = "Connections that had to wait until another one made room.";
        family("swath_connections_waited_total", "counter", help, &one(&self.connections_waited));
        family("swath_walks_total", "counter", "Folders walked for an index.", &one(&self.walks));
        Response::empty(200)
            .with("content-type", "text/plain; version=0.0.4; charset=utf-8")
            .containing(Content::Bytes(text.into_bytes()))
    }
}
