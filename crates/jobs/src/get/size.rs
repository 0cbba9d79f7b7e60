//! How much there is to fetch, before anything is fetched.

use std::path::Path;
use std::time::Duration;

use swath_source::{Net, probe};
use swath_transfer::{Destination, GetError, Mirror, Overwrite, Range, Request};
use tokio::task::JoinSet;

use super::inputs::Inputs;
use super::many::FileList;
use super::{GetJob, begin, one};
use crate::error::JobError;
use crate::forecast::Size;
use crate::kept::KeptData;
use crate::run::Job;
use crate::spec::GetSpec;

/// Returns how much a job would fetch, and asks only as much of its servers as that takes.
pub async fn size(job: &Job<'_>, get: &GetSpec) -> Result<Size, JobError> {
    let digests = get.digests.clone();
    let mut get_job = GetJob { job, get, cluster_token: None, digests, only_asks: true };
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
    let (files, there_bytes) = match &request.destination {
        Destination::File(path) => (1, there_bytes(path, &request)),
        Destination::Files { files, .. } => (files.len() as u64, Some(0)),
        _ => (1, Some(0)),
    };
    let has_sources = !request.mirrors.is_empty() || !request.sources.is_empty();
    let job @ Job { engine, control, .. } = get_job.job;
    let (size_bytes, sources) = match request.size_bytes {
        Some(size_bytes) if !has_sources => (size_bytes, Vec::new()),
        known => {
            let asked = request.sample_of(Range::of_len(0, 1));
            let sample = {
                engine
                    .sample(asked, Duration::MAX, &mut job.transfer_observer(), &control.stop())
                    .await
            };
            match (sample.summary, sample.result) {
                (Some(summary), result) if result.is_ok() || summary.size_bytes > 0 => {
                    (known.unwrap_or(summary.size_bytes), sample.sources)
                }
                (_, Err(error)) => return Err((error, request)),
                (_, Ok(summary)) => (summary.size_bytes, sample.sources),
            }
        }
    };
    let bytes = match there_bytes {
        Some(there_bytes) => size_bytes.saturating_sub(there_bytes),
        None => 0,
    };
    let sample = has_sources.then(|| Box::new(request));
    Ok(Size { bytes, files, unknown_files: 0, sources, sample })
}

/// Returns what an earlier run left of a file, or `None` if the file is there.
fn there_bytes(path: &Path, request: &Request) -> Option<u64> {
    if request.overwrite == Overwrite::Never && path.exists() {
        return None;
    }
    Some(if request.resume { swath_store::kept_bytes(path) } else { 0 })
}

/// Returns the size of a list, by asking for the size of each of its files.
async fn of_list(get_job: &GetJob<'_>, list: FileList) -> Size {
    let mut entries = list.entries;
    let mut asking = JoinSet::new();
    let mut size = Size::default();
    let mut largest = 0;
    loop {
        while asking.len() < ASKED_AT_ONCE
            && let Some(entry) = entries.recv().await
        {
            let net = get_job.job.engine.net().clone();
            asking.spawn(async move {
                let request = entry.request.ok()?;
                let bytes = match request.size_bytes {
                    Some(bytes) => bytes,
                    None => first_size(&net, &request.mirrors).await?,
                };
                Some((bytes, request))
            });
        }
        let Some(asked) = asking.join_next().await else { break };
        let Ok(Some((bytes, request))) = asked else {
            size.unknown_files += 1;
            continue;
        };
        size.files += 1;
        size.bytes = size.bytes.saturating_add(bytes);
        size.add_sources(request.mirrors.iter().map(|mirror| mirror.url.to_string()));
        if bytes >= largest {
            (largest, size.sample) = (bytes, Some(Box::new(request)));
        }
    }
    size
}

async fn first_size(net: &Net, mirrors: &[Mirror]) -> Option<u64> {
    for mirror in mirrors {
        if let Ok(report) = probe(net, &mirror.url, mirror.trust).await
            && let Some(bytes) = report.facts.size_bytes
        {
            return Some(bytes);
        }
    }
    None
}

/// Files of a list that are asked for at the same time.
const ASKED_AT_ONCE: usize = 16;
