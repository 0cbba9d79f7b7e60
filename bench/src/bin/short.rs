//! Two builds of swath against each other: one row of every benchmark, in turns, in one run.
//!
//! ```sh
//! make bench-short BEFORE=/path/of/the/earlier/swath
//! ```
//!
//! A row is held if the median of the later build is within 3 % of the earlier one's, or within the
//! spread of its runs; and its peak memory within 3 % or 4 MB.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use swath_bench::machine::beside_us;
use swath_bench::results::{Run, Spread, Study};
use swath_bench::study_files::say;

/// Compares two builds of swath: one row of every benchmark, in turns.
#[derive(Debug, Parser)]
#[command(name = "short", max_term_width = 100)]
struct Options {
    /// The earlier build.
    #[arg(long, env = "BEFORE", value_name = "FILE")]
    before: PathBuf,
    /// The later build; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    after: Option<PathBuf>,
    /// Number of rounds; each round runs every row once with each build.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Rows; all of them unless named.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    rows: Vec<String>,
}

/// One row: a benchmark, a scenario of it and a tool.
struct Row {
    name: &'static str,
    bench: &'static str,
    arguments: &'static [&'static str],
    tool: &'static str,
}

/// One row of each benchmark, so small that five rounds end within a quarter of an hour.
/// (`bench/store` is left out: it measures the engines of its own build, not a program.)
const ROWS: [Row; 8] = [
    Row {
        name: "mirrors",
        bench: "multisource",
        arguments: &["--scenarios", "static256"],
        tool: "swath",
    },
    Row {
        name: "jumping",
        bench: "multisource",
        arguments: &["--scenarios", "jump"],
        tool: "swath",
    },
    Row { name: "disk", bench: "disk", arguments: &["--size", "2048"], tool: "swath" },
    Row { name: "tree-far", bench: "trees", arguments: &["--scenarios", "wan"], tool: "swath" },
    Row {
        name: "tree-near",
        bench: "trees",
        arguments: &["--scenarios", "loopback"],
        tool: "swath",
    },
    Row {
        name: "serve",
        bench: "serve",
        arguments: &["--scenarios", "copy", "--size", "1024"],
        tool: "swath",
    },
    Row {
        name: "limits",
        bench: "limits",
        arguments: &["--scenarios", "counted", "--size", "256", "--alone"],
        tool: "swath",
    },
    Row { name: "routes", bench: "routes", arguments: &["--scenarios", "cold"], tool: "cold" },
];

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("short: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every row is held.
fn compare(options: &Options) -> Result<bool, String> {
    let after = options.after.clone().unwrap_or_else(|| beside_us("swath"));
    let builds = [options.before.as_path(), after.as_path()];
    for build in builds {
        if !build.is_file() {
            return Err(format!("there is no program {}", build.display()));
        }
    }
    if let Some(unknown) = options.rows.iter().find(|name| ROWS.iter().all(|it| it.name != **name))
    {
        let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        return Err(format!("no row '{unknown}'; there are {}", known.join(", ")));
    }
    let is_chosen =
        |row: &&Row| options.rows.is_empty() || options.rows.iter().any(|it| it == row.name);
    println!(
        "{:<10} {:>9} {:>9} {:>7} {:>15} {:>10} {:>10}",
        "row", "before", "after", "ratio", "spread before", "MB before", "MB after"
    );
    let mut all_held = true;
    for row in ROWS.iter().filter(is_chosen) {
        let mut runs: [Vec<Run>; 2] = [Vec::new(), Vec::new()];
        for round in 0..options.runs {
            // Who comes first changes from round to round.
            for build in [0, 1].map(|at| (at + round as usize) % 2) {
                say(&format!("{}, round {} of {}", row.name, round + 1, options.runs));
                runs[build].extend(measure(row, builds[build])?);
            }
        }
        say("");
        all_held &= show(row, &runs);
    }
    Ok(all_held)
}

/// The runs of one row with one build.
fn measure(row: &Row, swath: &Path) -> Result<Vec<Run>, String> {
    let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
    let mut command = Command::new(beside_us(row.bench));
    command.args(row.arguments).args(["--runs", "1"]).arg("--swath").arg(swath);
    command.arg("--results").arg(folder.path());
    if !row.arguments.contains(&"--alone") {
        command.args(["--tools", row.tool]);
    }
    let ended = command.stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let ended = ended.map_err(|e| format!("cannot run {}: {e}", row.bench))?;
    if !ended.status.success() {
        let why = String::from_utf8_lossy(&ended.stderr).into_owned();
        return Err(format!("{} failed: {}", row.bench, why.trim()));
    }
    let path = folder.path().join(format!("{}.json", row.bench));
    let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let study: Study = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    let tools = study.scenarios.into_iter().flat_map(|scenario| scenario.tools);
    Ok(tools.filter(|tool| tool.name == row.tool).flat_map(|tool| tool.runs).collect())
}

/// Prints a row; whether it is held.
fn show(row: &Row, runs: &[Vec<Run>; 2]) -> bool {
    let good = |at: usize| runs[at].iter().filter(|run| run.failure.is_none());
    let time = |at| Spread::of(good(at).map(|run| run.elapsed_s));
    let memory = |at| Spread::of(good(at).map(|run| run.peak_memory_bytes as f64 / 1e6));
    let all = (time(0), time(1), memory(0), memory(1));
    let (Some(before), Some(after), Some(memory_before), Some(memory_after)) = all else {
        let mut failures = runs.iter().flatten().filter_map(|run| run.failure.as_deref());
        println!(
            "{:<10} FAILED: {}",
            row.name,
            failures.next_back().unwrap_or("nothing was measured")
        );
        return false;
    };
    let is_as_fast = after.median <= (before.median * MOST).max(before.max);
    let is_as_small = memory_after.median
        <= (memory_before.median * MOST)
            .max(memory_before.max)
            .max(memory_before.median + MEMORY_MB);
    println!(
        "{:<10} {:>7.2} s {:>7.2} s {:>7.3} {:>6.2} – {:>4.2} s {:>10.1} {:>10.1}{}{}",
        row.name,
        before.median,
        after.median,
        after.median / before.median,
        before.min,
        before.max,
        memory_before.median,
        memory_after.median,
        if is_as_fast { "" } else { "  SLOWER" },
        if is_as_small { "" } else { "  LARGER" },
    );
    is_as_fast && is_as_small
}

/// A build may take this much of the earlier one's time and memory.
const MOST: f64 = 1.03;
/// So much memory is no difference: the pool's pages come as they are touched.
const MEMORY_MB: f64 = 4.0;
