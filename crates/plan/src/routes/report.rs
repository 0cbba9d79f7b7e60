//! Relays' reports on a route: which hop was the limit, and whether the reports can be true.

use super::event::HopReport;
use super::graph::Grade;
use super::name::{RoutedId, SiteId};
use super::routed_sources::{Flows, TRUTH_S};
use super::router::Router;

impl Router {
    pub(crate) fn report(&mut self, routed_id: RoutedId, hops: Vec<HopReport>) {
        for report in hops {
            let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
            // Accept reports only on the relay's own hop of this route.
            let hop = (report.from, report.relay);
            if !routed.edges().any(|edge| edge == hop)
                || self.relays.standing(report.relay).disbelieved
            {
                continue;
            }
            if let Some(claimed) = report.rate_bytes_per_s {
                self.hold_against(routed_id, &report, claimed);
            }
            if self.relays.standing(report.relay).disbelieved {
                continue;
            }
            self.beliefs.hint(&report);
            if let Some(routed) = self.routed_sources.open.get_mut(&routed_id) {
                routed.reports.insert(report.relay, (self.times.now_s, report));
            }
        }
    }

    /// Checks a relay's rate against ours: the same bytes cross all hops of a route.
    fn hold_against(&mut self, routed_id: RoutedId, report: &HopReport, claimed: f64) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        let ours = routed.rate(TRUTH_S, self.times.now_s);
        let steady = (0.5 * routed.settled..2.0 * routed.settled + 1.0).contains(&ours);
        if !routed.is_ripe(self.times.now_s)
            || !steady
            || ours <= 0.0
            || routed.low_since_s.is_some()
        {
            return;
        }
        let hop = (report.from, report.relay);
        let all: f64 = self
            .routed_sources
            .open
            .values()
            .filter(|routed| routed.edges().any(|edge| edge == hop))
            .map(|routed| routed.rate(TRUTH_S, self.times.now_s))
            .sum();
        let true_enough = (ours / CREDIBLE..=all * CREDIBLE).contains(&claimed);
        let standing = self.relays.standings.entry(report.relay).or_default();
        standing.strikes = if true_enough { 0 } else { standing.strikes + 1 };
        if standing.strikes >= STRIKES {
            self.disbelieve(report.relay);
        }
    }

    /// Discards everything that a lying relay ever reported.
    fn disbelieve(&mut self, relay: SiteId) {
        self.relays.standings.entry(relay).or_default().disbelieved = true;
        for routed in self.routed_sources.open.values_mut() {
            routed.reports.remove(&relay);
        }
        self.beliefs.drop_readings(|noted| noted.by == Some(relay));
        let hinted: Vec<_> = self
            .beliefs
            .graph
            .edges()
            .filter(|(_, _, edge)| edge.able.is_some_and(|(_, by)| by == relay))
            .map(|(from, to, _)| (from, to))
            .collect();
        for (from, to) in hinted {
            self.beliefs.graph.edge_mut(from, to).able = None;
        }
    }

    /// Notes the rate of every edge of every route: exact for the edge that limits it, a lower
    /// bound for the others.
    pub(crate) fn learn(&mut self, flows: &Flows) {
        let mut notes = Vec::new();
        for routed in self.routed_sources.open.values() {
            if !routed.is_ripe(self.times.now_s) || !routed.now.busy || routed.low_since_s.is_some()
            {
                continue;
            }
            let limit = self.routed_sources.limit(routed.id, self.times.now_s);
            for edge in routed.edges() {
                let rate = flows.get(&edge).copied().unwrap_or(0.0);
                match limit {
                    _ if rate <= 0.0 => {}
                    // Not exact if we held the route up: its last edge could have brought more.
                    Some((at, by))
                        if at == edge
                            && !(edge.1 == SiteId::HERE && routed.is_held(self.times.now_s)) =>
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
}

/// A report within this factor may be true: it covers an earlier time and another window.
const CREDIBLE: f64 = 3.0;
/// A relay with this many false reports in a row is ignored.
const STRIKES: u32 = 3;
