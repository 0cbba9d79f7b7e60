//! `bench/tracker`: announces per second over UDP, of a tracker on one processor and the load on
//! another.
//!
//! Prints a table and keeps every measurement as JSON.

use std::fs::Permissions;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;
use swath_bench::announces::{Announcers, info_hashes};
use swath_bench::machine::{Machine, beside_us, find_program};
use swath_bench::study_files::say;

/// Announces per second over UDP, of a tracker on one processor and the load on another.
#[derive(Debug, Parser)]
#[command(name = "tracker", max_term_width = 100)]
struct Options {
    /// Number of rounds; each round runs every tracker once.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Peers, in swarms of a hundred.
    #[arg(long, default_value_t = 100_000)]
    peers: u32,
    /// The swath program; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    swath: Option<PathBuf>,
    /// Where the results go.
    #[arg(long, default_value = "bench/results", value_name = "DIR")]
    results: PathBuf,
}

/// One measurement.
struct Run {
    per_s: f64,
    /// Part of its processor that the tracker used.
    busy: f64,
    peers_per_answer: f64,
    bytes_per_peer: f64,
    failed: u64,
}

/// A tracker that runs. Killed when dropped.
struct Running(Child);

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("tracker: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), String> {
    println!("{}\n", Machine::here().line());
    let swath = options.swath.clone().unwrap_or_else(|| beside_us("swath"));
    let mut programs = vec![("swath", swath)];
    match find_program("opentracker") {
        Some(program) => programs.push(("opentracker", program)),
        None => say("skipped: opentracker is not installed"),
    }
    pin_to(LOAD_CPU)?;
    let mut runs: Vec<Vec<Run>> = programs.iter().map(|_| Vec::new()).collect();
    for round in 1..=options.runs {
        for (at, (name, program)) in programs.iter().enumerate() {
            say(&format!("round {round}/{}: {name}", options.runs));
            runs[at].push(run(name, program, options).map_err(|error| format!("{name}: {error}"))?);
        }
    }
    say("");
    println!(
        "{} torrents, {} peers, UDP over loopback; tracker and load on a processor each; medians of {}",
        options.peers / 100,
        options.peers,
        options.runs
    );
    println!(
        "| tracker | announces/s | from – to | processor | peers per answer | bytes per peer |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    for ((name, _), runs) in programs.iter().zip(&runs) {
        let sorted = |of: fn(&Run) -> f64| {
            let mut all: Vec<f64> = runs.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let median = |of| sorted(of)[runs.len() / 2];
        let rates = sorted(|run| run.per_s);
        println!(
            "| {name} | {:.0} | {:.0} – {:.0} | {:.0} % | {:.1} | {:.0} |",
            median(|run| run.per_s),
            rates[0],
            rates[rates.len() - 1],
            100.0 * median(|run| run.busy),
            median(|run| run.peers_per_answer),
            median(|run| run.bytes_per_peer),
        );
    }
    let all = programs.iter().zip(&runs).map(|((name, _), runs)| {
        let runs: Vec<_> = runs
            .iter()
            .map(|run| {
                json!({
                    "announces_per_s": run.per_s,
                    "processor": run.busy,
                    "peers_per_answer": run.peers_per_answer,
                    "bytes_per_peer": run.bytes_per_peer,
                    "failed": run.failed,
                })
            })
            .collect();
        ((*name).to_owned(), json!(runs))
    });
    let all: serde_json::Map<_, _> = all.collect();
    let path = options.results.join("tracker.json");
    let kept = std::fs::create_dir_all(&options.results)
        .and_then(|()| std::fs::write(&path, format!("{:#}\n", json!(all))));
    kept.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn run(name: &str, program: &Path, options: &Options) -> Result<Run, String> {
    let io = |error: std::io::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(io)?;
    let address = free_address()?;
    let port = address.port().to_string();
    let mut command = Command::new("taskset");
    command.args(["-c", TRACKER_CPU]).arg(program).current_dir(folder.path());
    match name {
        "swath" => command
            .args(["track", "--listen", &address.to_string(), "--max-announces", "1000000000"])
            .env("SWATH_STATE", "off"),
        _ => {
            // Debian's answers for listed torrents only, and runs as nobody.
            let list: String = info_hashes(options.peers).map(|hash| format!("{hash}\n")).collect();
            std::fs::write(folder.path().join("whitelist"), list).map_err(io)?;
            std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).map_err(io)?;
            let here = ["-i", "127.0.0.1", "-p", &port, "-P", &port, "-d", "."];
            command.args(here).args(["-w", "whitelist"])
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let tracker = Running(command.spawn().map_err(|error| format!("taskset: {error}"))?);
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        if began.elapsed() > Duration::from_secs(20) {
            return Err("it does not start".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let empty_bytes = tracker.memory_bytes();
    let mut announcers = Announcers::connect(address, options.peers).map_err(io)?;
    // Before it has read its list, opentracker refuses.
    std::thread::sleep(Duration::from_secs(1));
    let filled = announcers.fill().map_err(io)?;
    let full_bytes = tracker.memory_bytes();
    let (began, cpu_before_s) = (Instant::now(), tracker.cpu_s());
    let answered = announcers.run(Duration::from_secs(options.seconds)).map_err(io)?;
    let elapsed_s = began.elapsed().as_secs_f64();
    Ok(Run {
        per_s: answered.announces as f64 / elapsed_s,
        busy: (tracker.cpu_s() - cpu_before_s) / elapsed_s,
        peers_per_answer: answered.peers as f64 / answered.announces.max(1) as f64,
        bytes_per_peer: (full_bytes - empty_bytes) / f64::from(options.peers),
        failed: filled.failed + answered.failed,
    })
}

impl Running {
    /// Memory in use.
    fn memory_bytes(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let kib = line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0);
        kib * 1024.0
    }

    /// Processor time so far.
    fn cpu_s(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()));
        let stat = stat.unwrap_or_default();
        let words: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| words.get(at).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
        // SAFETY: sysconf has no preconditions.
        let per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        (ticks(12) + ticks(13)) / per_s
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> Result<SocketAddr, String> {
    let socket = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    socket.map_err(|error| error.to_string())
}

/// Runs this process on one processor.
fn pin_to(cpu: usize) -> Result<(), String> {
    // SAFETY: all zeros is an empty set; CPU_SET writes within it, and the call only reads it.
    let pinned = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    match pinned {
        0 => Ok(()),
        _ => Err(format!("needs two processors: {}", std::io::Error::last_os_error())),
    }
}

/// Where the tracker runs …
const TRACKER_CPU: &str = "0";
/// … and where the load.
const LOAD_CPU: usize = 1;
