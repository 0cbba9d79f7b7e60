//! Scenarios drawn from a seed: maps of every size, relays of every kind, changes.

use swath_plan::routes::Mode;

use super::net::{Change, Mood};
use super::script::RouteScript;
use crate::map::{MapEdge, MapSpec};

/// The scenario of this seed; `still`: nothing changes, nobody lies, and rates do not swing.
pub fn random_routes(seed: u64, still: bool) -> RouteScript {
    let mut rng = fastrand::Rng::with_seed(seed);
    let relays = match rng.u32(0..8) {
        0 => rng.usize(0..3),
        1..=5 => rng.usize(2..10),
        6 => rng.usize(10..24),
        _ => rng.usize(24..60),
    };
    let map = random_map(&mut rng, relays);
    let direct = map.edge(map.source, map.here).map_or(1.0, |edge| edge.mbit);
    let seconds = 20.0 + 40.0 * rng.f64();
    let mut script = RouteScript::on(map.clone())
        .seed(seed)
        .limit_s(seconds)
        .mode(if rng.u32(0..4) == 0 { Mode::Multi } else { Mode::Auto });
    // More than comes until the limit.
    script.size_bytes = 1e15;
    if rng.u32(0..3) == 0 {
        let limit = direct * (1.0 + 3.0 * rng.f64());
        script = match rng.bool() {
            true => script.receives("here", limit),
            false => script.sends("source", limit),
        };
    }
    if still {
        return script;
    }
    script = script.swing(0.15 * rng.f64());
    let mut corrupt = 0;
    for relay in map.relays() {
        let name = format!("r{relay}");
        match rng.u32(0..12) {
            0 => script = script.relay(&name).lies(10.0),
            1 => script = script.relay(&name).lies(0.1),
            2 if corrupt < 2 => {
                corrupt += 1;
                script = script.at_s(0.0).relay(&name).corrupts();
            }
            3 => script = script.at_s(0.0).relay(&name).refuses(),
            4 => {
                let (mood, at_s) = (Mood::Silent, 20.0 * rng.f64());
                script.changes.push((at_s, Change::Mood { site: relay, mood }));
                if rng.bool() {
                    let mood = Mood::Well;
                    let back_s = at_s + 10.0 * rng.f64();
                    script.changes.push((back_s, Change::Mood { site: relay, mood }));
                }
            }
            _ => {}
        }
    }
    for edge in &map.edges {
        let is_direct = edge.from == map.source && edge.to == map.here;
        if rng.u32(0..20) == 0 && !is_direct {
            let bytes_per_s = edge.mbit * 125e3 * 10f64.powf(1.5 * (rng.f64() - 0.5));
            let (from, to, at_s) = (edge.from, edge.to, 20.0 * rng.f64());
            script.changes.push((at_s, Change::Rate { from, to, bytes_per_s }));
        }
    }
    script
}

/// Sites strewn over a plane of some thousand kilometres; rates scatter about what a window brings
/// over the distance, or have nothing to do with it.
fn random_map(rng: &mut fastrand::Rng, relays: usize) -> MapSpec {
    let mut sites = vec!["source".to_owned(), "here".to_owned()];
    sites.extend((2..relays + 2).map(|at| format!("r{at}")));
    let mut places = vec![(0.0, 0.0), (40.0, 0.0)];
    places.extend((0..relays).map(|_| (50.0 * rng.f64() - 5.0, 30.0 * rng.f64() - 15.0)));
    let by_distance = rng.u32(0..3) > 0;
    let common = 10f64.powf(0.5 + 1.5 * rng.f64());
    let missing = if rng.u32(0..3) == 0 { 0.3 * rng.f64() } else { 0.0 };
    let mut edges = Vec::new();
    for from in 0..sites.len() {
        for to in 0..sites.len() {
            let is_direct = from == 0 && to == 1;
            if from == to || (!is_direct && rng.f64() < missing) {
                continue;
            }
            let (a, b): ((f64, f64), (f64, f64)) = (places[from], places[to]);
            let one_way_ms = 1.0 + ((a.0 - b.0).powi(2) + (a.1 - b.1).powi(2)).sqrt();
            let scatter = 10f64.powf(0.5 * (rng.f64() - 0.5));
            let mbit = if by_distance {
                common * 40.0 / one_way_ms * scatter
            } else {
                common * 10f64.powf(1.5 * (rng.f64() - 0.5))
            };
            edges.push(MapEdge { from, to, mbit: mbit.min(1000.0), one_way_ms, loss: 0.0 });
        }
    }
    MapSpec { sites, source: 0, here: 1, window_bytes: None, edges }
}
