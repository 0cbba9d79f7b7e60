//! The ways that are open, and what is told of those that were.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::book::{Book, Samples};
use super::name::{ReplicaId, Route, SiteId, WayId};
use super::view::{WayState, WayView, Why};

/// What flows over each edge, bytes per second.
pub(crate) type Flows = BTreeMap<(SiteId, SiteId), f64>;

/// What is open, in the order of opening, and what was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ways {
    pub open: BTreeMap<WayId, Book>,
    closed: VecDeque<WayView>,
    /// Every route through relays that was ever tried.
    pub tried: BTreeSet<(ReplicaId, Route)>,
    /// What came over all ways together, those that are closed included.
    pub whole: Samples,
    closed_bytes: f64,
    next: u32,
    pub attempts: u32,
    pub changes: u32,
}

impl Ways {
    /// A new one; its number.
    pub fn add(&mut self, new: impl FnOnce(WayId) -> Book) -> WayId {
        let id = WayId(self.next);
        self.next += 1;
        let book = new(id);
        if !book.route.is_direct() {
            self.attempts += 1;
            self.tried.insert((book.replica, book.route.clone()));
        }
        self.open.insert(id, book);
        id
    }

    /// Takes note of what has come over all of them.
    pub fn record(&mut self, now_s: f64) {
        let open: f64 = self.open.values().map(|it| it.now.delivered_bytes as f64).sum();
        self.whole.record(now_s, self.closed_bytes + open);
    }

    /// The numbers of the ways for which this is true.
    pub fn those(&self, is: impl Fn(&Book) -> bool) -> Vec<WayId> {
        self.open.values().filter(|book| is(book)).map(|book| book.id).collect()
    }

    /// Whether a route to a replica is open.
    pub fn is_open(&self, replica: ReplicaId, route: &Route) -> bool {
        self.open.values().any(|book| book.replica == replica && book.route == *route)
    }

    /// Those through relays.
    pub fn relayed(&self) -> impl Iterator<Item = &Book> {
        self.open.values().filter(|book| !book.route.is_direct())
    }

    /// What all ways bring together now.
    pub fn total(&self, now_s: f64) -> f64 {
        self.open.values().map(|book| book.rate(book.window_s(), now_s)).sum()
    }

    /// What flows over each edge now, over all ways together.
    pub fn flows(&self, now_s: f64) -> Flows {
        let mut flows = Flows::new();
        for book in self.open.values() {
            let rate = book.rate(book.window_s().max(TRUTH_S), now_s);
            for edge in book.edges() {
                *flows.entry(edge).or_default() += rate;
            }
        }
        flows
    }

    /// The edge that limits a way, and whose word that is. Seen from us, it is the first edge whose
    /// receiver had nothing to wait for downstream while its sender had to wait for it.
    pub fn limit(&self, way: WayId, now_s: f64) -> Option<((SiteId, SiteId), Option<SiteId>)> {
        let book = self.open.get(&way)?;
        let edges: Vec<_> = book.edges().collect();
        for (at, &(_, to)) in edges.iter().enumerate().skip(1) {
            let (said_s, report) = book.reports.get(&to)?;
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
    /// Whether another way through this relay brings something.
    pub fn is_alive(&self, way: WayId, relay: SiteId, now_s: f64) -> bool {
        self.open.values().any(|book| {
            book.id != way
                && book.route.contains(relay)
                && book.low_since_s.is_none()
                && book.rate(book.window_s(), now_s) > 0.0
        })
    }

    /// Whether another way brings something over this edge.
    pub fn is_carried_by_others(&self, way: WayId, edge: (SiteId, SiteId), now_s: f64) -> bool {
        self.open.values().any(|book| {
            book.id != way
                && book.edges().any(|other| other == edge)
                && book.low_since_s.is_none()
                && book.rate(book.window_s(), now_s) > 0.0
        })
    }
    /// Whether an older way in use is limited by the very edge that limits this one. Then this one
    /// adds nothing, or what it takes from others who use that edge: more connections over one edge
    /// are the planner's business, who opens lanes where they pay.
    pub fn has_twin(&self, way: WayId, now_s: f64) -> bool {
        let limit = |way| self.limit(way, now_s).map(|(edge, _)| edge);
        let Some(edge) = limit(way) else { return false };
        self.open.values().any(|other| {
            other.id < way
                && other.state == WayState::InUse
                && other.low_since_s.is_none()
                && other.now.busy
                && limit(other.id) == Some(edge)
        })
    }
    /// All ways that are open, and the latest of those that were closed, in the order of opening.
    pub fn views(&self, now_s: f64) -> Vec<WayView> {
        let mut views: Vec<WayView> = self.closed.iter().cloned().collect();
        views.extend(self.open.values().map(|book| book.view(now_s)));
        views.sort_by_key(|view| view.way);
        views
    }

    /// A way is gone.
    pub fn close(&mut self, way: WayId, why: Why, now_s: f64) -> bool {
        let Some(mut book) = self.open.remove(&way) else { return false };
        self.closed_bytes += book.now.delivered_bytes as f64;
        self.changes += u32::from(book.state == WayState::InUse && !book.route.is_direct());
        book.enter(WayState::Closed, why, now_s);
        self.closed.push_back(book.view(now_s));
        if self.closed.len() > CLOSED_MAX {
            self.closed.pop_front();
        }
        true
    }
}

/// How many closed ways are shown.
const CLOSED_MAX: usize = 64;
/// How long a report tells about now.
const FRESH_S: f64 = 3.0;
/// Held up for this part of the time, a relay could have taken more from upstream.
const HELD: f64 = 0.5;
/// Over how long a relay's word is compared with what came, in seconds.
pub(crate) const TRUTH_S: f64 = 1.0;
