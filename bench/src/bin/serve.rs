//! `bench/serve`: what serving costs, and how it bears a large file, many clients, many names.
//!
//! Prints a table, keeps every measurement as JSON and draws a picture. Needs root for the
//! namespace in which server and client live.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use swath_bench::crowd::{Crowd, visit};
use swath_bench::data::make_file;
use swath_bench::options::{StudyOptions, each_once};
use swath_bench::results::{ScenarioResult, ToolResult};
use swath_bench::serve_run::{CPU_TIMES, Places, Question, SMALL_FILE, ServeTool, run_once};
use swath_bench::serving::Identity;
use swath_bench::study_files::say;
use swath_bench::tree_data::{Shape, make_tree};
use swath_netlab::wan::Namespace;

/// What serving costs: a large file, many clients, many names.
#[derive(Debug, Parser)]
#[command(name = "serve", max_term_width = 100)]
struct Options {
    #[command(subcommand)]
    task: Option<Task>,
    /// Options of every study. `dd` always runs: it is the yardstick of `copy`.
    #[command(flatten)]
    study: StudyOptions,
    /// Size of the file of `copy` in MiB.
    #[arg(long, default_value_t = 4096, value_name = "MIB",
        value_parser = clap::value_parser!(u64).range(1..1 << 30))]
    size: u64,
    /// Files in the tree of `million`.
    #[arg(long, default_value_t = 1_000_000, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..1 << 30))]
    files: u64,
    /// A folder on the disk from which and to which `copy` copies.
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    target: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// The clients of `clients`; they tell how they fared as JSON.
    #[command(hide = true)]
    Crowd {
        #[arg(long)]
        address: String,
        /// Name of the large file.
        #[arg(long)]
        large: String,
        /// Its size.
        #[arg(long)]
        bytes: u64,
        #[arg(long)]
        ca: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let options = Options::parse();
    options.study.run("serve", || match &options.task {
        Some(Task::Crowd { address, large, bytes, ca }) => {
            let crowd = Crowd {
                address: address.clone(),
                idle: IDLE,
                active: ACTIVE,
                small: format!("/{SMALL_FILE}"),
                large: format!("/{large}"),
                large_bytes: *bytes,
            };
            let fared = visit(&crowd, ca.as_deref()).map_err(|e| e.to_string())?;
            println!("{}", serde_json::to_string(&fared).map_err(|e| e.to_string())?);
            Ok(())
        }
        None => measure(&options),
    })
}

fn measure(options: &Options) -> Result<(), String> {
    if options.study.list {
        for question in Question::ALL {
            println!("{:<8} {}", question.name(), title(question, options));
        }
        return Ok(());
    }
    let known: Vec<&str> = Question::ALL.iter().map(|question| question.name()).collect();
    let tools = Question::ALL.iter().flat_map(|question| question.tools());
    options.study.check(&known, &each_once(tools.map(|tool| tool.name())))?;
    raise_descriptor_limit().map_err(|e| format!("cannot open as many connections: {e}"))?;
    let swath = options.study.swath();
    let mut study = options.study.begin("serve");
    for question in Question::ALL {
        if options.study.has_scenario(question.name()) {
            options.study.add(&mut study, measure_scenario(question, options, &swath)?)?;
        }
    }
    options.study.end(&study);
    Ok(())
}

fn measure_scenario(
    question: Question,
    options: &Options,
    swath: &Path,
) -> Result<ScenarioResult, String> {
    let folder = |parent: &Path| {
        let made = tempfile::Builder::new().prefix("swath-bench-").tempdir_in(parent);
        made.map_err(|e| format!("cannot write to {}: {e}", parent.display()))
    };
    let scratch = folder(&options.study.scratch)?;
    let disk = if question == Question::Copy { Some(folder(&options.target)?) } else { None };
    let data = disk.as_ref().unwrap_or(&scratch).path();
    let (root, target) = (data.join("served"), data.join("target"));
    let (own, said) = (scratch.path().join("own"), scratch.path().join("said"));
    for folder in [&root, &target, &own, &said] {
        fs::create_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    say("making what is served");
    let begin = Instant::now();
    let identity = Identity::make(&own).map_err(|e| format!("a certificate: {e}"))?;
    let mut places = Places {
        identity,
        scratch: said,
        root,
        file: String::new(),
        size_bytes: 0,
        files: 1,
        folders: 0,
        target,
    };
    make_data(question, options, &mut places).map_err(|e| format!("the data: {e}"))?;
    let made_s = begin.elapsed().as_secs_f64();

    let mut result = ScenarioResult {
        name: question.name().to_owned(),
        title: title(question, options),
        size_bytes: places.size_bytes * copies(question),
        bound_s: 0.0,
        bound_is: String::new(),
        tools: Vec::new(),
        skipped: Vec::new(),
        goals: Vec::new(),
    };
    if question == Question::Million {
        result.title += &format!(", made in {made_s:.0} s");
    }
    let is_chosen =
        |tool: &ServeTool| *tool == ServeTool::Dd || options.study.has_tool(tool.name());
    let mut taking_part = Vec::new();
    for tool in question.tools().iter().copied().filter(is_chosen) {
        let name = tool.name().to_owned();
        match tool.programs(question, swath) {
            Some(programs) => {
                taking_part.push((tool, programs));
                result.tools.push(ToolResult { name, command: String::new(), runs: Vec::new() });
            }
            None => result.skipped.push((name, "not installed".to_owned())),
        }
    }
    let namespace = Namespace::new("bench-serve").map_err(|e| e.to_string())?;
    for round in 1..=options.study.runs {
        for ((tool, programs), kept) in taking_part.iter().zip(&mut result.tools) {
            say(&format!(
                "{} round {round}/{}: {}",
                question.name(),
                options.study.runs,
                tool.name()
            ));
            let (run, command) = run_once(&namespace, question, *tool, programs, &places)
                .map_err(|e| format!("{}, {}: {e}", question.name(), tool.name()))?;
            kept.command = command;
            kept.runs.push(run);
        }
    }
    say("");
    (result.bound_s, result.bound_is) = bound(question, &result, &places)?;
    Ok(result)
}

/// One line about each scenario.
fn title(question: Question, options: &Options) -> String {
    match question {
        Question::Copy => format!("{} MiB over loopback from disk to disk", options.size),
        Question::Cpu => format!(
            "{CPU_TIMES} × {} MiB in memory over loopback to curl -o /dev/null",
            CPU_BYTES >> 20
        ),
        Question::Clients => {
            format!("{IDLE} idle clients, {ACTIVE} that fetch {} MiB each", CLIENT_BYTES >> 20)
        }
        Question::Million => format!("a tree of {} files in memory", options.files),
    }
}

/// How often the data are transferred.
fn copies(question: Question) -> u64 {
    match question {
        Question::Copy | Question::Million => 1,
        Question::Cpu => u64::from(CPU_TIMES),
        Question::Clients => ACTIVE as u64,
    }
}

/// Makes what is served, and notes what that is.
fn make_data(question: Question, options: &Options, places: &mut Places) -> io::Result<()> {
    let mut bytes = 0;
    match question {
        Question::Copy => bytes = options.size << 20,
        Question::Cpu => bytes = CPU_BYTES,
        Question::Clients => {
            bytes = CLIENT_BYTES;
            fs::write(places.root.join(SMALL_FILE), [b'x'; 100])?;
        }
        Question::Million => {
            let shape = Shape::Names { files: options.files };
            make_tree(&places.root, shape)?;
            places.size_bytes = shape.bytes();
            places.files = options.files;
            places.folders = options.files.div_ceil(1000);
        }
    }
    if question != Question::Million {
        let path = make_file(&places.root, bytes)?;
        File::open(&path)?.sync_all()?;
        let name = path.file_name().unwrap_or_default();
        places.file = name.to_string_lossy().into_owned();
        places.size_bytes = bytes;
    }
    Ok(())
}

/// What every time of a scenario is divided by, and what that is.
fn bound(
    question: Question,
    result: &ScenarioResult,
    places: &Places,
) -> Result<(f64, String), String> {
    match question {
        Question::Copy => {
            let median_s = result.median_s(ServeTool::Dd.name()).ok_or("dd failed")?;
            let words = "dd iflag=direct oflag=direct of the same file, the median of this study";
            Ok((median_s, words.to_owned()))
        }
        Question::Cpu | Question::Clients => {
            let medians = result.tools.iter().filter_map(|tool| result.median_s(&tool.name));
            let least_s = medians.fold(f64::INFINITY, f64::min);
            Ok((least_s, "the median of the fastest tool".to_owned()))
        }
        Question::Million => {
            let entries = places.files + places.folders;
            Ok((entries as f64 / WALK_PER_S, format!("{WALK_PER_S} entries a second")))
        }
    }
}

/// A thousand connections and more need as many descriptors, in servers and clients.
fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: one live, exclusive value.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max.min(8192);
    // SAFETY: one live value.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

const IDLE: usize = 1000;
const ACTIVE: usize = 200;
const CLIENT_BYTES: u64 = 64 << 20;
const CPU_BYTES: u64 = 1 << 30;
/// What a warm walk is measured against.
const WALK_PER_S: f64 = 300_000.0;
