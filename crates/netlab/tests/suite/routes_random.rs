//! Random networks through the real router, each rule checked in each.
//!
//! `SWATH_SIM_COUNT` sets how many, `SWATH_SIM_SEED` the first seed (a failure prints its seed;
//! with `SWATH_SIM_COUNT=1` it is run alone).

use std::sync::atomic::{AtomicU64, Ordering};

use swath_netlab::routes::{RouteOutcome, random_routes};
use swath_plan::routes::{Mode, RouteAction};

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs `one` for each seed on all processors; answers what it found wrong, and its figures.
fn each_seed(count: u64, one: impl Fn(u64) -> Result<f64, String> + Sync) -> Vec<(f64, u64)> {
    let first = env("SWATH_SIM_SEED", 1);
    let count = env("SWATH_SIM_COUNT", count);
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    let (mut figures, mut failures) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let (mut figures, mut failures) = (Vec::new(), Vec::new());
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= first + count {
                            return (figures, failures);
                        }
                        match one(seed) {
                            Ok(figure) => figures.push((figure, seed)),
                            Err(what) => failures.push((seed, what)),
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            let (more, wrong) = worker.join().expect("a worker ends");
            figures.extend(more);
            failures.extend(wrong);
        }
    });
    failures.sort();
    for (seed, what) in failures.iter().skip(1).take(20) {
        println!("SWATH_SIM_SEED={seed}: {}", what.lines().next().unwrap_or_default());
    }
    if let Some((seed, what)) = failures.first() {
        panic!(
            "{} of {count}; replay with SWATH_SIM_SEED={seed} SWATH_SIM_COUNT=1\n{what}",
            failures.len()
        );
    }
    figures.sort_by(|a, b| a.0.total_cmp(&b.0));
    figures
}

/// What holds in every network.
fn manners(outcome: &RouteOutcome) -> Result<(), String> {
    let it = outcome.first();
    let ways = it.actions.iter().filter_map(|(at_s, action)| match action {
        RouteAction::Open { routed_id, route, .. } if route.is_direct() => {
            Some((*at_s, *routed_id))
        }
        _ => None,
    });
    let direct: Vec<_> = ways.collect();
    if direct.len() != 1 || direct[0].0 > 0.0 {
        return Err(format!("direct was opened at {direct:?}\n{outcome}"));
    }
    if it.actions.iter().any(|(_, it)| *it == RouteAction::Close { routed_id: direct[0].1 }) {
        return Err(format!("direct was closed\n{outcome}"));
    }
    if it.ways_peak > 11 {
        return Err(format!("{} ways\n{outcome}", it.ways_peak));
    }
    let attempts_most = 24 + (0.75 * it.time_s) as u32;
    if it.attempts > attempts_most || it.changes > attempts_most {
        let (attempts, changes) = (it.attempts, it.changes);
        return Err(format!(
            "{attempts} attempts, {changes} changes, {attempts_most} are the most\n{outcome}"
        ));
    }
    Ok(())
}

#[test]
fn a_still_network_is_used_to_the_full() {
    let figures = each_seed(crate::RANDOM_ROUTES, |seed| {
        let outcome = random_routes(seed, true).run();
        manners(&outcome)?;
        let it = outcome.first();
        let part = it.mean(it.time_s - 5.0, it.time_s) / outcome.few_flow;
        Ok(part)
    });
    let at = |part: f64| figures[((figures.len() - 1) as f64 * part) as usize];
    let fine = [(0.1, 0.6), (0.25, 0.85), (0.5, 0.95)];
    println!(
        "of the maximum flow: least {:?}, a hundredth {:?}, a tenth {:?}, a quarter {:?}, median {:?}",
        at(0.0),
        at(0.01),
        at(0.1),
        at(0.25),
        at(0.5)
    );
    // A few seeds say nothing about parts.
    if figures.len() >= 100 {
        for (part, least) in fine {
            assert!(at(part).0 >= least, "a part of {part} is below {least}: {:?}", at(part));
        }
    }
}

#[test]
fn it_is_never_slower_than_direct() {
    let figures = each_seed(crate::RANDOM_ROUTES, |seed| {
        let script = random_routes(seed, false);
        let outcome = script.run();
        manners(&outcome)?;
        let alone = script.mode(Mode::Direct).run();
        let end = outcome.first().time_s as usize;
        let least = (2..end.saturating_sub(2)).map(|at_s| {
            let (from_s, to_s) = (at_s as f64, at_s as f64 + 1.0);
            outcome.first().mean(from_s, to_s) / alone.first().mean(from_s, to_s)
        });
        let least = least.fold(f64::INFINITY, f64::min);
        if least < 0.95 { Err(format!("{least:.2} of direct\n{outcome}")) } else { Ok(least) }
    });
    println!("least second, in times direct: {:?}", &figures[..3]);
}
