//! What a study has measured so far: kept after every run, and read again when the study goes on.

use std::path::PathBuf;

use super::{Cell, Tool};
use crate::machine::{find_program, version};
use crate::options::StudyOptions;
use crate::results::{Run, ScenarioResult, Study, ToolResult};
use crate::study_files;

/// The measurements and where they are kept.
#[derive(Debug)]
pub struct Record {
    /// The measurements.
    pub study: Study,
    folder: PathBuf,
}

impl Record {
    /// Opens what was measured earlier, or begins anew: if there is nothing, or with `is_fresh`.
    ///
    /// # Errors
    /// A file that cannot be read; measurements of another program of the same name.
    pub fn open(options: &StudyOptions, is_fresh: bool) -> Result<Self, String> {
        let mut new = options.begin("study");
        new.versions.retain(|(name, _)| name != "aria2");
        new.versions
            .extend(PROGRAMS.map(|(name, argument)| version(name, find_program(name), argument)));
        let folder = options.results.clone();
        let path = folder.join(format!("{}.json", new.name));
        if is_fresh || !path.exists() {
            return Ok(Self { study: new, folder });
        }
        let study = study_files::read(&path)?;
        for (tool, version) in &study.versions {
            let now = new.versions.iter().find(|(name, _)| name == tool).map(|(_, now)| now);
            if now.is_some_and(|now| now != version && version != "not installed") {
                return Err(format!(
                    "{} was measured with {version} of {tool}; --fresh begins anew",
                    path.display()
                ));
            }
        }
        Ok(Self { study: Study { versions: new.versions, command: new.command, ..study }, folder })
    }

    /// Returns what is known of a cell, if anything is.
    pub fn result(&self, cell: &Cell) -> Option<&ScenarioResult> {
        self.study.scenarios.iter().find(|known| known.name == cell.name)
    }

    /// Makes room for a cell with its tools, and notes who does not take part and why.
    ///
    /// # Errors
    /// Another size was measured earlier.
    pub fn prepare(&mut self, cell: &Cell, tools: &[Tool]) -> Result<&mut ScenarioResult, String> {
        let scenarios = &mut self.study.scenarios;
        let is_before = |known: &ScenarioResult| order(&known.name) < order(&cell.name);
        let at = scenarios.iter().position(|known| known.name == cell.name).unwrap_or_else(|| {
            let at = scenarios.iter().take_while(|known| is_before(known)).count();
            scenarios.insert(
                at,
                ScenarioResult {
                    name: cell.name.clone(),
                    title: cell.title.clone(),
                    size_bytes: cell.data.bytes(),
                    bound_s: cell.bound_s(),
                    bound_is: "size with framing over the rate of the link".to_owned(),
                    tools: Vec::new(),
                    skipped: Vec::new(),
                    goals: Vec::new(),
                },
            );
            at
        });
        let result = &mut scenarios[at];
        if result.size_bytes != cell.data.bytes() {
            return Err(format!(
                "{} was measured with {} bytes; name another folder with -o, or begin anew with \
                 --fresh",
                cell.name, result.size_bytes
            ));
        }
        for tool in tools {
            let name = tool.name();
            result.skipped.retain(|(skipped, _)| skipped != name);
            match tool.missing(cell) {
                Some(why) => result.skipped.push((name.to_owned(), why)),
                None if result.tools.iter().any(|known| known.name == name) => {}
                None => result.tools.push(ToolResult {
                    name: name.to_owned(),
                    command: String::new(),
                    runs: Vec::new(),
                }),
            }
        }
        Ok(result)
    }

    /// Adds a run, and keeps everything.
    ///
    /// # Errors
    /// The file that cannot be written.
    pub fn add(
        &mut self,
        cell: &Cell,
        tool: Tool,
        command: String,
        run: Run,
    ) -> Result<(), String> {
        let cell = self.study.scenarios.iter_mut().find(|known| known.name == cell.name);
        let tools = cell.into_iter().flat_map(|cell| &mut cell.tools);
        for known in tools.filter(|known| known.name == tool.name()) {
            known.command.clone_from(&command);
            known.runs.push(run.clone());
        }
        study_files::keep_data(&self.study, &self.folder)
    }
}

/// Returns what names of cells are sorted by: words as words, and numbers as numbers, in thousandths.
fn order(name: &str) -> Vec<(&str, u64)> {
    let part = |part: &str| {
        let digits = part.find(|it: char| it.is_ascii_digit()).unwrap_or(part.len());
        let number: f64 = part[digits..].trim_end_matches("ms").parse().unwrap_or(0.0);
        (digits, (1e3 * number) as u64)
    };
    let parts = name.split('-').map(|one| (one, part(one)));
    parts.map(|(one, (digits, number))| (&one[..digits], number)).collect()
}

/// Programs that take part here, with what makes them tell their version.
const PROGRAMS: [(&str, &str); 6] = [
    ("globus-url-copy", "-version"),
    ("rclone", "--version"),
    ("tar", "--version"),
    ("ssh", "-V"),
    ("syq", "--version"),
    ("xrdcp", "--version"),
];

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::study::cells;

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        study: StudyOptions,
    }

    fn options(folder: &std::path::Path) -> StudyOptions {
        let folder = folder.to_string_lossy().into_owned();
        Options::parse_from(["study", "-o", &folder, "--swath", "/nonexistent"]).study
    }

    #[test]
    fn what_was_measured_is_known_afterwards_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let cell = &cells(1_000_000, &[15.0])[0];
        let run = Run { elapsed_s: 1.5, ..Run::default() };
        let mut record = Record::open(&options, false).unwrap();
        assert!(record.result(cell).is_none());
        record.prepare(cell, &[Tool::Swath]).unwrap();
        record.add(cell, Tool::Swath, "swath cp".to_owned(), run.clone()).unwrap();

        let mut record = Record::open(&options, false).unwrap();
        record.prepare(cell, &[Tool::Swath]).unwrap();
        let known = &record.result(cell).unwrap().tools[0];
        assert_eq!((known.command.as_str(), &known.runs), ("swath cp", &vec![run]));
        let other_size = &cells(2_000_000, &[15.0])[0];
        assert!(record.prepare(other_size, &[Tool::Swath]).unwrap_err().contains("--fresh"));

        assert!(Record::open(&options, true).unwrap().result(cell).is_none());
    }

    #[test]
    fn cells_are_in_order_whatever_was_measured_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::open(&options(folder.path()), false).unwrap();
        let all = cells(10_000_000_000, &[0.6, 15.0, 60.0]);
        for cell in all.iter().rev() {
            record.prepare(cell, &[]).unwrap();
        }
        let names = record.study.scenarios.iter().map(|known| known.name.as_str());
        let (ds, others) = names.partition::<Vec<_>, _>(|name| name.starts_with("ds"));
        let wanted: Vec<&str> = all.iter().map(|cell| cell.name.as_str()).take(ds.len()).collect();
        assert_eq!(ds, wanted);
        assert_eq!(others.first().copied(), Some("mdtm-files"));
        assert_eq!(others.last().copied(), Some("radioastron-30ms"));
    }

    #[test]
    fn other_versions_are_not_mixed() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let mut record = Record::open(&options, false).unwrap();
        // What is installed later may join.
        record.study.versions = vec![("tar".to_owned(), "not installed".to_owned())];
        study_files::keep_data(&record.study, folder.path()).unwrap();
        assert!(Record::open(&options, false).is_ok());
        record.study.versions = vec![("tar".to_owned(), "tar 0.1".to_owned())];
        study_files::keep_data(&record.study, folder.path()).unwrap();
        assert!(Record::open(&options, false).unwrap_err().contains("tar 0.1"));
    }
}
