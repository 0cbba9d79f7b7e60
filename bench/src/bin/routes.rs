//! `bench/routes`: what relays bring, over emulated sites, and what they cost.
//!
//! Runs scenarios × clients in rounds, prints a table with what is to be reached, keeps every
//! measurement as JSON and draws a picture. Needs root for the emulated network.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use swath_bench::data::make_file;
use swath_bench::options::StudyOptions;
use swath_bench::results::{Run, ScenarioResult, ToolResult};
use swath_bench::routes::cache::{self, Crowd};
use swath_bench::routes::client::{Client, Memory};
use swath_bench::routes::memory::known_rates;
use swath_bench::routes::proxy::{self, Between};
use swath_bench::routes::run::{Outcome, Places, compare, run_once};
use swath_bench::routes::scenario::{Scenario, scenarios};
use swath_bench::serving::Identity;
use swath_bench::study_files::say;
use swath_netlab::wan::Namespace;

/// What relays bring, over emulated sites, and what they cost.
#[derive(Debug, Parser)]
#[command(name = "routes", max_term_width = 100)]
struct Options {
    /// Options of every study.
    #[command(flatten)]
    study: StudyOptions,
    /// Size of the file in MB, in place of the scenario's.
    #[arg(long, value_name = "MB")]
    size: Option<u64>,
    /// Decides losses, with the number of the round.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    options.study.run("routes", || measure(&options))
}

fn measure(options: &Options) -> Result<(), String> {
    let scenarios = scenarios();
    let mut known: Vec<&str> = scenarios.iter().map(|scenario| scenario.name).collect();
    known.extend([PROXY, CACHE]);
    if options.study.list {
        for scenario in &scenarios {
            let title = format!("{}, {} MB", scenario.title, scenario.size_bytes / 1_000_000);
            list(scenario.name, &title, scenario.clients.iter().map(|c| c.name()));
        }
        list(PROXY, PROXY_TITLE, Between::ALL.iter().map(|between| between.name()));
        list(CACHE, CACHE_TITLE, Crowd::ALL.iter().map(|crowd| crowd.name()));
        return Ok(());
    }
    let mut tools: Vec<&str> = Client::ALL.iter().map(|client| client.name()).collect();
    tools.extend(Between::ALL.iter().map(|between| between.name()));
    tools.extend(Crowd::ALL.iter().map(|crowd| crowd.name()));
    options.study.check(&known, &tools)?;
    let scratch = tempfile::Builder::new()
        .prefix("swath-bench-")
        .tempdir_in(&options.study.scratch)
        .map_err(|e| format!("cannot write to {}: {e}", options.study.scratch.display()))?;
    let folder = |name: &str| scratch.path().join(name);
    let places = Places {
        swath: options.study.swath(),
        served: folder("served"),
        target: folder("target"),
        relays: folder("relays"),
        memory: folder("memory"),
        filled: folder("filled"),
    };
    for folder in [&places.served, &places.target, &places.relays, &places.memory, &places.filled] {
        std::fs::create_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut study = options.study.begin("routes");
    for name in known.into_iter().filter(|name| options.study.has_scenario(name)) {
        let result = match scenarios.iter().find(|scenario| scenario.name == name) {
            Some(scenario) => measure_scenario(scenario, options, &places)?,
            None if name == PROXY => measure_proxy(options, &places, scratch.path())?,
            None => measure_cache(options, &places)?,
        };
        options.study.add(&mut study, result)?;
    }
    options.study.end(&study);
    Ok(())
}

fn list<'a>(name: &str, title: &str, tools: impl Iterator<Item = &'a str>) {
    println!("{name:<12} {title}\n{:<12} {}", "", tools.collect::<Vec<_>>().join(", "));
}

/// Which of the tools take part, with an empty result that has them and the others.
fn taking_part<T: Copy>(
    tools: &[T],
    options: &Options,
    name: impl Fn(T) -> &'static str,
    lacks: impl Fn(T) -> Option<&'static str>,
) -> (Vec<T>, ScenarioResult) {
    let mut result = ScenarioResult {
        name: String::new(),
        title: String::new(),
        size_bytes: 0,
        bound_s: 0.0,
        bound_is: String::new(),
        tools: Vec::new(),
        skipped: Vec::new(),
        goals: Vec::new(),
    };
    let mut there = Vec::new();
    for &tool in tools {
        match lacks(tool) {
            Some(reason) => result.skipped.push((name(tool).to_owned(), reason.to_owned())),
            None => {
                there.push(tool);
                let (name, command) = (name(tool).to_owned(), String::new());
                result.tools.push(ToolResult { name, command, runs: Vec::new() });
            }
        }
    }
    result.tools.retain(|tool| options.study.has_tool(&tool.name));
    result.skipped.retain(|(tool, _)| options.study.has_tool(tool));
    there.retain(|&tool| options.study.has_tool(name(tool)));
    (there, result)
}

fn measure_scenario(
    scenario: &Scenario,
    options: &Options,
    places: &Places,
) -> Result<ScenarioResult, String> {
    let mut scenario = scenario.clone();
    if let Some(megabytes) = options.size {
        scenario.size_bytes = megabytes * 1_000_000;
    }
    let all: Vec<Client> = match &options.study.tools[..] {
        [] => scenario.clients.to_vec(),
        names => names.iter().filter_map(|name| Client::named(name)).collect(),
    };
    let (clients, mut result) =
        taking_part(&all, options, Client::name, |client| match client.relay() {
            _ if client.program(&places.swath).is_none() => Some("not installed"),
            Some(kind) => kind.lacks(&places.swath),
            None => None,
        });
    let data = make_file(&places.served, scenario.size_bytes).map_err(|e| format!("data: {e}"))?;
    let allowed = scenario.allowed();
    result.name = scenario.name.to_owned();
    result.title = format!("{}, {} MB", scenario.title, scenario.size_bytes / 1_000_000);
    result.size_bytes = scenario.size_bytes;
    result.bound_s = scenario.size_bytes as f64 / allowed.flow_bytes_per_s;
    result.bound_is = format!(
        "at the graph's maximum flow, {:.1} MB/s without framing; one connection at a time over the widest route has {:.1}",
        allowed.flow_bytes_per_s / 1e6,
        allowed.widest_bytes_per_s / 1e6
    );
    result.goals = scenario.goals.clone();
    let seed = |round: u32| options.seed + u64::from(round);
    let run = |client: Client, round: u32| -> Result<Outcome, String> {
        let program = client.program(&places.swath).unwrap_or_default();
        run_once(&scenario, client, &program, places, &data, seed(round))
            .map_err(|e| format!("{}, {}: {e}", scenario.name, client.name()))
    };
    if clients.iter().any(|client| client.memory() != Memory::None) {
        say(&format!("{}: filling a memory", scenario.name));
        fill(&run(Client::Cold, 0)?, places)?;
    }
    for round in 1..=options.study.runs {
        let mut outcomes = Vec::new();
        for &client in &clients {
            say(&format!(
                "{} round {round}/{}: {}",
                scenario.name,
                options.study.runs,
                client.name()
            ));
            outcomes.push((client, run(client, round)?));
        }
        compare(&scenario, &mut outcomes);
        for ((_, outcome), kept) in outcomes.into_iter().zip(&mut result.tools) {
            kept.command = outcome.command;
            kept.runs.push(outcome.run);
        }
    }
    say("");
    std::fs::remove_file(&data).map_err(|e| format!("data: {e}"))?;
    Ok(result)
}

/// Keeps what a transfer that knew nothing has learnt.
fn fill(outcome: &Outcome, places: &Places) -> Result<(), String> {
    if let Some(failure) = &outcome.run.failure {
        return Err(format!("the transfer that was to be remembered failed: {failure}"));
    }
    let failed = |e: std::io::Error| format!("the memory of a transfer: {e}");
    std::fs::remove_dir_all(&places.filled).map_err(failed)?;
    std::fs::rename(&places.memory, &places.filled).map_err(failed)?;
    match known_rates(&places.filled) {
        0 => Err("the transfer that was to be remembered has left no rates".to_owned()),
        _ => Ok(()),
    }
}

fn measure_proxy(
    options: &Options,
    places: &Places,
    scratch: &Path,
) -> Result<ScenarioResult, String> {
    let (between, mut result) =
        taking_part(&Between::ALL, options, Between::name, |between| match between {
            Between::Relay(kind) => kind.lacks(&places.swath),
            Between::Nothing => None,
        });
    let size_bytes = options.size.unwrap_or(PROXY_MB) * 1_000_000;
    let data = make_file(&places.served, size_bytes).map_err(|e| format!("data: {e}"))?;
    let own = scratch.join("proxy");
    let identity_folder = scratch.join("identity");
    for folder in [&own, &identity_folder] {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let identity = Identity::make(&identity_folder).map_err(|e| format!("a certificate: {e}"))?;
    let namespace = Namespace::new("bench-proxy").map_err(|e| e.to_string())?;
    for round in 1..=options.study.runs {
        let mut runs: Vec<(Between, Run)> = Vec::new();
        for (&tool, kept) in between.iter().zip(&mut result.tools) {
            say(&format!("{PROXY} round {round}/{}: {}", options.study.runs, tool.name()));
            let ran = proxy::run_once(&namespace, tool, &places.swath, &data, &identity, &own);
            let (run, command) = ran.map_err(|e| format!("{PROXY}, {}: {e}", tool.name()))?;
            kept.command = command;
            runs.push((tool, run));
        }
        proxy::compare(&mut runs);
        for ((_, run), kept) in runs.into_iter().zip(&mut result.tools) {
            kept.runs.push(run);
        }
    }
    say("");
    std::fs::remove_file(&data).map_err(|e| format!("data: {e}"))?;
    result.name = PROXY.to_owned();
    result.title = format!("{PROXY_TITLE}, {} MB", size_bytes / 1_000_000);
    result.size_bytes = size_bytes * u64::from(proxy::TIMES);
    let medians: Vec<f64> =
        result.tools.iter().filter_map(|tool| result.median_s(&tool.name)).collect();
    result.bound_s = medians.into_iter().fold(f64::INFINITY, f64::min);
    result.bound_is = "the median of the fastest".to_owned();
    result.goals = proxy::goals();
    Ok(result)
}

fn measure_cache(options: &Options, places: &Places) -> Result<ScenarioResult, String> {
    let (crowds, mut result) =
        taking_part(&Crowd::ALL, options, Crowd::name, |crowd| crowd.relay().lacks(&places.swath));
    let size_bytes = options.size.unwrap_or(CACHE_MB) * 1_000_000;
    let data = make_file(&places.served, size_bytes).map_err(|e| format!("data: {e}"))?;
    for round in 1..=options.study.runs {
        for (&crowd, kept) in crowds.iter().zip(&mut result.tools) {
            say(&format!("{CACHE} round {round}/{}: {}", options.study.runs, crowd.name()));
            let ran = cache::run_once(crowd, places, &data, options.seed + u64::from(round));
            let (run, command) = ran.map_err(|e| format!("{CACHE}, {}: {e}", crowd.name()))?;
            kept.command = command;
            kept.runs.push(run);
        }
    }
    say("");
    std::fs::remove_file(&data).map_err(|e| format!("data: {e}"))?;
    result.name = CACHE.to_owned();
    result.title = format!("{CACHE_TITLE}, {} MB", size_bytes / 1_000_000);
    result.size_bytes = size_bytes * cache::CLIENTS as u64;
    result.bound_s = cache::bound_s(size_bytes);
    result.bound_is = "the file crosses the long link once".to_owned();
    result.goals = cache::goals();
    Ok(result)
}

const PROXY: &str = "proxy";
const PROXY_TITLE: &str =
    "one relay over loopback, a file in memory four times to curl -o /dev/null";
const PROXY_MB: u64 = 1000;
const CACHE: &str = "cache";
const CACHE_TITLE: &str =
    "ten clients fetch a file through one relay that is 80 ms from the source, 100 Mbit/s";
const CACHE_MB: u64 = 50;
