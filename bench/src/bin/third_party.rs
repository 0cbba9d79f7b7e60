//! `bench/third-party`: copies between two servers that a third site orders, swath against its peers.
//!
//! Prints a table for each row, keeps every measurement as JSON and draws a picture. Needs root for
//! the emulated network.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use swath_bench::machine::{Machine, beside_us, versions};
use swath_bench::results::{ScenarioResult, Study, ToolResult};
use swath_bench::study_files::{self, say, typed_command};
use swath_bench::table::scenario_table;
use swath_bench::third_party::{Outcome, Places, Row, Sizes, Tool, compare, rows, run_once};
use swath_netlab::star::scratch_folder_in;

/// Copies between two servers that a third site orders: swath against its peers.
#[derive(Debug, Parser)]
#[command(name = "third-party", max_term_width = 100)]
struct Options {
    /// Rows; all of them unless named.
    #[arg(long, alias = "scenarios", value_delimiter = ',', value_name = "NAME")]
    row: Vec<String>,
    /// Tools, as the table calls them; all that apply unless named.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    tools: Vec<String>,
    /// Number of rounds; each round runs every tool once.
    #[arg(long, alias = "runs", default_value_t = 5)]
    rounds: u32,
    /// Size of large files in place of the row's, for example 10GB or 512MiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bytes: Option<u64>,
    /// Number of files of the tree, in place of 50,000.
    #[arg(long, value_name = "N")]
    files: Option<u64>,
    /// The swath program; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    swath: Option<PathBuf>,
    /// Where the tree and the files of loopback lie and go: a folder in memory.
    #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
    scratch: PathBuf,
    /// Where large files lie and go, twice their size: a folder on a disk.
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    disk: PathBuf,
    /// Where the results go.
    #[arg(long, default_value = "bench/results", value_name = "DIR")]
    results: PathBuf,
    /// Name of the results.
    #[arg(long, default_value = "third-party", value_name = "NAME")]
    name: String,
    /// Lists rows and their tools, and ends.
    #[arg(long)]
    list: bool,
    /// Prints the table and draws the picture of earlier results again.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match &options.plot {
        Some(results) => study_files::plot(results),
        None => measure(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("third-party: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), String> {
    let chosen = choose(options)?;
    if options.list {
        for row in &chosen {
            let names: Vec<&str> = row.tools.iter().map(|tool| tool.name()).collect();
            println!("{:<9} {}\n{:<9} {}", row.name, row.title, "", names.join(", "));
        }
        return Ok(());
    }
    let swath = options.swath.clone().unwrap_or_else(|| beside_us("swath"));
    let mut study = Study {
        name: options.name.clone(),
        machine: Machine::here(),
        command: typed_command("bench/third-party"),
        versions: versions(&swath),
        scenarios: Vec::new(),
    };
    println!("{}\n", study.machine.line());
    for row in &chosen {
        let result = measure_row(row, options, &swath)?;
        println!("{}", scenario_table(&result));
        study.scenarios.push(result);
        // After each row, so that an interrupted study keeps what it has.
        study_files::keep(&study, &options.results)?;
    }
    println!("results and picture: {}/{}.*", options.results.display(), study.name);
    Ok(())
}

fn measure_row(
    row: &Row,
    options: &Options,
    swath: &std::path::Path,
) -> Result<ScenarioResult, String> {
    let parent = if row.is_in_memory { &options.scratch } else { &options.disk };
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
    for round in 1..=options.rounds {
        for (tool, outcomes) in &mut taking_part {
            say(&format!("{} round {round}/{}: {}", row.name, options.rounds, tool.name()));
            let outcome = run_once(row, *tool, &places)
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
    if let Some(name) = options.row.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no row '{name}'; there are {}", known.join(", ")));
    }
    let tools = all.iter().flat_map(|row| &row.tools).map(|tool| tool.name());
    let tools: std::collections::BTreeSet<&str> = tools.collect();
    if let Some(name) = options.tools.iter().find(|name| !tools.contains(name.as_str())) {
        let names: Vec<&str> = tools.into_iter().collect();
        return Err(format!("no tool '{name}'; there are {}", names.join(", ")));
    }
    all.retain(|row| options.row.is_empty() || options.row.iter().any(|name| name == row.name));
    for row in &mut all {
        let is_chosen = |tool: &Tool| {
            options.tools.is_empty() || options.tools.iter().any(|name| name == tool.name())
        };
        row.tools.retain(is_chosen);
    }
    Ok(all)
}

/// A number of bytes, with a unit or without.
fn size(text: &str) -> Result<u64, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit {
        "" | "B" => 1,
        "k" | "kB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(format!("'{unit}' is no unit; there are kB, MB, GB, KiB, MiB, GiB")),
    };
    let number: u64 = number.parse().map_err(|_| format!("'{text}' is no size"))?;
    number.checked_mul(factor).filter(|bytes| *bytes > 0).ok_or_else(|| format!("'{text}'?"))
}
