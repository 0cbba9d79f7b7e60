//! `bench/multisource`: one file from many mirrors, swath against its peers.
//!
//! Runs scenarios × tools in rounds, prints a table, keeps every measurement as JSON and draws a
//! picture. Needs root for the emulated network.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use swath_bench::data::make_file;
use swath_bench::options::StudyOptions;
use swath_bench::oracle::{Share, fetch};
use swath_bench::results::{ScenarioResult, ToolResult};
use swath_bench::scenario::{Scenario, scenarios};
use swath_bench::star_run::{Places, does_not_apply, run_once};
use swath_bench::study_files::say;
use swath_bench::tool::Tool;

/// One file from many mirrors: swath against its peers, in emulated networks.
#[derive(Debug, Parser)]
#[command(name = "multisource", args_conflicts_with_subcommands = true, max_term_width = 100)]
struct Program {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// What the oracle runs as; ADDRESS PATH START END for each share.
    #[command(hide = true)]
    Oracle {
        #[arg(required = true)]
        shares: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct Options {
    /// Options of every study.
    #[command(flatten)]
    study: StudyOptions,
    /// Size of the file in MiB, in place of the scenario's.
    #[arg(long, value_name = "MIB")]
    size: Option<u64>,
    /// Decides losses and jumps.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let program = Program::parse();
    let options = &program.options;
    options.study.run("multisource", || match &program.task {
        Some(Task::Oracle { shares }) => oracle(shares),
        None => measure(options),
    })
}

fn measure(options: &Options) -> Result<(), String> {
    let chosen = choose(options)?;
    if options.study.list {
        for (scenario, tools) in &chosen {
            let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
            println!("{:<13} {}\n{:<13} {}", scenario.name, scenario.title, "", names.join(", "));
        }
        return Ok(());
    }
    let scratch = tempfile::Builder::new()
        .prefix("swath-bench-")
        .tempdir_in(&options.study.scratch)
        .map_err(|e| format!("cannot write to {}: {e}", options.study.scratch.display()))?;
    let places = Places {
        swath: options.study.swath(),
        served: scratch.path().join("served"),
        target: scratch.path().join("target"),
    };
    for folder in [&places.served, &places.target] {
        std::fs::create_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut study = options.study.begin("multisource");
    for (scenario, tools) in &chosen {
        let result = measure_scenario(scenario, tools, options.study.runs, &places)?;
        options.study.add(&mut study, result)?;
    }
    options.study.end(&study);
    Ok(())
}

fn measure_scenario(
    scenario: &Scenario,
    tools: &[Tool],
    runs: u32,
    places: &Places,
) -> Result<ScenarioResult, String> {
    let data = make_file(&places.served, scenario.size_bytes).map_err(|e| format!("data: {e}"))?;
    let bound = scenario.bound().ok_or("this scenario never ends")?;
    let mut result = ScenarioResult {
        name: scenario.name.to_owned(),
        title: scenario.title.to_owned(),
        size_bytes: scenario.size_bytes,
        bound_s: bound.as_secs_f64(),
        bound_is: "size with framing over the sum of the rates".to_owned(),
        tools: Vec::new(),
        skipped: Vec::new(),
        goals: Vec::new(),
    };
    let mut taking_part = Vec::new();
    for &tool in tools {
        let skip = |reason: &str| (tool.name().to_owned(), reason.to_owned());
        match (tool.program(&places.swath), does_not_apply(scenario, tool)) {
            (None, _) => result.skipped.push(skip("not installed")),
            (_, Some(reason)) => result.skipped.push(skip(reason)),
            (Some(program), None) => {
                taking_part.push((tool, program));
                let name = tool.name().to_owned();
                result.tools.push(ToolResult { name, command: String::new(), runs: Vec::new() });
            }
        }
    }
    for round in 1..=runs {
        for ((tool, program), kept) in taking_part.iter().zip(&mut result.tools) {
            say(&format!("{} round {round}/{runs}: {}", scenario.name, tool.name()));
            let (run, command) = run_once(scenario, *tool, program, places, &data)
                .map_err(|e| format!("{}, {}: {e}", scenario.name, tool.name()))?;
            kept.command = command;
            kept.runs.push(run);
        }
    }
    say("");
    std::fs::remove_file(&data).map_err(|e| format!("data: {e}"))?;
    Ok(result)
}

fn choose(options: &Options) -> Result<Vec<(Scenario, Vec<Tool>)>, String> {
    let all = scenarios(options.seed);
    let known: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
    options.study.check(&known, &Tool::ALL.map(|tool| tool.name()))?;
    let tools: Vec<Tool> =
        options.study.tools.iter().filter_map(|name| Tool::named(name)).collect();
    let is_chosen = |scenario: &Scenario| options.study.has_scenario(scenario.name);
    let chosen = all.into_iter().filter(is_chosen).map(|mut scenario| {
        if let Some(size_mib) = options.size {
            scenario.size_bytes = size_mib << 20;
        }
        let tools = if tools.is_empty() { scenario.tools.to_vec() } else { tools.clone() };
        (scenario, tools)
    });
    Ok(chosen.collect())
}

fn oracle(words: &[String]) -> Result<(), String> {
    let mut shares = Vec::new();
    for share in words.chunks_exact(4) {
        let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is no offset"));
        shares.push(Share {
            address: share[0].clone(),
            path: share[1].clone(),
            start: number(&share[2])?,
            end: number(&share[3])?,
        });
    }
    fetch(&shares).map_err(|e| e.to_string())
}
