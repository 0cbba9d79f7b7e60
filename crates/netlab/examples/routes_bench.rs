//! The figures of routes in the simulator: what the router makes of each scenario, over many
//! seeds, to tune its constants by. `cargo run --release -p swath-netlab --example routes_bench`
//! prints the table; with the name of a scenario, one run of it in full.

use swath_netlab::map::MapSpec;
use swath_netlab::routes::{RouteOutcome, RouteScript};
use swath_plan::routes::Mode;

fn main() {
    let wanted = std::env::args().nth(1);
    let seed = std::env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("{:<24} {:>9} {:>9} {:>9}   figure", "scenario", "median", "worst", "must");
    for scenario in scenarios() {
        if let Some(wanted) = &wanted {
            if wanted == scenario.name {
                println!("{}", (scenario.run)(seed));
            }
            continue;
        }
        let mut figures: Vec<f64> =
            (1..=SEEDS).map(|seed| (scenario.figure)(&(scenario.run)(seed))).collect();
        figures.sort_by(f64::total_cmp);
        let median = figures[figures.len() / 2];
        let worst = if scenario.more { figures[0] } else { figures[figures.len() - 1] };
        let must = format!("{} {}", if scenario.more { "≥" } else { "≤" }, scenario.must);
        println!("{:<24} {median:>9.2} {worst:>9.2} {must:>9}   {}", scenario.name, scenario.what);
    }
}

struct Scenario {
    name: &'static str,
    what: &'static str,
    run: fn(u64) -> RouteOutcome,
    figure: fn(&RouteOutcome) -> f64,
    must: f64,
    /// Whether more is better.
    more: bool,
}

fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut add = |name,
                   what,
                   more: bool,
                   must,
                   run: fn(u64) -> RouteOutcome,
                   figure: fn(&RouteOutcome) -> f64| {
        all.push(Scenario { name, what, run, figure, must, more });
    };
    add("cold", "times direct, 100 MB", true, 2.0, |seed| seven(seed).run(), times_direct);
    add(
        "cold-swing",
        "times direct, 100 MB, rates swing by 15 %",
        true,
        2.0,
        |seed| seven(seed).swing(0.15).run(),
        times_direct,
    );
    add(
        "cold-attempt",
        "attempt at which the widest route was opened",
        false,
        6.0,
        |seed| seven(seed).run(),
        |it| f64::from(it.first().widest_attempt.unwrap_or(99)),
    );
    add(
        "cold-changes",
        "changes until it was in use",
        false,
        6.0,
        |seed| seven(seed).run(),
        |it| f64::from(it.first().widest_changes.unwrap_or(99)),
    );
    add(
        "widest-cold",
        "times direct, 100 MB, one route at a time",
        true,
        2.0,
        |seed| seven(seed).mode(Mode::Widest).run(),
        times_direct,
    );
    add(
        "widest-changes",
        "changes until the widest was in use, one at a time",
        false,
        6.0,
        |seed| seven(seed).mode(Mode::Widest).swing(0.1).run(),
        |it| f64::from(it.first().widest_changes.unwrap_or(99)),
    );
    add(
        "warm",
        "of the widest route, from 0.5 to 1.5 s",
        true,
        0.95,
        |seed| warm(seed).run(),
        |it| it.first().mean(0.5, 1.5) / it.widest,
    );
    add(
        "multi",
        "of the maximum flow, 500 MB, from 8 s on",
        true,
        0.85,
        |seed| seven(seed).size_mb(500).mode(Mode::Multi).run(),
        |it| it.first().mean(8.0, it.first().time_s) / it.max_flow,
    );
    add(
        "multi-whole",
        "of the maximum flow, 500 MB, cold, the whole transfer",
        true,
        0.85,
        |seed| seven(seed).size_mb(500).mode(Mode::Multi).run(),
        |it| 500e6 / it.first().time_s / it.max_flow,
    );
    add(
        "bad-memory-low",
        "least second after the first, in times direct",
        true,
        0.95,
        |seed| bad_memory(seed).run(),
        |it| {
            let end = it.first().time_s as usize;
            let seconds = (1..end).map(|s| it.first().mean(s as f64, s as f64 + 1.0));
            seconds.fold(f64::INFINITY, f64::min) / it.direct
        },
    );
    add(
        "bad-memory-attempt",
        "attempt at which the widest was opened, one at a time",
        false,
        10.0,
        |seed| bad_memory(seed).mode(Mode::Widest).run(),
        |it| f64::from(it.first().widest_attempt.unwrap_or(99)),
    );
    add(
        "bad-memory-changes",
        "changes until the widest was in use, one at a time",
        false,
        10.0,
        |seed| bad_memory(seed).mode(Mode::Widest).run(),
        |it| f64::from(it.first().widest_changes.unwrap_or(99)),
    );
    add(
        "dies",
        "seconds lost when Denver dies",
        false,
        1.0,
        |seed| seven(seed).size_mb(500).at_s(8.0).relay("Denver").dies().run(),
        |it| it.first().lost_s(8.0, 5.0, AFTER * it.max_flow),
    );
    add(
        "dies-widest",
        "the same, one route at a time",
        false,
        1.0,
        |seed| {
            seven(seed).size_mb(200).mode(Mode::Widest).at_s(8.0).relay("KansasCity").dies().run()
        },
        |it| it.first().lost_s(8.0, 5.0, it.first().mean(13.0, 15.0)),
    );
    add(
        "tenth",
        "seconds lost when Denver > Sunnyvale falls to a tenth",
        false,
        1.0,
        |seed| seven(seed).size_mb(500).at_s(8.0).edge("Denver", "Sunnyvale").mbit(6.0).run(),
        |it| it.first().lost_s(8.0, 5.0, AFTER * it.max_flow),
    );
    add(
        "tenth-widest",
        "the same, one route at a time",
        false,
        1.0,
        |seed| {
            let script = seven(seed).size_mb(200).mode(Mode::Widest);
            script.at_s(8.0).edge("Denver", "Sunnyvale").mbit(6.0).run()
        },
        |it| it.first().lost_s(8.0, 5.0, it.first().mean(13.0, 15.0)),
    );
    add(
        "useless",
        "times direct, relays slower behind one access link",
        true,
        0.98,
        |seed| useless(seed).run(),
        |it| 100e6 / 25.0 / 125e3 / it.first().time_s,
    );
    add(
        "useless-attempts",
        "ways tried there in half a minute",
        false,
        8.0,
        |seed| useless(seed).run(),
        |it| f64::from(it.first().attempts),
    );
    add(
        "lossy",
        "times direct, long lossy hops",
        true,
        2.0,
        |seed| RouteScript::on(MapSpec::long_lossy()).seed(seed).run(),
        times_direct,
    );
    add(
        "twenty-fair",
        "most over least mean rate of twenty transfers",
        false,
        1.2,
        |seed| twenty(seed).run(),
        |it| {
            let means = it.transfers.iter().map(|it| it.mean(20.0, 58.0));
            let (least, most) =
                means.fold((f64::INFINITY, 0.0f64), |(a, b), it| (a.min(it), b.max(it)));
            most / least
        },
    );
    add(
        "twenty-flow",
        "what twenty bring together, of the maximum flow",
        true,
        0.85,
        |seed| twenty(seed).run(),
        |it| it.transfers.iter().map(|it| it.mean(20.0, 58.0)).sum::<f64>() / it.max_flow,
    );
    add(
        "twenty-changes",
        "most changes of one of them within a minute",
        false,
        30.0,
        |seed| twenty(seed).run(),
        |it| f64::from(it.transfers.iter().map(|it| it.changes).max().unwrap_or(0)),
    );
    all
}

/// Of a transfer of 100 MB.
fn times_direct(it: &RouteOutcome) -> f64 {
    100e6 / it.direct / it.first().time_s
}

fn seven(seed: u64) -> RouteScript {
    RouteScript::on(MapSpec::seven_sites()).seed(seed)
}

/// What a run before learnt is remembered.
fn warm(seed: u64) -> RouteScript {
    let before = seven(seed + 1000).run();
    seven(seed).remembers(&before.first().learnt)
}

/// What a run before learnt is remembered, and says the contrary of the truth.
fn bad_memory(seed: u64) -> RouteScript {
    let before = seven(seed + 1000).run();
    seven(seed).misremembers(&before.first().learnt)
}

/// Everything comes in over one link that direct fills.
fn useless(seed: u64) -> RouteScript {
    seven(seed).receives("Sunnyvale", 25.0)
}

fn twenty(seed: u64) -> RouteScript {
    seven(seed).size_mb(1_000_000).transfers(20, 0.1).limit_s(60.0)
}

/// What is to be had after something was lost, as a part of the maximum flow that is left.
const AFTER: f64 = 0.95;

/// Runs of each scenario.
const SEEDS: u64 = 15;
