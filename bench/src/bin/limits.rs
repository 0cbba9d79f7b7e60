//! `bench/limits`: one file from three nginx with `limit_rate`, with and without `limit_conn`.
//!
//! Prints a table, keeps every measurement as JSON and draws a picture. Needs root for the namespace in
//! which servers and client live, and nginx.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use swath_bench::data::make_file;
use swath_bench::limits_run::{CONNECTIONS, Limited, LimitsTool, NAME, bound_s, run_once};
use swath_bench::machine::{Machine, beside_us, versions};
use swath_bench::results::{Goal, ScenarioResult, Study, ToolResult};
use swath_bench::study_files::{self, say, typed_command};
use swath_bench::table::scenario_table;
use swath_netlab::wan::Namespace;

/// Servers that limit the rate and the number of answers.
#[derive(Debug, Parser)]
#[command(name = "limits", max_term_width = 100)]
struct Options {
    /// Number of rounds; each round runs every tool once.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Size of the file in MiB.
    #[arg(long, default_value_t = 1024, value_name = "MIB",
        value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    size: u64,
    /// counted (limit_conn 4), uncounted; both unless named.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    scenarios: Vec<String>,
    /// Only swath.
    #[arg(long)]
    alone: bool,
    /// The swath program; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    swath: Option<PathBuf>,
    /// Where files are served from and written to: a folder in memory.
    #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
    scratch: PathBuf,
    /// Where the results go.
    #[arg(long, default_value = "bench/results", value_name = "DIR")]
    results: PathBuf,
    /// Name of the results.
    #[arg(long, default_value = "limits", value_name = "NAME")]
    name: String,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("limits: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), String> {
    let swath = options.swath.clone().unwrap_or_else(|| beside_us("swath"));
    let mut study = Study {
        name: options.name.clone(),
        machine: Machine::here(),
        command: typed_command("bench/limits"),
        versions: versions(&swath),
        scenarios: Vec::new(),
    };
    println!("{}\n", study.machine.line());
    for (name, counts) in [("counted", true), ("uncounted", false)] {
        if !options.scenarios.is_empty() && !options.scenarios.iter().any(|it| it == name) {
            continue;
        }
        let result = scenario(options, &swath, name, counts)?;
        println!("{}", scenario_table(&result));
        study.scenarios.push(result);
        study_files::keep(&study, &options.results)?;
    }
    println!("results and picture: {}/{}.*", options.results.display(), study.name);
    Ok(())
}

fn scenario(
    options: &Options,
    swath: &Path,
    name: &str,
    counts: bool,
) -> Result<ScenarioResult, String> {
    let scratch = tempfile::Builder::new()
        .prefix("swath-bench-")
        .tempdir_in(&options.scratch)
        .map_err(|e| format!("cannot write to {}: {e}", options.scratch.display()))?;
    let folder = |name: &str| {
        let folder = scratch.path().join(name);
        std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok::<_, String>(folder)
    };
    let (served, target) = (folder("served")?, folder("target")?);
    let size_bytes = options.size << 20;
    let made = make_file(&served, size_bytes).map_err(|e| format!("data: {e}"))?;
    let data = served.join(NAME);
    std::fs::rename(made, &data).map_err(|e| format!("data: {e}"))?;
    let namespace = Namespace::new("bench-limits").map_err(|e| e.to_string())?;
    let servers =
        Limited::start(&namespace, &served, scratch.path(), counts).map_err(|e| e.to_string())?;
    let mut result = ScenarioResult {
        name: name.to_owned(),
        title: match counts {
            true => format!("limit_rate 3m, 2m, 600k; limit_conn {CONNECTIONS}"),
            false => "limit_rate 3m, 2m, 600k; any number of connections".to_owned(),
        },
        size_bytes,
        bound_s: bound_s(size_bytes),
        bound_is: format!("size over the rates of {CONNECTIONS} answers of each server"),
        tools: Vec::new(),
        skipped: Vec::new(),
        goals: vec![
            Goal { least: Some(0.95), ..Goal::at_most("swath", "of bound", 1.10) },
            Goal::at_most("swath", "refused", 1.0),
            Goal::at_most("swath", "connections", CONNECTIONS as f64),
            Goal::at_most("swath", "wasted %", 2.0),
            Goal::at_most("swath", "eta off %", 15.0),
            Goal::at_most("swath", "silent", 0.0),
        ],
    };
    let mut taking_part = Vec::new();
    for tool in [LimitsTool::Swath, LimitsTool::Aria2] {
        match tool.program(swath) {
            _ if options.alone && tool != LimitsTool::Swath => {}
            None => result.skipped.push((tool.name().to_owned(), "not installed".to_owned())),
            Some(program) => {
                taking_part.push((tool, program));
                let name = tool.name().to_owned();
                result.tools.push(ToolResult { name, command: String::new(), runs: Vec::new() });
            }
        }
    }
    for round in 1..=options.runs {
        for ((tool, program), kept) in taking_part.iter().zip(&mut result.tools) {
            say(&format!("{name} round {round}/{}: {}", options.runs, tool.name()));
            let (run, command) = run_once(*tool, program, &namespace, &servers, &data, &target)
                .map_err(|e| format!("{name}, {}: {e}", tool.name()))?;
            kept.command = command;
            kept.runs.push(run);
        }
    }
    say("");
    Ok(result)
}
