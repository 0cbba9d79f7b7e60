//! What is recorded about one route while it is open.

use std::collections::{BTreeMap, VecDeque};

use super::event::{HopReport, RoutedNow};
use super::name::{ReplicaId, Route, RoutedId, SiteId};
use super::view::{RoutedState, RoutedView, Why};

/// One open route.
#[derive(Clone, Debug)]
pub(crate) struct RoutedSource {
    pub id: RoutedId,
    pub replica: ReplicaId,
    /// The site of the replica.
    pub source: SiteId,
    pub route: Route,
    pub state: RoutedState,
    pub why: Why,
    pub since_s: f64,
    pub opened_s: f64,
    /// When its first byte arrived.
    pub first_s: Option<f64>,
    /// The expected rate; infinite if nothing was known.
    pub promised: f64,
    /// Sum of the round trips of its hops, in seconds.
    pub rtt_s: f64,
    pub now: RoutedNow,
    /// When a local limit last held it up.
    held_s: Option<f64>,
    /// Its normal rate; forgotten within some seconds.
    pub settled: f64,
    /// Since when it has brought almost nothing although data was requested.
    pub low_since_s: Option<f64>,
    /// Whether a substitute was called for it.
    pub replaced: bool,
    /// Since when an older route has been limited by the same edge.
    pub twin_since_s: Option<f64>,
    /// Whether it counts toward the limit of trials at once.
    pub waited: bool,
    /// How often its trial was extended.
    pub longer: u32,
    /// The latest report of each relay on it, and when it came.
    pub reports: BTreeMap<SiteId, (f64, HopReport)>,
    samples: Samples,
}

/// Bytes delivered over time: (seconds, bytes), oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(VecDeque<(f64, f64)>);

impl Samples {
    pub fn record(&mut self, now_s: f64, bytes: f64) {
        if self.0.back().is_none_or(|last| now_s > last.0) {
            self.0.push_back((now_s, bytes));
        }
        while self.0.len() > 2 && now_s - self.0[1].0 > KEPT_S {
            self.0.pop_front();
        }
    }

    /// Returns the mean rate between two moments, 0 if they are not apart.
    pub fn mean(&self, from_s: f64, to_s: f64) -> f64 {
        if to_s - from_s < 1e-3 {
            return 0.0;
        }
        (self.bytes_at(to_s) - self.bytes_at(from_s)) / (to_s - from_s)
    }

    fn bytes_at(&self, at_s: f64) -> f64 {
        let after = self.0.partition_point(|sample| sample.0 < at_s);
        match (after.checked_sub(1).and_then(|at| self.0.get(at)), self.0.get(after)) {
            (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (at_s - a.0) / (b.0 - a.0),
            (Some(last), None) => last.1,
            (None, Some(first)) => first.1,
            (None, None) => 0.0,
        }
    }
}

impl RoutedSource {
    pub fn new(id: RoutedId, replica: ReplicaId, source: SiteId, route: Route, now_s: f64) -> Self {
        Self {
            id,
            replica,
            source,
            route,
            state: RoutedState::Opening,
            why: Why::Direct,
            since_s: now_s,
            opened_s: now_s,
            first_s: None,
            promised: f64::INFINITY,
            rtt_s: 0.0,
            now: RoutedNow::default(),
            held_s: None,
            settled: 0.0,
            low_since_s: None,
            replaced: false,
            twin_since_s: None,
            waited: false,
            longer: 0,
            reports: BTreeMap::new(),
            samples: Samples::default(),
        }
    }

    pub fn enter(&mut self, state: RoutedState, why: Why, now_s: f64) {
        (self.state, self.why, self.since_s) = (state, why, now_s);
    }

    pub fn record(&mut self, now: RoutedNow, now_s: f64) {
        self.now = now;
        if now.held {
            self.held_s = Some(now_s);
        }
        let bytes = now.delivered_bytes as f64;
        if bytes > 0.0 && self.first_s.is_none() {
            self.first_s = Some(now_s);
        }
        self.samples.record(now_s, bytes);
    }

    /// Returns whether a local limit holds its rate down, or did lately.
    pub fn is_held(&self, now_s: f64) -> bool {
        self.held_s.is_some_and(|held_s| now_s - held_s <= HELD_S)
    }

    /// Returns the mean rate over the last `window_s`, or since the first byte if that is shorter.
    pub fn rate(&self, window_s: f64, now_s: f64) -> f64 {
        let begin_s = (now_s - window_s).max(self.first_s.unwrap_or(now_s));
        self.mean(begin_s, now_s)
    }

    /// Returns the mean rate over `window_s` before a moment, or since it was half ripe if shorter.
    pub fn before(&self, at_s: f64, window_s: f64) -> f64 {
        let first_s = self.first_s.unwrap_or(at_s);
        let half_s = (first_s + 0.5 * self.ripe_s()).min(at_s - 0.1);
        self.mean((at_s - window_s).max(half_s), at_s)
    }

    /// Returns the mean rate between two moments, 0 if they are not apart.
    pub fn mean(&self, from_s: f64, to_s: f64) -> f64 {
        self.samples.mean(from_s, to_s)
    }

    /// Returns the time over which its rate is measured: long enough to even out bursts.
    pub fn window_s(&self) -> f64 {
        (3.0 * self.rtt_s).clamp(WINDOW_S, 1.5)
    }

    /// Returns whether its rate has had time to reach what the route can bring.
    pub fn is_ripe(&self, now_s: f64) -> bool {
        self.first_s.is_some_and(|first_s| now_s - first_s >= self.ripe_s())
    }

    fn ripe_s(&self) -> f64 {
        (RIPE_TRIPS * self.rtt_s).max(RIPE_S)
    }

    pub fn edges(&self) -> impl Iterator<Item = (SiteId, SiteId)> + '_ {
        self.route.edges(self.source)
    }

    pub fn view(&self, now_s: f64) -> RoutedView {
        RoutedView {
            routed_id: self.id,
            replica: self.replica,
            route: self.route.clone(),
            state: self.state,
            why: self.why,
            since_s: self.since_s,
            rate_bytes_per_s: self.rate(self.window_s(), now_s),
            promised_bytes_per_s: self.promised,
            delivered_bytes: self.now.delivered_bytes,
        }
    }
}

/// How far back samples reach: the longest trial and the time before it.
const KEPT_S: f64 = 12.0;

/// How long a local limit still counts against rates measured over the route.
const HELD_S: f64 = 3.0;

/// Shortest window for a rate: the planner's own last 0.3 s.
const WINDOW_S: f64 = 0.4;

/// A sender doubles its bytes in flight each round trip: eight lead from 14 kB to 3.7 MB.
const RIPE_TRIPS: f64 = 8.0;
const RIPE_S: f64 = 0.6;
