//! What policies and observers may see of the planner's state.

use std::time::Duration;

use swath_model::{SourceId, Time};

/// What a source is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStatus {
    /// Not contacted yet.
    Spare,
    /// Being contacted, or waiting for its first byte.
    Probing,
    /// Delivering.
    Running,
    /// Nothing arrives although something was asked for.
    Silent,
    /// Out for good.
    Bad,
}

/// One source, for display.
#[derive(Clone, Debug)]
pub struct SourceView {
    /// Its number.
    pub source: SourceId,
    /// What it is doing.
    pub status: SourceStatus,
    /// What arrives from it now, bytes per second.
    pub rate_bytes_per_s: f64,
    /// The highest rate seen, bytes per second.
    pub best_rate_bytes_per_s: f64,
    /// Bytes of it that counted.
    pub delivered_bytes: u64,
    /// Smallest round trip seen.
    pub rtt: Option<Duration>,
    /// Lanes open or opening.
    pub lanes: u32,
    /// Whether anything is asked for on any of its lanes.
    pub busy: bool,
    /// Whether its server limits the rate of each answer.
    pub paced: bool,
    /// Whether it was given up for a while, because nothing arrived for too long.
    pub on_probation: bool,
    /// Whether it came to nothing when it was last tried.
    pub failing: bool,
    /// When it is contacted again, if it waits.
    pub retry_at: Option<Time>,
}

/// The lane for which a policy is asked.
#[derive(Clone, Debug)]
pub struct LaneView {
    /// Whose lane it is.
    pub source: SourceId,
    /// Its own rate, bytes per second; `None` before its first bytes.
    pub rate_bytes_per_s: Option<f64>,
    /// What it has brought so far, in bytes.
    pub brought_bytes: u64,
    /// What one lane of its source brought at best so far; zero before any has.
    pub peer_rate_bytes_per_s: f64,
    /// Its round trip in seconds.
    pub rtt_s: f64,
    /// How long losses stop it at a time, in seconds: its last bytes may come that much later.
    pub stop_s: f64,
    /// Swaths asked for and not finished.
    pub queued: usize,
    /// Bytes that must come before a new answer could begin.
    pub backlog_bytes: u64,
    /// The same in seconds.
    pub backlog_s: f64,
    /// Whether it takes a second request before the first is answered.
    pub pipelines: bool,
    /// Whether slow start may still be under way.
    pub ramping: bool,
    /// The source is on probation: ask for little.
    pub on_probation: bool,
    /// How many requests a connection to this source serves, if that is limited.
    pub requests_max: Option<u32>,
    /// Its server limits the rate of each answer, after a burst at its beginning.
    pub paced: bool,
    /// It does so, or may do so: shorter answers than this would hide it, and collect burst after burst.
    pub answer_least_bytes: u64,
}

/// The whole transfer, for policies.
#[derive(Clone, Debug, Default)]
pub struct WholeView {
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Bytes not delivered yet.
    pub undelivered_bytes: u64,
    /// Bytes that nobody has been asked for.
    pub open_bytes: u64,
    /// Sum of all lanes' rates, bytes per second.
    pub rate_bytes_per_s: f64,
    /// Seconds until the end if every lane goes on as now and all end together; infinite while
    /// nothing is known.
    pub time_left_s: f64,
    /// Sources in use.
    pub sources: usize,
    /// The consumer takes the file in order: what comes first is waited for, whoever may bring it.
    pub in_order: bool,
    /// Smallest unit of a swath, bytes.
    pub grid_bytes: u64,
}
