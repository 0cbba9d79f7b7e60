//! What a study found, as text.

use std::fmt::Write as _;

use super::standing::Standing;
use crate::results::{ScenarioResult, Study};

/// Returns all cells as an aligned table: a row for each cell, a column for each tool.
pub fn table(study: &Study) -> String {
    let mut text = String::new();
    for group in groups(study) {
        let names = tools_of(&group);
        let mut rows = vec![vec!["".to_owned(), "dataset".to_owned(), "bound s".to_owned()]];
        rows[0].extend(names.iter().map(|name| (*name).to_owned()));
        for result in &group {
            let mut row =
                vec![result.name.clone(), result.title.clone(), format!("{:.2}", result.bound_s)];
            row.extend(names.iter().map(|name| Standing::of(result, name).text()));
            rows.push(row);
        }
        text += &aligned(&rows);
        text.push('\n');
    }
    for line in remarks(study) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Returns the cells of each table of tools: those of one client and one server, those of two servers.
pub fn groups(study: &Study) -> Vec<Vec<&ScenarioResult>> {
    let of_two = |result: &&ScenarioResult| result.name.starts_with("mdtm-third-party");
    let (two, one): (Vec<_>, Vec<_>) = study.scenarios.iter().partition(of_two);
    [one, two].into_iter().filter(|group| !group.is_empty()).collect()
}

/// Returns the names of the tools that take part in some of the cells, in their order.
pub fn tools_of<'a>(cells: &[&'a ScenarioResult]) -> Vec<&'a str> {
    let named = cells.iter().flat_map(|cell| {
        let skipped = cell.skipped.iter().map(|(name, _)| name.as_str());
        cell.tools.iter().map(|tool| tool.name.as_str()).chain(skipped)
    });
    crate::options::each_once(named)
}

/// Returns what failed, was stopped although it had succeeded, or did not take part, and why.
pub fn remarks(study: &Study) -> Vec<String> {
    let mut lines = Vec::new();
    for result in &study.scenarios {
        for tool in &result.tools {
            let failed = tool.runs.iter().filter(|run| run.failure.is_some() && !run.is_stopped);
            if let Some(last) = failed.clone().last() {
                let (name, why) = (&tool.name, last.failure.as_deref().unwrap_or_default());
                let (count, all) = (failed.count(), tool.runs.len());
                lines.push(format!(
                    "{}: {name} failed in {count} of {all} runs: {why}",
                    result.name
                ));
            }
        }
    }
    let mut skipped: Vec<String> = Vec::new();
    for (tool, why) in study.scenarios.iter().flat_map(|result| &result.skipped) {
        let line = format!("{tool} skipped: {why}");
        if !skipped.contains(&line) {
            skipped.push(line);
        }
    }
    lines.extend(skipped);
    lines
}

/// Returns rows with columns as wide as their widest cell; the first two to the left.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..rows[0].len()).map(|at| width(at).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let _ = match at {
                0 => write!(line, "{cell:<width$}"),
                1 => write!(line, "  {cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
