//! The sites and what is known of the edges between them.
//!
//! The graph of LaBissoniere and Roche ("Adaptive logistical routing"): directed, the weight of an
//! edge is the throughput that was measured on it, and an edge that nobody has measured counts as
//! infinite until somebody has. An edge between any two sites is taken to exist unless it is known
//! that one cannot reach the other. Data flows from origins over relays to us; no route leads
//! through an origin.

use std::collections::{BTreeMap, BTreeSet};

use super::flow;
use super::matrix::{Hop, Matrix};
use super::name::{Route, SiteId};

/// How a rate is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// The edge could bring more: something else on the route was the limit.
    AtLeast,
    /// The edge was the limit.
    Exact,
}

/// What somebody measured on an edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Bytes per second.
    pub rate_bytes_per_s: f64,
    /// How to take it.
    pub grade: Grade,
    /// Seconds since it was measured.
    pub age_s: f64,
}

/// What is known of one direction between two sites.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edge {
    pub(crate) reading: Option<Noted>,
    /// What a relay thinks that the edge could bring, and which relay that is.
    pub(crate) able: Option<(f64, SiteId)>,
    /// Smallest round trip seen, in seconds.
    pub rtt_s: Option<f64>,
    /// `to` cannot reach `from`.
    pub dead: bool,
}

/// A reading with the moment at which it was true, in seconds of the transfer's clock; what is
/// remembered from earlier lies before zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Noted {
    /// As it was measured.
    pub rate: f64,
    pub grade: Grade,
    pub at_s: f64,
    /// What it counts as: the rate, scaled up as the reading ages.
    pub weight: f64,
    /// When that was last set.
    pub stamped_s: f64,
    /// From before this transfer, not measured in it.
    pub remembered: bool,
    /// The relay whose word it is; `None`: we saw it ourselves.
    pub by: Option<SiteId>,
}

/// A route to a source and what it is thought to bring.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPath {
    /// Where the data comes from.
    pub source: SiteId,
    /// The relays.
    pub route: Route,
    /// Bytes per second; infinite where nothing has been measured.
    pub rate_bytes_per_s: f64,
}

/// When weights are scaled up so that they are tried again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aging {
    /// A reading older than this is scaled up, in seconds.
    pub after_s: f64,
    /// By this factor.
    pub factor: f64,
    /// At most so many a turn, the oldest first.
    pub per_turn: usize,
}

/// Sites and edges.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    relays: BTreeSet<SiteId>,
    edges: BTreeMap<(SiteId, SiteId), Edge>,
}

impl Graph {
    /// A site over which data may pass from now on, or not any more.
    pub fn set_relay(&mut self, site: SiteId, usable: bool) {
        if usable && site != SiteId::HERE {
            self.relays.insert(site);
        } else {
            self.relays.remove(&site);
        }
    }

    /// Sites over which data may pass.
    pub fn relays(&self) -> impl Iterator<Item = SiteId> + '_ {
        self.relays.iter().copied()
    }

    /// Returns whether data may pass over a site.
    pub fn is_relay(&self, site: SiteId) -> bool {
        self.relays.contains(&site)
    }

    /// What is known of an edge; `None`: nothing.
    pub fn edge(&self, from: SiteId, to: SiteId) -> Option<&Edge> {
        self.edges.get(&(from, to))
    }

    /// Every edge of which something is known.
    pub fn edges(&self) -> impl Iterator<Item = (SiteId, SiteId, &Edge)> + '_ {
        self.edges.iter().map(|(&(from, to), edge)| (from, to, edge))
    }

    /// Enters a reading, at `now_s` of the transfer's clock.
    pub fn measured(&mut self, from: SiteId, to: SiteId, reading: Reading, now_s: f64) {
        if reading.rate_bytes_per_s.is_finite() && reading.rate_bytes_per_s >= 0.0 {
            self.edge_mut(from, to).reading = Some(Noted::new(reading, now_s, false, None));
        }
    }

    /// Enters a round trip in seconds; `None`: `to` cannot reach `from`.
    pub fn round_trip(&mut self, from: SiteId, to: SiteId, rtt_s: Option<f64>) {
        let edge = self.edge_mut(from, to);
        match rtt_s {
            Some(rtt_s) if rtt_s.is_finite() && rtt_s >= 0.0 => {
                edge.rtt_s = Some(edge.rtt_s.map_or(rtt_s, |known| known.min(rtt_s)));
                edge.dead = false;
            }
            Some(_) => {}
            None => edge.dead = true,
        }
    }

    pub(crate) fn edge_mut(&mut self, from: SiteId, to: SiteId) -> &mut Edge {
        self.edges.entry((from, to)).or_default()
    }

    /// The widest route from a source to us with at most `hops_max` edges: the largest smallest
    /// edge; of equally wide ones that with the fewest hops, of those the one with the smallest
    /// sum of round trips. Unknown edges are infinite, as published. Bytes per second.
    pub fn widest(&self, source: SiteId, hops_max: usize) -> Option<FlowPath> {
        self.matrix(&[source], f64::INFINITY).widest(hops_max)
    }

    /// The same over edges that somebody has measured, and no others.
    pub fn widest_known(&self, source: SiteId, hops_max: usize) -> Option<FlowPath> {
        self.matrix(&[source], 0.0).widest(hops_max)
    }

    /// Returns what can flow from a source to us over all routes together, over edges that somebody has
    /// measured, in bytes per second.
    pub fn max_flow(&self, source: SiteId) -> f64 {
        self.max_flow_of(&[source])
    }

    /// The same from several sources at once.
    pub fn max_flow_of(&self, sources: &[SiteId]) -> f64 {
        flow::max_flow(&self.matrix(sources, 0.0)).rate
    }

    /// Routes that together carry the maximum flow, the widest first, at most `ways_max` of them
    /// with at most `hops_max` edges each. Bytes per second each.
    pub fn flow_paths(
        &self,
        sources: &[SiteId],
        ways_max: usize,
        hops_max: usize,
    ) -> Vec<FlowPath> {
        flow::max_flow(&self.matrix(sources, 0.0)).routed_sources(ways_max, hops_max)
    }

    /// Scale the weight of what is older than the threshold up and stamp it anew, so that it is tried
    /// again; what was measured, and when, stays as it is. Answers how many that were.
    pub fn age(&mut self, now_s: f64, aging: &Aging) -> usize {
        let mut old: Vec<&mut Noted> = self
            .edges
            .values_mut()
            .filter_map(|edge| edge.reading.as_mut())
            .filter(|noted| now_s - noted.stamped_s > aging.after_s)
            .collect();
        old.sort_by(|a, b| a.stamped_s.total_cmp(&b.stamped_s));
        old.truncate(aging.per_turn);
        for noted in &mut old {
            noted.weight = (noted.weight * aging.factor).min(AGED_TIMES_MAX * noted.rate);
            noted.stamped_s = now_s;
        }
        old.len()
    }

    fn matrix(&self, sources: &[SiteId], unknown: f64) -> Matrix {
        // What could come over a source comes from it as well, and by the same edges.
        let relays: Vec<SiteId> = self.relays().filter(|it| !sources.contains(it)).collect();
        Matrix::new(&relays, sources, |from, to| {
            let edge = self.edge(from, to);
            if edge.is_some_and(|edge| edge.dead) {
                return None;
            }
            let rate = edge.and_then(|edge| edge.reading).map_or(unknown, |noted| noted.weight);
            let rtt_s = edge.and_then(|edge| edge.rtt_s).unwrap_or(UNKNOWN_RTT_S);
            Some(Hop { rate, rtt_s, guess: false, least: rate })
        })
    }
}

impl Edge {
    /// Returns the newest reading, with its age at `now_s` of the transfer's clock.
    pub fn reading(&self, now_s: f64) -> Option<Reading> {
        self.reading.map(|noted| noted.reading(now_s))
    }
}

impl Noted {
    /// Returns a reading as it is heard at `now_s`.
    pub fn new(reading: Reading, now_s: f64, remembered: bool, by: Option<SiteId>) -> Noted {
        let (rate, at_s) = (reading.rate_bytes_per_s, now_s - reading.age_s.max(0.0));
        let (weight, stamped_s) = (rate, at_s);
        Noted { rate, grade: reading.grade, at_s, weight, stamped_s, remembered, by }
    }

    pub fn reading(&self, now_s: f64) -> Reading {
        let age_s = (now_s - self.at_s).max(0.0);
        Reading { rate_bytes_per_s: self.rate, grade: self.grade, age_s }
    }
}

/// A reading counts as no more than so many times what was measured, however old it is: it is tried
/// again long before.
const AGED_TIMES_MAX: f64 = 1000.0;
/// Where nobody has answered yet the route is thought to be long, so that edges that are known to be
/// short are preferred.
const UNKNOWN_RTT_S: f64 = 0.3;
