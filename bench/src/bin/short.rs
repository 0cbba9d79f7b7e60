//! Two builds of swath against each other: eight rows, in turns, within twenty minutes.
//!
//! ```sh
//! make bench-short BEFORE=/path/of/the/earlier/swath
//! ```
//!
//! A pair is one run of each build. Pairs begin with the earlier and with the later build by turns,
//! so that a slow change of the machine's speed cancels out. Every run has a home folder, servers and
//! a network of its own; where swath serves, it is the same build. A row is slower if its whole
//! interval lies above [`MOST`]. It is then measured once more, and the command fails if it is slower
//! again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use swath_bench::machine::{Machine, beside_us, on_termination, version};
use swath_bench::paired::{LEAST_PAIRS, RatioInterval};
use swath_bench::results::Spread;
use swath_bench::serving::Spent;
use swath_bench::short_rows::{Folders, ROWS, Row, Sample};
use swath_bench::study_files::say;
use swath_netlab::wan::Namespace;

/// Compares two builds of swath in turns, in at most twenty minutes.
///
/// Fails if a row's whole 90 % interval of the ratio lies above 1.02 twice.
#[derive(Debug, Parser)]
#[command(name = "short", max_term_width = 100)]
struct Options {
    /// The earlier build.
    #[arg(long, env = "BEFORE", value_name = "FILE")]
    before: PathBuf,
    /// The later build; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    after: Option<PathBuf>,
    /// Rows; all of them unless named.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    rows: Vec<String>,
    /// Pairs of runs in each row; as many as the row has time for, and at least five, unless given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(LEAST_PAIRS as i64..))]
    pairs: Option<u32>,
    /// Where files are.
    #[command(flatten)]
    folders: Folders,
    /// Lists the rows, and ends.
    #[arg(long)]
    list: bool,
}

/// All pairs of one line of the table, the earlier build's sample first.
struct Line {
    name: &'static str,
    pairs: Vec<[Sample; 2]>,
}

/// What came of a row.
enum Outcome {
    Measured { lines: Vec<Line>, took: Duration },
    Failed { build: usize, why: String },
}

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(verdict)) => {
            eprintln!("short: {verdict}");
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("short: {message}");
            ExitCode::from(2)
        }
    }
}

/// Returns what is wrong with the later build, in words, if anything is.
fn compare(options: &Options) -> Result<Option<String>, String> {
    let begin = Instant::now();
    let is_known = |name: &String| ROWS.iter().any(|row| row.name == name);
    if let Some(unknown) = options.rows.iter().find(|name| !is_known(name)) {
        let known = ROWS.map(|row| row.name).join(", ");
        return Err(format!("no row '{unknown}'; there are {known}"));
    }
    let is_chosen =
        |row: &&Row| options.rows.is_empty() || options.rows.iter().any(|name| name == row.name);
    if options.list {
        ROWS.iter().filter(is_chosen).for_each(|row| println!("{:<8} {}", row.name, row.title));
        return Ok(None);
    }
    let after = options.after.clone().unwrap_or_else(|| beside_us("swath"));
    let found = |path: &Path| {
        let found = path.canonicalize().ok().filter(|path| path.is_file());
        found.ok_or_else(|| format!("there is no program {}", path.display()))
    };
    let builds = [found(&options.before)?, found(&after)?];
    let folders = options.folders.clone();
    on_termination(move || {
        folders.remove();
        std::process::exit(130);
    })
    .map_err(|e| format!("cannot wait for signals: {e}"))?;
    // Fails here, not in every row, if it is not root that calls.
    Namespace::new("bench-short").map_err(|e| e.to_string())?;
    println!("{}", Machine::here().line());
    for (name, build) in BUILDS.iter().zip(&builds) {
        println!("{name}: {} ({})", build.display(), version(name, Some(build.clone()), "-V").1);
    }

    let (mut table, mut wrong, mut repeats) = (Vec::new(), Vec::new(), Vec::new());
    let mut has_compared = false;
    let above = format!(" (the whole 90 % interval lies above {MOST})");
    let limit = |row: &Row| Duration::from_secs(row.limit_s);
    for row in ROWS.iter().filter(is_chosen) {
        match measure_row(row, options, &builds, limit(row))? {
            Outcome::Measured { lines, took } => {
                has_compared = true;
                if lines.iter().any(Line::is_slower) {
                    repeats.push((row, slower(&lines), took / lines[0].pairs.len() as u32));
                }
                table.extend(lines.iter().map(|line| line.show(line.name)));
            }
            Outcome::Failed { build, why } => {
                let name = BUILDS[build];
                table
                    .push(format!("{:<19} not compared: the {name} build failed: {why}", row.name));
                // An earlier build may lack what the row needs.
                if build == 1 {
                    wrong.push(format!("{} failed", row.name));
                }
            }
        }
    }
    for (row, first, pair_took) in repeats {
        let left = LIMIT.saturating_sub(begin.elapsed());
        let names = first.join(" and ");
        if options.pairs.is_none() && left < pair_took * LEAST_PAIRS as u32 {
            wrong.push(format!("{names} was slower, without time to measure it again{above}"));
            continue;
        }
        println!("{names} was slower: once more");
        match measure_row(row, options, &builds, limit(row).min(left))? {
            Outcome::Measured { lines, .. } => {
                let twice = slower(&lines).into_iter().filter(|name| first.contains(name));
                wrong.extend(twice.map(|name| format!("{name} was slower twice{above}")));
                table.extend(lines.iter().map(|line| line.show(&format!("{}, again", line.name))));
            }
            Outcome::Failed { .. } => {
                wrong.push(format!("{names} was slower, and failed when measured again{above}"));
            }
        }
    }
    println!("\n{HEADING}\n{}", table.join("\n"));
    println!("\nMedians; the ratio is of pairs. Both ends of a run are the same build.");
    println!("It took {:.1} minutes.", begin.elapsed().as_secs_f64() / 60.0);
    if !has_compared {
        wrong.push("no row was compared".to_owned());
    }
    if !wrong.is_empty() {
        return Ok(Some(wrong.join("; ")));
    }
    println!("No row was slower twice.");
    Ok(None)
}

/// Measures all lines of a row for as long as `limit`, and at least [`LEAST_PAIRS`] times.
///
/// # Errors
/// What is wrong with the place, in words.
fn measure_row(
    row: &Row,
    options: &Options,
    builds: &[PathBuf; 2],
    limit: Duration,
) -> Result<Outcome, String> {
    let begin = Instant::now();
    say(&format!("{}: making the data", row.name));
    let turn = (row.prepare)(&options.folders)?;
    let prepared = begin.elapsed();
    let line = |name: &&'static str| Line { name, pairs: Vec::new() };
    let mut lines: Vec<Line> = row.lines.iter().map(line).collect();
    for pair in 0.. {
        let took = begin.elapsed();
        let is_over = match options.pairs {
            Some(pairs) => pair == pairs as usize,
            None => pair >= LEAST_PAIRS && took + (took - prepared) / pair as u32 > limit,
        };
        if is_over {
            break;
        }
        let mut samples = [Ok(Vec::new()), Ok(Vec::new())];
        for build in [0, 1].map(|at| (at + pair) % 2) {
            say(&format!("{}, pair {}: {}", row.name, pair + 1, BUILDS[build]));
            samples[build] = turn(&builds[build]);
        }
        let failed = |build: usize, why: String| {
            say("");
            println!("{}: the {} build failed: {why}", row.name, BUILDS[build]);
            Ok(Outcome::Failed { build, why })
        };
        match samples {
            // What fails with both is no lack of the earlier build.
            [_, Err(why)] => return failed(1, why),
            [Err(why), _] => return failed(0, why),
            [Ok(before), Ok(after)] => {
                let both = before.into_iter().zip(after);
                let of_lines = lines.iter_mut().zip(both);
                of_lines.for_each(|(line, (before, after))| line.pairs.push([before, after]));
            }
        }
    }
    say("");
    let took = begin.elapsed();
    lines.iter().for_each(|line| println!("{} ({:.0} s)", line.sentence(), took.as_secs_f64()));
    Ok(Outcome::Measured { lines, took })
}

fn slower(lines: &[Line]) -> Vec<&'static str> {
    lines.iter().filter(|line| line.is_slower()).map(|line| line.name).collect()
}

impl Line {
    fn interval(&self) -> Option<RatioInterval> {
        RatioInterval::of(self.pairs.iter().map(|pair| pair.map(|sample| sample.elapsed_s)))
    }

    fn is_slower(&self) -> bool {
        self.interval().is_some_and(|interval| interval.low > MOST)
    }

    /// Returns the medians of a figure with the earlier and the later build; none where a sample
    /// lacks it.
    fn medians(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Option<[f64; 2]> {
        let of = |build: usize| {
            let values: Option<Vec<f64>> =
                self.pairs.iter().map(|pair| figure(&pair[build])).collect();
            Spread::of(values?.into_iter()).map(|spread| spread.median)
        };
        Some([of(0)?, of(1)?])
    }

    /// Returns a line while the rows are measured.
    fn sentence(&self) -> String {
        let times = change(self.medians(|sample| Some(sample.elapsed_s)), 2);
        let ratio = self.interval().map_or("no ratio".to_owned(), |it| {
            format!("ratio {:.3}, {:.3} to {:.3}", it.ratio, it.low, it.high)
        });
        format!("{}: {} pairs, {times} s, {ratio}", self.name, self.pairs.len())
    }

    /// Returns a line of the table.
    fn show(&self, name: &str) -> String {
        let interval = self.interval().map_or([f64::NAN; 3], |it| [it.ratio, it.low, it.high]);
        let [ratio, low, high] = interval;
        let cpu = |spent: Spent| spent.cpu.as_secs_f64();
        let mb = |spent: Spent| spent.peak_memory_bytes as f64 / 1e6;
        format!(
            "{name:<19} {:>5} {:>16} {ratio:>6.3} {:>14} {:>14} {:>14} {:>14} {:>14}",
            self.pairs.len(),
            change(self.medians(|sample| Some(sample.elapsed_s)), 2),
            format!("{low:.3} – {high:.3}"),
            change(self.medians(|sample| Some(cpu(sample.client))), 2),
            change(self.medians(|sample| sample.server.map(cpu)), 2),
            change(self.medians(|sample| Some(mb(sample.client))), 0),
            change(self.medians(|sample| sample.server.map(mb)), 0),
        )
    }
}

fn change(values: Option<[f64; 2]>, digits: usize) -> String {
    let Some([before, after]) = values else { return "–".to_owned() };
    format!("{before:.digits$} → {after:.digits$}")
}

const BUILDS: [&str; 2] = ["earlier", "later"];
/// A row is slower if its whole interval lies above this.
const MOST: f64 = 1.02;
/// All rows together with their repetitions, unless the machine needs more for five pairs.
const LIMIT: Duration = Duration::from_secs(20 * 60);
const HEADING: &str = "\
row                 pairs          seconds  ratio  90 % interval  client CPU, s  server CPU, s     client, MB     server, MB";
