//! The rounds of a cell: who runs when, and when a tool has said what it has to say.

use std::time::Duration;

use super::copy::copy_once;
use super::standing::best_s;
use super::{Cell, Record, Tool};
use crate::results::ScenarioResult;
use crate::study_files::say;
use crate::third_party::Places;

/// Measures what is missing of a cell: `rounds` runs of each tool. `make_data` is called before the
/// first run, and not at all if nothing is missing.
///
/// # Errors
/// What does not work, in words.
pub fn measure_cell(
    cell: &Cell,
    tools: &[Tool],
    rounds: usize,
    record: &mut Record,
    mut make_data: impl FnMut() -> Result<Places, String>,
) -> Result<(), String> {
    record.prepare(cell, tools)?;
    let taking_part: Vec<Tool> =
        tools.iter().copied().filter(|tool| tool.missing(cell).is_none()).collect();
    let mut places = None;
    for round in 1..=rounds {
        for at in 0..taking_part.len() {
            // The first round goes by the table, so that there soon is a best time. Later ones begin
            // with another tool each: what one leaves behind must not always meet the same next one.
            let tool = taking_part[(at + round - 1) % taking_part.len()];
            let limit = record.result(cell).and_then(|known| limit(known, tool.name(), round));
            let Some(limit) = limit else { continue };
            if places.is_none() {
                places = Some(make_data()?);
            }
            let Some(places) = &places else { continue };
            say(&format!("{} ({}) round {round}/{rounds}: {}", cell.name, cell.title, tool.name()));
            let outcome = copy_once(cell, tool, limit, places)
                .map_err(|e| format!("{}, {}: {e}", cell.name, tool.name()))?;
            record.add(cell, tool, outcome.command, outcome.run)?;
        }
    }
    say("");
    Ok(())
}

/// Returns how long a tool may run in this round; `None` if it need not run any more.
///
/// A run is stopped at five times the best tool's mean so far. A tool whose run was stopped so is
/// not run again, and neither is one that failed twice and never succeeded.
fn limit(result: &ScenarioResult, tool: &str, round: usize) -> Option<Duration> {
    let known = result.tools.iter().find(|known| known.name == tool)?;
    let is_hopeless = known.failures() >= FAILURES && known.good().next().is_none();
    if known.runs.len() >= round || is_hopeless || known.runs.iter().any(|run| run.is_stopped) {
        return None;
    }
    let limit_s = match best_s(result) {
        Some(best_s) => best_s * STOP_RATIO,
        None => result.bound_s * FIRST_OVER_BOUND + FIRST_AT_LEAST_S,
    };
    Some(Duration::from_secs_f64(limit_s))
}

/// A tool that takes this many times as long as the best one has said what it has to say.
pub const STOP_RATIO: f64 = 5.0;
/// So many failures without a success are enough.
const FAILURES: usize = 2;
/// Limit while no tool has a time.
const FIRST_OVER_BOUND: f64 = 20.0;
const FIRST_AT_LEAST_S: f64 = 60.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Run, ToolResult};

    fn run(elapsed_s: f64, is_stopped: bool) -> Run {
        let failure = is_stopped.then(|| "stopped".to_owned());
        Run { elapsed_s, failure, is_stopped, ..Run::default() }
    }

    fn result(tools: &[(&str, &[Run])]) -> ScenarioResult {
        let tools = tools.iter().map(|(name, runs)| ToolResult {
            name: (*name).to_owned(),
            command: String::new(),
            runs: runs.to_vec(),
        });
        ScenarioResult {
            name: "ds1-15ms".to_owned(),
            title: String::new(),
            size_bytes: 1,
            bound_s: 1.0,
            bound_is: String::new(),
            tools: tools.collect(),
            skipped: Vec::new(),
            goals: Vec::new(),
        }
    }

    #[test]
    fn five_times_the_best_mean_is_the_limit() {
        let known = result(&[("a", &[run(2.0, false), run(4.0, false)]), ("b", &[])]);
        assert_eq!(limit(&known, "b", 1), Some(Duration::from_secs(15)));
        assert_eq!(limit(&known, "a", 3), Some(Duration::from_secs(15)));
        let nothing = result(&[("a", &[])]);
        assert_eq!(limit(&nothing, "a", 1), Some(Duration::from_secs(80)));
    }

    #[test]
    fn what_is_measured_or_was_stopped_does_not_run_again() {
        let slow = [run(10.0, true)];
        let known = result(&[("a", &[run(2.0, false)]), ("slow", &slow)]);
        assert_eq!(limit(&known, "a", 1), None);
        assert!(limit(&known, "a", 2).is_some());
        assert_eq!(limit(&known, "slow", 2), None);
        assert_eq!(limit(&known, "unknown", 1), None);
        let failed = Run { failure: Some("exit code 1".to_owned()), ..run(0.1, false) };
        let known = result(&[("a", &[failed.clone(), failed])]);
        assert_eq!(limit(&known, "a", 3), None);
    }
}
