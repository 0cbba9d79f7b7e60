//! Time, and what is the same for all transfers: changes, shares, the yardsticks.

use std::collections::BTreeMap;

use swath_plan::routes::{Grade, Graph, Reading, Route, RouterConfig, SiteId};

use super::fair::{Flow, shares};
use super::net::Net;
use super::outcome::RouteOutcome;
use super::script::RouteScript;
use super::transfer::Transfer;

/// Run a script to its end.
pub(super) fn run(script: &RouteScript) -> RouteOutcome {
    let mut net = script.net();
    let sources = script.sources();
    let here = script.map.here;
    let (begin, route) = yardsticks(&net, &sources, here, &script.config);
    let mut waiting: Vec<Transfer> = (0..script.transfers)
        .map(|at| {
            let mut config = script.config.clone();
            config.seed = config.seed.wrapping_mul(1000).wrapping_add(at as u64);
            let begins_s = script.apart_s * at as f64;
            let (size, memory) = (script.size_bytes, &script.memory);
            let mut transfer =
                Transfer::new(&net, (&sources, here), size, config, memory, begins_s);
            transfer.awaited = route.clone();
            transfer.record.sources = sources.clone();
            transfer
        })
        .collect();
    let mut changes = script.changes.clone();
    changes.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut steps = 0u64;
    while !waiting.iter().all(Transfer::is_done) {
        let now_s = steps as f64 * STEP_S;
        if now_s > script.limit_s {
            break;
        }
        while changes.last().is_some_and(|change| change.0 <= now_s) {
            changes.pop().into_iter().for_each(|(_, change)| net.apply(change));
        }
        let tenth = steps.is_multiple_of(10);
        if tenth {
            net.sway();
        }
        let running = |it: &&mut Transfer| !it.is_done() && it.begins_s <= now_s;
        for transfer in waiting.iter_mut().filter(running) {
            transfer.step(&net, now_s, tenth);
        }
        if script.share_memory && steps.is_multiple_of(SHARED_STEPS) {
            share_memory(&mut waiting, now_s);
        }
        share(&net, &mut waiting, now_s);
        for transfer in waiting.iter_mut().filter(running) {
            transfer.flow(&net, now_s, STEP_S);
            if transfer.is_done() {
                transfer.record.finished = true;
                transfer.record.time_s = now_s + STEP_S - transfer.begins_s;
            }
        }
        steps += 1;
    }
    let (end, _) = yardsticks(&net, &sources, here, &script.config);
    let transfers = waiting.into_iter().map(|mut it| {
        it.record.attempts = it.router.attempts();
        it.record.changes = it.router.changes();
        it.record.views = it.router.views();
        it.record.learnt = it.learnt();
        if !it.record.finished {
            it.record.time_s = script.limit_s - it.begins_s;
        }
        it.record
    });
    RouteOutcome {
        transfers: transfers.collect(),
        max_flow: end.flow,
        few_flow: end.few,
        widest: begin.widest,
        direct: begin.direct,
    }
}

/// Of each edge what was measured last is what all hear.
fn share_memory(transfers: &mut [Transfer], now_s: f64) {
    let running = |it: &&mut Transfer| !it.is_done() && it.begins_s <= now_s;
    let mut newest: BTreeMap<(usize, usize), Reading> = BTreeMap::new();
    for transfer in transfers.iter_mut().filter(running) {
        for (from, to, reading) in transfer.learnt() {
            let known = newest.entry((from, to)).or_insert(reading);
            if reading.age_s < known.age_s {
                *known = reading;
            }
        }
    }
    let heard: Vec<_> = newest.into_iter().map(|((from, to), it)| (from, to, it)).collect();
    for transfer in transfers.iter_mut().filter(running) {
        transfer.hear(&heard, now_s);
    }
}

fn share(net: &Net, transfers: &mut [Transfer], now_s: f64) {
    let capacities = net.capacities();
    let ways =
        transfers.iter().filter(|it| !it.is_done()).flat_map(|it| it.routed_sources.values());
    let flows: Vec<Flow> = ways
        .map(|way| Flow { resources: net.resources(&way.edges), most: way.most(net, now_s) })
        .collect();
    let given = shares(&flows, &capacities);
    let mut left = capacities;
    for (flow, rate) in flows.iter().zip(&given) {
        flow.resources.iter().for_each(|&at| left[at] -= rate);
    }
    let (sends, receives) = (net.edges.len(), net.edges.len() + net.names.len());
    let headroom = |at: usize| {
        let edge = &net.edges[at];
        left[at].min(left[sends + edge.from]).min(left[receives + edge.to])
    };
    let mut given = given.into_iter();
    for transfer in transfers.iter_mut().filter(|it| !it.is_done()) {
        for way in transfer.routed_sources.values_mut() {
            way.give(given.next().unwrap_or(0.0), &headroom);
        }
    }
}

struct Yardsticks {
    direct: f64,
    widest: f64,
    flow: f64,
    few: f64,
}

/// What direct, the widest route and all routes together could bring, and which the widest is; by
/// the numbers that sites have in a transfer's graph.
fn yardsticks(
    net: &Net,
    sources: &[usize],
    here: usize,
    config: &RouterConfig,
) -> (Yardsticks, Option<Route>) {
    let mut graph = Graph::default();
    let id = |site: usize| match site {
        site if site == here => SiteId::HERE,
        site if site < here => SiteId(site as u32 + 1),
        site => SiteId(site as u32),
    };
    for site in (0..net.names.len()).filter(|site| *site != here && !sources.contains(site)) {
        let well = net.moods[site] == super::net::Mood::Well && !net.corrupts[site];
        graph.set_relay(id(site), well);
    }
    for from in (0..net.names.len()).filter(|&from| from != here) {
        for to in (0..net.names.len()).filter(|&to| to != from && !sources.contains(&to)) {
            let edge = net.edge(from, to).map(|at| &net.edges[at]);
            graph.round_trip(id(from), id(to), edge.map(|edge| edge.rtt_s));
            let rate_bytes_per_s = edge.map_or(0.0, |edge| edge.rate.min(edge.connection));
            let reading = Reading { rate_bytes_per_s, grade: Grade::Exact, age_s: 0.0 };
            graph.measured(id(from), id(to), reading, 0.0);
        }
    }
    let ids: Vec<SiteId> = sources.iter().map(|&site| id(site)).collect();
    let widest = ids
        .iter()
        .filter_map(|&source| graph.widest(source, config.hops_max))
        .max_by(|a, b| a.rate_bytes_per_s.total_cmp(&b.rate_bytes_per_s));
    let direct = sources
        .iter()
        .filter_map(|&site| net.edge(site, here))
        .map(|at| net.edges[at].rate.min(net.edges[at].connection))
        .fold(0.0, f64::max);
    let access = net.receives[here].min(sources.iter().map(|&site| net.sends[site]).sum());
    let flow = graph.max_flow_of(&ids).min(access);
    let width = widest.as_ref().map_or(0.0, |way| way.rate_bytes_per_s);
    let few = graph.flow_paths(&ids, config.ways_max + 1, config.hops_tried_max);
    let few = few.iter().map(|way| way.rate_bytes_per_s).sum::<f64>().max(width).min(access);
    (Yardsticks { direct, widest: width, flow, few }, widest.map(|way| way.route))
}

/// Shorter than the shortest round trip that matters.
const STEP_S: f64 = 0.01;
/// What is learnt is shared once a second.
const SHARED_STEPS: u64 = 100;
