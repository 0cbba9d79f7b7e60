//! The part of the planner's state that policies and observers may see.

use std::time::Duration;

use swath_model::{SourceId, Time};

/// The state of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStatus {
    /// Not contacted yet.
    Spare,
    /// Being contacted, or waiting for its first byte.
    Probing,
    /// Delivering.
    Running,
    /// Nothing arrives although something was requested.
    Silent,
    /// Out for good.
    Bad,
}

/// One source, for display.
#[derive(Clone, Debug)]
pub struct SourceView {
    /// Its number.
    pub source: SourceId,
    /// Its state.
    pub status: SourceStatus,
    /// Present rate in bytes per second.
    pub rate_bytes_per_s: f64,
    /// The highest rate seen, bytes per second.
    pub best_rate_bytes_per_s: f64,
    /// Bytes from it that were still missing.
    pub delivered_bytes: u64,
    /// Smallest round trip seen.
    pub rtt: Option<Duration>,
    /// Lanes open or opening.
    pub lanes: u32,
    /// Lanes that it has because they pay, trials aside; 0 if the user decides.
    pub settled_lanes: u32,
    /// Whether anything is requested on any of its lanes.
    pub busy: bool,
    /// Whether its server limits the rate of each answer.
    pub paced: bool,
    /// Whether it was set aside for a while because nothing arrived for too long.
    pub on_probation: bool,
    /// Whether its last try failed.
    pub failing: bool,
    /// When it is contacted again, if it waits.
    pub retry_at: Option<Time>,
}

/// A lane, for the policy's decision.
#[derive(Clone, Debug)]
pub struct LaneView {
    /// Its source.
    pub source: SourceId,
    /// Its own rate, bytes per second; `None` before its first bytes.
    pub rate_bytes_per_s: Option<f64>,
    /// Bytes it has brought so far.
    pub brought_bytes: u64,
    /// Best rate per lane of its source so far; zero before any bytes.
    pub peer_rate_bytes_per_s: f64,
    /// Its round trip in seconds.
    pub rtt_s: f64,
    /// How long losses stop it at a time, in seconds: its last bytes may come that much later.
    pub stop_s: f64,
    /// Swaths requested and not finished.
    pub queued: usize,
    /// Bytes that must arrive before a new answer could begin.
    pub backlog_bytes: u64,
    /// The same in seconds.
    pub backlog_s: f64,
    /// Whether it takes a second request before the first is answered.
    pub pipelines: bool,
    /// Whether slow start may still be under way.
    pub ramping: bool,
    /// Whether the source is on probation: ask for little.
    pub on_probation: bool,
    /// Requests that a connection to this source serves, if limited.
    pub requests_max: Option<u32>,
    /// Whether its server limits the rate of each answer, after a burst at its beginning.
    pub paced: bool,
    /// Least useful length of an answer: shorter ones would hide a limit and collect bursts.
    pub answer_least_bytes: u64,
}

/// The whole transfer, for policies.
#[derive(Clone, Debug, Default)]
pub struct WholeView {
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Bytes not delivered yet.
    pub undelivered_bytes: u64,
    /// Bytes that are not requested from any source.
    pub open_bytes: u64,
    /// Sum of all lanes' rates, bytes per second.
    pub rate_bytes_per_s: f64,
    /// Seconds until the end if every lane keeps its rate and all end together; infinite while
    /// unknown.
    pub time_left_s: f64,
    /// Sources in use.
    pub sources: usize,
    /// Whether the consumer takes the file in order, so that it waits for the first missing bytes.
    pub in_order: bool,
    /// Smallest unit of a swath, bytes.
    pub grid_bytes: u64,
}
