//! A study as an aligned text table.

use std::fmt::Write;

use crate::results::{Goal, ScenarioResult, Study, ToolResult};

/// The whole study: the machine, one table for each scenario, what was skipped.
pub fn study_table(study: &Study) -> String {
    let mut text = format!("{}\n{}\n{}\n", study.name, study.machine.line(), study.command);
    for (tool, version) in &study.versions {
        let _ = writeln!(text, "{tool}: {version}");
    }
    for scenario in &study.scenarios {
        text.push('\n');
        text.push_str(&scenario_table(scenario));
    }
    text
}

/// One scenario. Times are in seconds, processor time is the client's, memory its peak;
/// sync is what a program left to be written after its end. Further figures, where there are any,
/// are medians too.
pub fn scenario_table(scenario: &ScenarioResult) -> String {
    let mut text = format!(
        "{}: {} (bound {:.2} s: {})\n",
        scenario.name, scenario.title, scenario.bound_s, scenario.bound_is
    );
    let oracle_s = scenario.median_s("oracle");
    let figures = scenario.figure_names();
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    rows[0].extend(figures.iter().map(|&name| name.to_owned()));
    for tool in &scenario.tools {
        let mut cells = row(tool, scenario.bound_s, oracle_s).to_vec();
        cells.extend(figures.iter().map(|name| figure(tool.figure(name))));
        rows.push(cells);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..rows[0].len()).map(|at| width(at).unwrap_or(0)).collect();
    for row in &rows {
        let _ = write!(text, "  {:<1$}", row[0], widths[0]);
        for (cell, &width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    for tool in &scenario.tools {
        if let Some(run) = tool.runs.iter().find(|run| run.failure.is_some()) {
            let reason = run.failure.as_deref().unwrap_or_default();
            let _ = writeln!(text, "  {} failed {} times: {reason}", tool.name, tool.failures());
        }
    }
    for (tool, reason) in &scenario.skipped {
        let _ = writeln!(text, "  {tool} skipped: {reason}");
    }
    for goal in &scenario.goals {
        let _ = writeln!(text, "  {}", goal_line(goal, scenario));
    }
    text
}

/// One goal, the median that was measured, and whether it will do.
fn goal_line(goal: &Goal, scenario: &ScenarioResult) -> String {
    let Goal { tool, figure: name, least, most } = goal;
    let mut text = format!("to be reached by {tool}: {name}");
    if let Some(least) = least {
        let _ = write!(text, " ≥ {least}");
    }
    if let Some(most) = most {
        let _ = write!(text, " ≤ {most}");
    }
    let tool = scenario.tools.iter().find(|result| result.name == *tool);
    match tool.and_then(|tool| tool.figure(name)) {
        None => text + ": not measured",
        // With one more digit than the table, so that what falls short can be seen to.
        Some(value) if goal.is_reached(value) => format!("{text}: {value:.3}, yes"),
        Some(value) => format!("{text}: {value:.3}, NO"),
    }
}

fn row(tool: &ToolResult, bound_s: f64, oracle_s: Option<f64>) -> [String; COLUMNS] {
    let none = || "–".to_owned();
    let seconds = |value: Option<f64>| value.map_or_else(none, |value| format!("{value:.2}"));
    let good = tool.good().count();
    let Some(elapsed_s) = tool.elapsed_s() else {
        let mut row = std::array::from_fn(|_| none());
        row[0] = tool.name.clone();
        row[COLUMNS - 1] = format!("0/{}", tool.runs.len());
        return row;
    };
    [
        tool.name.clone(),
        format!("{:.2}", elapsed_s.median),
        format!("{:.2}", elapsed_s.min),
        format!("{:.2}", elapsed_s.max),
        format!("{:.2}", elapsed_s.median / bound_s),
        oracle_s.map_or_else(none, |oracle_s| format!("{:.2}", elapsed_s.median / oracle_s)),
        seconds(tool.cpu_s()),
        seconds(tool.sync_s().filter(|sync_s| *sync_s > 0.0)),
        tool.peak_memory_bytes()
            .map_or_else(none, |bytes| format!("{:.0}", bytes as f64 / f64::from(1 << 20))),
        format!("{good}/{}", tool.runs.len()),
    ]
}

/// Small ones to the hundredth, large ones to the whole.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() < 100.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.0}"),
    }
}

const COLUMNS: usize = 10;
const HEADINGS: [&str; COLUMNS] = [
    "tool",
    "median s",
    "min",
    "max",
    "× bound",
    "× oracle",
    "CPU s",
    "sync s",
    "MiB",
    "good runs",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Run;

    fn run(elapsed_s: f64, failure: Option<&str>) -> Run {
        Run {
            elapsed_s,
            cpu_s: 0.5,
            peak_memory_bytes: 3 << 20,
            is_stopped: false,
            wire_bytes: 0,
            sync_s: 0.0,
            figures: Vec::new(),
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn a_table_is_aligned_and_hides_nothing() {
        let tool = |name: &str, runs| ToolResult { name: name.into(), command: "".into(), runs };
        let scenario = ScenarioResult {
            name: "static".into(),
            title: "two links".into(),
            size_bytes: 1,
            bound_s: 4.0,
            bound_is: "the links".into(),
            tools: vec![
                tool("swath", vec![run(4.0, None), run(6.0, None), run(5.0, None)]),
                tool("broken", vec![run(1.0, Some("exit code 3"))]),
                tool("oracle", vec![run(4.0, None)]),
            ],
            skipped: vec![("wget".into(), "not installed".into())],
            goals: Vec::new(),
        };
        assert_eq!(
            scenario_table(&scenario),
            "static: two links (bound 4.00 s: the links)\n\
             \x20 tool    median s   min   max  × bound  × oracle  CPU s  sync s  MiB  good runs\n\
             \x20 swath       5.00  4.00  6.00     1.25      1.25   0.50       –    3        3/3\n\
             \x20 broken         –     –     –        –         –      –       –    –        0/1\n\
             \x20 oracle      4.00  4.00  4.00     1.00      1.00   0.50       –    3        1/1\n\
             \x20 broken failed 1 times: exit code 3\n\
             \x20 wget skipped: not installed\n"
        );
    }

    #[test]
    fn further_figures_are_columns_of_their_own() {
        let with = |figures: &[(&str, f64)]| Run {
            figures: figures.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
            ..run(1.0, None)
        };
        let tool = |name: &str, runs| ToolResult { name: name.into(), command: "".into(), runs };
        let scenario = ScenarioResult {
            name: "cpu".into(),
            title: "a file".into(),
            size_bytes: 1,
            bound_s: 1.0,
            bound_is: "the fastest".into(),
            tools: vec![
                tool("a", vec![with(&[("s/GB", 0.25), ("1/s", 1234.4)]), with(&[("s/GB", 0.35)])]),
                tool("b", vec![with(&[])]),
            ],
            skipped: Vec::new(),
            goals: vec![
                Goal::at_most("a", "s/GB", 0.3),
                Goal::at_least("a", "1/s", 2000.0),
                Goal::at_least("b", "1/s", 1.0),
            ],
        };
        let table = scenario_table(&scenario);
        let lines: Vec<&str> = table.lines().skip(1).collect();
        assert!(lines[0].ends_with("good runs  s/GB   1/s"), "{table}");
        assert!(lines[1].ends_with("2/2  0.30  1234"), "{table}");
        assert!(lines[2].ends_with("1/1     –     –"), "{table}");
        assert_eq!(
            lines[3..],
            [
                "  to be reached by a: s/GB ≤ 0.3: 0.300, yes",
                "  to be reached by a: 1/s ≥ 2000: 1234.400, NO",
                "  to be reached by b: 1/s ≥ 1: not measured",
            ]
        );
    }
}
