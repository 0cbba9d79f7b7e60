//! The sites and what is known of the edges between them.
//!
//! The graph of LaBissoniere and Roche ("Adaptive logistical routing") is directed. The weight of
//! an edge is its measured throughput; an edge that nobody has measured counts as infinite. An edge
//! between any two sites is assumed to exist unless one is known not to reach the other. Data flows
//! from origins over relays to us; no route leads through an origin.

use std::collections::{BTreeMap, BTreeSet};

use super::flow;
use super::matrix::{Hop, Matrix};
use super::name::{Route, SiteId};

/// The meaning of a measured rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// The edge could bring more: something else on the route was the limit.
    AtLeast,
    /// The edge was the limit.
    Exact,
}

/// A rate measured on an edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Bytes per second.
    pub rate_bytes_per_s: f64,
    /// Whether the rate is exact or a lower bound.
    pub grade: Grade,
    /// Seconds since it was measured.
    pub age_s: f64,
}

/// What is known of one direction between two sites.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edge {
    pub(crate) reading: Option<Noted>,
    /// A relay's estimate of what the edge could bring, and that relay.
    pub(crate) able: Option<(f64, SiteId)>,
    /// Smallest round trip seen, in seconds.
    pub rtt_s: Option<f64>,
    /// `to` cannot reach `from`.
    pub dead: bool,
}

/// A reading with the time at which it was true, in seconds of the transfer's clock. Readings from
/// earlier transfers have negative times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Noted {
    /// The measured rate.
    pub rate: f64,
    pub grade: Grade,
    pub at_s: f64,
    /// The rate, scaled up as the reading ages.
    pub weight: f64,
    /// When the weight was last set.
    pub stamped_s: f64,
    /// From before this transfer, not measured in it.
    pub remembered: bool,
    /// The relay that reported it; `None`: we measured it ourselves.
    pub by: Option<SiteId>,
}

/// A route to a source and its expected rate.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPath {
    /// Where the data comes from.
    pub source: SiteId,
    /// The relays.
    pub route: Route,
    /// Bytes per second; infinite where nothing has been measured.
    pub rate_bytes_per_s: f64,
}

/// How old weights are scaled up so that their edges are tried again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aging {
    /// Age in seconds from which a reading is scaled up.
    pub after_s: f64,
    /// Factor by which it is scaled.
    pub factor: f64,
    /// Most readings scaled per turn, the oldest first.
    pub per_turn: usize,
}

/// Sites and edges.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    relays: BTreeSet<SiteId>,
    edges: BTreeMap<(SiteId, SiteId), Edge>,
}

impl Graph {
    /// Adds a site over which data may pass, or removes it.
    pub fn set_relay(&mut self, site: SiteId, usable: bool) {
        if usable && site != SiteId::HERE {
            self.relays.insert(site);
        } else {
            self.relays.remove(&site);
        }
    }

    /// Returns the sites over which data may pass.
    pub fn relays(&self) -> impl Iterator<Item = SiteId> + '_ {
        self.relays.iter().copied()
    }

    /// Returns whether data may pass over a site.
    pub fn is_relay(&self, site: SiteId) -> bool {
        self.relays.contains(&site)
    }

    /// Returns what is known of an edge; `None` if nothing is.
    pub fn edge(&self, from: SiteId, to: SiteId) -> Option<&Edge> {
        self.edges.get(&(from, to))
    }

    /// Returns every edge with a measurement or another observation.
    pub fn edges(&self) -> impl Iterator<Item = (SiteId, SiteId, &Edge)> + '_ {
        self.edges.iter().map(|(&(from, to), edge)| (from, to, edge))
    }

    /// Enters a reading at `now_s` of the transfer's clock.
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

    /// Returns the widest route from a source to us with at most `hops_max` edges: its smallest
    /// edge is the largest possible. Ties go to the fewest hops, then to the smallest sum of round
    /// trips. Unknown edges are infinite, as published. Bytes per second.
    pub fn widest(&self, source: SiteId, hops_max: usize) -> Option<FlowPath> {
        self.matrix(&[source], f64::INFINITY).widest(hops_max)
    }

    /// Returns the same, but only over measured edges.
    pub fn widest_known(&self, source: SiteId, hops_max: usize) -> Option<FlowPath> {
        self.matrix(&[source], 0.0).widest(hops_max)
    }

    /// Returns the maximum flow from a source to us over all routes together, over measured edges
    /// only, in bytes per second.
    pub fn max_flow(&self, source: SiteId) -> f64 {
        self.max_flow_of(&[source])
    }

    /// Returns the same for several sources at once.
    pub fn max_flow_of(&self, sources: &[SiteId]) -> f64 {
        flow::max_flow(&self.matrix(sources, 0.0)).rate
    }

    /// Returns routes that together carry the maximum flow, the widest first: at most `ways_max`,
    /// with at most `hops_max` edges each. Bytes per second each.
    pub fn flow_paths(
        &self,
        sources: &[SiteId],
        ways_max: usize,
        hops_max: usize,
    ) -> Vec<FlowPath> {
        flow::max_flow(&self.matrix(sources, 0.0)).routed_sources(ways_max, hops_max)
    }

    /// Scales up the weights of readings older than the threshold and stamps them anew, so that
    /// their edges are tried again. Keeps the measured rate and its time. Returns their number.
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
        // Data that could pass over a source can also start there, by the same edges.
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
    /// Returns the note of a reading received at `now_s`.
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

/// Most times its measured rate that a reading may count as, however old. It is tried again long
/// before.
const AGED_TIMES_MAX: f64 = 1000.0;
/// Round trip assumed for unmeasured edges: long, so that edges known to be short are preferred.
const UNKNOWN_RTT_S: f64 = 0.3;
