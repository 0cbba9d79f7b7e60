//! `bench/version`: what moves when a dataset gets a new version.
//!
//! A server has the dataset, `swath publish` announces each version, and `swath follow` installs it.
//! What counts is what the server sent of the files. Prints a table and keeps every measurement as
//! JSON.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use clap::Parser;
use serde_json::{Value, json};
use swath_bench::data::{make_file, same_content};
use swath_bench::machine::{Machine, beside_us};
use swath_bench::study_files::say;

/// What moves when a dataset gets a new version.
#[derive(Debug, Parser)]
#[command(name = "version", max_term_width = 100)]
struct Options {
    /// Number of versions of each row, each changed in other places.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Size of the dataset's file in MiB.
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    size: u64,
    /// A folder with room for four such files.
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    target: PathBuf,
    /// The swath program; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    swath: Option<PathBuf>,
    /// Where the results go.
    #[arg(long, default_value = "bench/results", value_name = "DIR")]
    results: PathBuf,
}

/// How a version differs from the one before.
#[derive(Clone, Copy)]
enum Change {
    /// One percent of the bytes, in so many places.
    Percent { places: u64 },
    /// So many bytes more, somewhere.
    Inserted { bytes: u64 },
}

const ROWS: [(&str, Change); 4] = [
    ("1 % changed in 20 places", Change::Percent { places: 20 }),
    ("1 % changed in 1 place", Change::Percent { places: 1 }),
    ("1 MiB inserted", Change::Inserted { bytes: 1 << 20 }),
    ("1 byte inserted", Change::Inserted { bytes: 1 }),
];

/// A server that runs. Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("version: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), String> {
    println!("{}\n", Machine::here().line());
    let folder = tempfile::tempdir_in(&options.target).map_err(|error| error.to_string())?;
    let swath = options.swath.clone().unwrap_or_else(|| beside_us("swath"));
    let dataset = folder.path().join("web/run7");
    std::fs::create_dir_all(&dataset).map_err(|error| error.to_string())?;
    let file = dataset.join("a.h5");
    let made = make_file(folder.path(), options.size << 20);
    made.and_then(|made| std::fs::rename(made, &file)).map_err(|error| error.to_string())?;
    let bench = Bench { swath, folder: folder.path(), file: &file };
    let (_server, mirror) = bench.serve()?;
    bench.install(&mirror, 0)?;
    let mut moved: Vec<Vec<f64>> = vec![Vec::new(); ROWS.len()];
    let mut random = fastrand::Rng::with_seed(7);
    let mut version = 0;
    // Rows one by one: insertions move what is behind them.
    for ((name, change), moved) in ROWS.iter().zip(&mut moved) {
        for round in 1..=options.runs {
            say(&format!("{name}: round {round}/{}", options.runs));
            change.apply(&file, &mut random).map_err(|error| error.to_string())?;
            version += 1;
            let bytes = bench.install(&mirror, version)?;
            let size_bytes = file.metadata().map_err(|error| error.to_string())?.len();
            moved.push(100.0 * bytes as f64 / size_bytes as f64);
        }
    }
    say("");
    println!("a file of {} MiB, hybrid torrents; medians of {}", options.size, options.runs);
    println!("| new version | moved | from – to |");
    println!("| --- | --- | --- |");
    for ((name, _), moved) in ROWS.iter().zip(&moved) {
        let mut sorted = moved.clone();
        sorted.sort_by(f64::total_cmp);
        let (median, last) = (sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
        println!("| {name} | {median:.2} % | {:.2} – {last:.2} % |", sorted[0]);
    }
    let all = ROWS.iter().zip(&moved).map(|((name, _), moved)| ((*name).to_owned(), json!(moved)));
    let all: serde_json::Map<_, _> = all.collect();
    let path = options.results.join("version.json");
    let kept = std::fs::create_dir_all(&options.results)
        .and_then(|()| std::fs::write(&path, format!("{:#}\n", json!(all))));
    kept.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The programs and their files.
struct Bench<'a> {
    swath: PathBuf,
    folder: &'a Path,
    file: &'a Path,
}

impl Bench<'_> {
    fn swath(&self) -> Command {
        let mut command = Command::new(&self.swath);
        command.current_dir(self.folder).stdin(Stdio::null());
        command.env("SWATH_STATE", "off").env("XDG_CONFIG_HOME", self.folder);
        command
    }

    /// Starts the server of the dataset and of what is published; returns the dataset's address.
    fn serve(&self) -> Result<(Running, String), String> {
        let socket = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = socket.map_err(|error| error.to_string())?.to_string();
        let published = self.folder.join("pub");
        std::fs::create_dir_all(published).map_err(|error| error.to_string())?;
        let mut serve = self.swath();
        serve.args(["serve", "web", "pub", "--anonymous", "--plain", "--listen", &address]);
        let running = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut running = running.map_err(|error| error.to_string())?;
        let says = running.stdout.take();
        let running = Running(running);
        let mut first = String::new();
        let read = BufReader::new(says.ok_or("no output")?).read_line(&mut first);
        match read {
            Ok(1..) => Ok((running, format!("http://{address}"))),
            _ => Err("the server does not start".to_owned()),
        }
    }

    /// Publishes the file as it is now and installs it. Returns what the server sent of it.
    fn install(&self, server: &str, version: u32) -> Result<u64, String> {
        let (version, mirror) = (version.to_string(), format!("{server}/web/run7/"));
        let mut publish = self.swath();
        publish.args(["publish", "web/run7", "-o", "pub", "--only", "torrent"]);
        publish.args(["--version", &version, "--mirror", &mirror]);
        ended(publish, "swath publish")?;
        let mut follow = self.swath();
        follow.args([
            "follow",
            &format!("{server}/pub/feed.rss"),
            "-d",
            "copy",
            "--once",
            "--json",
        ]);
        let said = ended(follow, "swath follow")?;
        let installed = self.folder.join("copy/run7/a.h5");
        if !same_content(self.file, &installed).map_err(|error| error.to_string())? {
            return Err(format!("{} is not what was published", installed.display()));
        }
        let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ends = lines.filter(|line| line["event"] == "finished");
        let sources = ends.filter_map(|line| line["sources"].as_array().cloned()).flatten();
        let of_server =
            |source: &Value| source["name"].as_str().is_some_and(|it| it.starts_with("http"));
        Ok(sources.filter(of_server).filter_map(|source| source["bytes"].as_u64()).sum())
    }
}

impl Change {
    fn apply(self, path: &Path, random: &mut fastrand::Rng) -> std::io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let size_bytes = file.metadata()?.len();
        match self {
            Change::Percent { places } => {
                let part_bytes = size_bytes / 100 / places;
                for place in 0..places {
                    let space = size_bytes / places - part_bytes;
                    let at = place * (size_bytes / places) + random.u64(0..space);
                    write_random(&file, at, part_bytes, random)?;
                }
            }
            Change::Inserted { bytes } => {
                let at = random.u64(0..size_bytes);
                let mut rest = vec![0; (size_bytes - at) as usize];
                file.read_exact_at(&mut rest, at)?;
                write_random(&file, at, bytes, random)?;
                file.write_all_at(&rest, at + bytes)?;
            }
        }
        file.sync_all()
    }
}

fn write_random(
    file: &File,
    at: u64,
    bytes: u64,
    random: &mut fastrand::Rng,
) -> std::io::Result<()> {
    let mut part = vec![0; bytes as usize];
    random.fill(&mut part);
    file.write_all_at(&part, at)
}

/// Runs a command to its end and returns its output.
fn ended(mut command: Command, name: &str) -> Result<String, String> {
    let ended = command.output().map_err(|error| format!("{name}: {error}"))?;
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&ended.stderr))),
    }
}
