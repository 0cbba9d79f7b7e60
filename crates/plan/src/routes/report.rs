//! What relays report of a way: which hop was the limit, and whether what they say can be true.

use std::collections::BTreeMap;

use super::event::HopReport;
use super::graph::Grade;
use super::name::{SiteId, WayId};
use super::router::Router;

/// What flows over each edge, bytes per second.
pub(crate) type Flows = BTreeMap<(SiteId, SiteId), f64>;

impl Router {
    pub(crate) fn report(&mut self, way: WayId, hops: Vec<HopReport>) {
        for report in hops {
            let Some(book) = self.ways.get(&way) else { return };
            // Only about its own hop of this very way.
            let hop = (report.from, report.relay);
            if !book.edges().any(|edge| edge == hop) || self.standing(report.relay).disbelieved {
                continue;
            }
            if let Some(claimed) = report.rate_bytes_per_s {
                self.hold_against(way, &report, claimed);
            }
            if self.standing(report.relay).disbelieved {
                continue;
            }
            self.hint(&report);
            if let Some(book) = self.ways.get_mut(&way) {
                book.reports.insert(report.relay, (self.now_s, report));
            }
        }
    }

    /// The same bytes cross all hops of a way: what a relay says must agree with what we received.
    fn hold_against(&mut self, way: WayId, report: &HopReport, claimed: f64) {
        let Some(book) = self.ways.get(&way) else { return };
        let ours = book.rate(TRUTH_S, self.now_s);
        let steady = (0.5 * book.settled..2.0 * book.settled + 1.0).contains(&ours);
        if !book.is_ripe(self.now_s) || !steady || ours <= 0.0 || book.low_since_s.is_some() {
            return;
        }
        let hop = (report.from, report.relay);
        let all: f64 = self
            .ways
            .values()
            .filter(|book| book.edges().any(|edge| edge == hop))
            .map(|book| book.rate(TRUTH_S, self.now_s))
            .sum();
        let true_enough = (ours / CREDIBLE..=all * CREDIBLE).contains(&claimed);
        let standing = self.standings.entry(report.relay).or_default();
        standing.strikes = if true_enough { 0 } else { standing.strikes + 1 };
        if standing.strikes >= STRIKES {
            self.disbelieve(report.relay);
        }
    }

    /// A relay has been found to lie: nothing it ever said counts any more.
    fn disbelieve(&mut self, relay: SiteId) {
        self.standings.entry(relay).or_default().disbelieved = true;
        for book in self.ways.values_mut() {
            book.reports.remove(&relay);
        }
        self.drop_readings(|noted| noted.by == Some(relay));
        let hinted: Vec<_> = self
            .graph
            .edges()
            .filter(|(_, _, edge)| edge.able.is_some_and(|(_, by)| by == relay))
            .map(|(from, to, _)| (from, to))
            .collect();
        for (from, to) in hinted {
            self.graph.edge_mut(from, to).able = None;
        }
    }

    /// What flows over each edge now, over all ways together.
    pub(crate) fn flows(&self) -> Flows {
        let mut flows = Flows::new();
        for book in self.ways.values() {
            let rate = book.rate(book.window_s().max(TRUTH_S), self.now_s);
            for edge in book.edges() {
                *flows.entry(edge).or_default() += rate;
            }
        }
        flows
    }

    /// Learn of every edge of every way what it brings at least, and of the one that limits it what
    /// it brings.
    pub(crate) fn learn(&mut self, flows: &Flows) {
        let mut notes = Vec::new();
        for book in self.ways.values() {
            if !book.is_ripe(self.now_s) || !book.now.busy || book.low_since_s.is_some() {
                continue;
            }
            let limit = self.limit(book.id);
            for edge in book.edges() {
                let rate = flows.get(&edge).copied().unwrap_or(0.0);
                match limit {
                    _ if rate <= 0.0 => {}
                    // Its last edge would have brought more if we had taken it.
                    Some((at, by))
                        if at == edge && !(edge.1 == SiteId::HERE && book.is_held(self.now_s)) =>
                    {
                        notes.push((edge, rate, Grade::Exact, by));
                    }
                    _ => notes.push((edge, rate, Grade::AtLeast, None)),
                }
            }
        }
        for (edge, rate, grade, by) in notes {
            self.note(edge, rate, grade, by);
        }
    }

    /// The edge that limits a way, and whose word that is. Seen from us, it is the first edge whose
    /// receiver had nothing to wait for downstream while its sender had to wait for it.
    pub(crate) fn limit(&self, way: WayId) -> Option<((SiteId, SiteId), Option<SiteId>)> {
        let book = self.ways.get(&way)?;
        let edges: Vec<_> = book.edges().collect();
        for (at, &(_, to)) in edges.iter().enumerate().skip(1) {
            let (said_s, report) = book.reports.get(&to)?;
            if self.now_s - said_s > FRESH_S {
                return None;
            }
            if report.held? >= HELD {
                return Some((edges[at - 1], Some(to)));
            }
        }
        let last = edges.last()?;
        Some((*last, Some(last.1).filter(|&to| to != SiteId::HERE)))
    }
}

/// Over how long a relay's word is compared with what came, in seconds.
const TRUTH_S: f64 = 1.0;
/// A word within this factor may be true: it was measured earlier, and over another window.
const CREDIBLE: f64 = 3.0;
/// So many in a row may not.
const STRIKES: u32 = 3;
/// How long a report tells about now.
const FRESH_S: f64 = 3.0;
/// Held up for this part of the time, a relay could have taken more from upstream.
const HELD: f64 = 0.5;
