//! What a study found, as text.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::cell::{Cell, DATASETS, RTTS_MS, bytes_text, cells, count, stands_for};
use super::chart::draw;
use super::predict::{self, predict};
use super::published::{self, Published};
use super::standing::{Standing, at_least};
use super::{Interval, Tool};
use crate::options::each_once;
use crate::results::{ScenarioResult, Study, ToolResult};

/// Writes table, picture and report of a study into its folder.
///
/// # Errors
/// The file that cannot be written.
pub fn keep_report(study: &Study, folder: &Path) -> Result<(), String> {
    let picture = format!("{}.svg", study.name);
    write(&folder.join(format!("{}.txt", study.name)), &table(study))?;
    write(&folder.join(&picture), &draw(study))?;
    write(&folder.join(format!("{}.md", study.name)), &report(study, &picture))
}

/// Writes the report to a file, and the picture to `images/` beside it.
///
/// # Errors
/// The file that cannot be written.
pub fn write_report(study: &Study, file: &Path) -> Result<(), String> {
    let picture = format!("images/{}.svg", study.name);
    write(&file.with_file_name(&picture), &draw(study))?;
    write(file, &report(study, &picture))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Returns the report in Markdown.
fn report(study: &Study, picture: &str) -> String {
    let of = |prefix: &str| -> Vec<&ScenarioResult> {
        study.scenarios.iter().filter(|result| result.name.starts_with(prefix)).collect()
    };
    let is_between = |result: &&ScenarioResult| result.name.starts_with(BETWEEN);
    let (between, fetched): (Vec<_>, Vec<_>) = of("mdtm-").into_iter().partition(is_between);
    let own = of("ds");
    let mut text = format!(
        "# The comparative study of 2018, made again\n\n\
         <!-- Written by `bench/study --write`; change the program, not this page. -->\n\n\
         Question: how do tools for large scientific datasets compare, when files are few and large or \
         many and small, near and far? A study of 2018 ({STUDY}) asked this of GridFTP, FDT, mdtmFTP \
         and XDD. `bench/study` measures its datasets again, with swath and with the tools that can be \
         had today, and shows the published values of the others.\n\n\
         {}{}\n\n```\n{}\n```\n\n\
         A cell of the tables is one dataset at one round-trip time. Links are emulated by \
         [netlab](netlab.md), with queues of 100 ms. All tools have the congestion control and the \
         TCP buffers of the machine ([those of the committed run](benchmark-methods.md#how-benchstudy-measures)); \
         the connections of GridFTP have buffers of 2 MB, as in the study.\n\n\
         Every value is a mean with its 95 % confidence interval (Student's t) in seconds; in brackets \
         the mean over that of the best tool. The best mean is bold, and so are those within half a \
         percent of it. A run is stopped at five times the best mean so far, shown as ≥ 5 ×, and not \
         repeated. Tools take turns in changing order. Every copy is compared with the original, byte by \
         byte. Files are read from and written to memory. The bound is the size with the headers of \
         packets over the rate of the link, 1 Gbit/s.\n\n",
        progress(study),
        study.machine.line(),
        study.command
    );
    if !own.is_empty() {
        text += &format!("![Time over that of the best tool]({picture})\n\n");
        text += &result(&own);
        text += &datasets(&own);
        text += "## Times\n\n";
        text += &markdown(&own);
        let _ = writeln!(text, "Encrypted: {}.\n", encrypted());
    }
    let predicted = predict(study);
    if !predicted.is_empty() {
        text += PREDICTABILITY;
        text += &predict::table(&predicted);
        text.push('\n');
    }
    text += &tools(study);
    text += AGAIN;
    text += "## What the study published\n\n";
    for line in published::STUDY {
        let _ = writeln!(text, "- {line}");
    }
    text += "\n## The tables of mdtmFTP\n\nClient and server, 95 ms apart; published on a loop of \
             100 Gbit/s (Zhang and others, Fermilab), measured here at 1 Gbit/s.\n\n";
    text += &markdown(&fetched);
    text += &published_table(&published::MDTM);
    text += "Between two servers, ordered by a third site (`bench/third-party` tells how):\n\n";
    text += &markdown(&between);
    text += &published_table(&published::MDTM_THIRD_PARTY);
    text += "## The table of Radioastron\n\nOne file over one link in Mbit/s of payload, 1 Gbit/s here. \
             Published: \"Scientific Data Distribution Network Based on P2P Transmission Technologies\", WDS \
             2012. UDT is not measured.\n\n";
    text += &rates(&of(RADIOASTRON));
    text += "## Features\n\nThe axes of the study's Table I. The columns of the other tools have what \
             the papers say; – stands for what they leave open.\n\n";
    text += published::FEATURES;
    let remarks = remarks(study);
    if !remarks.is_empty() {
        text += "\n## Remarks\n\n";
        for line in remarks {
            let _ = writeln!(text, "- {line}");
        }
    }
    text
}

/// Returns how much of the whole study has been measured, unless all was.
fn progress(study: &Study) -> String {
    let total_bytes = study.scenarios.iter().map(|result| result.size_bytes).max().unwrap_or(0);
    let all = cells(total_bytes.max(1), &RTTS_MS);
    let is_known = |cell: &&Cell| study.scenarios.iter().any(|result| result.name == cell.name);
    match all.iter().filter(is_known).count() {
        count if count == all.len() => String::new(),
        count => format!("**Measured so far: {count} of {} cells.** ", all.len()),
    }
}

/// Returns how the tools compare in all these cells.
fn result(cells: &[&ScenarioResult]) -> String {
    let mut text = "## Result\n\nTime over that of the best tool, in all cells of DS1 to DS6:\n\n\
                    | tool | median | worst | within 3 % of the best |\n| --- | --- | --- | --- |\n"
        .to_owned();
    for tool in tools_of(cells) {
        let standings = cells.iter().map(|cell| Standing::of(cell, tool));
        let mut ratios: Vec<(f64, bool)> = standings
            .filter_map(|it| Some((it.ratio()?, matches!(it, Standing::Stopped(_)))))
            .collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (Some(&median), Some(&worst)) = (ratios.get(ratios.len() / 2), ratios.last()) else {
            continue;
        };
        let shown = |(ratio, is_stopped): (f64, bool)| match is_stopped {
            true => format!("≥ {}", at_least(ratio)),
            false => format!("{ratio:.2}"),
        };
        let near = ratios.iter().filter(|(ratio, _)| *ratio <= 1.03).count();
        let (median, worst, all) = (shown(median), shown(worst), ratios.len());
        let _ = writeln!(text, "| {tool} | {median} | {worst} | {near} of {all} |");
    }
    text + "\n"
}

/// Returns what the datasets are, as published and as measured.
fn datasets(cells: &[&ScenarioResult]) -> String {
    let total_bytes = cells.iter().map(|cell| cell.size_bytes).max().unwrap_or(0);
    let mut text = "## Datasets\n\n| | published | measured |\n| --- | --- | --- |\n".to_owned();
    for (dataset, file_bytes) in DATASETS {
        let published = count(PUBLISHED_BYTES / file_bytes);
        let standing = stands_for(dataset, total_bytes);
        let prefix = format!("{standing}-");
        let title = cells.iter().find(|cell| cell.name.starts_with(&prefix));
        let measured = match title.map(|cell| &cell.title) {
            None => "not yet".to_owned(),
            Some(title) if standing == dataset => title.clone(),
            Some(title) => format!("{title}: the same as {}", standing.to_uppercase()),
        };
        let name = dataset.to_uppercase();
        let files = format!("{published} × {}", bytes_text(file_bytes));
        let _ = writeln!(text, "| {name} | {files} | {measured} |");
    }
    if total_bytes != PUBLISHED_BYTES {
        let _ = writeln!(
            text,
            "\nThe published total is 10 GB, here it is {}: fewer files of the published size, and one \
             file of the total where a file would be larger. Datasets that are the same then are \
             measured once.",
            bytes_text(total_bytes)
        );
    }
    text + "\n"
}

/// Returns how the tools are called, and which of them encrypt.
fn tools(study: &Study) -> String {
    let mut text = "## Tools\n\n| tool | how | encryption |\n| --- | --- | --- |\n".to_owned();
    for tool in Tool::STUDY {
        let (how, encryption) = tool.settings();
        let _ = writeln!(text, "| {} | {how} | {encryption} |", tool.name());
    }
    text += "\nFDT, XDD, mdtmFTP and bbcp are not measured: Debian has no packages of them. \
             One command of each tool as it ran, its arguments not quoted. SERVED and TARGET stand for \
             folders, HEX for a fingerprint:\n\n```\n";
    let known = study.scenarios.iter().flat_map(|result| &result.tools);
    let mut seen: Vec<&str> = Vec::new();
    for tool in known.filter(|tool| !tool.command.is_empty()) {
        if !seen.contains(&tool.name.as_str()) {
            seen.push(&tool.name);
            let _ = writeln!(text, "{}", tool.command);
        }
    }
    let installed = study.versions.iter().filter(|(_, version)| version != "not installed");
    let versions: Vec<String> =
        installed.map(|(name, version)| format!("{name}: {version}")).collect();
    text + &format!("```\n\nVersions: {}.\n\n", versions.join("; "))
}

/// Returns cells as a table in Markdown; the best tools of a row in bold.
fn markdown(cells: &[&ScenarioResult]) -> String {
    if cells.is_empty() {
        return "Not measured.\n\n".to_owned();
    }
    let names = tools_of(cells);
    let mut text = format!("| | files | bound | {} |\n|", names.join(" | "));
    text += &" --- |".repeat(names.len() + 3);
    text.push('\n');
    for cell in cells {
        let name = cell.name.replace("mdtm-third-party-", "").replace("mdtm-", "");
        let name = name.replacen("ds", "DS", 1).replacen('-', ", ", 1).replace("ms", " ms");
        let _ = write!(text, "| {name} | {} | {:.2} |", cell.title, cell.bound_s);
        for tool in &names {
            let standing = Standing::of(cell, tool);
            let is_best = standing.ratio().is_some_and(|ratio| ratio < 1.005);
            let mark = if is_best { "**" } else { "" };
            let _ = write!(text, " {mark}{}{mark} |", standing.text());
        }
        text.push('\n');
    }
    text + "\n"
}

/// Returns what one file was copied at, published and measured.
fn rates(cells: &[&ScenarioResult]) -> String {
    let mut names = vec!["ftp", "http", "gridftp", "UDT", "bittorrent"];
    names.extend(tools_of(cells));
    let names = each_once(names);
    let mut text = format!("| | {} |\n|{}\n", names.join(" | "), " --- |".repeat(names.len() + 1));
    for row in &published::RADIOASTRON {
        let values = names.iter().map(|name| {
            let known = row.values.iter().find(|(tool, _)| tool == name);
            known.map_or("–", |(_, value)| *value)
        });
        let _ = writeln!(text, "| {} | {} |", row.what, values.collect::<Vec<_>>().join(" | "));
    }
    for cell in cells {
        let rtt = cell.name.trim_start_matches("radioastron-").trim_end_matches("ms");
        let _ = write!(text, "| measured: {rtt} ms, {} |", cell.title);
        for name in &names {
            let tool = cell.tools.iter().find(|tool| tool.name == *name);
            let rates = tool.into_iter().flat_map(ToolResult::good);
            let rates = rates.map(|run| cell.size_bytes as f64 * 8.0 / run.elapsed_s / 1e6);
            let _ = match Interval::of(rates) {
                Some(Interval { mean, half: Some(half) }) => {
                    write!(text, " {mean:.0} ± {half:.0} |")
                }
                Some(Interval { mean, half: None }) => write!(text, " {mean:.0} |"),
                // It was stopped: its rate is below this.
                None => match tool.and_then(|tool| tool.runs.iter().find(|run| run.is_stopped)) {
                    Some(run) => {
                        write!(
                            text,
                            " < {:.0} |",
                            cell.size_bytes as f64 * 8.0 / run.elapsed_s / 1e6
                        )
                    }
                    None => write!(text, " – |"),
                },
            };
        }
        text.push('\n');
    }
    text + "\n"
}

/// Returns published values as a table in Markdown.
fn published_table(rows: &[Published]) -> String {
    let mut text = "| published | |\n| --- | --- |\n".to_owned();
    for row in rows {
        let values: Vec<String> =
            row.values.iter().map(|(tool, value)| format!("{tool} {value}")).collect();
        let _ = writeln!(text, "| {} | {} |", row.what, values.join(", "));
    }
    text + "\n"
}

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
    let _ = writeln!(text, "encrypted: {}", encrypted());
    for line in remarks(study) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Returns a cell in one line.
pub fn line(result: &ScenarioResult) -> String {
    let tools = result.tools.iter().map(|tool| &tool.name);
    let each = tools.map(|name| format!("{name} {}", Standing::of(result, name).text()));
    format!("{}: {}", result.name, each.collect::<Vec<_>>().join(", "))
}

/// Returns the names of the tools that encrypt.
fn encrypted() -> String {
    let tools = Tool::STUDY.iter().filter(|tool| tool.settings().1 != "no");
    tools.map(|tool| tool.name()).collect::<Vec<_>>().join(", ")
}

/// Returns the cells of each table of tools: of the study and of mdtmFTP, of two servers, of Radioastron.
pub fn groups(study: &Study) -> Vec<Vec<&ScenarioResult>> {
    let begins = |prefix| move |result: &&ScenarioResult| result.name.starts_with(prefix);
    let (two, rest): (Vec<_>, Vec<_>) = study.scenarios.iter().partition(begins(BETWEEN));
    let (radioastron, one): (Vec<_>, Vec<_>) = rest.into_iter().partition(begins(RADIOASTRON));
    [one, two, radioastron].into_iter().filter(|group| !group.is_empty()).collect()
}

/// Returns the names of the tools that take part in some of the cells, in their order.
pub fn tools_of<'a>(cells: &[&'a ScenarioResult]) -> Vec<&'a str> {
    let named = cells.iter().flat_map(|cell| {
        let skipped = cell.skipped.iter().map(|(name, _)| name.as_str());
        cell.tools.iter().map(|tool| tool.name.as_str()).chain(skipped)
    });
    each_once(named)
}

/// Returns what failed, was stopped although it had succeeded, or did not take part, and why. (Who was
/// only stopped is in the table.)
pub fn remarks(study: &Study) -> Vec<String> {
    let mut lines = Vec::new();
    for result in &study.scenarios {
        for tool in &result.tools {
            let failed = tool.runs.iter().filter(|run| run.failure.is_some() && !run.is_stopped);
            if let Some(last) = failed.clone().next_back() {
                let (name, why) = (&tool.name, last.failure.as_deref().unwrap_or_default());
                let (count, all) = (failed.count(), tool.runs.len());
                lines.push(format!(
                    "{}: {name} failed in {count} of {all} runs: {why}",
                    result.name
                ));
            }
        }
    }
    for result in &study.scenarios {
        for tool in result.tools.iter().filter(|tool| tool.good().next().is_some()) {
            if let Some(run) = tool.runs.iter().find(|run| run.is_stopped) {
                lines.push(format!(
                    "{}: {}: its mean leaves out a run that was {}",
                    result.name,
                    tool.name,
                    run.failure.as_deref().unwrap_or("stopped"),
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

/// How to repeat it.
const AGAIN: &str = "\
## Repeat it

```sh
swath study --datasets ds1,ds6 --rtt 60 --tools swath,rsync   # a part of it, in minutes
swath study                                                   # all of it, in hours
```

As root, in a copy of swath's source; `swath study` starts `bench/study` there. It installs the tools \
with apt-get where it may, but not syq (`cargo install syq`). Nothing else should run meanwhile. Every run is kept, so the same command goes \
on where it was stopped.

| option | meaning |
| --- | --- |
| `--datasets` | some of ds1 to ds6, mdtm, mdtm-third-party, radioastron |
| `--rtt` | round-trip times of ds1 to ds6, in ms |
| `--tools` | some of the tools |
| `--size` | total size of each dataset (1GB); as published: 10GB |
| `--runs` | runs of each tool (5) |
| `-o`, `--output` | the folder with measurements, tables and pictures (`study`) |
| `--scratch` | the folder that holds the files meanwhile (`/dev/shm`: in memory) |
| `--fresh` | forgets earlier measurements |

";

/// What the table of predictions has.
const PREDICTABILITY: &str = "\
## Predictability

How well can a time be predicted from round-trip time, number of files and their size? The study gives \
the training errors of three regressions (its Table IV): how well they fit the very times that they were \
made from, as mean relative errors. *Held out* is what matters for planning: each cell is predicted from \
all other cells. Errors stand for linear / polynomial / nearest neighbours (two of them); polynomials have \
as high a degree as the values allow, so they may fit exactly what they cannot predict. Last, [swath's \
forecasts](forecasts.md) from the runs of the other cells. They know places, \
not distances: where only the distance differs, as in case 2, a line over it can be better.

";
/// The study and where it was published.
const STUDY: &str = "\"Comparative Performance Evaluation of High-performance Data Transfer Tools\", IEEE ANTS 2018";
/// How the names of cells begin in which a third site orders a copy between two servers.
const BETWEEN: &str = "mdtm-third-party";
/// How the names of the cells of the Radioastron paper begin.
pub const RADIOASTRON: &str = "radioastron";
const PUBLISHED_BYTES: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::results::Run;

    fn study() -> Study {
        let run = |elapsed_s: f64| Run { elapsed_s, ..Run::default() };
        let stopped =
            Run { failure: Some("stopped after 40 s".to_owned()), is_stopped: true, ..run(40.0) };
        let broken = Run { failure: Some("exit code 1: no route".to_owned()), ..run(0.1) };
        let tool = |name: &str, runs| ToolResult { name: name.into(), command: "".into(), runs };
        let cell = |name: &str, title: &str| ScenarioResult {
            name: name.to_owned(),
            title: title.to_owned(),
            size_bytes: 1_000_000_000,
            bound_s: 8.287,
            bound_is: String::new(),
            tools: vec![
                tool("swath", vec![run(8.0), run(8.0)]),
                tool("rsync", vec![run(12.0)]),
                tool("slow", vec![stopped.clone()]),
                tool("broken", vec![broken.clone()]),
            ],
            skipped: vec![(
                "syq".to_owned(),
                "syq is not installed (cargo install syq)".to_owned(),
            )],
            goals: Vec::new(),
        };
        Study {
            name: "study".to_owned(),
            machine: Machine::here(),
            command: "bench/study".to_owned(),
            versions: Vec::new(),
            scenarios: vec![cell("ds1-15ms", "1 × 1 GB"), cell("mdtm-third-party-large", "1 file")],
        }
    }

    #[test]
    fn a_table_has_a_row_for_each_cell_and_hides_nothing() {
        let text = table(&study());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            [
                "          dataset   bound s                 swath         rsync   slow  broken  syq",
                "ds1-15ms  1 × 1 GB     8.29  8.00 ± < 0.01 (1.00)  12.00 (1.50)  ≥ 5 ×  failed    –",
            ]
        );
        assert!(text.contains("ds1-15ms: broken failed in 1 of 1 runs: exit code 1: no route\n"));
        assert_eq!(text.matches("syq skipped: syq is not installed").count(), 1);
    }

    #[test]
    fn the_report_names_datasets_that_are_the_same() {
        let text = report(&study(), "study.svg");
        assert!(text.contains("| DS1 | 1 × 10 GB | 1 × 1 GB |"), "{text}");
        assert!(text.contains("| DS2 | 10 × 1 GB | 1 × 1 GB: the same as DS1 |"), "{text}");
        assert!(
            text.contains("| DS1, 15 ms | 1 × 1 GB | 8.29 | **8.00 ± < 0.01 (1.00)** |"),
            "{text}"
        );
        assert!(text.contains("![Time over that of the best tool](study.svg)"));
    }

    #[test]
    fn a_picture_shows_every_tool_that_ran() {
        let svg = draw(&study());
        for shown in [">15 ms<", ">1.5<", ">≥5<", ">DS1<", "95 ms, between two servers"] {
            assert!(svg.contains(shown), "{shown} is missing");
        }
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}
