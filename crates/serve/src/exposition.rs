//! Metrics in Prometheus' text format.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::http::{Content, Response};
use crate::server::Traffic;

/// Counts answers.
#[derive(Debug, Default)]
pub struct Answers {
    /// By the class of their status, 1xx to 5xx.
    by_class: [AtomicU64; 5],
    /// How long they took, summed.
    us: AtomicU64,
}

impl Answers {
    /// Counts an answer that took so long.
    pub fn count(&self, status: u16, took: Duration) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.by_class[class].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.us.fetch_add(micros, Ordering::Relaxed);
    }
}

/// A page of figures.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// A family of figures: each with its labels (in braces, or none) and its value.
    pub fn family(&mut self, name: &str, kind: &str, help: &str, lines: &[(String, f64)]) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in lines {
            let _ = writeln!(self.text, "{name}{labels} {value}");
        }
    }

    /// A single figure.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help, &[(String::new(), value)]);
    }

    /// A counter.
    pub fn counter(&mut self, name: &str, help: &str, counter: &AtomicU64) {
        self.one(name, "counter", help, counter.load(Ordering::Relaxed) as f64);
    }

    /// What every server tells of its connections.
    pub fn traffic(&mut self, traffic: &Traffic) {
        let help = "Connections accepted.";
        self.counter("swath_connections_total", help, &traffic.connections);
        let now = traffic.now.load(Ordering::Relaxed) as f64;
        self.one("swath_connections", "gauge", "Connections that are open.", now);
        let help = "Connections that had to wait until another one made room.";
        self.counter("swath_connections_waited_total", help, &traffic.waited);
    }

    /// What every server tells of its answers.
    pub fn answers(&mut self, answers: &Answers) {
        let lines: Vec<(String, f64)> = (1..=5)
            .map(|class| {
                let value = answers.by_class[class - 1].load(Ordering::Relaxed) as f64;
                (format!("{{class=\"{class}xx\"}}"), value)
            })
            .collect();
        self.family("swath_answers_total", "counter", "Requests answered.", &lines);
        let seconds = answers.us.load(Ordering::Relaxed) as f64 / 1e6;
        let help = "Time from requests to the last bytes of their answers, summed.";
        self.one("swath_answer_seconds_total", "counter", help, seconds);
    }

    /// As an answer.
    pub fn response(self) -> Response {
        Response::empty(200)
            .with("content-type", "text/plain; version=0.0.4; charset=utf-8")
            .containing(Content::Bytes(self.text.into_bytes()))
    }
}
