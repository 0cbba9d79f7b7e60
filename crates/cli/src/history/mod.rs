//! `swath history`: shows past transfers and what was predicted for them, imports logs, forgets.

pub mod args;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use swath_formats::transfer_log::{LogPlace, csv_cell};
use swath_jobs::{ImportError, ImportedLog, import_log, is_tuned};
use swath_model::path::visible;
use swath_report::history::{Past, svg};
use swath_state::{Ended, KeepError, PastTransfer, Range, TRANSFERS_MAX, Transfer, is_site};
use swath_transfer::observe::Eta;

use crate::exit::{Exit, chain, fail, warn};
use crate::progress::units;
use crate::routes::{ago, named};
use crate::{remember, say};
use args::{Forget, History, HistoryCommand, Import};

/// Runs the command.
pub fn run(args: &History) -> Exit {
    let Some(path) = remember::history() else {
        let none = "no history: SWATH_STATE is off, or there is no home folder";
        return match &args.command {
            Some(HistoryCommand::Import(_)) => fail(Exit::Target, none),
            _ => say::out(format!("{none}\n").as_bytes(), Exit::Done),
        };
    };
    match &args.command {
        Some(HistoryCommand::Import(import)) => run_import(path, import),
        Some(HistoryCommand::Forget(forget)) => run_forget(path, forget),
        None => show(path, args),
    }
}

fn show(path: PathBuf, args: &History) -> Exit {
    let all = match read(path) {
        Ok(all) => all,
        Err(error) => return fail(Exit::Input, &chain(&error)),
    };
    let site = args.site.as_deref().map(named);
    let is_wanted = |past: &&PastTransfer| {
        site.as_ref().is_none_or(|site| {
            let Transfer { from, to, .. } = &past.transfer;
            from.split(' ').chain([to.as_str()]).any(|name| is_site(name, site))
        })
    };
    let wanted: Vec<&PastTransfer> = all.iter().filter(is_wanted).collect();
    if let Some(file) = &args.svg
        && let Err(error) = std::fs::write(file, picture(site.as_deref(), &wanted))
    {
        let file = visible(&file.display().to_string());
        return fail(Exit::Target, &format!("cannot write the picture to {file}: {error}"));
    }
    let for_programs = args.json || args.csv;
    let most = args.last.unwrap_or(if for_programs { usize::MAX } else { SHOWN });
    let shown = &wanted[wanted.len().saturating_sub(most)..];
    let text = match (args.json, args.csv) {
        (true, _) => shown.iter().map(|past| Line::of(past).json()).collect(),
        (_, true) => csv(shown),
        _ => table(shown, &wanted),
    };
    say::out(text.as_bytes(), Exit::Done)
}

/// Rows of a table, where nothing is said of their number.
const SHOWN: usize = 30;

/// Draws those that are complete.
fn picture(site: Option<&str>, wanted: &[&PastTransfer]) -> String {
    let drawn = wanted.iter().filter_map(|past| {
        let Transfer { begun_s, from, to, bytes, forecast, .. } = &past.transfer;
        let ended = past.ended.as_ref().filter(|ended| ended.is_complete)?;
        Some(Past {
            begun_s: *begun_s,
            took_s: ended.took_s,
            bytes: *bytes,
            forecast: forecast.map(eta_of),
            name: format!("{} to {}", name_of(from), name_of(to)),
        })
    });
    let heading = match site {
        Some(site) => format!("Transfers from and to {}", visible(site)),
        None => "All transfers".to_owned(),
    };
    svg(&heading, &drawn.collect::<Vec<_>>())
}

fn eta_of(range: Range) -> Eta {
    let Range { low_s, likely_s, high_s } = range;
    Eta { low_s, likely_s, high_s }
}

/// Reads the history; looking makes no file.
pub fn read(path: PathBuf) -> Result<Vec<PastTransfer>, KeepError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    swath_state::History::open(&path)?.all()
}

fn run_import(history: PathBuf, args: &Import) -> Exit {
    let mut all = Exit::Done;
    for file in &args.files {
        let name = visible(&file.display().to_string());
        let ImportedLog { imported, unusable, first_unusable, future } =
            match import_log(&history, file) {
                Ok(imported) => imported,
                Err(error) => {
                    let exit = match &error {
                        ImportError::Keep(_) => Exit::Target,
                        _ => Exit::Input,
                    };
                    all = fail(exit, &format!("{name}: {}", chain(&error)));
                    continue;
                }
            };
        let mut line = format!("{name}: {}", counted(imported.added, "transfer"));
        line.push_str(" imported");
        if imported.known > 0 {
            line.push_str(&format!(", {} known already", units::count(imported.known)));
        }
        if imported.older > 0 {
            let older = units::count(imported.older);
            let kept = units::count(TRANSFERS_MAX as u64);
            line.push_str(&format!(", {older} left out: older than the last {kept}"));
        }
        if future > 0 {
            line.push_str(&format!(", {} left out: in the future", units::count(future)));
        }
        say::out(format!("{line}\n").as_bytes(), Exit::Done);
        let is_of_use = imported.added + imported.known + imported.older > 0;
        if !is_of_use && unusable + future > 0 {
            all = Exit::Input;
        }
        if let Some(first) = first_unusable {
            let what = match first.place {
                LogPlace::Line(_) => "line",
                LogPlace::Record(_) => "record",
            };
            let lines = counted(unusable, what);
            warn(&format!("{name}: {lines} left out; the first: {first}"));
        }
    }
    all
}

/// As [`units::counted`], with commas: logs are long.
fn counted(count: u64, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {one}{plural}", units::count(count))
}

fn run_forget(path: PathBuf, args: &Forget) -> Exit {
    let sites: Vec<String> = args.sites.iter().map(|text| named(text)).collect();
    let nothing = || {
        let about = match sites.as_slice() {
            [] => String::new(),
            sites => format!(" about {}", visible(&sites.join(", "))),
        };
        say::out(format!("nothing is remembered{about}\n").as_bytes(), Exit::Done)
    };
    if !path.exists() {
        return nothing();
    }
    let sites = (!sites.is_empty()).then_some(sites.as_slice());
    match swath_state::History::open(&path).and_then(|history| history.forget(sites)) {
        Ok(0) => nothing(),
        Ok(gone) => {
            let line = format!("{} forgotten\n", units::counted(gone, "transfer"));
            say::out(line.as_bytes(), Exit::Done)
        }
        Err(error) => fail(Exit::Target, &format!("nothing was forgotten: {}", chain(&error))),
    }
}

/// A line for each transfer, and how good the forecasts of all of them were.
fn table(shown: &[&PastTransfer], all: &[&PastTransfer]) -> String {
    if all.is_empty() {
        return "no transfers are remembered\n".to_owned();
    }
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let dash = || "-".to_owned();
    let head = ["BEGUN", "", "FROM", "TO", "SIZE", "FILES", "TOOK", "PREDICTED", "ERROR"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for past in shown {
        let transfer = &past.transfer;
        let took = match &past.ended {
            None => "running".to_owned(),
            Some(ended) if !ended.is_complete => "incomplete".to_owned(),
            Some(ended) => units::duration(ended.took_s),
        };
        let predicted = transfer.forecast.map(|range| eta_of(range).to_string());
        rows.push(vec![
            ago((now_s - transfer.begun_s).max(0.0)),
            transfer.kind.clone(),
            name_of(&transfer.from),
            name_of(&transfer.to),
            units::bytes(transfer.bytes),
            units::count(transfer.files),
            took,
            predicted.unwrap_or_else(dash),
            error_of(past).map_or_else(dash, |error| match (100.0 * error).round() {
                0.0 => "0 %".to_owned(),
                percent => format!("{percent:+.0} %"),
            }),
        ]);
    }
    let mut text: String =
        say::columns(&rows, &[4, 5, 6, 8]).iter().map(|line| format!("{line}\n")).collect();
    if all.len() > shown.len() {
        let earlier = all.len() - shown.len();
        text.push_str(&format!("and {} before; see --last\n", units::count(earlier as u64)));
    }
    text.push_str(&scores(all));
    text
}

/// Sites as shown: at most two of many mirrors.
pub fn name_of(sites: &str) -> String {
    let names: Vec<&str> = sites.split(' ').collect();
    match names.as_slice() {
        [""] => "-".to_owned(),
        [first, second, rest @ ..] if !rest.is_empty() => {
            format!("{} {} and {} more", visible(first), visible(second), rest.len())
        }
        _ => visible(sites),
    }
}

/// How far off the forecast of a complete transfer was, as a part of what it took.
fn error_of(past: &PastTransfer) -> Option<f64> {
    let ended = past.ended.as_ref().filter(|ended| ended.is_complete)?;
    Some(past.transfer.forecast?.likely_s / ended.took_s - 1.0)
}

fn scores(all: &[&PastTransfer]) -> String {
    let mut errors: Vec<f64> = all.iter().filter_map(|past| error_of(past)).map(f64::abs).collect();
    if errors.is_empty() {
        return String::new();
    }
    errors.sort_by(f64::total_cmp);
    let middle = |at: usize| errors.get(at).copied().unwrap_or_default();
    let median = 50.0 * (middle((errors.len() - 1) / 2) + middle(errors.len() / 2));
    let is_inside = |past: &&&PastTransfer| match (&past.ended, past.transfer.forecast) {
        (Some(Ended { took_s, is_complete: true, .. }), Some(range)) => {
            (range.low_s..=range.high_s).contains(took_s)
        }
        _ => false,
    };
    let inside = 100.0 * all.iter().filter(is_inside).count() as f64 / errors.len() as f64;
    let count = units::counted(errors.len() as u64, "forecast");
    format!("{count}: median error {median:.0} %, {inside:.0} % within the range\n")
}

/// A transfer for programs. Members are only added.
#[derive(Serialize)]
struct Line<'a> {
    start: f64,
    duration: Option<f64>,
    bytes: u64,
    files: u64,
    from: &'a str,
    to: &'a str,
    kind: &'a str,
    limit_bytes_per_s: Option<u64>,
    complete: Option<bool>,
    moved_bytes: Option<u64>,
    predicted_s: Option<f64>,
    predicted_low_s: Option<f64>,
    predicted_high_s: Option<f64>,
    start_up_s: Option<f64>,
    tail_s: Option<f64>,
    rtt_s: Option<f64>,
    lanes: Option<u32>,
    sources: Option<u32>,
    routed: Option<u32>,
    beside: u32,
    beside_bytes: u64,
    imported: bool,
}

impl<'a> Line<'a> {
    fn of(past: &'a PastTransfer) -> Line<'a> {
        let (transfer, ended) = (&past.transfer, past.ended.as_ref());
        let forecast = transfer.forecast;
        let figures = ended.map(|ended| &ended.figures);
        Line {
            start: transfer.begun_s,
            duration: ended.map(|ended| ended.took_s),
            bytes: transfer.bytes,
            files: transfer.files,
            from: &transfer.from,
            to: &transfer.to,
            kind: &transfer.kind,
            limit_bytes_per_s: transfer.limit_bytes_per_s,
            complete: ended.map(|ended| ended.is_complete),
            moved_bytes: ended.map(|ended| ended.bytes),
            predicted_s: forecast.map(|range| range.likely_s),
            predicted_low_s: forecast.map(|range| range.low_s),
            predicted_high_s: forecast.map(|range| range.high_s),
            start_up_s: figures.and_then(|it| it.start_up_s),
            tail_s: figures.and_then(|it| it.tail_s),
            rtt_s: figures.and_then(|it| it.rtt_s),
            lanes: figures.and_then(|it| it.lanes),
            sources: figures.and_then(|it| it.sources),
            routed: figures.and_then(|it| it.routed),
            beside: past.beside,
            beside_bytes: past.beside_bytes,
            imported: past.is_imported,
        }
    }

    fn json(&self) -> String {
        serde_json::to_string(self).map(|line| format!("{line}\n")).unwrap_or_default()
    }
}

/// The complete transfers as CSV, which can be imported again.
fn csv(all: &[&PastTransfer]) -> String {
    let mut out = csv::Writer::from_writer(Vec::new());
    let is_complete = |past: &PastTransfer| past.ended.as_ref().is_some_and(|it| it.is_complete);
    for past in all.iter().filter(|past| is_complete(past) && !is_tuned(past)) {
        // Nothing fails that is written to memory.
        let line = Line::of(past);
        let [from, to, kind] = [line.from, line.to, line.kind].map(csv_cell);
        let _ = out.serialize(Line { from: &from, to: &to, kind: &kind, ..line });
    }
    let bytes = out.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
