//! `bench/share`: a file, or a dataset, that all machines of a cluster fetch together, against one machine
//! alone.
//!
//! Prints a table and keeps every measurement as JSON.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;
use swath_bench::data::{make_file, same_content};
use swath_bench::machine::{Machine, beside_us};
use swath_bench::measure::{Ending, end_with_us, finish};
use swath_bench::study_files::say;
use swath_netlab::cluster::Cluster;
use swath_netlab::star::{ServerKind, WebServer};
use swath_netlab::wan::LabError;

/// A file that all machines of a cluster fetch together, against one machine alone (root).
#[derive(Debug, Parser)]
#[command(name = "share", max_term_width = 100)]
struct Options {
    /// Number of rounds; each round runs every row once.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Machines that fetch.
    #[arg(long, default_value_t = 16)]
    machines: usize,
    /// Size of the file in MiB.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Cut it into so many files of one dataset, which machines copy with `swath cp`.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    files: Option<u64>,
    /// The origin's link, in Mbit/s.
    #[arg(long, default_value_t = 200)]
    origin: u64,
    /// Each machine's link, in Mbit/s.
    #[arg(long, default_value_t = 1000)]
    link: u64,
    /// Only the rows with this origin.
    #[arg(long)]
    server: Option<Origin>,
    /// Find each other with 'swath track' instead of a list.
    #[arg(long)]
    tracker: bool,
    /// Where files go: in memory unless given.
    #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
    scratch: PathBuf,
    /// The swath program; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    swath: Option<PathBuf>,
    /// Where the results go.
    #[arg(long, default_value = "bench/results", value_name = "DIR")]
    results: PathBuf,
}

/// What serves the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Origin {
    Nginx,
    Swath,
}

/// One measurement.
struct Run {
    /// When the last machine was done.
    last_s: f64,
    /// Bytes that the origin sent for each byte of the file.
    copies: f64,
    /// Part of all processors that was used.
    busy: f64,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("share: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), String> {
    println!("{}\n", Machine::here().line());
    let folder = tempfile::tempdir_in(&options.scratch).map_err(|error| error.to_string())?;
    let served = folder.path().join("served");
    std::fs::create_dir(&served).map_err(|error| error.to_string())?;
    let data = make_file(&served, options.mib << 20).map_err(|error| error.to_string())?;
    let data = match options.files {
        None => data,
        Some(files) => cut(&data, files).map_err(|error| error.to_string())?,
    };
    // Only swath serves datasets.
    let can_serve = |&origin: &Origin| options.files.is_none() || origin == Origin::Swath;
    let origins: Vec<Origin> = [Origin::Nginx, Origin::Swath]
        .into_iter()
        .filter(|&origin| options.server.is_none_or(|only| only == origin))
        .filter(can_serve)
        .collect();
    let mut rows: Vec<(Origin, Vec<(Run, Run)>)> =
        origins.into_iter().map(|origin| (origin, Vec::new())).collect();
    for round in 1..=options.rounds {
        for (origin, runs) in &mut rows {
            let of = |machines| {
                let run = run(options, *origin, machines, folder.path(), &data)
                    .map_err(|error| format!("{origin:?}, {machines}: {error}"));
                if let Ok(run) = &run {
                    let Run { last_s, copies, busy } = run;
                    say(&format!(
                        "round {round}/{}: {origin:?}, {machines}: {last_s:.2} s, {copies:.3} copies, processors {:.0} %",
                        options.rounds,
                        100.0 * busy
                    ));
                }
                run
            };
            runs.push((of(1)?, of(options.machines)?));
        }
    }
    println!(
        "{} MiB to {} machines with {} Mbit/s each, from an origin with {} Mbit/s; medians of {}",
        options.mib, options.machines, options.link, options.origin, options.rounds
    );
    println!("| origin | one alone | all together | ratio | copies | processors |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut kept = serde_json::Map::new();
    for (origin, runs) in &rows {
        let median = |of: &dyn Fn(&(Run, Run)) -> f64| {
            let mut all: Vec<f64> = runs.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        println!(
            "| {origin:?} | {:.2} s | {:.2} s | {:.3} | {:.3} | {:.0} % |",
            median(&|(one, _)| one.last_s),
            median(&|(_, all)| all.last_s),
            median(&|(one, all)| all.last_s / one.last_s),
            median(&|(_, all)| all.copies),
            100.0 * median(&|(_, all)| all.busy),
        );
        let of =
            |run: &Run| json!({"last_s": run.last_s, "copies": run.copies, "processors": run.busy});
        let runs: Vec<_> =
            runs.iter().map(|(one, all)| json!({"alone": of(one), "together": of(all)})).collect();
        kept.insert(format!("{origin:?}").to_lowercase(), json!(runs));
    }
    let path = options.results.join("share.json");
    let written = std::fs::create_dir_all(&options.results)
        .and_then(|()| std::fs::write(&path, format!("{:#}\n", json!(kept))));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Fetches the file on so many machines at once. Machine 0 is the origin, and the tracker.
fn run(
    options: &Options,
    origin: Origin,
    machines: usize,
    folder: &Path,
    data: &Path,
) -> Result<Run, String> {
    let text = |error: LabError| error.to_string();
    let io = |error: std::io::Error| error.to_string();
    let swath = options.swath.clone().unwrap_or_else(|| beside_us("swath"));
    let mut rates = vec![options.origin * 1_000_000];
    rates.extend(vec![options.link * 1_000_000; machines]);
    let cluster = Cluster::start(&rates).map_err(text)?;
    let served = data.parent().unwrap_or(folder);
    let (name, at) = (data.file_name().unwrap_or_default().to_string_lossy(), cluster.address(0));
    let _nginx = match origin {
        Origin::Nginx => {
            Some(WebServer::start(ServerKind::Nginx, cluster.machine(0), served).map_err(text)?)
        }
        Origin::Swath => None,
    };
    let start = |machine: usize, command: &mut Command| -> Result<Running, String> {
        command.env("SWATH_STATE", "off").env("HOME", folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        cluster.machine(machine).confine(command);
        end_with_us(command);
        command.spawn().map(Running).map_err(io)
    };
    let mut servers = Vec::new();
    if origin == Origin::Swath {
        let mut command = Command::new(&swath);
        command.arg("serve").arg(served).args([
            "--listen",
            &format!("{at}:80"),
            "--plain",
            "--anonymous",
        ]);
        servers.push(start(0, &mut command)?);
    }
    if options.tracker {
        let mut command = Command::new(&swath);
        command.args(["track", "--listen", &format!("{at}:6969")]);
        servers.push(start(0, &mut command)?);
    }
    std::thread::sleep(Duration::from_millis(500));
    let before = cluster.sent_bytes(0).map_err(text)?;
    let (began, used) = (Instant::now(), processor_time()?);
    let mut running = Vec::new();
    let list: Vec<String> = (1..=machines).map(|at| cluster.address(at).to_string()).collect();
    for machine in 1..=machines {
        let to = folder.join(format!("machine{machine}"));
        std::fs::create_dir_all(&to).map_err(io)?;
        let mut command = Command::new(&swath);
        let url = format!("http://{at}/{name}");
        match options.files {
            None => command.args(["get", &url, "-q", "-d"]).arg(&to),
            Some(_) => command.args(["cp", &url, "-q"]).arg(&to),
        };
        if machines > 1 {
            command.args(["--share", "--cluster-token", "of-the-benchmark"]);
            match options.tracker {
                true => command.args(["--tracker", &format!("http://{at}:6969/announce")]),
                false => command.args(["--peers", &list.join(",")]),
            };
        }
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        running.push((start(machine, &mut command)?, to));
    }
    let mut last_s: f64 = 0.0;
    for (child, _) in &running {
        let ended = finish(&child.0, began, LIMIT).map_err(io)?;
        if ended.ending != Ending::Code(0) {
            return Err(format!("a machine failed: {:?}", ended.ending));
        }
        last_s = last_s.max(began.elapsed().as_secs_f64());
    }
    let used = processor_time()? - used;
    let sent = cluster.sent_bytes(0).map_err(text)? - before;
    for (_, to) in &running {
        if !is_same(&to.join(&*name), data).map_err(io)? {
            return Err(format!("{} is wrong", to.display()));
        }
        std::fs::remove_dir_all(to).map_err(io)?;
    }
    let cpus = std::thread::available_parallelism().map_err(io)?.get() as f64;
    Ok(Run { last_s, copies: sent as f64 / (options.mib << 20) as f64, busy: used / last_s / cpus })
}

/// Cuts a file into files of one dataset, a hundred in a folder, beside it. Returns the dataset.
fn cut(data: &Path, files: u64) -> std::io::Result<PathBuf> {
    let dataset = data.with_file_name("dataset");
    let (mut from, size_bytes) = (File::open(data)?, data.metadata()?.len());
    for number in 0..files {
        let folder = dataset.join(format!("{}", number / 100));
        std::fs::create_dir_all(&folder)?;
        let bytes = size_bytes * (number + 1) / files - size_bytes * number / files;
        let mut to = File::create(folder.join(format!("{number}.bin")))?;
        std::io::copy(&mut from.by_ref().take(bytes), &mut to)?;
    }
    std::fs::remove_file(data)?;
    Ok(dataset)
}

/// Returns whether a file, or a folder with all below it, is the same as another.
fn is_same(one: &Path, other: &Path) -> std::io::Result<bool> {
    if other.is_file() {
        return same_content(one, other);
    }
    for entry in std::fs::read_dir(other)? {
        let name = entry?.file_name();
        if !is_same(&one.join(&name), &other.join(&name))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the seconds that all processors together have worked.
fn processor_time() -> Result<f64, String> {
    let stat = std::fs::read_to_string("/proc/stat").map_err(|error| error.to_string())?;
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = first.split_whitespace().skip(1).flat_map(str::parse).collect();
    // Idle and waiting for the disk.
    let idle = ticks.iter().skip(3).take(2).sum::<f64>();
    Ok((ticks.iter().take(8).sum::<f64>() - idle) / TICKS_PER_S)
}

/// A program that runs. Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Nobody takes longer.
const LIMIT: Duration = Duration::from_secs(900);
/// Of the kernel's accounts, on every machine that Linux runs on.
const TICKS_PER_S: f64 = 100.0;
