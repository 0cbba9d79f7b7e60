//! Figures that compare the tools of a row, round by round: what the goals are about.

use super::{Outcome, Row, Tool};

/// Adds them to the runs.
pub fn compare(row: &Row, measured: &mut [(Tool, Vec<Outcome>)]) {
    let bound_s = row.bound_s();
    let rounds = measured.iter().map(|(_, outcomes)| outcomes.len()).max().unwrap_or(0);
    for round in 0..rounds {
        let seconds = |measured: &[(Tool, Vec<Outcome>)], wanted: Tool| {
            let outcomes = &measured.iter().find(|(tool, _)| *tool == wanted)?.1;
            let outcome = outcomes.get(round)?;
            outcome.run.failure.is_none().then_some(outcome.run.elapsed_s)
        };
        let by_b = seconds(measured, Tool::SwathByB);
        let gridftp = gridftp_s(measured, round, |_| true);
        let defaults = gridftp_s(measured, round, |tool| tool == Tool::GridFtp(None));
        let yardsticks: Vec<Option<f64>> = measured
            .iter()
            .map(|(tool, _)| tool.yardstick().and_then(|tool| seconds(measured, tool)))
            .collect();
        for ((tool, outcomes), yardstick) in measured.iter_mut().zip(yardsticks) {
            let Some(outcome) = outcomes.get_mut(round) else { continue };
            let (elapsed_s, outcome_counts) =
                (outcome.run.elapsed_s, outcome.run.failure.is_none());
            let mut add = |name: &str, value: f64| {
                outcome.run.figures.push((name.to_owned(), value));
            };
            // A column of every table, and a figure where a goal is about it.
            if row.goals.iter().any(|goal| goal.figure == "× bound") {
                add("× bound", elapsed_s / bound_s);
            }
            if let Some(by_b) = by_b {
                add("× by B", elapsed_s / by_b);
                if *tool == Tool::Swath {
                    add("round trips beyond", (elapsed_s - 1.03 * by_b) / ROUND_TRIP_S);
                }
            }
            let is_swath = *tool == Tool::Swath && outcome_counts;
            if let Some(gridftp) = gridftp.filter(|_| is_swath) {
                add("GridFTP/swath", gridftp / elapsed_s);
            }
            if let Some(defaults) = defaults.filter(|_| is_swath) {
                add("its defaults/swath", defaults / elapsed_s);
            }
            if let Some(yardstick) = yardstick {
                add("rate/XRootD", yardstick / elapsed_s);
            }
        }
    }
}

/// Returns the time of GridFTP with the best of some settings. What was stopped took at least as long as it
/// ran; what failed counts for nothing.
fn gridftp_s(
    measured: &[(Tool, Vec<Outcome>)],
    round: usize,
    is_one: impl Fn(Tool) -> bool,
) -> Option<f64> {
    let is_one = |tool: Tool| matches!(tool, Tool::GridFtp(_)) && is_one(tool);
    let each = measured.iter().filter(|(tool, _)| is_one(*tool));
    let of_round = each.filter_map(|(_, outcomes)| outcomes.get(round));
    let counting = of_round.filter(|it| it.run.failure.is_none() || it.run.is_stopped);
    counting.map(|it| it.run.elapsed_s).min_by(f64::total_cmp)
}

/// Of the client to both servers.
const ROUND_TRIP_S: f64 = 0.04;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Run;
    use crate::third_party::{Sizes, rows};

    fn outcome(elapsed_s: f64, failure: Option<&str>, is_stopped: bool) -> Outcome {
        let run = Run {
            elapsed_s,
            cpu_s: 0.0,
            peak_memory_bytes: 0,
            wire_bytes: 0,
            sync_s: 0.0,
            figures: Vec::new(),
            failure: failure.map(str::to_owned),
            is_stopped,
        };
        Outcome { run, command: String::new(), said: String::new() }
    }

    #[test]
    fn what_was_stopped_counts_and_what_failed_does_not() {
        let row = rows(Sizes::default()).into_iter().find(|row| row.name == "files").unwrap();
        let mut measured = vec![
            (Tool::SwathByB, vec![outcome(2.0, None, false)]),
            (Tool::Swath, vec![outcome(2.5, None, false)]),
            (Tool::GridFtp(None), vec![outcome(100.0, Some("stopped"), true)]),
            (Tool::GridFtp(Some(4)), vec![outcome(0.1, Some("exit code 1"), false)]),
        ];
        compare(&row, &mut measured);
        let figures = &measured[1].1[0].run.figures;
        let figure = |name: &str| figures.iter().find(|(known, _)| known == name).unwrap().1;
        assert_eq!(figure("× by B"), 1.25);
        assert!((figure("round trips beyond") - 11.0).abs() < 1e-9);
        assert_eq!(figure("GridFTP/swath"), 40.0);
        assert_eq!(figure("its defaults/swath"), 40.0);
    }
}
