//! `bench/publish`: making torrents of one large file, against other programs.
//!
//! `warm`: the file is in the page cache. `memory`: a file of twice the size in a process group that may
//! use little memory, and one of a quarter of that, both read from the disk; what counts is the rate.
//! Prints tables, keeps every measurement as JSON and draws a picture.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use swath_bench::machine::{Machine, find_program};
use swath_bench::measure::{Ending, measure};
use swath_bench::results::{Goal, Run, ScenarioResult, Study, ToolResult};
use swath_bench::study_files::{self, say, typed_command};
use swath_bench::table::scenario_table;
use swath_bench::tool::as_typed;

/// Making torrents of one large file, against other programs.
#[derive(Debug, Parser)]
#[command(name = "publish", max_term_width = 100)]
struct Options {
    /// What is measured: warm, memory (needs root).
    #[arg(long, value_delimiter = ',', value_name = "NAME", default_value = "warm,memory")]
    scenarios: Vec<String>,
    /// Number of rounds; each round runs every tool once.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Size of the file in MiB.
    #[arg(long, default_value_t = 4096, value_name = "MIB")]
    size: u64,
    /// Memory of the process group in MiB.
    #[arg(long, default_value_t = 512, value_name = "MIB")]
    memory: u64,
    /// A folder on the disk that is read.
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    target: PathBuf,
    /// Where the results go.
    #[arg(long, default_value = "bench/results", value_name = "DIR")]
    results: PathBuf,
    /// Name of the result files.
    #[arg(long, default_value = "publish")]
    name: String,
    /// Prints the tables and draws the picture of earlier results again.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// swath's own ways, and the other programs; the last one is Python with libtorrent.
const TOOLS: [&str; 6] =
    ["swath-v1", "swath-hybrid", "swath-all", "transmission-create", "mktorrent", "libtorrent"];
/// A hybrid torrent with libtorrent's own choice of pieces.
const LIBTORRENT: &str = "\
import libtorrent as lt, os, sys
files = lt.list_files(sys.argv[1])
torrent = lt.create_torrent(files, 0, 0)
lt.set_piece_hashes(torrent, os.path.dirname(sys.argv[1]))
open(sys.argv[2], 'wb').write(lt.bencode(torrent.generate()))
";
/// Nothing sensible takes longer.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match &options.plot {
        Some(results) => study_files::plot(results),
        None => study(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("publish: {message}");
            ExitCode::FAILURE
        }
    }
}

fn study(options: &Options) -> Result<(), String> {
    let folder = tempfile::Builder::new().prefix("swath-bench-").tempdir_in(&options.target);
    let folder =
        folder.map_err(|e| format!("cannot write to {}: {e}", options.target.display()))?;
    let machine = Machine::here();
    println!("{}\n", machine.line());
    let mut scenarios = Vec::new();
    for name in &options.scenarios {
        let scenario = match &**name {
            "warm" => warm(options, folder.path())?,
            "memory" => memory(options, folder.path())?,
            other => return Err(format!("there is no scenario '{other}': warm, memory")),
        };
        println!("{}", scenario_table(&scenario));
        scenarios.push(scenario);
    }
    let study = Study {
        name: options.name.clone(),
        machine,
        command: typed_command("bench/publish"),
        versions: Vec::new(),
        scenarios,
    };
    study_files::keep(&study, &options.results)?;
    println!("results and picture: {}/{}.*", options.results.display(), options.name);
    Ok(())
}

/// All tools in turns with a file in the page cache.
fn warm(options: &Options, folder: &Path) -> Result<ScenarioResult, String> {
    let input = folder.join("warm.bin");
    make(&input, options.size << 20)?;
    let mut tools = Vec::new();
    let mut skipped = Vec::new();
    for name in TOOLS {
        match command(name, &input, folder) {
            Some(command) => tools.push((name, command, Vec::new())),
            None => skipped.push((name.to_owned(), "it is not installed".to_owned())),
        }
    }
    for round in 1..=options.runs {
        for (name, command, runs) in &mut tools {
            say(&format!("round {round}/{}: {name}", options.runs));
            runs.push(run_once(command, options.size << 20)?);
        }
    }
    say("");
    let tools = tools.into_iter().map(|(name, command, runs)| ToolResult {
        name: name.to_owned(),
        command: as_typed(&command),
        runs,
    });
    let mut scenario = ScenarioResult {
        name: "warm".to_owned(),
        title: format!("metafiles of {} MiB in memory", options.size),
        size_bytes: options.size << 20,
        bound_s: 0.0,
        bound_is:
            "a version 1 torrent by transmission-create (else by swath), the median of this study"
                .to_owned(),
        tools: tools.collect(),
        skipped,
        goals: Vec::new(),
    };
    let bound = scenario.median_s("transmission-create").or(scenario.median_s("swath-v1"));
    scenario.bound_s = bound.ok_or("every run failed")?;
    fs::remove_file(&input).map_err(|e| e.to_string())?;
    Ok(scenario)
}

/// A hybrid of a file larger than the memory that the process may use, and of a small one.
fn memory(options: &Options, folder: &Path) -> Result<ScenarioResult, String> {
    let group = Group::make(options.memory << 20)?;
    let mut tools = Vec::new();
    for (name, bytes) in [("small", options.size << 19), ("large", options.size << 21)] {
        let input = folder.join(format!("{name}.bin"));
        make(&input, bytes)?;
        let plain = command("swath-hybrid", &input, folder).ok_or("there is no swath")?;
        tools.push((name, bytes, group.around(&plain), Vec::new()));
    }
    for round in 1..=options.runs {
        for (name, bytes, command, runs) in &mut tools {
            say(&format!("round {round}/{}: {name}", options.runs));
            drop_caches()?;
            let mut run = run_once(command, *bytes)?;
            run.figures.push(("MiB".to_owned(), run.peak_memory_bytes as f64 / f64::from(1 << 20)));
            runs.push(run);
        }
    }
    say("");
    let tools = tools.into_iter().map(|(name, _, command, runs)| ToolResult {
        name: name.to_owned(),
        command: as_typed(&command),
        runs,
    });
    let goals = vec![Goal::at_least("large", "MB/s", 0.0), Goal::at_most("large", "MiB", 128.0)];
    let mut scenario = ScenarioResult {
        name: "memory".to_owned(),
        title: format!(
            "hybrid torrents read from the disk with {} MiB of memory: {} and {} MiB",
            options.memory,
            options.size / 2,
            options.size * 2
        ),
        size_bytes: options.size << 20,
        bound_s: 0.0,
        bound_is: "the small file, the median of this study".to_owned(),
        tools: tools.collect(),
        skipped: Vec::new(),
        goals,
    };
    scenario.bound_s = scenario.median_s("small").ok_or("every run failed")?;
    let rate = |scenario: &ScenarioResult, name: &str| {
        let tool = scenario.tools.iter().find(|tool| tool.name == name)?;
        let mut rates: Vec<f64> = tool.good().map(|run| run.figures[0].1).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied()
    };
    scenario.goals[0].least = rate(&scenario, "small").map(|rate| 0.9 * rate);
    Ok(scenario)
}

/// A process group with little memory (cgroup, version 1 or 2).
struct Group {
    folder: PathBuf,
}

impl Group {
    fn make(bytes: u64) -> Result<Group, String> {
        let root = Path::new("/sys/fs/cgroup");
        let old = root.join("memory");
        let (parent, limit) = match old.is_dir() {
            true => (old, "memory.limit_in_bytes"),
            false => (root.to_owned(), "memory.max"),
        };
        let folder = parent.join(format!("swath-bench-{}", std::process::id()));
        let failed = |e| format!("cannot limit memory (needs root and a memory cgroup): {e}");
        fs::create_dir(&folder).map_err(failed)?;
        let group = Group { folder };
        fs::write(group.folder.join(limit), bytes.to_string()).map_err(failed)?;
        Ok(group)
    }

    /// Returns a command that runs another one in the group.
    fn around(&self, plain: &Command) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command.arg(self.folder.join("cgroup.procs"));
        command.arg(plain.get_program()).args(plain.get_args());
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Nothing runs in it any more.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Writes a file of random bytes; reading them is what is measured, so they may repeat.
fn make(path: &Path, bytes: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(bytes);
    let block: Vec<u8> = (0..8 << 20).map(|_| random.u8(..)).collect();
    let write = || {
        let mut file = fs::File::create(path)?;
        let mut left = bytes;
        while left > 0 {
            let now = left.min(block.len() as u64);
            file.write_all(&block[..now as usize])?;
            left -= now;
        }
        file.sync_all()
    };
    write().map_err(|e: std::io::Error| format!("cannot write {}: {e}", path.display()))
}

fn drop_caches() -> Result<(), String> {
    fs::write("/proc/sys/vm/drop_caches", "1")
        .map_err(|e| format!("cannot drop the page cache: {e}"))
}

fn command(name: &str, input: &Path, folder: &Path) -> Option<Command> {
    let output = folder.join(format!("{name}.torrent"));
    let mut command;
    match name {
        "transmission-create" => {
            command = Command::new(find_program(name)?);
            command.arg("-o").args([&*output, input]);
        }
        "mktorrent" => {
            // Its default of 256 KiB is the slowest; these are the pieces that the others choose.
            command = Command::new("/bin/sh");
            command.args(["-c", "rm -f \"$1\" && exec \"$0\" -l 22 -t 2 -o \"$1\" \"$2\""]);
            command.arg(find_program(name)?).args([&*output, input]);
        }
        "libtorrent" => {
            let python = find_program("python3")?;
            let mut probe = Command::new(&python);
            probe.args(["-c", "import libtorrent"]).stderr(Stdio::null());
            probe.status().ok().filter(|status| status.success())?;
            command = Command::new(python);
            command.args(["-c", LIBTORRENT]).args([input, &*output]);
        }
        own => {
            let swath = std::env::current_exe().ok()?.with_file_name("swath");
            command = Command::new(swath.exists().then_some(swath)?);
            command
                .args(["publish", "--quiet", "--replace", "-o"])
                .arg(folder.join(own))
                .arg(input);
            match own {
                "swath-v1" => command.args(["--only", "torrent", "--torrent", "v1"]),
                "swath-hybrid" => command.args(["--only", "torrent"]),
                _ => &mut command,
            };
        }
    }
    Some(command)
}

fn run_once(command: &mut Command, bytes: u64) -> Result<Run, String> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let measured = measure(command, LIMIT, || ()).map_err(|e| e.to_string())?;
    let elapsed_s = measured.elapsed.as_secs_f64();
    Ok(Run {
        elapsed_s,
        cpu_s: measured.cpu.as_secs_f64(),
        peak_memory_bytes: measured.peak_memory_bytes,
        is_stopped: measured.is_stopped(),
        wire_bytes: 0,
        sync_s: 0.0,
        figures: vec![("MB/s".to_owned(), bytes as f64 / elapsed_s / 1e6)],
        failure: match measured.ending {
            Ending::Code(0) => None,
            ending => Some(format!("{ending:?}")),
        },
    })
}
