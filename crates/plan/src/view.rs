//! What policies and observers may see of the planner's state.

use std::time::Duration;

use swath_model::{SourceId, Time};

use crate::planner::Planner;

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

impl Planner {
    /// The state of one source, for display.
    pub fn source(&self, source: SourceId) -> Option<SourceView> {
        let it = self.sources.get(source.index())?;
        let busy =
            it.lanes.iter().any(|id| self.lanes.get(id).is_some_and(|lane| !lane.queue.is_empty()));
        Some(SourceView {
            source,
            status: it.status,
            rate_bytes_per_s: it.rate,
            best_rate_bytes_per_s: it.best_rate,
            delivered_bytes: it.delivered_bytes,
            rtt: it.rtt_s.map(std::time::Duration::from_secs_f64),
            lanes: it.lanes.len() as u32,
            busy,
            paced: it.pace.is_some(),
            on_probation: it.on_probation(),
            failing: it.has_failed(),
            retry_at: (it.lanes.is_empty() && it.retry_at > Time::ZERO).then_some(it.retry_at),
        })
    }

    /// How many connections there are whose servers limit the rate of each answer. When that changes,
    /// rates from before say nothing of what is to come.
    pub fn paced_lanes(&self) -> usize {
        self.lanes.values().filter(|lane| lane.is_up() && lane.pace().is_some()).count()
    }

    pub(crate) fn whole_view(&self, now: Time) -> WholeView {
        WholeView {
            size_bytes: self.size_bytes.unwrap_or(0),
            undelivered_bytes: self.undelivered.total_bytes(),
            open_bytes: self.open.total_bytes(),
            rate_bytes_per_s: self.rate,
            time_left_s: self.horizon_s(now).unwrap_or(f64::INFINITY),
            sources: self.usable_sources.min(self.config.max_sources),
            in_order: self.config.window_bytes.is_some(),
            grid_bytes: self.config.grid_bytes.max(1),
        }
    }
}
