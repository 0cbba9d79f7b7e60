//! `bench/third-party`: copies between two servers that a third site orders, swath against its peers.
//!
//! Prints a table for each row, keeps every measurement as JSON and draws a picture. Needs root for
//! the emulated network.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use swath_bench::options::{StudyOptions, each_once, size};
use swath_bench::results::{ScenarioResult, ToolResult};
use swath_bench::study_files::say;
use swath_bench::third_party::{Outcome, Places, Row, Sizes, Tool, compare, rows, run_once};
use swath_netlab::star::scratch_folder_in;

/// Copies between two servers that a third site orders: swath against its peers.
#[derive(Debug, Parser)]
#[command(name = "third-party", max_term_width = 100)]
struct Options {
    /// Options of every study.
    #[command(flatten)]
    study: StudyOptions,
    /// Size of large files in place of the row's, for example 10GB or 512MiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bytes: Option<u64>,
    /// Number of files of the tree, in place of 50,000.
    #[arg(long, value_name = "N")]
    files: Option<u64>,
    /// Where large files lie and go, twice their size: a folder on a disk.
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    disk: PathBuf,
}

fn main() -> ExitCode {
    let options = Options::parse();
    options.study.run("third-party", || measure(&options))
}

fn measure(options: &Options) -> Result<(), String> {
    let chosen = choose(options)?;
    if options.study.list {
        for row in &chosen {
            let names: Vec<&str> = row.tools.iter().map(|tool| tool.name()).collect();
            println!("{:<9} {}\n{:<9} {}", row.name, row.title, "", names.join(", "));
        }
        return Ok(());
    }
    let swath = options.study.swath();
    let mut study = options.study.begin("third-party");
    for row in &chosen {
        options.study.add(&mut study, measure_row(row, options, &swath)?)?;
    }
    options.study.end(&study);
    Ok(())
}

fn measure_row(
    row: &Row,
    options: &Options,
    swath: &std::path::Path,
) -> Result<ScenarioResult, String> {
    let parent = if row.is_in_memory { &options.study.scratch } else { &options.disk };
    let cannot = |error| format!("cannot write to {}: {error}", parent.display());
    let scratch = scratch_folder_in(parent).map_err(cannot)?;
    // Servers of others run as nobody.
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scratch.path(), all).map_err(cannot)?;
    let places = Places::make(swath, scratch.path()).map_err(cannot)?;
    let mut result = ScenarioResult {
        name: row.name.to_owned(),
        title: row.title.clone(),
        size_bytes: row.data.bytes(),
        bound_s: row.bound_s(),
        bound_is: "size with framing over the rates of the links to the destination".to_owned(),
        tools: Vec::new(),
        skipped: Vec::new(),
        goals: row.goals.clone(),
    };
    let mut taking_part: Vec<(Tool, Vec<Outcome>)> = Vec::new();
    for &tool in &row.tools {
        match tool.missing(row.data) {
            None => taking_part.push((tool, Vec::new())),
            Some(why) => result.skipped.push((tool.name().to_owned(), why)),
        }
    }
    say(&format!("{}: making the data", row.name));
    row.data.make(&places.served.join("ds")).map_err(cannot)?;
    for round in 1..=options.study.runs {
        // What a tool leaves to the disk must not always meet the same next one.
        for at in 0..taking_part.len() {
            let turn = (at + round as usize) % taking_part.len();
            let (tool, outcomes) = &mut taking_part[turn];
            say(&format!("{} round {round}/{}: {}", row.name, options.study.runs, tool.name()));
            let outcome = run_once(row, *tool, row.limit(), &places)
                .map_err(|e| format!("{}, {}: {e}", row.name, tool.name()))?;
            outcomes.push(outcome);
        }
    }
    say("");
    compare(row, &mut taking_part);
    for (tool, outcomes) in taking_part {
        let command = outcomes.first().map(|outcome| outcome.command.clone()).unwrap_or_default();
        let runs = outcomes.into_iter().map(|outcome| outcome.run).collect();
        result.tools.push(ToolResult { name: tool.name().to_owned(), command, runs });
    }
    if row.map.is_none() {
        // The limit of the place is what the best of all did there.
        let medians = result.tools.iter().filter_map(|tool| result.median_s(&tool.name));
        result.bound_s = medians.fold(f64::INFINITY, f64::min);
        "the median of the fastest".clone_into(&mut result.bound_is);
    }
    Ok(result)
}

fn choose(options: &Options) -> Result<Vec<Row>, String> {
    let mut all = rows(Sizes { bytes: options.bytes, files: options.files });
    let known: Vec<&str> = all.iter().map(|row| row.name).collect();
    let tools = all.iter().flat_map(|row| &row.tools).map(|tool| tool.name());
    options.study.check(&known, &each_once(tools))?;
    all.retain(|row| options.study.has_scenario(row.name));
    for row in &mut all {
        row.tools.retain(|tool| options.study.has_tool(tool.name()));
    }
    Ok(all)
}
