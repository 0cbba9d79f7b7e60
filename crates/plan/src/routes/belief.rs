//! What each edge is thought to bring: measured, remembered, claimed, or guessed by its round trip.
//!
//! Numbers are only ever what we received ourselves; what relays say of a route decides which of its
//! edges was the limit, and in which order others are tried. So a relay that lies can waste a
//! trial and nothing more.

use std::collections::BTreeMap;

use super::event::HopReport;
use super::graph::{Grade, Graph, Noted, Reading};
use super::matrix::Hop;
use super::name::{Route, SiteId};
use super::relay::Suspect;

/// What is known and thought of the edges.
#[derive(Clone, Debug)]
pub(crate) struct Beliefs {
    pub graph: Graph,
    /// Edges on which something broke.
    pub suspects: BTreeMap<(SiteId, SiteId), Suspect>,
    /// Remembered readings that turned out wrong, and right.
    memory: (u32, u32),
    /// Rate times round trip of what was measured, in bytes.
    yardstick: Option<f64>,
    /// How far such products scatter: the standard deviation of their logarithms.
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
    /// Something remembered from before, or measured by others on this machine.
    pub fn remember(&mut self, from: SiteId, to: SiteId, reading: Reading, now_s: f64) {
        if !self.memory_is_wrong() || reading.age_s <= now_s {
            self.enter_word(from, to, reading, None, now_s);
        }
    }

    /// What is said of an edge, by a relay or by our memory.
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
        // A hair's breadth above what is exactly known is noise.
        let above = if old.grade == Grade::Exact { 1.1 } else { 1.0 };
        if grade == Grade::Exact || stale || rate > above * old.rate {
            edge.reading = Some(new);
        }
        is_from_before(&old) && self.judge_memory(&old, rate, grade)
    }

    /// What an edge brings now is held against what was remembered of it. (What others measure meanwhile
    /// is their share of an edge, and no memory.)
    fn judge_memory(&mut self, old: &Noted, rate: f64, grade: Grade) -> bool {
        let part = rate / old.rate;
        let (exact, was_exact) = (grade == Grade::Exact, old.grade == Grade::Exact);
        // More than it brought at least, or than came over it this time, says nothing. Others may share an
        // edge that brings less than it did, and what is only coming up to speed brings less too; there
        // is no such excuse for one that brings more.
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

    /// What a relay says that the hop to it could bring.
    pub fn hint(&mut self, report: &HopReport) {
        if let Some(able) = report.able_bytes_per_s.filter(|able| able.is_finite() && *able > 0.0) {
            self.graph.edge_mut(report.from, report.relay).able = Some((able, report.relay));
        }
        if let Some(rtt_s) = report.rtt_s {
            self.graph.round_trip(report.from, report.relay, Some(rtt_s));
        }
    }

    /// Returns what an edge is thought to bring to a connection that has it for itself.
    pub fn estimate(&self, from: SiteId, to: SiteId, now_s: f64) -> Option<Hop> {
        let edge = self.graph.edge(from, to);
        if edge.is_some_and(|edge| edge.dead) {
            return None;
        }
        let rtt_s = edge.and_then(|edge| edge.rtt_s);
        let guessed = self.yardstick.unwrap_or(YARDSTICK_BYTES)
            / rtt_s.unwrap_or(UNKNOWN_RTT_S).max(SHORTEST_S);
        // What came by a relay while nothing held it up is, where it soon was held up, what had come up to
        // speed by then: the least that the edge can bring.
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

    /// Returns what an edge is known to bring.
    pub fn known(&self, from: SiteId, to: SiteId, now_s: f64) -> f64 {
        if self.suspects.get(&(from, to)).is_some_and(|it| it.until_s > now_s) {
            return 0.0;
        }
        let edge = self.graph.edge(from, to).filter(|edge| !edge.dead);
        edge.and_then(|edge| edge.reading).map_or(0.0, |noted| noted.weight)
    }

    /// What the edges measured so far have in common: rate times round trip, the median. It is
    /// what a window brings, or what losses leave of one. And how far they scatter about it.
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
        // What an edge brings at least says something only if that is much. The exact ones are
        // those that were a limit: the narrow ones, which this makes up for.
        products_of.extend(products(Grade::AtLeast).filter(|product| *product > exact));
        let median = median(&mut products_of).unwrap_or(exact);
        let products = products_of;
        self.yardstick = Some(median);
        let squares = products.iter().map(|product| (product / median).ln().powi(2)).sum::<f64>();
        let weight = PRIOR_EDGES + products.len() as f64;
        self.scatter = ((PRIOR_EDGES * PRIOR_SCATTER.powi(2) + squares) / weight).sqrt();
    }

    /// Sum of the round trips of a route's hops, in seconds, as far as they are known and can be:
    /// it says how long a route is waited for, and relays tell it.
    pub fn rtt_s(&self, route: &Route, source: SiteId) -> f64 {
        let edges = route.edges(source);
        edges
            .map(|(from, to)| self.graph.edge(from, to).and_then(|edge| edge.rtt_s))
            .fold(0.0, |sum, rtt_s| sum + rtt_s.unwrap_or(UNTOLD_RTT_S))
            .min(LONGEST_RTT_S)
    }

    /// Returns the shape of the distribution of rates about their guesses.
    pub fn shape(&self) -> f64 {
        // Of Weibull's distribution, by the standard deviation of the logarithm.
        (std::f64::consts::PI / 6f64.sqrt() / self.scatter).clamp(1.0, 4.0)
    }

    /// Returns how many times its guess an edge that nobody knows may well bring.
    pub fn hope(&self) -> f64 {
        self.scatter.min(1.2).exp()
    }
}

/// Remembered from before this transfer, by us and not by a relay's word.
fn is_from_before(noted: &Noted) -> bool {
    noted.remembered && noted.by.is_none() && noted.at_s <= 0.0
}

fn median(of: &mut [f64]) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied()
}

/// What was measured in this transfer and lay below the truth counts for so long, in seconds.
const STALE_S: f64 = 10.0;

/// Remembered readings that are wrong by this factor are refuted, …
const REFUTED: f64 = 2.0;
/// … and such as are right within this one confirmed: a wrong memory has readings that lie near the
/// truth by chance, and the nearer they must lie the fewer these are.
const CONFIRMED: f64 = 1.5;
/// One edge that brings less may have changed; several, or one that brings more, say that the memory is
/// of another network.
const REFUTED_MIN: u32 = 2;

/// Rate times round trip before anything was measured: what the published edges have in common,
/// at ten times their rates. Only the order of candidates depends on it.
const YARDSTICK_BYTES: f64 = 150e3;

/// The published edges scatter about their mean so far (standard deviation of the logarithm, which
/// makes a shape of 3) …
const PRIOR_SCATTER: f64 = 0.43;
/// … which counts as much as so many measurements of our own.
const PRIOR_EDGES: f64 = 8.0;

/// Round trips below this say nothing about the rate.
const SHORTEST_S: f64 = 0.005;

/// Edges of which nobody has told the round trip are thought to be long: others go first.
const UNKNOWN_RTT_S: f64 = 0.15;

/// Longer round trips there are not, by satellites neither, but in what somebody tells who wants to
/// be waited for.
const LONGEST_RTT_S: f64 = 2.0;

/// Of hops whose round trip nobody has told, for how long to wait for them.
const UNTOLD_RTT_S: f64 = 0.1;
