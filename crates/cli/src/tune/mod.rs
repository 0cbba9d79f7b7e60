//! `swath tune`: how many connections pay, measured or remembered.

pub mod args;

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use swath_jobs::{Address, Control, JobError, JobSpec, Jobs, SiteBegin, Trial, Tuned, begins};
use swath_model::path::visible;
use swath_transfer::Stop;

use crate::exit::{Exit, chain, fail, warn};
use crate::failure::Failure;
use crate::progress::units;
use crate::routes::ago;
use crate::{get, notes, remember, say, signals};
use args::Tune;

/// Runs the command.
pub async fn run(args: Tune) -> Result<Exit, Failure> {
    match &args.source {
        Some(source) => measure(&args, source).await,
        None => Ok(show(&args)),
    }
}

async fn measure(args: &Tune, address: &str) -> Result<Exit, Failure> {
    let source = Address::new(address);
    if source.is_folder() {
        return Err(Failure::usage("SRC is a folder; name a file in it"));
    }
    let (environment, network) = crate::net::environment(&args.net)?;
    let like = JobSpec { network, ..JobSpec::get([address], ".") };
    let stop = Stop::default();
    signals::watch(&stop);
    let control = Control::from(stop);
    let observer = notes::observer();
    let mut has_head = args.json;
    let tell = |trial: &Trial| {
        if !std::mem::replace(&mut has_head, true) {
            say::out(HEAD.as_bytes(), Exit::Done);
        }
        let text = if args.json { json(&Line::of(trial)) } else { line(trial) };
        say::out(text.as_bytes(), Exit::Done);
    };
    let jobs = Jobs::new(environment);
    let tuned = jobs.tune(&source, &like, args.budget, &observer, &control, tell).await;
    let Tuned { site, trials, best, not_kept } = match tuned {
        Ok(tuned) => tuned,
        Err(JobError::Transfer { name, error, kept }) => {
            return Ok(get::words::failed(&name, &error, kept));
        }
        Err(JobError::Stopped) => {
            return Err(Failure::new(Exit::Interrupted, "stopped; nothing was found out"));
        }
        Err(error) => return Err(Failure::from(error)),
    };
    if let Some(error) = &not_kept {
        warn(&format!("what was found is not remembered: {}", chain(error)));
    }
    let used = units::bytes(trials.iter().map(|trial| trial.bytes).sum());
    let best_connections = best.map(|best| best.connections);
    let found = match (best_connections.map(connections), remember::history(), &not_kept) {
        (None, ..) => {
            "too short to tell, so nothing is remembered: try a larger file or --budget".to_owned()
        }
        (Some(begin), Some(_), None) => {
            format!("transfers from {} begin with {begin} for a week", visible(&site))
        }
        (Some(begin), ..) => format!("{begin} pay at {}", visible(&site)),
    };
    let text = match args.json {
        true => json(&Best { site, best_connections }),
        false => format!("{found}; {used} fetched\n"),
    };
    Ok(say::out(text.as_bytes(), Exit::Done))
}

/// Shows what transfers begin with.
fn show(args: &Tune) -> Exit {
    let Some(path) = remember::history() else {
        return say::out(
            b"no history: SWATH_STATE is off, or there is no home folder\n",
            Exit::Done,
        );
    };
    let all = match crate::history::read(path) {
        Ok(all) => all,
        Err(error) => return fail(Exit::Input, &chain(&error)),
    };
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let sites = begins(&all, now_s);
    if args.json {
        let lines: String = sites.iter().map(|site| json(&Begins::of(site))).collect();
        return say::out(lines.as_bytes(), Exit::Done);
    }
    if sites.is_empty() {
        let text = "nothing is known yet: transfers of at least 3 seconds from one server tell, or 'swath tune SRC'\n";
        return say::out(text.as_bytes(), Exit::Done);
    }
    let mut rows = vec![["FROM", "BEGIN WITH", "BECAUSE"].map(str::to_owned).to_vec()];
    for SiteBegin { site, connections: count, rate_bytes_per_s, at_s } in &sites {
        let rate = units::rate(*rate_bytes_per_s);
        rows.push(vec![
            visible(site),
            connections(*count),
            format!("{rate} {}, the fastest of the last transfers", ago((now_s - at_s).max(0.0))),
        ]);
    }
    let text: String = say::columns(&rows, &[]).iter().map(|line| format!("{line}\n")).collect();
    say::out(text.as_bytes(), Exit::Done)
}

fn connections(count: u32) -> String {
    units::counted(u64::from(count), "connection")
}

fn line(trial: &Trial) -> String {
    let Trial { connections, rate_bytes_per_s, bytes, took_s } = trial;
    let (rate, size) = (units::rate(*rate_bytes_per_s), units::bytes(*bytes));
    format!("{connections:>11}  {rate:>10}  {size} in {}\n", units::duration(*took_s))
}

fn json(line: &impl Serialize) -> String {
    serde_json::to_string(line).map_or_else(|_| String::new(), |line| line + "\n")
}

/// A trial, for programs.
#[derive(Serialize)]
struct Line {
    connections: u32,
    rate_bytes_per_s: f64,
    bytes: u64,
    took_s: f64,
}

impl Line {
    fn of(trial: &Trial) -> Line {
        let &Trial { connections, rate_bytes_per_s, bytes, took_s } = trial;
        Line { connections, rate_bytes_per_s, bytes, took_s }
    }
}

/// What was found, for programs.
#[derive(Serialize)]
struct Best {
    site: String,
    best_connections: Option<u32>,
}

/// What transfers begin with, for programs.
#[derive(Serialize)]
struct Begins<'a> {
    site: &'a str,
    connections: u32,
    rate_bytes_per_s: f64,
    at: f64,
}

impl Begins<'_> {
    fn of(begin: &SiteBegin) -> Begins<'_> {
        let SiteBegin { site, connections, rate_bytes_per_s, at_s } = begin;
        Begins { site, connections: *connections, rate_bytes_per_s: *rate_bytes_per_s, at: *at_s }
    }
}

const HEAD: &str = "connections        rate  measured\n";
