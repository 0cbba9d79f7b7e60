//! The router: events in, ways to open and to close out.
//!
//! What always holds: a direct way is open to every replica as long as that can be had (but in
//! [`Mode::Fixed`]); no way is opened twice at a time; at most `ways_max` ways through relays are
//! in use and at most as many again as may be on trial are open beside them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use swath_model::Time;

use super::belief::PRIOR_SCATTER;
use super::book::{Book, Samples};
use super::config::{Mode, RouterConfig};
use super::event::{RouteAction, RouteEvent};
use super::graph::{Graph, Reading};
use super::name::{ReplicaId, Route, SiteId, WayId};
use super::relay::{Rest, Standing, Suspect};
use super::verdict::Verdict;
use super::view::{WayState, WayView, Why};

/// Decides which ways a transfer uses.
#[derive(Clone, Debug)]
pub struct Router {
    pub(crate) config: RouterConfig,
    pub(crate) rng: fastrand::Rng,
    pub(crate) graph: Graph,
    /// Where each replica is.
    pub(crate) replicas: BTreeMap<ReplicaId, SiteId>,
    pub(crate) standings: BTreeMap<SiteId, Standing>,
    /// What is open, in the order of opening.
    pub(crate) ways: BTreeMap<WayId, Book>,
    pub(crate) closed: VecDeque<WayView>,
    pub(crate) rests: BTreeMap<(ReplicaId, Route), Rest>,
    pub(crate) verdicts: Vec<Verdict>,
    /// Every route through relays that was ever tried.
    pub(crate) opened: BTreeSet<(ReplicaId, Route)>,
    pub(crate) suspects: BTreeMap<(SiteId, SiteId), Suspect>,
    pub(crate) actions: VecDeque<RouteAction>,
    pub(crate) left_bytes: Option<u64>,
    /// What came over all ways together, those that are closed included.
    pub(crate) whole: Samples,
    closed_bytes: f64,
    pub(crate) now_s: f64,
    /// When the first replica was known.
    pub(crate) began_s: Option<f64>,
    /// When the first byte of all came.
    pub(crate) first_s: Option<f64>,
    pub(crate) next_look_s: f64,
    pub(crate) next_trial_s: f64,
    pub(crate) next_known_s: f64,
    /// Trials that came to nothing, one after the other.
    pub(crate) failures: u32,
    /// Remembered readings that turned out wrong, and right.
    pub(crate) memory: (u32, u32),
    /// Rate times round trip of what was measured, in bytes.
    pub(crate) yardstick: Option<f64>,
    /// How far such products scatter: the standard deviation of their logarithms.
    pub(crate) scatter: f64,
    /// What direct ways brought when nothing ran beside them.
    pub(crate) alone: f64,
    /// How much of the last moments direct ways waited for us, from 0 to 1.
    pub(crate) awaited: f64,
    awaited_s: f64,
    /// The one relay of those suspected of corruption that may be used.
    pub(crate) on_probation: Option<SiteId>,
    pub(crate) next_probation_s: f64,
    next_way: u32,
    attempts: u32,
    changes: u32,
}

impl Router {
    /// A router that knows nothing yet.
    pub fn new(config: RouterConfig) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(config.seed),
            config,
            graph: Graph::default(),
            replicas: BTreeMap::new(),
            standings: BTreeMap::new(),
            ways: BTreeMap::new(),
            closed: VecDeque::new(),
            rests: BTreeMap::new(),
            verdicts: Vec::new(),
            opened: BTreeSet::new(),
            suspects: BTreeMap::new(),
            actions: VecDeque::new(),
            left_bytes: None,
            whole: Samples::default(),
            closed_bytes: 0.0,
            now_s: 0.0,
            began_s: None,
            first_s: None,
            next_look_s: 0.0,
            next_trial_s: 0.0,
            next_known_s: 0.0,
            failures: 0,
            memory: (0, 0),
            yardstick: None,
            scatter: PRIOR_SCATTER,
            alone: 0.0,
            awaited: 0.0,
            awaited_s: 0.0,
            on_probation: None,
            next_probation_s: 0.0,
            next_way: 0,
            attempts: 0,
            changes: 0,
        }
    }

    /// Enter what happened. Of sites and ways that it does not know, nothing is believed.
    pub fn handle(&mut self, event: RouteEvent, now: Time) {
        self.now_s = self.now_s.max(now.as_secs_f64());
        match event {
            RouteEvent::ReplicaAdded { replica, site } => self.add_replica(replica, site),
            RouteEvent::ReplicaLost { replica } => self.lose_replica(replica),
            RouteEvent::RelayUp { site } => self.relay_up(site),
            RouteEvent::RelayLost { site } => self.relay_lost(site),
            RouteEvent::RelayAnswered { site, was_silent } => {
                self.relay_answered(site, was_silent);
            }
            RouteEvent::RoundTrip { from, to, rtt_s } => self.graph.round_trip(from, to, rtt_s),
            RouteEvent::Remembered { from, to, reading } => self.remember(from, to, reading),
            RouteEvent::Claimed { by, from, reading } => self.claim(by, from, reading),
            RouteEvent::Reported { way, hops } => self.report(way, hops),
            // What counts is its first byte.
            RouteEvent::WayFailed { way, fault, at } => self.way_failed(way, fault, at),
            RouteEvent::Progress { ways, left_bytes } => {
                self.left_bytes = left_bytes;
                for (way, now) in ways {
                    if let Some(book) = self.ways.get_mut(&way) {
                        book.record(now, self.now_s);
                        if book.first_s.is_some() {
                            self.first_s.get_or_insert(self.now_s);
                        }
                    }
                }
                self.note_waits();
                let open: f64 = self.ways.values().map(|it| it.now.delivered_bytes as f64).sum();
                self.whole.record(self.now_s, self.closed_bytes + open);
                self.look();
            }
        }
    }

    /// How much direct ways wait for us.
    fn note_waits(&mut self) {
        let passed_s = self.now_s - std::mem::replace(&mut self.awaited_s, self.now_s);
        let mut direct = self.ways.values().filter(|it| it.route.is_direct() && it.now.busy);
        let is_awaited = direct.any(|book| book.now.awaits_us);
        let keeps = 0.5f64.powf(passed_s.clamp(0.0, 1.0) / AWAITED_S);
        self.awaited = self.awaited * keeps + if is_awaited { 1.0 - keeps } else { 0.0 };
    }

    /// What to do next; to be asked until it answers nothing.
    pub fn poll(&mut self, now: Time) -> Option<RouteAction> {
        self.now_s = self.now_s.max(now.as_secs_f64());
        if self.actions.is_empty() && self.now_s >= self.next_look_s {
            self.look();
        }
        self.actions.pop_front()
    }

    /// When to ask again although nothing has happened.
    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.actions.is_empty() {
            return Some(Time::from_secs_f64(self.now_s));
        }
        (!self.replicas.is_empty()).then(|| Time::from_secs_f64(self.next_look_s))
    }

    /// All ways that are open, and the latest of those that were closed, in the order of opening.
    pub fn views(&self) -> Vec<WayView> {
        let mut views: Vec<WayView> = self.closed.iter().cloned().collect();
        views.extend(self.ways.values().map(|book| book.view(self.now_s)));
        views.sort_by_key(|view| view.way);
        views
    }

    /// How many ways through relays have been opened so far.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How often what is in use has changed: a way through relays taken into use, or out of it.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// What is known of the sites.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What was measured in this transfer and is worth remembering: `(from, to, reading)`.
    pub fn readings(&self) -> impl Iterator<Item = (SiteId, SiteId, Reading)> + '_ {
        self.graph.edges().filter_map(|(from, to, edge)| {
            let noted = edge.reading.filter(|noted| !noted.remembered)?;
            Some((from, to, noted.reading(self.now_s)))
        })
    }

    fn add_replica(&mut self, replica: ReplicaId, site: SiteId) {
        self.began_s.get_or_insert(self.now_s);
        if self.replicas.insert(replica, site).is_none() {
            self.open_named();
        }
    }

    fn lose_replica(&mut self, replica: ReplicaId) {
        self.replicas.remove(&replica);
        // Should it come back, what its ways were left for is past.
        self.rests.retain(|(of, _), _| *of != replica);
        let of_it = |book: &Book| book.replica == replica;
        for way in self.those(of_it) {
            self.close(way, Why::ReplicaLost);
        }
    }

    /// The numbers of the ways for which this is true.
    pub(crate) fn those(&self, is: impl Fn(&Book) -> bool) -> Vec<WayId> {
        self.ways.values().filter(|book| is(book)).map(|book| book.id).collect()
    }

    /// Open what is to be open whatever was measured: direct, or what the user named.
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
                if !self.is_open(replica, route) && rests.is_none_or(|it| it.until_s <= self.now_s)
                {
                    let way = self.open(replica, source, route.clone(), why, f64::INFINITY, false);
                    self.enter(way, WayState::InUse, why);
                }
            }
        }
    }

    pub(crate) fn is_open(&self, replica: ReplicaId, route: &Route) -> bool {
        self.ways.values().any(|book| book.replica == replica && book.route == *route)
    }

    /// Open a way.
    pub(crate) fn open(
        &mut self,
        replica: ReplicaId,
        source: SiteId,
        route: Route,
        why: Why,
        promised: f64,
        on_trial: bool,
    ) -> WayId {
        let id = WayId(self.next_way);
        self.next_way += 1;
        if !route.is_direct() {
            self.attempts += 1;
            self.opened.insert((replica, route.clone()));
        }
        let mut book = Book::new(id, replica, source, route.clone(), self.now_s);
        (book.promised, book.why) = (promised, why);
        book.rtt_s = self.rtt_s(&route, source);
        self.ways.insert(id, book);
        self.actions.push_back(RouteAction::Open { way: id, replica, route, on_trial });
        id
    }

    pub(crate) fn enter(&mut self, way: WayId, state: WayState, why: Why) {
        let now_s = self.now_s;
        let Some(book) = self.ways.get_mut(&way) else { return };
        if state == WayState::InUse && book.state != state && !book.route.is_direct() {
            self.changes += 1;
        }
        let tried = book.state == WayState::OnTrial;
        book.enter(state, why, now_s);
        if state == WayState::InUse && tried {
            self.actions.push_back(RouteAction::Use { way });
        }
    }

    /// Close a way and tell so.
    pub(crate) fn close(&mut self, way: WayId, why: Why) {
        if self.forget(way, why) {
            self.actions.push_back(RouteAction::Close { way });
        }
    }

    /// A way is gone.
    pub(crate) fn forget(&mut self, way: WayId, why: Why) -> bool {
        let Some(mut book) = self.ways.remove(&way) else { return false };
        self.closed_bytes += book.now.delivered_bytes as f64;
        self.changes += u32::from(book.state == WayState::InUse && !book.route.is_direct());
        book.enter(WayState::Closed, why, self.now_s);
        self.closed.push_back(book.view(self.now_s));
        if self.closed.len() > CLOSED_MAX {
            self.closed.pop_front();
        }
        true
    }

    /// Sum of the round trips of a route's hops, in seconds, as far as they are known and can be:
    /// it says how long a way is waited for, and relays tell it.
    pub(crate) fn rtt_s(&self, route: &Route, source: SiteId) -> f64 {
        let edges = route.edges(source);
        edges
            .map(|(from, to)| self.graph.edge(from, to).and_then(|edge| edge.rtt_s))
            .fold(0.0, |sum, rtt_s| sum + rtt_s.unwrap_or(UNKNOWN_RTT_S))
            .min(LONGEST_RTT_S)
    }

    /// A moment that other transfers do not choose as well.
    pub(crate) fn about(&mut self, seconds: f64) -> f64 {
        seconds * (0.75 + 0.5 * self.rng.f64())
    }
}

/// After so long, half of what is known of waiting is forgotten.
const AWAITED_S: f64 = 0.5;

/// How many closed ways are shown.
const CLOSED_MAX: usize = 64;

/// Longer ones there are not, by satellites neither, but in what somebody tells who wants to be
/// waited for.
const LONGEST_RTT_S: f64 = 2.0;

/// Of hops whose round trip nobody has told, for how long to wait for them.
const UNKNOWN_RTT_S: f64 = 0.1;
