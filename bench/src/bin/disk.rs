//! `bench/disk`: one large file from a web server over loopback to a disk.
//!
//! Prints a table, keeps every measurement as JSON and draws a picture. Needs root for the
//! namespace in which server and client live.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use swath_bench::data::{digests, make_file, sha256_by_swath};
use swath_bench::disk_run::{DiskTool, Place, run_once};
use swath_bench::machine::{Machine, beside_us, versions};
use swath_bench::results::{ScenarioResult, Study, ToolResult};
use swath_bench::study_files::{self, say, typed_command};
use swath_bench::table::scenario_table;
use swath_netlab::star::{ServerKind, WebServer};
use swath_netlab::wan::Namespace;

/// One large file from a web server over loopback to a disk: swath against its peers.
#[derive(Debug, Parser)]
#[command(name = "disk", max_term_width = 100)]
struct Options {
    /// Tools; all of them unless named. `dd` always runs: it is the yardstick.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    tools: Vec<String>,
    /// Number of rounds; each round runs every tool once.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Size of the file in MiB.
    #[arg(long, default_value_t = 4096, value_name = "MIB")]
    size: u64,
    /// The swath program; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    swath: Option<PathBuf>,
    /// Where the file is served from: a folder in memory, so that only the target's disk works.
    #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
    scratch: PathBuf,
    /// A folder on the disk that is measured.
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    target: PathBuf,
    /// Where the results go.
    #[arg(long, default_value = "bench/results", value_name = "DIR")]
    results: PathBuf,
    /// Prints the table and draws the picture of earlier results again.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Prints the SHA-256 digest of a file by the program's own hasher, and ends: the row `sha256`.
    #[arg(long, value_name = "FILE")]
    hash: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match (&options.plot, &options.hash) {
        (Some(results), _) => study_files::plot(results),
        (None, Some(file)) => hash(file),
        (None, None) => measure(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("disk: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), String> {
    let tools = choose(&options.tools)?;
    let folder = |parent: &PathBuf| {
        let made = tempfile::Builder::new().prefix("swath-bench-").tempdir_in(parent);
        made.map_err(|e| format!("cannot write to {}: {e}", parent.display()))
    };
    let served = folder(&options.scratch)?;
    let target = folder(&options.target)?;
    let machine = Machine::here();
    println!("{}\n", machine.line());
    say("making the file");
    let data = make_file(served.path(), options.size << 20).map_err(|e| format!("data: {e}"))?;
    let (blake3, sha256) = digests(&data).map_err(|e| format!("data: {e}"))?;
    let swath = options.swath.clone().unwrap_or_else(|| beside_us("swath"));
    let place = Place { swath, data, blake3, sha256, target: target.path().to_owned() };

    let namespace = Namespace::new("bench-disk").map_err(|e| e.to_string())?;
    let _server = WebServer::start(ServerKind::Nginx, &namespace, served.path())
        .map_err(|e| e.to_string())?;
    let mut skipped = Vec::new();
    let mut taking_part = Vec::new();
    for tool in tools {
        let name = tool.name().to_owned();
        match tool.program(&place.swath) {
            Some(program) => {
                let result = ToolResult { name, command: String::new(), runs: Vec::new() };
                taking_part.push((tool, program, result));
            }
            None => skipped.push((name, "not installed".to_owned())),
        }
    }
    for round in 1..=options.runs {
        for (tool, program, result) in &mut taking_part {
            say(&format!("round {round}/{}: {}", options.runs, tool.name()));
            let (run, command) = run_once(&namespace, *tool, program, &place)
                .map_err(|e| format!("{}: {e}", tool.name()))?;
            result.command = command;
            result.runs.push(run);
        }
    }
    say("");
    let mut scenario = ScenarioResult {
        name: "loopback".to_owned(),
        title: format!("{} MiB from nginx over loopback to a disk", options.size),
        size_bytes: options.size << 20,
        bound_s: 0.0,
        bound_is: "dd oflag=direct of the same file, the median of this study".to_owned(),
        tools: taking_part.into_iter().map(|(_, _, result)| result).collect(),
        skipped,
        goals: Vec::new(),
    };
    scenario.bound_s = scenario.median_s(DiskTool::Dd.name()).ok_or("dd failed")?;
    println!("{}", scenario_table(&scenario));
    let study = Study {
        name: "disk".to_owned(),
        machine,
        command: typed_command("bench/disk"),
        versions: versions(&place.swath),
        scenarios: vec![scenario],
    };
    study_files::keep(&study, &options.results)?;
    println!("results and picture: {}/disk.*", options.results.display());
    Ok(())
}

fn hash(path: &Path) -> Result<(), String> {
    let digest = sha256_by_swath(path).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("{digest}");
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<DiskTool>, String> {
    let known: Vec<&str> = DiskTool::ALL.iter().map(|tool| tool.name()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no tool '{unknown}'; there are {}", known.join(", ")));
    }
    let is_chosen = |tool: &DiskTool| {
        *tool == DiskTool::Dd || names.is_empty() || names.iter().any(|name| name == tool.name())
    };
    Ok(DiskTool::ALL.into_iter().filter(is_chosen).collect())
}
