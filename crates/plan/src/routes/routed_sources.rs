//! The open routed sources, and the displayed state of closed ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::name::{ReplicaId, Route, RoutedId, SiteId};
use super::routed_source::{RoutedSource, Samples};
use super::view::{RoutedState, RoutedView, Why};

/// What flows over each edge, bytes per second.
pub(crate) type Flows = BTreeMap<(SiteId, SiteId), f64>;

/// The open routed sources, in the order of opening, and the latest closed ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoutedSources {
    pub open: BTreeMap<RoutedId, RoutedSource>,
    closed: VecDeque<RoutedView>,
    /// Every relay route that was ever tried.
    pub tried: BTreeSet<(ReplicaId, Route)>,
    /// Bytes over all routes together, including closed ones.
    pub whole: Samples,
    closed_bytes: f64,
    next: u32,
    pub attempts: u32,
    pub changes: u32,
}

impl RoutedSources {
    /// Adds a routed source and returns its number.
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

    /// Records the bytes delivered by all of them.
    pub fn record(&mut self, now_s: f64) {
        let open: f64 = self.open.values().map(|it| it.now.delivered_bytes as f64).sum();
        self.whole.record(now_s, self.closed_bytes + open);
    }

    /// Returns the numbers of the open routes that match.
    pub fn those(&self, is: impl Fn(&RoutedSource) -> bool) -> Vec<RoutedId> {
        self.open.values().filter(|routed| is(routed)).map(|routed| routed.id).collect()
    }

    /// Returns whether a route to a replica is open.
    pub fn is_open(&self, replica: ReplicaId, route: &Route) -> bool {
        self.open.values().any(|routed| routed.replica == replica && routed.route == *route)
    }

    /// Returns the open routes through relays.
    pub fn relayed(&self) -> impl Iterator<Item = &RoutedSource> {
        self.open.values().filter(|routed| !routed.route.is_direct())
    }

    /// Returns the present rate of all routes together.
    pub fn total(&self, now_s: f64) -> f64 {
        self.open.values().map(|routed| routed.rate(routed.window_s(), now_s)).sum()
    }

    /// Returns the present flow over each edge, from all routes together.
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

    /// Returns the edge that limits a route, and the relay that reported it. Seen from us, it is
    /// the edge before the first relay that its downstream side holds up, or else the last edge.
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
    /// Returns whether the same edge limits this route and an older one in use. Then this one adds
    /// nothing, or takes it from others who use that edge. More connections over one edge are left
    /// to the planner, which opens lanes where they pay.
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
    /// Returns all open routes and the latest closed ones, in the order of opening.
    pub fn views(&self, now_s: f64) -> Vec<RoutedView> {
        let mut views: Vec<RoutedView> = self.closed.iter().cloned().collect();
        views.extend(self.open.values().map(|routed| routed.view(now_s)));
        views.sort_by_key(|view| view.routed_id);
        views
    }

    /// Closes a route; returns whether it was open.
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

/// Most closed routes kept for display.
const CLOSED_MAX: usize = 64;
/// How long a report counts as current.
const FRESH_S: f64 = 3.0;
/// A relay held up for this part of the time could have taken more from upstream.
const HELD: f64 = 0.5;
/// Time over which a relay's report is compared with what arrived, in seconds.
pub(crate) const TRUTH_S: f64 = 1.0;
