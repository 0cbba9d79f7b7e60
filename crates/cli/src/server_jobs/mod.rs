//! `swath attach`, `swath cancel`, `swath jobs`: copies that a server carries out.

pub mod args;

use serde_json::json;
use swath_formats::http_date;
use swath_jobs::copy::{self, CopyKind};
use swath_jobs::{Address, parse_url};
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
    let ServerJob { job, to, state, ordered_s, ended_s } = job;
    if is_json {
        let line = json!({"job": job, "to": to, "state": state, "ordered_s": ordered_s, "ended_s": ended_s});
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
    let to = swath_model::path::visible(to);
    let ordered = i64::try_from(*ordered_s).ok().and_then(http_date::write_plain);
    format!("{job}  {word:<9}  {} UTC  {to}\n", ordered.unwrap_or_default())
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
