//! Widest routes and maximum flows against brute force: every simple path, every cut.

use std::collections::BTreeMap;

use proptest::prelude::*;
use swath_plan::routes::{Aging, FlowPath, Grade, Graph, Reading, Route, SiteId};

const SOURCE: SiteId = SiteId(100);
const OTHER: SiteId = SiteId(101);

/// An edge as it is drawn: known with a rate, unknown, or dead; few different rates and round
/// trips, so that ties are common.
#[derive(Clone, Copy, Debug)]
enum Drawn {
    Rate(u32, u32),
    Unknown(u32),
    Dead,
}

fn drawn(unknown: u32) -> impl Strategy<Value = Drawn> {
    prop_oneof![
        6 => (0..6u32, 1..4u32).prop_map(|(rate, rtt)| Drawn::Rate(rate * 10, rtt)),
        unknown => (1..4u32).prop_map(Drawn::Unknown),
        2 => Just(Drawn::Dead),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    relays: Vec<SiteId>,
    sources: Vec<SiteId>,
    edges: BTreeMap<(SiteId, SiteId), Drawn>,
}

fn case(unknown: u32) -> impl Strategy<Value = Case> {
    (0..5u32, 1..3usize).prop_flat_map(move |(relays, sources)| {
        let relays: Vec<SiteId> = (1..=relays).map(SiteId).collect();
        let sources = [SOURCE, OTHER][..sources].to_vec();
        let mut pairs = Vec::new();
        for from in relays.iter().chain(&sources) {
            for to in relays.iter().chain([&SiteId::HERE]).filter(|to| *to != from) {
                pairs.push((*from, *to));
            }
        }
        let edges = proptest::collection::vec(drawn(unknown), pairs.len());
        edges.prop_map(move |edges| Case {
            relays: relays.clone(),
            sources: sources.clone(),
            edges: pairs.iter().copied().zip(edges).collect(),
        })
    })
}

impl Case {
    fn graph(&self) -> Graph {
        let mut graph = Graph::default();
        self.relays.iter().for_each(|&relay| graph.set_relay(relay, true));
        for (&(from, to), &edge) in &self.edges {
            let rtt_s = match edge {
                Drawn::Rate(_, rtt) | Drawn::Unknown(rtt) => Some(f64::from(rtt)),
                Drawn::Dead => None,
            };
            graph.round_trip(from, to, rtt_s);
            if let Drawn::Rate(rate, _) = edge {
                graph.measured(from, to, exactly(f64::from(rate)), 0.0);
            }
        }
        graph
    }

    fn rate(&self, edge: (SiteId, SiteId)) -> f64 {
        match self.edges[&edge] {
            Drawn::Rate(rate, _) => f64::from(rate),
            Drawn::Unknown(_) => f64::INFINITY,
            Drawn::Dead => 0.0,
        }
    }

    fn judge(&self, route: &Route, source: SiteId) -> (f64, usize, f64) {
        let rate = route.edges(source).map(|edge| self.rate(edge)).fold(f64::INFINITY, f64::min);
        let rtt_s = route
            .edges(source)
            .map(|edge| match self.edges[&edge] {
                Drawn::Rate(_, rtt) | Drawn::Unknown(rtt) => f64::from(rtt),
                Drawn::Dead => f64::INFINITY,
            })
            .sum();
        (rate, route.hops(), rtt_s)
    }

    /// The best simple path, by trying them all.
    fn best(&self, source: SiteId, hops_max: usize) -> Option<(f64, usize, f64)> {
        let mut best: Option<(f64, usize, f64)> = None;
        let mut open = vec![Vec::new()];
        while let Some(relays) = open.pop() {
            let found = self.judge(&Route::through(relays.clone()), source);
            let better = |than: (f64, usize, f64)| {
                (-found.0, found.1, found.2).partial_cmp(&(-than.0, than.1, than.2))
                    == Some(std::cmp::Ordering::Less)
            };
            if found.0 > 0.0 && found.1 <= hops_max && best.is_none_or(better) {
                best = Some(found);
            }
            for &relay in self.relays.iter().filter(|relay| !relays.contains(relay)) {
                open.push(relays.iter().copied().chain([relay]).collect());
            }
        }
        best
    }

    /// The smallest cut between the sources and us, by trying them all; unknown edges carry
    /// nothing.
    fn smallest_cut(&self) -> f64 {
        let finite = |edge| Some(self.rate(edge)).filter(|rate| rate.is_finite()).unwrap_or(0.0);
        (0..1u32 << self.relays.len())
            .map(|there| {
                let is_there = |site: SiteId| {
                    self.sources.contains(&site)
                        || self
                            .relays
                            .iter()
                            .position(|&relay| relay == site)
                            .is_some_and(|at| there >> at & 1 == 1)
                };
                let cut = self.edges.keys().filter(|(from, to)| is_there(*from) && !is_there(*to));
                cut.map(|&edge| finite(edge)).sum::<f64>()
            })
            .fold(f64::INFINITY, f64::min)
    }
}

fn exactly(rate_bytes_per_s: f64) -> Reading {
    Reading { rate_bytes_per_s, grade: Grade::Exact, age_s: 0.0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_widest_route_is_the_best_of_all_simple_paths(case in case(2), hops_max in 1..7usize) {
        let found = case.graph().widest(SOURCE, hops_max);
        let judged = found.as_ref().map(|routed_id| case.judge(&routed_id.route, SOURCE));
        prop_assert_eq!(judged, case.best(SOURCE, hops_max));
        prop_assert_eq!(found.map(|routed_id| routed_id.rate_bytes_per_s), judged.map(|it| it.0));
    }

    #[test]
    fn the_maximum_flow_is_the_smallest_cut(case in case(1)) {
        let flow = case.graph().max_flow_of(&case.sources);
        prop_assert!((flow - case.smallest_cut()).abs() < 1e-6, "{} {}", flow, case.smallest_cut());
    }

    #[test]
    fn the_ways_of_a_flow_carry_all_of_it_and_overload_no_edge(case in case(1)) {
        let graph = case.graph();
        let routed_sources = graph.flow_paths(&case.sources, usize::MAX, 8);
        let sum: f64 = routed_sources.iter().map(|routed_id| routed_id.rate_bytes_per_s).sum();
        prop_assert!((sum - graph.max_flow_of(&case.sources)).abs() < 1e-6, "{routed_sources:?}");
        let mut load: BTreeMap<_, f64> = BTreeMap::new();
        for FlowPath { source, route, rate_bytes_per_s } in &routed_sources {
            for edge in route.edges(*source) {
                *load.entry(edge).or_default() += rate_bytes_per_s;
            }
        }
        for (edge, load) in load {
            prop_assert!(load <= case.rate(edge) + 1e-6, "{edge:?} {load}");
        }
        prop_assert!(routed_sources.len() <= case.edges.len());
        let few = graph.flow_paths(&case.sources, 2, 8);
        prop_assert_eq!(&few[..], &routed_sources[..routed_sources.len().min(2)]);
    }

    #[test]
    fn few_are_aged_a_turn_and_each_only_when_it_is_old(
        ages in proptest::collection::vec(0..100u32, 1..12), per_turn in 0..5usize,
    ) {
        let aging = Aging { after_s: 50.0, factor: 1.25, per_turn };
        let mut graph = Graph::default();
        for (at, &age) in ages.iter().enumerate() {
            let reading = Reading { age_s: f64::from(age), ..exactly(100.0) };
            graph.measured(SiteId(1 + at as u32), SiteId::HERE, reading, 0.0);
        }
        let mut left = ages.iter().filter(|&&age| age > 50).count();
        while left > 0 && per_turn > 0 {
            let aged = graph.age(0.0, &aging);
            prop_assert_eq!(aged, left.min(per_turn));
            left -= aged;
        }
        prop_assert_eq!(graph.age(0.0, &aging), 0);
        for (at, &age) in ages.iter().enumerate() {
            let edge = graph.edge(SiteId(1 + at as u32), SiteId::HERE).unwrap();
            let was_aged = age > 50 && per_turn > 0;
            let site = SiteId(1 + at as u32);
            let routed_id = graph.widest(site, 1).unwrap();
            prop_assert_eq!(routed_id.rate_bytes_per_s, if was_aged { 125.0 } else { 100.0 });
            // What was measured stays what it was: others are told that.
            let reading = edge.reading(0.0).unwrap();
            prop_assert_eq!(reading, Reading { age_s: f64::from(age), ..exactly(100.0) });
        }
    }
}

/// To show what is known, an edge that nobody has measured is none.
#[test]
fn the_widest_known_route_leads_over_measured_edges_alone() {
    let mut graph = Graph::default();
    let relay = SiteId(1);
    graph.set_relay(relay, true);
    assert_eq!(graph.widest_known(SOURCE, 8), None);
    let reading = |rate_bytes_per_s| Reading { rate_bytes_per_s, grade: Grade::Exact, age_s: 0.0 };
    graph.measured(SOURCE, SiteId::HERE, reading(5.0), 0.0);
    graph.measured(SOURCE, relay, reading(9.0), 0.0);
    assert_eq!(graph.widest(SOURCE, 8).map(|routed_id| routed_id.rate_bytes_per_s), Some(9.0));
    let routed_id = graph.widest_known(SOURCE, 8).unwrap();
    assert_eq!((routed_id.route, routed_id.rate_bytes_per_s), (Route::direct(), 5.0));
    graph.measured(relay, SiteId::HERE, reading(7.0), 0.0);
    let routed_id = graph.widest_known(SOURCE, 8).unwrap();
    assert_eq!((routed_id.route, routed_id.rate_bytes_per_s), (Route::through(vec![relay]), 7.0));
}

/// A depot is a source of what lies in it and a relay of all else: its links count once.
#[test]
fn what_leaves_a_source_that_is_a_relay_too_leaves_it_once() {
    let mut graph = Graph::default();
    let (site, relay) = (SiteId(1), SiteId(2));
    graph.set_relay(site, true);
    graph.set_relay(relay, true);
    let rates = [
        (site, SiteId::HERE, 10.0),
        (site, relay, 5.0),
        (relay, site, 5.0),
        (relay, SiteId::HERE, 3.0),
    ];
    for (from, to, rate) in rates {
        graph.measured(from, to, exactly(rate), 0.0);
    }
    assert!((graph.max_flow(site) - 13.0).abs() < 1e-6, "{}", graph.max_flow(site));
    let routed_sources = graph.flow_paths(&[site], 9, 8);
    assert!(
        routed_sources.iter().all(|routed_id| !routed_id.route.contains(site)),
        "{routed_sources:?}"
    );
}
