//! `bench/store`: the ways in which the store can write one large file, against `dd`.
//!
//! Prints a table, keeps every measurement as JSON and draws a picture. Each run is a process of
//! its own, so that processor time and memory are those of the store alone.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use swath_bench::machine::{Machine, find_program};
use swath_bench::measure::{Ending, measure};
use swath_bench::results::{Run, ScenarioResult, Study, ToolResult};
use swath_bench::store_run::{Way, write_file};
use swath_bench::study_files::{self, say, typed_command};
use swath_bench::table::scenario_table;
use swath_bench::tool::as_typed;

/// The ways in which the store can write one large file, against `dd oflag=direct`.
#[derive(Debug, Parser)]
#[command(name = "store", max_term_width = 100)]
struct Options {
    /// Ways to write: MODE-BUFFERk, with -dDEPTH and -sparse if wanted.
    #[arg(long, value_delimiter = ',', value_name = "WAY", default_value = WAYS)]
    ways: Vec<Way>,
    /// Number of rounds; each round measures every tool once.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Size of the file in MiB.
    #[arg(long, default_value_t = 4096, value_name = "MIB")]
    size: u64,
    /// A folder on the disk that is measured.
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    target: PathBuf,
    /// Where the results go.
    #[arg(long, default_value = "bench/results", value_name = "DIR")]
    results: PathBuf,
    /// Name of the result files.
    #[arg(long, default_value = "store")]
    name: String,
    /// Prints the table and draws the picture of earlier results again.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Writes one file in the first of the ways and ends: what a study starts for every run.
    #[arg(long, value_name = "FILE", hide = true)]
    write: Option<PathBuf>,
}

/// Every mode with the sizes of buffer that come into question.
const WAYS: &str = "uring-1024k,uring-512k,uring-256k,threads-1024k,threads-512k,threads-256k,buffered-1024k,buffered-256k";
const DD: &str = "dd";
/// Nothing sensible takes longer.
const LIMIT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match (&options.write, &options.plot) {
        (Some(path), _) => {
            options.ways.first().map_or(Ok(()), |&way| write_file(way, path, options.size << 20))
        }
        (None, Some(results)) => study_files::plot(results),
        (None, None) => study(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("store: {message}");
            ExitCode::FAILURE
        }
    }
}

fn study(options: &Options) -> Result<(), String> {
    let folder = tempfile::Builder::new().prefix("swath-bench-").tempdir_in(&options.target);
    let folder =
        folder.map_err(|e| format!("cannot write to {}: {e}", options.target.display()))?;
    let output = folder.path().join("output");
    let machine = Machine::here();
    println!("{}\n", machine.line());
    let names = std::iter::once(DD.to_owned()).chain(options.ways.iter().map(Way::to_string));
    let mut tools: Vec<ToolResult> =
        names.map(|name| ToolResult { name, command: String::new(), runs: Vec::new() }).collect();
    let mut random = fastrand::Rng::with_seed(1);
    for round in 1..=options.runs {
        // What ran before leaves its traces in memory: a run through the page cache takes several
        // times as long where a virtual machine first has to get that memory from its host.
        random.shuffle(&mut tools);
        for tool in &mut tools {
            say(&format!("round {round}/{}: {}", options.runs, tool.name));
            let mut command = command(&tool.name, &output, options.size)?;
            tool.command = as_typed(&command);
            tool.runs.push(run_once(&mut command, &output, options.size << 20)?);
        }
    }
    say("");
    let order =
        |tool: &ToolResult| options.ways.iter().position(|way| way.to_string() == tool.name);
    tools.sort_by_key(order);
    let mut scenario = ScenarioResult {
        name: "write".to_owned(),
        title: format!("{} MiB to a disk, durable at the end", options.size),
        size_bytes: options.size << 20,
        bound_s: 0.0,
        bound_is: "dd oflag=direct bs=1M from /dev/zero, the median of this study".to_owned(),
        tools,
        skipped: Vec::new(),
        goals: Vec::new(),
    };
    scenario.bound_s = scenario.median_s(DD).ok_or("dd failed")?;
    println!("{}", scenario_table(&scenario));
    let study = Study {
        name: options.name.clone(),
        machine,
        command: typed_command("bench/store"),
        versions: Vec::new(),
        scenarios: vec![scenario],
    };
    study_files::keep(&study, &options.results)?;
    println!("results and picture: {}/{}.*", options.results.display(), options.name);
    Ok(())
}

fn command(way: &str, output: &Path, size_mib: u64) -> Result<Command, String> {
    if way == DD {
        let mut command = Command::new(find_program(DD).ok_or("there is no dd")?);
        command.args(["if=/dev/zero", "bs=1M", "oflag=direct", "status=none"]);
        command.arg(format!("count={size_mib}")).arg(format!("of={}", output.display()));
        return Ok(command);
    }
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.args(["--ways", way, "--size", &size_mib.to_string(), "--write"]).arg(output);
    Ok(command)
}

fn run_once(command: &mut Command, output: &Path, size_bytes: u64) -> Result<Run, String> {
    let _ = std::fs::remove_file(output);
    // SAFETY: sync has no preconditions.
    unsafe { libc::sync() };
    command.stdout(Stdio::null());
    let measured = measure(command, LIMIT, || ()).map_err(|e| e.to_string())?;
    let begin = Instant::now();
    let file = std::fs::File::open(output);
    let synced = file.and_then(|file| file.sync_all().and_then(|()| file.metadata()));
    let sync_s = begin.elapsed().as_secs_f64();
    let failure = match (measured.ending, synced) {
        (Ending::Code(0), Ok(found)) if found.len() == size_bytes => None,
        (Ending::Code(0), Ok(_)) => Some("the file has another size".to_owned()),
        (Ending::Code(0), Err(error)) => Some(error.to_string()),
        (ending, _) => Some(format!("{ending:?}")),
    };
    let _ = std::fs::remove_file(output);
    Ok(Run {
        elapsed_s: measured.elapsed.as_secs_f64(),
        cpu_s: measured.cpu.as_secs_f64(),
        peak_memory_bytes: measured.peak_memory_bytes,
        is_stopped: measured.is_stopped(),
        wire_bytes: 0,
        sync_s,
        figures: Vec::new(),
        failure,
    })
}
