//! `bench/forecast`: how well forecasts come true.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use flate2::bufread::MultiGzDecoder;
use swath_bench::forecast::world::{Setting, World};
use swath_bench::forecast::{Scores, emulate, replay, simulate, six_links};
use swath_bench::machine::beside_us;
use swath_bench::study::predict;
use swath_bench::study_files;
use swath_formats::transfer_log::{LoggedTransfer, TransferLog};

/// Forecasts each transfer before it begins, from those that had ended by then: of a log, or of the
/// log of this bench and then of simulated transfers.
#[derive(Debug, Parser)]
#[command(name = "forecast", max_term_width = 100)]
struct Options {
    /// A log as CSV, also compressed with gzip; without one, the log and the worlds of this bench.
    #[arg(value_name = "LOG")]
    log: Option<PathBuf>,
    /// An earlier log, from which only is learned.
    #[arg(long, value_name = "LOG", requires = "log")]
    learn_first: Option<PathBuf>,
    /// Simulated transfers of each kind of background traffic.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    transfers: usize,
    /// What decides the simulated transfers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Keep the simulated transfers in this folder, as logs.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Also let the program fetch files in emulated networks (root; a quarter of an hour).
    #[arg(long, conflicts_with = "log")]
    emulated: bool,
    /// Also let the program fetch a file from six emulated mirrors, this often in each of six scenarios
    /// (root; each time takes seven minutes).
    #[arg(long, value_name = "RUNS", conflicts_with = "log", default_value_t = 0)]
    six_links: usize,
    /// The swath program; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    swath: Option<PathBuf>,
    /// Where files are served from and written to, meanwhile.
    #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
    scratch: PathBuf,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("forecast: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/hpss_transfers.csv.gz");
    let log = options.log.as_deref().unwrap_or(&ours);
    let mut transfers = Vec::new();
    if let Some(earlier) = &options.learn_first {
        transfers.extend(read(earlier)?);
    }
    let learned = transfers.len();
    transfers.extend(read(log)?);
    let skipped = match options.learn_first {
        Some(_) => learned,
        None => transfers.len() * 7 / 10,
    };
    let outcomes = replay(&transfers);
    let scores = Scores::of(&outcomes[skipped..]);
    println!(
        "{} forecasts; median ratio of upper to lower end {:.2}",
        outcomes.len() - skipped,
        scores.width
    );
    println!("{}", scores.line());
    if options.log.is_some() {
        return Ok(());
    }
    for (name, setting) in [("steady", Setting::Steady), ("changing", Setting::Changing)] {
        let &Options { transfers, seed, .. } = options;
        println!("\n{transfers} transfers in virtual time, {name} background, seed {seed}");
        let lines = simulate(&World::of(setting, seed, transfers), options.keep.as_deref())?;
        lines.iter().for_each(|line| println!("{line}"));
    }
    let study = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/study.json");
    println!(
        "\nmean errors of times of the study, each cell from the others ({})",
        study.display()
    );
    predict(&study_files::read(&study)?).iter().for_each(|one| println!("{}", one.line()));
    let swath = options.swath.clone().unwrap_or_else(|| beside_us("swath"));
    if options.six_links > 0 {
        println!(
            "\na file from six mirrors, {} times in each scenario; after 5 s",
            options.six_links
        );
        let lines = six_links(&swath, &options.scratch, options.six_links, options.seed)?;
        lines.iter().for_each(|line| println!("{line}"));
    }
    if options.emulated {
        println!("\n{EMULATED} transfers in emulated networks, changing background");
        let lines = emulate(&swath, &options.scratch, EMULATED, options.seed)?;
        lines.iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// Reads the transfers of a log, in the order of their starts; says how many lines it cannot use, and why the first of them.
fn read(path: &Path) -> Result<Vec<LoggedTransfer>, String> {
    let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = BufReader::new(File::open(path).map_err(|error| fault(&error))?);
    let input: Box<dyn Read> = match path.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let (mut transfers, mut unusable, mut first) = (Vec::new(), 0, None);
    for transfer in TransferLog::new(input).map_err(|error| fault(&error))? {
        match transfer {
            Ok(transfer) => transfers.push(transfer),
            Err(error) if error.problem.is_final() => return Err(fault(&error)),
            Err(error) => {
                unusable += 1;
                first.get_or_insert(error);
            }
        }
    }
    println!("{}: {} transfers", path.display(), transfers.len());
    if let Some(first) = first {
        println!("{unusable} lines are left out; {first}");
    }
    transfers.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    Ok(transfers)
}

/// Transfers in emulated networks.
const EMULATED: usize = 140;
