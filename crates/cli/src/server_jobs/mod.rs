//! `swath attach`, `swath cancel`, `swath jobs`: copies that a server carries out.

pub mod args;

use serde_json::json;
use swath_formats::http_date;
use swath_jobs::copy::{self, CopyKind};
use swath_jobs::{Address, parse_url};
use swath_model::path::visible;
use swath_model::units;
use swath_source::{LaneError, Net, display_name};
use swath_transfer::third_party::{ServerJob, ServerJobState};
use url::Url;

use crate::args::Transfer;
use crate::cp::{self, args::Cp};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{hints, net, say};
use args::{JobAt, ServerJobs};

/// Runs `swath attach`.
pub async fn attach(JobAt { job, at }: JobAt, transfer: Transfer) -> Result<Exit, Failure> {
    let kind = CopyKind::Attach { job, at: Address::new(&at) };
    Ok(cp::follow(Cp::bare(at, transfer), kind).await)
}

/// Runs `swath cancel`.
pub async fn cancel(JobAt { job, at }: JobAt, options: crate::args::Net) -> Result<Exit, Failure> {
    let (net, url) = reach(&options, &at)?;
    match copy::cancel(&net, &job, &url).await {
        Ok(()) => {
            say::err(&format!("cancelled {job}@{}; what has arrived is kept", display_name(&url)));
            Ok(Exit::Done)
        }
        Err(error) => Err(refused(&url, &error)),
    }
}

/// Runs `swath jobs`.
pub async fn list(list: ServerJobs) -> Result<Exit, Failure> {
    let (net, url) = reach(&list.net, &list.server)?;
    let jobs = copy::list(&net, &url).await.map_err(|error| refused(&url, &error))?;
    let lines: String = jobs.iter().map(|job| line(job, list.json)).collect();
    Ok(say::out(lines.as_bytes(), Exit::Done))
}

fn line(job: &ServerJob, is_json: bool) -> String {
    let part = job.part();
    let ServerJob { job, to, from, state, ordered_s, ended_s, done_bytes, size_bytes, error } = job;
    if is_json {
        let percent = part.map(|part| (part * 1e3).floor() / 10.0);
        let line = json!({
            "job": job, "to": to, "from": from, "state": state, "ordered_s": ordered_s,
            "ended_s": ended_s, "done_bytes": done_bytes, "size_bytes": size_bytes,
            "percent": percent, "error": error,
        });
        return format!("{line}\n");
    }
    let word = match state {
        ServerJobState::Waiting => "waiting",
        ServerJobState::NoToken => "no-token",
        ServerJobState::Running => "running",
        ServerJobState::Done => "done",
        ServerJobState::Failed => "failed",
        ServerJobState::Cancelled => "cancelled",
    };
    let ordered = i64::try_from(*ordered_s).ok().and_then(http_date::write_plain);
    let mut line =
        format!("{job}  {word:<9}  {} UTC  {}", ordered.unwrap_or_default(), visible(to));
    if !from.is_empty() {
        line.push_str(&format!("  from {}", visible(&from.join(", "))));
    }
    match (done_bytes, size_bytes) {
        (Some(done), Some(size)) if done != size => {
            let percent = units::percent_done(*done, *size);
            let (done, size) = (units::bytes(*done), units::bytes(*size));
            line.push_str(&format!("  {done} of {size}, {percent}"));
        }
        (Some(done), _) => line.push_str(&format!("  {}", units::bytes(*done))),
        (None, _) => {}
    }
    if let Some(error) = error {
        line.push_str(&format!("  {}", visible(error)));
    }
    line + "\n"
}

fn reach(options: &crate::args::Net, at: &str) -> Result<(Net, Url), Failure> {
    let url = parse_url(at).map_err(|error| Failure::usage(error.to_string()))?;
    let net = Net::new(net::options(options)?);
    Ok((net.map_err(|error| Failure::input(error.to_string()))?, url))
}

fn refused(url: &Url, error: &LaneError) -> Failure {
    let is_refusal = error.code().is_some_and(|code| (400..500).contains(&code));
    let exit = if is_refusal { Exit::Target } else { Exit::Sources };
    Failure::new(exit, format!("{}: {error}", display_name(url))).hints(hints::of_trust(error))
}
