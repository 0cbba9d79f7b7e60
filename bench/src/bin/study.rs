//! `bench/study`: the comparative study of file transfer tools of 2018, made again with swath.
//!
//! Keeps every measurement at once, so that the same command goes on where it was stopped. Prints a
//! table, and writes it with a report and pictures. Needs root for the emulated network.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use swath_bench::machine::{free_bytes, on_termination};
use swath_bench::options::{StudyOptions, check_names, each_once, exit_code, size};
use swath_bench::results::Study;
use swath_bench::study::{
    Cell, DATASETS, RTTS_MS, Record, bytes_text, cells, keep_report, line, measure_cell,
    stands_for, table, write_report,
};
use swath_bench::study_files::{self, say};
use swath_bench::third_party::{Data, Places};
use swath_netlab::star::{remove_own_folders_in, scratch_folder_in};
use tempfile::TempDir;

/// The comparative study of file transfer tools of 2018, made again with swath.
#[derive(Debug, Parser)]
#[command(name = "study", max_term_width = 100)]
struct Options {
    /// Options of every study.
    #[command(flatten)]
    study: StudyOptions,
    /// Datasets: ds1 to ds6, mdtm, mdtm-third-party, radioastron; all of them unless named.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    datasets: Vec<String>,
    /// Round-trip times of ds1 to ds6 in ms.
    #[arg(long, value_delimiter = ',', value_name = "MS", default_values_t = RTTS_MS, value_parser = rtt)]
    rtt: Vec<f64>,
    /// Total size of each dataset; the published one is 10GB.
    #[arg(long, default_value = "1GB", value_parser = size)]
    size: u64,
    /// Forgets earlier measurements and begins anew.
    #[arg(long)]
    fresh: bool,
    /// Also writes the report to this file, with its picture in images/ beside it.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Reads a round-trip time in ms.
fn rtt(text: &str) -> Result<f64, String> {
    let time = text.parse().ok().filter(|time| (0.0..=RTT_MAX_MS).contains(time));
    time.ok_or_else(|| format!("not a number from 0 to {RTT_MAX_MS}"))
}

const RTT_MAX_MS: f64 = 10_000.0;

fn main() -> ExitCode {
    let options = Options::parse();
    exit_code(
        "study",
        match &options.study.plot {
            Some(file) => study_files::read(file).and_then(|study| {
                let folder = file.parent().unwrap_or(Path::new("."));
                show(&study, folder, &options)
            }),
            None => measure(&options),
        },
    )
}

fn measure(options: &Options) -> Result<(), String> {
    let chosen = choose(options)?;
    if options.study.list {
        for cell in &chosen {
            println!("{:<24} {}", cell.name, cell.title);
        }
        return Ok(());
    }
    check_room(options)?;
    end_cleanly(&options.study.scratch)?;
    let mut record = Record::open(&options.study, options.fresh)?;
    let mut prepared = None;
    for cell in &chosen {
        let tools = &cell.tools;
        let rounds = options.study.runs as usize;
        measure_cell(cell, tools, rounds, &mut record, || data_of(cell, options, &mut prepared))?;
        // After each cell, so that an interrupted study has a report of what it has.
        keep_report(&record.study, &options.study.results)?;
        record.result(cell).iter().for_each(|result| println!("{}", line(result)));
    }
    println!();
    show(&record.study, &options.study.results, options)?;
    options.study.end(&record.study);
    Ok(())
}

/// Prints the table, and writes all that is made from measurements.
fn show(study: &Study, folder: &Path, options: &Options) -> Result<(), String> {
    println!("{}", table(study));
    keep_report(study, folder)?;
    options.write.as_ref().map_or(Ok(()), |file| write_report(study, file))
}

/// Sees to it that a dataset and its copy fit.
fn check_room(options: &Options) -> Result<(), String> {
    let folder = &options.study.scratch;
    let free_bytes = free_bytes(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    // Blocks of small files are not full.
    let needed_bytes = options.size * 2 / 10 * 11;
    if free_bytes < needed_bytes {
        return Err(format!(
            "datasets of {} and their copies need {} in {}, which has {}; choose a folder on a disk \
             with --scratch, or a smaller --size",
            bytes_text(options.size),
            bytes_text(needed_bytes),
            folder.display(),
            bytes_text(free_bytes)
        ));
    }
    Ok(())
}

/// Has Ctrl-C and SIGTERM end the study without leaving its data behind. All programs that it started
/// end with it.
fn end_cleanly(scratch: &Path) -> Result<(), String> {
    let scratch = scratch.to_owned();
    on_termination(move || {
        say("");
        remove_own_folders_in(&scratch);
        eprintln!("study: stopped; the same command goes on from here");
        std::process::exit(130);
    })
    .map_err(|e| format!("cannot wait for signals: {e}"))
}

/// Data that is there, and the folder that holds it.
struct Prepared {
    data: Data,
    places: Places,
    _scratch: TempDir,
}

/// Makes the data of a cell, unless it is there from the cell before.
fn data_of(
    cell: &Cell,
    options: &Options,
    prepared: &mut Option<Prepared>,
) -> Result<Places, String> {
    if let Some(known) = prepared.as_ref().filter(|known| known.data == cell.data) {
        return Ok(known.places.clone());
    }
    // The earlier data goes first: memory may not have room for both.
    *prepared = None;
    let parent = &options.study.scratch;
    let cannot = |error| format!("cannot write to {}: {error}", parent.display());
    let scratch = scratch_folder_in(parent).map_err(cannot)?;
    // Servers of others run as nobody.
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scratch.path(), all).map_err(cannot)?;
    let places = Places::make(&options.study.swath(), scratch.path()).map_err(cannot)?;
    say(&format!("making {}: {}", cell.dataset, cell.title));
    cell.data.make(&places.served.join("ds")).map_err(cannot)?;
    *prepared = Some(Prepared { data: cell.data, places: places.clone(), _scratch: scratch });
    Ok(places)
}

fn choose(options: &Options) -> Result<Vec<Cell>, String> {
    let mut all = cells(options.size, &options.rtt);
    let known: Vec<&str> = all.iter().map(|cell| cell.name.as_str()).collect();
    let tools = all.iter().flat_map(|cell| &cell.tools).map(|tool| tool.name());
    options.study.check(&known, &each_once(tools))?;
    let datasets = DATASETS.iter().map(|(dataset, _)| *dataset);
    let datasets = each_once(datasets.chain(all.iter().map(|cell| cell.dataset)));
    check_names("dataset", &options.datasets, &datasets)?;
    all.retain(|cell| {
        let is_dataset = options.datasets.is_empty()
            || options
                .datasets
                .iter()
                .any(|chosen| stands_for(chosen, options.size) == cell.dataset);
        is_dataset && options.study.has_scenario(&cell.name)
    });
    for cell in &mut all {
        cell.tools.retain(|tool| options.study.has_tool(tool.name()));
    }
    Ok(all)
}
