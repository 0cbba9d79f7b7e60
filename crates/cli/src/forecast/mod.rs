//! `swath forecast`: how long a command would take, before anything moves.

pub mod args;

use std::io::{self, BufReader};
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use swath_jobs::{Control, JobError, JobForecast, JobSpec, Jobs, Streams};
use swath_transfer::Stop;
use swath_transfer::observe::LimitedBy;

use crate::exit::{Exit, fail};
use crate::failure::Failure;
use crate::progress::units;
use crate::{cp, get, notes, say, signals};
use args::{Forecast, ForecastCommand};

/// Runs the command.
pub async fn run(args: Forecast) -> Result<Exit, Failure> {
    let (jobs, specs, is_json, at) = match args.command {
        ForecastCommand::Get(it) => {
            let (spec, environment) = get::spec(&it.get)?;
            (Jobs::new(environment), vec![spec], it.get.transfer.json, it.begin.time())
        }
        ForecastCommand::Cp(it) => {
            let (jobs, specs) = cp::specs(&it.cp)?;
            (jobs, specs, it.cp.transfer.json, it.begin.time())
        }
    };
    let stop = Stop::default();
    signals::watch(&stop);
    for spec in &specs {
        let control = Control::from(stop.clone());
        match one(&jobs, spec, &control, at, is_json).await? {
            Exit::Done => {}
            exit => return Ok(exit),
        }
    }
    Ok(Exit::Done)
}

async fn one(
    jobs: &Jobs,
    spec: &JobSpec,
    control: &Control,
    at: Option<Timestamp>,
    is_json: bool,
) -> Result<Exit, Failure> {
    let streams = Streams {
        list: Some(Arc::new(|| Box::new(BufReader::new(io::stdin())))),
        output: Some(Arc::new(|| Box::new(tokio::io::sink()))),
    };
    let observer = notes::observer();
    let at_s = at.unwrap_or_else(Timestamp::now).as_millisecond() as f64 / 1e3;
    let forecast = match jobs.forecast(spec, &streams, &observer, control, at_s).await {
        Ok(forecast) => forecast,
        Err(JobError::Transfer { name, error, kept }) => {
            return Ok(get::words::failed(&name, &error, kept));
        }
        Err(JobError::Copy(error)) => return Err(cp::failure(*error)),
        Err(error) => return Err(Failure::from(error)),
    };
    if forecast.files == 0 && forecast.unknown_files > 0 {
        let files = units::counted(forecast.unknown_files, "file");
        let why = format!("nothing can be predicted: no server tells the size of {files}");
        return Ok(fail(Exit::Sources, &why));
    }
    let text = match is_json {
        true => json(&forecast, at_s),
        false => words(&forecast, at),
    };
    Ok(say::out(text.as_bytes(), Exit::Done))
}

/// For people.
fn words(forecast: &JobForecast, at: Option<Timestamp>) -> String {
    let files = units::counted(forecast.files, "file");
    let from = match forecast.from.as_str() {
        "" => String::new(),
        from => format!(", from {}", crate::history::name_of(from)),
    };
    let to = crate::history::name_of(&forecast.to);
    let mut text = format!("{} in {files}{from} to {to}\n", units::bytes(forecast.bytes));
    if forecast.unknown_files > 0 {
        let files = units::counted(forecast.unknown_files, "file");
        text.push_str(&format!("without {files} whose size no server tells\n"));
    }
    if forecast.bytes == 0 {
        text.push_str("nothing to transfer\n");
        return text;
    }
    if let Some(at) = at {
        let at = at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M (%Z)");
        text.push_str(&format!("if it begins at {at}: "));
    }
    let [low, likely, high] =
        [forecast.takes.low_s, forecast.takes.likely_s, forecast.takes.high_s].map(units::duration);
    text.push_str(&format!("between {low} and {high} (80 %), most likely {likely}"));
    let limited_by = forecast.limited_by.words();
    if !limited_by.is_empty() {
        text.push_str(&format!("; limited by {limited_by}"));
    }
    text.push_str(&format!("\n{}\n", basis(forecast)));
    if let Some(deadline) = &forecast.deadline {
        text.push_str(&format!("{}\n", notes::deadline(deadline)));
    }
    text
}

/// What a forecast is made from.
fn basis(forecast: &JobForecast) -> String {
    if forecast.outcomes > 0 {
        let transfers = units::counted(forecast.outcomes.into(), "past transfer");
        return format!("from {transfers} between these places");
    }
    let none = "no past transfer between these places is known";
    let fetched = forecast.sample.as_ref().and_then(|sample| {
        let fetched = sample.summary.as_ref()?.fetched_bytes;
        Some((fetched, sample.elapsed.as_secs_f64(), sample.rate_bytes_per_s?))
    });
    match fetched {
        Some((bytes, elapsed_s, rate)) => {
            let (bytes, elapsed) = (units::bytes(bytes), units::duration(elapsed_s));
            format!(
                "{none}; a sample of {bytes} took {elapsed}, at {} in the end",
                units::rate(rate)
            )
        }
        None => format!("{none}, and nothing was measured: this is a guess"),
    }
}

/// For programs. Members are only added.
#[derive(Serialize)]
struct Line<'a> {
    start: f64,
    bytes: u64,
    files: u64,
    files_of_unknown_size: u64,
    from: &'a str,
    to: &'a str,
    predicted_s: f64,
    predicted_low_s: f64,
    predicted_high_s: f64,
    past_transfers: u32,
    sampled_bytes: Option<u64>,
    sampled_rate_bytes_per_s: Option<f64>,
    limited_by: &'a LimitedBy,
    deadline_s: Option<f64>,
    deadline_chance: Option<f64>,
}

fn json(forecast: &JobForecast, at_s: f64) -> String {
    let sample = forecast.sample.as_ref();
    let line = Line {
        start: at_s,
        bytes: forecast.bytes,
        files: forecast.files,
        files_of_unknown_size: forecast.unknown_files,
        from: &forecast.from,
        to: &forecast.to,
        predicted_s: forecast.takes.likely_s,
        predicted_low_s: forecast.takes.low_s,
        predicted_high_s: forecast.takes.high_s,
        past_transfers: forecast.outcomes,
        sampled_bytes: sample.and_then(|it| Some(it.summary.as_ref()?.fetched_bytes)),
        sampled_rate_bytes_per_s: sample.and_then(|it| it.rate_bytes_per_s),
        limited_by: &forecast.limited_by,
        deadline_s: forecast.deadline.as_ref().map(|it| it.within_s),
        deadline_chance: forecast.deadline.as_ref().map(|it| it.chance),
    };
    serde_json::to_string(&line).map(|line| format!("{line}\n")).unwrap_or_default()
}
