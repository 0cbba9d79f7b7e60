//! How much there is to fetch, before anything is fetched.

use std::sync::Mutex;
use std::time::Duration;

use swath_source::{Net, probe};
use swath_transfer::observe::Event;
use swath_transfer::{Destination, GetError, Mirror, Overwrite, Range, Request};
use tokio::task::JoinSet;

use super::inputs::Inputs;
use super::many::{FileList, Refused, path_of, take};
use super::names::TakenNames;
use super::{GetJob, begin, one};
use crate::error::{EntryError, JobError};
use crate::event::JobEvent;
use crate::forecast::Size;
use crate::kept::KeptData;
use crate::run::Job;
use crate::spec::GetSpec;

/// Returns how much a job would fetch, and asks only as much of its servers as that takes.
pub async fn size(job: &Job<'_>, get: &GetSpec) -> Result<Size, JobError> {
    let digests = get.digests.clone();
    let mut get_job = GetJob { digests, only_asks: true, ..GetJob::of(job, get) };
    tokio::select! {
        biased;
        () = job.control.cancelled() => Err(JobError::Stopped),
        size = size_of(&mut get_job) => size,
    }
}

async fn size_of(get_job: &mut GetJob<'_>) -> Result<Size, JobError> {
    let mut inputs = begin(get_job).await?;
    loop {
        let request = match inputs {
            Inputs::One(request) | Inputs::Torrent(request, _) => request,
            Inputs::List(list) => return Ok(of_list(get_job, list).await),
        };
        match of_one(get_job, *request).await {
            Ok(size) => return Ok(size),
            Err((GetError::Metalink { url }, request)) => {
                inputs = one::with_metalink(get_job, request.mirrors, &url).await?;
            }
            Err((error, request)) => {
                let (name, error) = (request.destination_name(), Box::new(error));
                return Err(JobError::Transfer { name, error, kept: KeptData::default() });
            }
        }
    }
}

/// Returns the size of one file; an error comes with its request.
async fn of_one(get_job: &GetJob<'_>, request: Request) -> Result<Size, (GetError, Request)> {
    let files = match &request.destination {
        Destination::Files { files, .. } => files.len() as u64,
        _ => 1,
    };
    let has_sources = !request.mirrors.is_empty() || !request.sources.is_empty();
    let (size_bytes, sources) = match request.size_bytes {
        Some(size_bytes) if !has_sources => (size_bytes, Vec::new()),
        known => {
            let asked = request.sample_of(Range::of_len(0, 1));
            let sample = get_job.job.sample(asked, Duration::MAX).await;
            match (sample.summary, sample.result) {
                (Some(summary), result) if result.is_ok() || summary.size_bytes > 0 => {
                    (known.unwrap_or(summary.size_bytes), sample.sources)
                }
                (_, Err(error)) => return Err((error, request)),
                (_, Ok(summary)) => (summary.size_bytes, sample.sources),
            }
        }
    };
    let bytes = left_bytes(size_bytes, &request);
    let sample = has_sources.then(|| Box::new(request));
    Ok(Size { bytes, files, unknown_files: 0, sources, sample })
}

/// Returns how much of a file is still to fetch.
fn left_bytes(size_bytes: u64, request: &Request) -> u64 {
    match &request.destination {
        Destination::File(path) if request.overwrite == Overwrite::Never && path.is_file() => 0,
        Destination::File(path) if request.resume => {
            size_bytes.saturating_sub(swath_store::kept_bytes(path))
        }
        _ => size_bytes,
    }
}

/// Returns how much of a list is to fetch, by asking for the size of each of its files.
async fn of_list(get_job: &GetJob<'_>, list: FileList) -> Size {
    let Job { engine, observer, .. } = get_job.job;
    let mut entries = list.entries;
    let mut asking = JoinSet::new();
    let names: Mutex<TakenNames> = Mutex::default();
    let mut size = Size::default();
    let mut largest = 0;
    loop {
        while asking.len() < ASKED_AT_ONCE
            && let Some(entry) = entries.recv().await
        {
            let request =
                entry.request.map_err(|Refused { name, error }| (name, error.to_string()));
            let request = match request {
                Ok(request) if entry.asks_name => Ok(request),
                Ok(request) => match take(&names, path_of(&request)).await {
                    Ok(()) => Ok(request),
                    Err(conflict) => {
                        Err((request.destination_name(), EntryError::from(conflict).to_string()))
                    }
                },
                Err(refused) => Err(refused),
            };
            let net = engine.net().clone();
            asking.spawn(async move {
                let request = request?;
                let bytes = match request.size_bytes {
                    Some(bytes) => bytes,
                    None => first_size(&net, &request.mirrors)
                        .await
                        .map_err(|why| (request.destination_name(), why))?,
                };
                Ok::<_, (String, String)>((bytes, request))
            });
        }
        let Some(asked) = asking.join_next().await else { break };
        match asked {
            Ok(Ok((bytes, request))) => {
                let bytes = left_bytes(bytes, &request);
                size.files += u64::from(bytes > 0);
                size.bytes = size.bytes.saturating_add(bytes);
                size.add_sources(request.mirrors.iter().map(|mirror| mirror.url.to_string()));
                if bytes > largest {
                    (largest, size.sample) = (bytes, Some(Box::new(request)));
                }
            }
            Ok(Err((name, why))) => {
                size.unknown_files += 1;
                if size.unknown_files <= TOLD_MAX {
                    let note = Event::note(0.0, format!("{name}: {why}"), true);
                    observer.observe(JobEvent::Transfer(note));
                }
            }
            Err(_) => size.unknown_files += 1,
        }
    }
    size
}

/// Asks one mirror after the other for the size; fails with the reason of the last.
async fn first_size(net: &Net, mirrors: &[Mirror]) -> Result<u64, String> {
    let mut why = "no server reports its size".to_owned();
    for mirror in mirrors {
        match probe(net, &mirror.url, mirror.trust).await {
            Ok(report) => match report.facts.size_bytes {
                Some(bytes) => return Ok(bytes),
                None => continue,
            },
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// Files of a list that are asked for at the same time.
const ASKED_AT_ONCE: usize = 16;
/// The reason is shown for at most so many files of unknown size: a list may have a million.
const TOLD_MAX: u64 = 10;
