//! The open routed sources, and the displayed state of closed ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::name::{ReplicaId, Route, RoutedId, SiteId};
use super::routed_source::{RoutedSource, Samples};
use super::view::{RoutedState, RoutedView, Why};

/// What flows over each edge, bytes per second.
pub(crate) type Flows = BTreeMap<(SiteId, SiteId), f64>;

/// What is open, in the order of opening, and what was.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoutedSources {
    pub open: BTreeMap<RoutedId, RoutedSource>,
    closed: VecDeque<RoutedView>,
    /// Every route through relays that was ever tried.
    pub tried: BTreeSet<(ReplicaId, Route)>,
    /// What came over all routes together, those that are closed included.
    pub whole: Samples,
    closed_bytes: f64,
    next: u32,
    pub attempts: u32,
    pub changes: u32,
}

impl RoutedSources {
    /// A new one; its number.
    pub fn add(&mut self, new: impl FnOnce(RoutedId) -> RoutedSource) -> RoutedId {
        let id = RoutedId(self.next);
        self.next += 1;
        let routed = new(id);
        if !routed.route.is_direct() {
            self.attempts += 1;
            self.tried.insert((routed.replica, routed.route.clone()));
        }
        self.open.insert(id, routed);
        id
    }

    /// Takes note of what has come over all of them.
    pub fn record(&mut self, now_s: f64) {
        let open: f64 = self.open.values().map(|it| it.now.delivered_bytes as f64).sum();
        self.whole.record(now_s, self.closed_bytes + open);
    }

    /// Returns the numbers of the routes for which this is true.
    pub fn those(&self, is: impl Fn(&RoutedSource) -> bool) -> Vec<RoutedId> {
        self.open.values().filter(|routed| is(routed)).map(|routed| routed.id).collect()
    }

    /// Returns whether a route to a replica is open.
    pub fn is_open(&self, replica: ReplicaId, route: &Route) -> bool {
        self.open.values().any(|routed| routed.replica == replica && routed.route == *route)
    }

    /// Returns those through relays.
    pub fn relayed(&self) -> impl Iterator<Item = &RoutedSource> {
        self.open.values().filter(|routed| !routed.route.is_direct())
    }

    /// Returns what all routes bring together now.
    pub fn total(&self, now_s: f64) -> f64 {
        self.open.values().map(|routed| routed.rate(routed.window_s(), now_s)).sum()
    }

    /// Returns what flows over each edge now, over all routes together.
    pub fn flows(&self, now_s: f64) -> Flows {
        let mut flows = Flows::new();
        for routed in self.open.values() {
            let rate = routed.rate(routed.window_s().max(TRUTH_S), now_s);
            for edge in routed.edges() {
                *flows.entry(edge).or_default() += rate;
            }
        }
        flows
    }

    /// Returns the edge that limits a route, and whose word that is. Seen from us, it is the first edge whose
    /// receiver had nothing to wait for downstream while its sender had to wait for it.
    pub fn limit(
        &self,
        routed_id: RoutedId,
        now_s: f64,
    ) -> Option<((SiteId, SiteId), Option<SiteId>)> {
        let routed = self.open.get(&routed_id)?;
        let edges: Vec<_> = routed.edges().collect();
        for (at, &(_, to)) in edges.iter().enumerate().skip(1) {
            let (said_s, report) = routed.reports.get(&to)?;
            if now_s - said_s > FRESH_S {
                return None;
            }
            if report.held? >= HELD {
                return Some((edges[at - 1], Some(to)));
            }
        }
        let last = edges.last()?;
        Some((*last, Some(last.1).filter(|&to| to != SiteId::HERE)))
    }
    /// Returns whether another route through this relay brings something.
    pub fn is_alive(&self, routed_id: RoutedId, relay: SiteId, now_s: f64) -> bool {
        self.open.values().any(|routed| {
            routed.id != routed_id
                && routed.route.contains(relay)
                && routed.low_since_s.is_none()
                && routed.rate(routed.window_s(), now_s) > 0.0
        })
    }

    /// Returns whether another route brings something over this edge.
    pub fn is_carried_by_others(
        &self,
        routed_id: RoutedId,
        edge: (SiteId, SiteId),
        now_s: f64,
    ) -> bool {
        self.open.values().any(|routed| {
            routed.id != routed_id
                && routed.edges().any(|other| other == edge)
                && routed.low_since_s.is_none()
                && routed.rate(routed.window_s(), now_s) > 0.0
        })
    }
    /// Returns whether an older route in use is limited by the very edge that limits this one. Then this one
    /// adds nothing, or what it takes from others who use that edge: more connections over one edge
    /// are the planner's business, who opens lanes where they pay.
    pub fn has_twin(&self, routed_id: RoutedId, now_s: f64) -> bool {
        let limit = |routed_id| self.limit(routed_id, now_s).map(|(edge, _)| edge);
        let Some(edge) = limit(routed_id) else { return false };
        self.open.values().any(|other| {
            other.id < routed_id
                && other.state == RoutedState::InUse
                && other.low_since_s.is_none()
                && other.now.busy
                && limit(other.id) == Some(edge)
        })
    }
    /// Returns all routes that are open, and the latest of those that were closed, in the order of opening.
    pub fn views(&self, now_s: f64) -> Vec<RoutedView> {
        let mut views: Vec<RoutedView> = self.closed.iter().cloned().collect();
        views.extend(self.open.values().map(|routed| routed.view(now_s)));
        views.sort_by_key(|view| view.routed_id);
        views
    }

    /// A route is gone.
    pub fn close(&mut self, routed_id: RoutedId, why: Why, now_s: f64) -> bool {
        let Some(mut routed) = self.open.remove(&routed_id) else { return false };
        self.closed_bytes += routed.now.delivered_bytes as f64;
        self.changes += u32::from(routed.state == RoutedState::InUse && !routed.route.is_direct());
        routed.enter(RoutedState::Closed, why, now_s);
        self.closed.push_back(routed.view(now_s));
        if self.closed.len() > CLOSED_MAX {
            self.closed.pop_front();
        }
        true
    }
}

/// How many closed routes are shown.
const CLOSED_MAX: usize = 64;
/// How long a report tells about now.
const FRESH_S: f64 = 3.0;
/// Held up for this part of the time, a relay could have taken more from upstream.
const HELD: f64 = 0.5;
/// Over how long a relay's word is compared with what came, in seconds.
pub(crate) const TRUTH_S: f64 = 1.0;
