//! The router: takes events, returns which routes to open and close.
//!
//! Invariants: a direct route to every replica is open whenever possible (except in
//! [`Mode::Fixed`]). No route is opened twice at a time. At most `ways_max` relay routes are in
//! use, and at most `trials_max` more are open beside them.

use std::collections::{BTreeMap, VecDeque};

use swath_model::Time;

use super::belief::Beliefs;
use super::config::{Mode, RouterConfig};
use super::event::{RouteAction, RouteEvent};
use super::graph::{Grade, Graph, Reading};
use super::name::{ReplicaId, Route, RoutedId, SiteId};
use super::relay::{Relays, Rest};
use super::routed_source::RoutedSource;
use super::routed_sources::RoutedSources;
use super::view::{RoutedState, RoutedView, Why};

/// Decides which routes a transfer uses.
#[derive(Clone, Debug)]
pub struct Router {
    pub(crate) config: RouterConfig,
    pub(crate) rng: fastrand::Rng,
    /// The site of each replica.
    pub(crate) replicas: BTreeMap<ReplicaId, SiteId>,
    pub(crate) left_bytes: Option<u64>,
    pub(crate) beliefs: Beliefs,
    pub(crate) relays: Relays,
    pub(crate) routed_sources: RoutedSources,
    pub(crate) rests: BTreeMap<(ReplicaId, Route), Rest>,
    pub(crate) trials: Trials,
    pub(crate) direct: Direct,
    pub(crate) times: Times,
    pub(crate) actions: VecDeque<RouteAction>,
}

/// When routes are tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trials {
    /// Failed trials in a row.
    pub failures: u32,
    /// When the next guessed route may be tried.
    pub next_s: f64,
    /// When to look for known routes next.
    pub next_known_s: f64,
}

impl Trials {
    /// Forgets earlier failures, so that the next trial may begin at once.
    pub fn begin_anew(&mut self, now_s: f64) {
        self.failures = 0;
        self.next_s = now_s;
    }
}

/// The state of the direct routes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Direct {
    /// Their rate when nothing ran beside them.
    pub alone: f64,
    /// Part of the recent past in which they waited for us, from 0 to 1.
    pub awaited: f64,
    awaited_s: f64,
}

/// Times of events, in seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub now_s: f64,
    /// When the first replica was known.
    pub began_s: Option<f64>,
    /// When the first byte arrived.
    pub first_s: Option<f64>,
    pub next_look_s: f64,
}

impl Router {
    /// Returns a router that knows nothing yet.
    pub fn new(config: RouterConfig) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(config.seed),
            config,
            replicas: BTreeMap::new(),
            left_bytes: None,
            beliefs: Beliefs::default(),
            relays: Relays::default(),
            routed_sources: RoutedSources::default(),
            rests: BTreeMap::new(),
            trials: Trials::default(),
            direct: Direct::default(),
            times: Times::default(),
            actions: VecDeque::new(),
        }
    }

    /// Handles an event. Events about unknown sites and routes are ignored.
    pub fn handle(&mut self, event: RouteEvent, now: Time) {
        self.times.now_s = self.times.now_s.max(now.as_secs_f64());
        match event {
            RouteEvent::ReplicaAdded { replica, site } => self.add_replica(replica, site),
            RouteEvent::ReplicaLost { replica } => self.lose_replica(replica),
            RouteEvent::RelayUp { site } => self.relay_up(site),
            RouteEvent::RelayLost { site } => self.relay_lost(site),
            RouteEvent::RelayAnswered { site, was_silent } => {
                self.relay_answered(site, was_silent);
            }
            RouteEvent::RoundTrip { from, to, rtt_s } => {
                self.beliefs.graph.round_trip(from, to, rtt_s)
            }
            RouteEvent::Remembered { from, to, reading } => {
                self.beliefs.remember(from, to, reading, self.times.now_s);
            }
            RouteEvent::Claimed { by, from, reading } => self.claim(by, from, reading),
            RouteEvent::Reported { routed_id, hops } => self.report(routed_id, hops),
            RouteEvent::RoutedFailed { routed_id, fault, at } => {
                self.route_failed(routed_id, fault, at)
            }
            RouteEvent::Progress { routed_sources, left_bytes } => {
                self.left_bytes = left_bytes;
                for (routed_id, now) in routed_sources {
                    if let Some(routed) = self.routed_sources.open.get_mut(&routed_id) {
                        routed.record(now, self.times.now_s);
                        if routed.first_s.is_some() {
                            self.times.first_s.get_or_insert(self.times.now_s);
                        }
                    }
                }
                self.note_waits();
                self.routed_sources.record(self.times.now_s);
                self.look();
            }
        }
    }

    /// Updates how much direct routes wait for us.
    fn note_waits(&mut self) {
        let passed_s =
            self.times.now_s - std::mem::replace(&mut self.direct.awaited_s, self.times.now_s);
        let mut direct =
            self.routed_sources.open.values().filter(|it| it.route.is_direct() && it.now.busy);
        let is_awaited = direct.any(|routed| routed.now.awaits_us);
        let keeps = 0.5f64.powf(passed_s.clamp(0.0, 1.0) / AWAITED_S);
        self.direct.awaited =
            self.direct.awaited * keeps + if is_awaited { 1.0 - keeps } else { 0.0 };
    }

    /// Returns the next action; call until it returns `None`.
    pub fn poll(&mut self, now: Time) -> Option<RouteAction> {
        self.times.now_s = self.times.now_s.max(now.as_secs_f64());
        if self.actions.is_empty() && self.times.now_s >= self.times.next_look_s {
            self.look();
        }
        self.actions.pop_front()
    }

    /// Returns when to poll again even if nothing happens.
    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.actions.is_empty() {
            return Some(Time::from_secs_f64(self.times.now_s));
        }
        (!self.replicas.is_empty()).then(|| Time::from_secs_f64(self.times.next_look_s))
    }

    /// Returns all open routes and the latest closed ones, in the order of opening.
    pub fn views(&self) -> Vec<RoutedView> {
        self.routed_sources.views(self.times.now_s)
    }

    /// Returns how many routes through relays have been opened so far.
    pub fn attempts(&self) -> u32 {
        self.routed_sources.attempts
    }

    /// Returns how often relay routes were taken into use or out of it.
    pub fn changes(&self) -> u32 {
        self.routed_sources.changes
    }

    /// Returns what is known of the sites.
    pub fn graph(&self) -> &Graph {
        &self.beliefs.graph
    }

    /// Returns the measurements of this transfer to remember: `(from, to, reading)`.
    pub fn readings(&self) -> impl Iterator<Item = (SiteId, SiteId, Reading)> + '_ {
        self.beliefs.graph.edges().filter_map(|(from, to, edge)| {
            let noted = edge.reading.filter(|noted| !noted.remembered)?;
            Some((from, to, noted.reading(self.times.now_s)))
        })
    }

    fn add_replica(&mut self, replica: ReplicaId, site: SiteId) {
        self.times.began_s.get_or_insert(self.times.now_s);
        if self.replicas.insert(replica, site).is_none() {
            self.open_named();
        }
    }

    fn lose_replica(&mut self, replica: ReplicaId) {
        self.replicas.remove(&replica);
        // If the replica comes back, its routes start without back-off.
        self.rests.retain(|(of, _), _| *of != replica);
        let of_it = |routed: &RoutedSource| routed.replica == replica;
        for routed_id in self.routed_sources.those(of_it) {
            self.close(routed_id, Why::ReplicaLost);
        }
    }

    /// Opens the routes that need no measurement: direct, or those that the user named.
    pub(crate) fn open_named(&mut self) {
        let direct = [Route::direct()];
        let (routes, why) = match &self.config.mode {
            Mode::Fixed(routes) => (routes.clone(), Why::Named),
            _ => (direct.to_vec(), Why::Direct),
        };
        let replicas: Vec<_> = self.replicas.iter().map(|(&id, &site)| (id, site)).collect();
        for (replica, source) in replicas {
            for route in &routes {
                let why = if route.is_direct() { Why::Direct } else { why };
                let rests = self.rests.get(&(replica, route.clone()));
                if !self.routed_sources.is_open(replica, route)
                    && rests.is_none_or(|it| it.until_s <= self.times.now_s)
                {
                    let routed_id =
                        self.open(replica, source, route.clone(), why, f64::INFINITY, false);
                    self.enter(routed_id, RoutedState::InUse, why);
                }
            }
        }
    }

    /// Opens a route.
    pub(crate) fn open(
        &mut self,
        replica: ReplicaId,
        source: SiteId,
        route: Route,
        why: Why,
        promised: f64,
        on_trial: bool,
    ) -> RoutedId {
        let (now_s, rtt_s) = (self.times.now_s, self.beliefs.rtt_s(&route, source));
        let id = self.routed_sources.add(|id| {
            let mut routed = RoutedSource::new(id, replica, source, route.clone(), now_s);
            (routed.promised, routed.why, routed.rtt_s) = (promised, why, rtt_s);
            routed
        });
        self.actions.push_back(RouteAction::Open { routed_id: id, replica, route, on_trial });
        id
    }

    pub(crate) fn enter(&mut self, routed_id: RoutedId, state: RoutedState, why: Why) {
        let now_s = self.times.now_s;
        let Some(routed) = self.routed_sources.open.get_mut(&routed_id) else { return };
        if state == RoutedState::InUse && routed.state != state && !routed.route.is_direct() {
            self.routed_sources.changes += 1;
        }
        let tried = routed.state == RoutedState::OnTrial;
        routed.enter(state, why, now_s);
        if state == RoutedState::InUse && tried {
            self.actions.push_back(RouteAction::Use { routed_id });
        }
    }

    /// Closes a route and queues the action.
    pub(crate) fn close(&mut self, routed_id: RoutedId, why: Why) {
        if self.forget(routed_id, why) {
            self.actions.push_back(RouteAction::Close { routed_id });
        }
    }

    /// Removes a route; returns whether it was open.
    pub(crate) fn forget(&mut self, routed_id: RoutedId, why: Why) -> bool {
        self.routed_sources.close(routed_id, why, self.times.now_s)
    }

    /// Records what a relay measured on its own hop.
    fn claim(&mut self, by: SiteId, from: SiteId, reading: Reading) {
        let standing = self.relays.standing(by);
        if !standing.barred && !standing.disbelieved {
            self.beliefs.enter_word(from, by, reading, Some(by), self.times.now_s);
        }
    }

    /// Records a rate measured in this transfer.
    pub(crate) fn note(
        &mut self,
        edge: (SiteId, SiteId),
        rate: f64,
        grade: Grade,
        by: Option<SiteId>,
    ) {
        if self.beliefs.note(edge, rate, grade, by, self.times.now_s) {
            // Failed trials relied on the wrong memory.
            self.trials.begin_anew(self.times.now_s);
        }
    }

    /// Returns `seconds` with jitter, so that other transfers choose another moment.
    pub(crate) fn about(&mut self, seconds: f64) -> f64 {
        seconds * (0.75 + 0.5 * self.rng.f64())
    }
}

/// Half-life of the part of time that direct routes waited.
const AWAITED_S: f64 = 0.5;
