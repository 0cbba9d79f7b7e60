//! What all studies take on their command lines, and what they do with it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::machine::{Machine, beside_us, versions};
use crate::results::{ScenarioResult, Study};
use crate::study_files::{self, typed_command};
use crate::table::scenario_table;

/// Options of every study.
#[derive(Debug, Args)]
pub struct StudyOptions {
    /// Scenarios; all of them unless named.
    #[arg(long, alias = "row", value_delimiter = ',', value_name = "NAME")]
    pub scenarios: Vec<String>,
    /// Tools, as the table calls them; all that apply unless named.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub tools: Vec<String>,
    /// Number of rounds; each round runs every tool once.
    #[arg(long, alias = "rounds", default_value_t = 5)]
    pub runs: u32,
    /// The swath program; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    pub swath: Option<PathBuf>,
    /// Where files are served from and written to: a folder in memory, so that disks are out of
    /// the picture.
    #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
    pub scratch: PathBuf,
    /// Where the results go.
    #[arg(long, short = 'o', default_value = "bench/results", value_name = "DIR")]
    pub results: PathBuf,
    /// Name of the results; that of the study unless given.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Lists scenarios, and ends.
    #[arg(long)]
    pub list: bool,
    /// Prints the table and draws the picture of earlier results again.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

impl StudyOptions {
    /// Measures, or draws earlier results again; reports what fails.
    pub fn run(&self, study: &str, measure: impl FnOnce() -> Result<(), String>) -> ExitCode {
        exit_code(
            study,
            match &self.plot {
                Some(results) => study_files::plot(results),
                None => measure(),
            },
        )
    }

    /// Checks the names of scenarios and tools that the user chose.
    ///
    /// # Errors
    /// The first unknown name, and all known ones.
    pub fn check(&self, scenarios: &[&str], tools: &[&str]) -> Result<(), String> {
        check_names("scenario", &self.scenarios, scenarios)?;
        check_names("tool", &self.tools, tools)
    }

    /// Whether this scenario is to be measured.
    pub fn has_scenario(&self, name: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|chosen| chosen == name)
    }

    /// Whether this tool takes part.
    pub fn has_tool(&self, name: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|chosen| chosen == name)
    }

    /// Returns the swath program.
    pub fn swath(&self) -> PathBuf {
        self.swath.clone().unwrap_or_else(|| beside_us("swath"))
    }

    /// Returns a study without results, and says on which machine it is made.
    pub fn begin(&self, name: &str) -> Study {
        let study = Study {
            name: self.name.clone().unwrap_or_else(|| name.to_owned()),
            machine: Machine::here(),
            command: typed_command(&format!("bench/{name}")),
            versions: versions(&self.swath()),
            scenarios: Vec::new(),
        };
        println!("{}\n", study.machine.line());
        study
    }

    /// Prints the result of a scenario, and keeps the study: one that is interrupted keeps what it has.
    ///
    /// # Errors
    /// The file that cannot be written.
    pub fn add(&self, study: &mut Study, result: ScenarioResult) -> Result<(), String> {
        println!("{}", scenario_table(&result));
        study.scenarios.push(result);
        study_files::keep(study, &self.results)
    }

    /// Says where the results are.
    pub fn end(&self, study: &Study) {
        println!("results and picture: {}/{}.*", self.results.display(), study.name);
    }
}

/// Checks names that the user chose.
///
/// # Errors
/// The first unknown name, and all known ones.
pub fn check_names(what: &str, named: &[String], known: &[&str]) -> Result<(), String> {
    match named.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("no {what} '{name}'; there are {}", known.join(", "))),
        None => Ok(()),
    }
}

/// Reports what failed, if anything did.
pub fn exit_code(study: &str, done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{study}: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Returns each name once, in the order of its first time.
pub fn each_once<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut each = Vec::new();
    for name in names {
        if !each.contains(&name) {
            each.push(name);
        }
    }
    each
}

/// Reads a number of bytes, with a unit or without.
///
/// # Errors
/// What is wrong with the text, and which units there are.
pub fn size(text: &str) -> Result<u64, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit {
        "" | "B" => 1,
        "k" | "kB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(format!("'{unit}' is no unit; there are kB, MB, GB, KiB, MiB, GiB")),
    };
    let number: u64 = number.parse().map_err(|_| format!("'{text}' is no size"))?;
    number.checked_mul(factor).filter(|bytes| *bytes > 0).ok_or_else(|| format!("'{text}'?"))
}
