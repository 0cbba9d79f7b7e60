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
        let gridftp = gridftp_s(measured, round);
        let yardsticks: Vec<Option<f64>> = measured
            .iter()
            .map(|(tool, _)| tool.yardstick().and_then(|tool| seconds(measured, tool)))
            .collect();
        for ((tool, outcomes), yardstick) in measured.iter_mut().zip(yardsticks) {
            let Some(outcome) = outcomes.get_mut(round) else { continue };
            let elapsed_s = outcome.run.elapsed_s;
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
            if let Some(gridftp) = gridftp.filter(|_| *tool == Tool::Swath) {
                add("GridFTP/swath", gridftp / elapsed_s);
            }
            if let Some(yardstick) = yardstick {
                add("rate/XRootD", yardstick / elapsed_s);
            }
        }
    }
}

/// Returns the time of GridFTP with its best settings. What was stopped took at least as long as it
/// ran; what failed counts for nothing.
fn gridftp_s(measured: &[(Tool, Vec<Outcome>)], round: usize) -> Option<f64> {
    let each = measured.iter().filter(|(tool, _)| matches!(tool, Tool::GridFtp(_)));
    let of_round = each.filter_map(|(_, outcomes)| outcomes.get(round));
    let counting = of_round.filter(|it| it.run.failure.is_none() || it.is_stopped);
    counting.map(|it| it.run.elapsed_s).min_by(f64::total_cmp)
}

/// Of the client to both servers.
const ROUND_TRIP_S: f64 = 0.04;
