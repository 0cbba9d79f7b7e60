//! Many relays and many sources. How many, the tests that take minutes say otherwise than the others.

use swath_netlab::map::{MapEdge, MapSpec};
use swath_netlab::routes::RouteScript;
use swath_plan::routes::RouterConfig;

use crate::sim::{Script, honest};
use crate::{RELAYS, SOURCES};

#[test]
fn many_sources() {
    let sources = (0..SOURCES as u32)
        .map(|at| honest(1.0 + f64::from(at % 7), 5.0 + f64::from(at % 50)))
        .collect();
    let script = Script::of(sources)
        .size_mib(SOURCES as u64)
        .config(|config| config.max_sources = SOURCES)
        .scenario(|it| {
            it.step_s = 0.002;
            it.wants_oracle = false;
        });
    let outcome = script.run().unwrap_or_else(|violation| panic!("{violation}"));
    outcome.expect(|it| it.finished && it.time_over_bound() < 1.8);
}

fn mbit(rate: f64) -> f64 {
    rate / 125e3
}

/// [`RELAYS`] of which twelve are of use.
fn many(seed: u64) -> MapSpec {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut sites = vec!["source".to_owned(), "here".to_owned()];
    sites.extend((2..2 + RELAYS).map(|at| format!("r{at}")));
    let mut edges = Vec::new();
    let places: Vec<f64> = (0..2 + RELAYS).map(|_| 60.0 * rng.f64()).collect();
    for from in 0..sites.len() {
        for to in 0..sites.len() {
            let useful = |site: usize| (2..14).contains(&site);
            let link = from != to && (from < 14 || to < 14 || rng.u32(0..20) == 0);
            if !link {
                continue;
            }
            let (mbit, one_way_ms) = match (from, to) {
                (0, 1) => (20.0, 40.0),
                _ if (from < 2 || useful(from)) && (to < 2 || useful(to)) => (40.0, 20.0),
                _ => (1.0 + 2.0 * rng.f64(), 30.0 + (places[from] - places[to]).abs()),
            };
            edges.push(MapEdge { from, to, mbit, one_way_ms, loss: 0.0 });
        }
    }
    MapSpec { sites, source: 0, here: 1, window_bytes: None, edges }
}

/// A decision must not cost the cube of their number, and what is useful must be found.
#[test]
fn many_relays_are_no_burden() {
    let ways_max = RouterConfig::default().ways_max as f64;
    let outcome = RouteScript::on(many(3)).size_mb(1000).run();
    outcome.expect(|it| {
        let first = it.first();
        mbit(first.mean(first.time_s - 5.0, first.time_s)) >= 0.8 * (20.0 + 40.0 * ways_max)
    });
}

/// The same where all rates swing, a third of the useful relays are dead from the beginning, a sixth lies,
/// a sixth misleads, and two more die and come back meanwhile.
#[test]
fn many_relays_of_which_some_are_dead_and_some_lie_are_no_burden() {
    {
        let mut script = RouteScript::on(many(1)).seed(1).size_mb(1500).swing(0.1);
        for dead in ["r2", "r3", "r4", "r5"] {
            script = script.relay(dead).dies();
        }
        script = script.relay("r6").lies(10.0).relay("r7").lies(0.1);
        script = script.relay("r8").misleads().relay("r9").misleads();
        script = script.at_s(15.0).relay("r10").dies().relay("r11").refuses();
        script = script.at_s(20.0).relay("r10").recovers().relay("r11").recovers();
        script.run().expect(|it| {
            // Direct, and the eight that are alive.
            let all = 20.0 + 8.0 * 40.0;
            let (first, end_s) = (it.first(), it.first().time_s);
            first.finished
                && mbit(first.mean(10.0, 15.0)) >= 0.7 * all
                && mbit(first.mean(16.5, 20.0)) >= 0.6 * (all - 80.0)
                && mbit(first.mean(end_s - 5.0, end_s)) >= 0.7 * all
        });
    }
}
