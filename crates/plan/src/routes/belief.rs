//! The expected rate of each edge: measured, remembered, claimed, or guessed by its round trip.
//!
//! Rates come only from what we received ourselves. Reports of relays decide which edge was the
//! limit and in which order other routes are tried. So a lying relay can waste a trial and nothing
//! more.

use std::collections::BTreeMap;

use super::event::HopReport;
use super::graph::{Grade, Graph, Noted, Reading};
use super::matrix::Hop;
use super::name::{Route, SiteId};
use super::relay::Suspect;

/// What is known and assumed of the edges.
#[derive(Clone, Debug)]
pub(crate) struct Beliefs {
    pub graph: Graph,
    /// Edges on which something broke.
    pub suspects: BTreeMap<(SiteId, SiteId), Suspect>,
    /// How many remembered readings turned out wrong, and right.
    memory: (u32, u32),
    /// Median of rate × round trip of the measured edges, in bytes.
    yardstick: Option<f64>,
    /// Scatter of these products: the standard deviation of their logarithms.
    scatter: f64,
}

impl Default for Beliefs {
    fn default() -> Self {
        Self {
            graph: Graph::default(),
            suspects: BTreeMap::new(),
            memory: (0, 0),
            yardstick: None,
            scatter: PRIOR_SCATTER,
        }
    }
}

impl Beliefs {
    /// Enters a reading from an earlier transfer, or from another one on this machine.
    pub fn remember(&mut self, from: SiteId, to: SiteId, reading: Reading, now_s: f64) {
        if !self.memory_is_wrong() || reading.age_s <= now_s {
            self.enter_word(from, to, reading, None, now_s);
        }
    }

    /// Enters a reading from a relay or from the memory.
    pub fn enter_word(
        &mut self,
        from: SiteId,
        to: SiteId,
        reading: Reading,
        by: Option<SiteId>,
        now_s: f64,
    ) {
        let rate = reading.rate_bytes_per_s;
        if !rate.is_finite() || rate <= 0.0 {
            return;
        }
        let new = Noted::new(reading, now_s, true, by);
        let edge = self.graph.edge_mut(from, to);
        if edge.reading.is_none_or(|old| old.remembered && old.at_s <= new.at_s) {
            edge.reading = Some(new);
        }
    }

    /// Records a rate measured in this transfer. A lower bound never lowers a known rate. Returns
    /// whether the measurement contradicts what was remembered.
    pub fn note(
        &mut self,
        (from, to): (SiteId, SiteId),
        rate: f64,
        grade: Grade,
        by: Option<SiteId>,
        now_s: f64,
    ) -> bool {
        let reading = Reading { rate_bytes_per_s: rate, grade, age_s: 0.0 };
        let new = Noted::new(reading, now_s, false, by);
        let edge = self.graph.edge_mut(from, to);
        let Some(old) = edge.reading else {
            edge.reading = Some(new);
            return false;
        };
        let stale = old.grade == Grade::AtLeast && !old.remembered && now_s - old.at_s > STALE_S;
        // A little above an exact rate is noise.
        let above = if old.grade == Grade::Exact { 1.1 } else { 1.0 };
        if grade == Grade::Exact || stale || rate > above * old.rate {
            edge.reading = Some(new);
        }
        is_from_before(&old) && self.judge_memory(&old, rate, grade)
    }

    /// Compares a measured rate with a remembered one. Readings that other transfers take meanwhile
    /// show their share of an edge, so they do not count as memory.
    fn judge_memory(&mut self, old: &Noted, rate: f64, grade: Grade) -> bool {
        let part = rate / old.rate;
        let (exact, was_exact) = (grade == Grade::Exact, old.grade == Grade::Exact);
        // More than a remembered lower bound, or a new lower bound below the memory, says nothing.
        // An edge may bring less than before because others share it, or because it is still coming
        // up to speed. An edge that brings more has no such excuse.
        let refuted = match () {
            () if was_exact && part > REFUTED => 2,
            () if exact && part < 1.0 / REFUTED => 1,
            () => 0,
        };
        let confirmed = exact && (1.0 / CONFIRMED..=CONFIRMED).contains(&part);
        let was_wrong = self.memory_is_wrong();
        self.memory.0 += refuted;
        self.memory.1 += u32::from(confirmed);
        let is_found_wrong = !was_wrong && self.memory_is_wrong();
        if is_found_wrong {
            self.drop_readings(is_from_before);
        }
        is_found_wrong
    }

    fn memory_is_wrong(&self) -> bool {
        let (refuted, confirmed) = self.memory;
        refuted >= REFUTED_MIN && refuted > confirmed
    }

    pub fn drop_readings(&mut self, wrong: impl Fn(&Noted) -> bool) {
        let edges: Vec<_> = self
            .graph
            .edges()
            .filter(|(_, _, edge)| edge.reading.as_ref().is_some_and(&wrong))
            .map(|(from, to, _)| (from, to))
            .collect();
        for (from, to) in edges {
            self.graph.edge_mut(from, to).reading = None;
        }
    }

    /// Records a relay's report of the rate and round trip of the hop to it.
    pub fn hint(&mut self, report: &HopReport) {
        if let Some(able) = report.able_bytes_per_s.filter(|able| able.is_finite() && *able > 0.0) {
            self.graph.edge_mut(report.from, report.relay).able = Some((able, report.relay));
        }
        if let Some(rtt_s) = report.rtt_s {
            self.graph.round_trip(report.from, report.relay, Some(rtt_s));
        }
    }

    /// Returns the expected rate of an edge for a connection that has it for itself.
    pub fn estimate(&self, from: SiteId, to: SiteId, now_s: f64) -> Option<Hop> {
        let edge = self.graph.edge(from, to);
        if edge.is_some_and(|edge| edge.dead) {
            return None;
        }
        let rtt_s = edge.and_then(|edge| edge.rtt_s);
        let guessed = self.yardstick.unwrap_or(YARDSTICK_BYTES)
            / rtt_s.unwrap_or(UNKNOWN_RTT_S).max(SHORTEST_S);
        // `able` is what arrived at a relay while nothing held it up. If it was soon held up, that
        // is only what had come up to speed by then: a lower bound.
        let able = edge.and_then(|edge| edge.able).map_or(0.0, |(able, _)| able);
        let more = able.max(guessed);
        let (mut rate, guess) = match edge.and_then(|edge| edge.reading) {
            None => (more, true),
            Some(noted) if noted.grade == Grade::Exact => (noted.weight, false),
            Some(noted) => (noted.weight.max(more), more > noted.weight),
        };
        if let Some(suspect) = self.suspects.get(&(from, to))
            && suspect.until_s > now_s
        {
            rate = rate.min(suspect.rate);
        }
        let least = self.known(from, to, now_s).min(rate);
        Some(Hop { rate, rtt_s: rtt_s.unwrap_or(UNKNOWN_RTT_S), guess, least })
    }

    /// Returns the rate that an edge is known to carry.
    pub fn known(&self, from: SiteId, to: SiteId, now_s: f64) -> f64 {
        if self.suspects.get(&(from, to)).is_some_and(|it| it.until_s > now_s) {
            return 0.0;
        }
        let edge = self.graph.edge(from, to).filter(|edge| !edge.dead);
        edge.and_then(|edge| edge.reading).map_or(0.0, |noted| noted.weight)
    }

    /// Computes the median of rate × round trip over the measured edges, and their scatter. The
    /// product is the size of a window, or what losses leave of it.
    pub fn calibrate(&mut self) {
        let products = |grade| {
            let edges = self.graph.edges();
            edges.filter_map(move |(_, _, edge)| {
                let noted = edge.reading.filter(|noted| noted.grade == grade)?;
                Some(noted.rate * edge.rtt_s?.max(SHORTEST_S)).filter(|product| *product > 0.0)
            })
        };
        let mut products_of: Vec<f64> = products(Grade::Exact).collect();
        let Some(exact) = median(&mut products_of) else { return };
        // A lower bound says something only if it is high. Exact readings come from edges that were
        // a limit, so from narrow ones; the high bounds make up for that.
        products_of.extend(products(Grade::AtLeast).filter(|product| *product > exact));
        let median = median(&mut products_of).unwrap_or(exact);
        let products = products_of;
        self.yardstick = Some(median);
        let squares = products.iter().map(|product| (product / median).ln().powi(2)).sum::<f64>();
        let weight = PRIOR_EDGES + products.len() as f64;
        self.scatter = ((PRIOR_EDGES * PRIOR_SCATTER.powi(2) + squares) / weight).sqrt();
    }

    /// Returns the sum of a route's round trips in seconds, with a default for unknown hops and a
    /// cap. It decides how long to wait for a route, and relays report parts of it.
    pub fn rtt_s(&self, route: &Route, source: SiteId) -> f64 {
        let edges = route.edges(source);
        edges
            .map(|(from, to)| self.graph.edge(from, to).and_then(|edge| edge.rtt_s))
            .fold(0.0, |sum, rtt_s| sum + rtt_s.unwrap_or(UNTOLD_RTT_S))
            .min(LONGEST_RTT_S)
    }

    /// Returns the shape of the Weibull distribution of rates about their guesses.
    pub fn shape(&self) -> f64 {
        // Derived from the standard deviation of the logarithm.
        (std::f64::consts::PI / 6f64.sqrt() / self.scatter).clamp(1.0, 4.0)
    }

    /// Returns by which factor an unknown edge may well exceed its guess.
    pub fn hope(&self) -> f64 {
        self.scatter.min(1.2).exp()
    }
}

/// Returns whether we remembered it from before this transfer, not from a relay's report.
fn is_from_before(noted: &Noted) -> bool {
    noted.remembered && noted.by.is_none() && noted.at_s <= 0.0
}

fn median(of: &mut [f64]) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied()
}

/// Age in seconds at which a lower bound measured in this transfer may be lowered.
const STALE_S: f64 = 10.0;

/// A remembered reading that is wrong by this factor is refuted …
const REFUTED: f64 = 2.0;
/// … and one that is right within this factor is confirmed. A wrong memory has some readings near
/// the truth by chance; the stricter the factor, the fewer they are.
const CONFIRMED: f64 = 1.5;
/// One edge that brings less may have changed. Several such edges, or one that brings more, show
/// that the memory is of another network.
const REFUTED_MIN: u32 = 2;

/// Rate × round trip assumed before any measurement: ten times that of the published edges. Only
/// the order of candidates depends on it.
const YARDSTICK_BYTES: f64 = 150e3;

/// Scatter of the published edges about their mean (standard deviation of the logarithm; gives a
/// shape of 3) …
const PRIOR_SCATTER: f64 = 0.43;
/// … which weighs as much as this many measurements of our own.
const PRIOR_EDGES: f64 = 8.0;

/// Round trips below this say nothing about the rate.
const SHORTEST_S: f64 = 0.005;

/// Round trip assumed to guess a rate if nobody has reported one: long, so that others go first.
const UNKNOWN_RTT_S: f64 = 0.15;

/// Longest round trip believed. Real ones are shorter, even by satellite; a relay that reports more
/// wants us to wait for it.
const LONGEST_RTT_S: f64 = 2.0;

/// Round trip assumed to decide how long to wait for a hop, if nobody has reported one.
const UNTOLD_RTT_S: f64 = 0.1;
