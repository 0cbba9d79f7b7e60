//! `bench/swarm`: the same file to several sites at once, swath against its peers.
//!
//! Prints a table for each row and keeps every measurement as JSON. Needs root for the emulated
//! network.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};
use swath_bench::data::make_file;
use swath_bench::machine::{Machine, beside_us};
use swath_bench::study_files::say;
use swath_bench::swarm::{Case, Places, Row, SwarmRun, rows, run_once};

/// The same file to several sites at once: swath against its peers, in emulated networks.
#[derive(Debug, Parser)]
#[command(name = "swarm", max_term_width = 100)]
struct Options {
    /// Rows; all of them unless named.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    row: Vec<String>,
    /// Tools, as the table calls them; all of them unless named.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    tools: Vec<String>,
    /// Number of rounds; each round runs every tool once.
    #[arg(long, alias = "runs", default_value_t = 5)]
    rounds: u32,
    /// Size of the file in MiB, in place of the row's.
    #[arg(long, value_name = "MIB")]
    mib: Option<u64>,
    /// The swath program; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    swath: Option<PathBuf>,
    /// Where files are served from and written to: a folder in memory, so that disks are out of
    /// the picture.
    #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
    scratch: PathBuf,
    /// Add what every link carried in each second to this file.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Where the results go.
    #[arg(long, default_value = "bench/results", value_name = "DIR")]
    results: PathBuf,
    /// Name of the results.
    #[arg(long, default_value = "swarm", value_name = "NAME")]
    name: String,
    /// Lists rows and their tools, and ends.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("swarm: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), String> {
    let chosen = choose(options)?;
    if options.list {
        for row in &chosen {
            let names: Vec<&str> = row.cases.iter().map(|case| case.name).collect();
            println!("{:<9} {}\n{:<9} {}", row.name, row.title, "", names.join(", "));
        }
        return Ok(());
    }
    let machine = Machine::here().line();
    println!("{machine}\n");
    let scratch = tempfile::Builder::new()
        .prefix("swath-bench-")
        .tempdir_in(&options.scratch)
        .map_err(|e| format!("cannot write to {}: {e}", options.scratch.display()))?;
    let places = Places {
        swath: options.swath.clone().unwrap_or_else(|| beside_us("swath")),
        served: scratch.path().join("served"),
        target: scratch.path().join("target"),
        trace: options.trace.clone(),
    };
    for folder in [&places.served, &places.target] {
        std::fs::create_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut kept = Vec::new();
    for row in &chosen {
        kept.push(measure_row(row, options, &places)?);
        // After each row, so that an interrupted study keeps what it has.
        let path = options.results.join(format!("{}.json", options.name));
        let all = json!({ "machine": machine, "rows": kept });
        std::fs::create_dir_all(&options.results)
            .and_then(|()| std::fs::write(&path, format!("{all:#}\n")))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

fn measure_row(row: &Row, options: &Options, places: &Places) -> Result<Value, String> {
    let data = make_file(&places.served, row.size_bytes).map_err(|e| format!("data: {e}"))?;
    let mut taking_part: Vec<(Case, Vec<SwarmRun>)> = Vec::new();
    for case in &row.cases {
        match case.origin.is_installed() && case.client.is_installed() {
            true => taking_part.push((*case, Vec::new())),
            false => println!("skipped: {} (not installed)", case.name),
        }
    }
    for round in 1..=options.rounds {
        for (case, runs) in &mut taking_part {
            say(&format!("{} round {round}/{}: {}", row.name, options.rounds, case.name));
            let run = run_once(row, *case, row.limit(), places, &data)
                .map_err(|e| format!("{}, {}: {e}", row.name, case.name))?;
            if let Some(why) = &run.failure {
                println!("failed: {}, round {round}: {why}", case.name);
            }
            runs.push(run);
        }
    }
    say("");
    print_table(row, &taking_part, options.rounds);
    std::fs::remove_file(&data).map_err(|e| format!("data: {e}"))?;
    let tools: serde_json::Map<String, Value> = taking_part
        .iter()
        .map(|(case, runs)| (case.name.to_owned(), runs.iter().map(as_json).collect()))
        .collect();
    Ok(json!({
        "row": row.name,
        "size_bytes": row.size_bytes,
        "bound_s": row.bound_s(),
        "tools": tools,
    }))
}

fn as_json(run: &SwarmRun) -> Value {
    json!({
        "done_s": run.done_s,
        "origin_bytes": run.origin_bytes,
        "mirror_bytes": run.mirror_bytes,
        "emulator_s": run.emulator_s,
        "processors_busy": run.busy,
        "failure": run.failure,
    })
}

/// Prints medians of the runs that count.
fn print_table(row: &Row, measured: &[(Case, Vec<SwarmRun>)], rounds: u32) {
    let mib = row.size_bytes >> 20;
    println!("### {}: {mib} MiB, {}; medians of {rounds}", row.name, row.title);
    match row.sites.len() {
        1 => println!(
            "| | seconds | from – to | MB/s | processors busy |\n| --- | --- | --- | --- | --- |"
        ),
        _ => println!(
            "bound {:.1} s\n| | last site, s | from – to | × bound | first site, s | copies from the origin | mirrors used | slowest site, of its fair half | processors busy |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
            row.bound_s()
        ),
    }
    for (case, runs) in measured {
        let good: Vec<&SwarmRun> = runs.iter().filter(|run| run.failure.is_none()).collect();
        if good.is_empty() {
            println!("| {} | failed |", case.name);
            continue;
        }
        let sorted = |of: &dyn Fn(&SwarmRun) -> f64| {
            let mut all: Vec<f64> = good.iter().map(|run| of(run)).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let median = |of: &dyn Fn(&SwarmRun) -> f64| sorted(of)[good.len() / 2];
        let last = sorted(&SwarmRun::last_s);
        let (from, to) = (last[0], last[last.len() - 1]);
        let last_s = median(&SwarmRun::last_s);
        let busy = 100.0 * median(&|run| run.busy);
        if row.sites.len() == 1 {
            let rate = row.size_bytes as f64 / last_s / 1e6;
            println!(
                "| {} | {last_s:.1} | {from:.1} – {to:.1} | {rate:.1} | {busy:.0} % |",
                case.name
            );
            continue;
        }
        let first_s = median(&|run| run.done_s.iter().copied().fold(f64::MAX, f64::min));
        let copies = median(&|run| run.origin_bytes as f64 / (row.size_bytes as f64 * FRAMING));
        let slowest = median(&|run| {
            let share = |(site, done_s): (usize, &f64)| {
                row.size_bytes as f64 / done_s / row.fair_bytes_per_s(site)
            };
            run.done_s.iter().enumerate().map(share).fold(f64::MAX, f64::min)
        });
        let mirrors: f64 = row.mirrors.iter().map(|link| link.up_bits_per_s as f64 / 8.0).sum();
        let used = match row.mirrors.is_empty() {
            true => "–".to_owned(),
            false => {
                let used = median(&|run| run.mirror_bytes as f64 / (mirrors * run.last_s()));
                format!("{:.0} %", 100.0 * used)
            }
        };
        println!(
            "| {} | {last_s:.1} | {from:.1} – {to:.1} | {:.2} | {first_s:.1} | {copies:.2} | {used} | {slowest:.2} | {busy:.0} % |",
            case.name,
            last_s / row.bound_s(),
        );
    }
    println!();
}

fn choose(options: &Options) -> Result<Vec<Row>, String> {
    let all = rows();
    let known: Vec<&str> = all.iter().map(|row| row.name).collect();
    if let Some(name) = options.row.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no row '{name}'; there are {}", known.join(", ")));
    }
    let is_chosen =
        |row: &Row| options.row.is_empty() || options.row.iter().any(|it| it == row.name);
    let chosen = all.into_iter().filter(is_chosen).map(|mut row| {
        if let Some(mib) = options.mib {
            row.size_bytes = mib << 20;
        }
        row.cases.retain(|case| {
            options.tools.is_empty() || options.tools.iter().any(|name| name == case.name)
        });
        row
    });
    Ok(chosen.collect())
}

/// Bytes on the wire over bytes of payload, in full packets.
const FRAMING: f64 = 1500.0 / 1448.0;
