//! Fetches Metalinks, reads them and turns them into requests.

use std::io::{BufRead, Cursor};
use std::time::Duration;

use swath_formats::metalink;
use swath_source::{Class, Document, display_name, fetch_small};
use swath_transfer::observe::DigestFrom;
use swath_transfer::{Request, Trust};
use tokio::time::{sleep, timeout};
use url::Url;

use super::GetJob;
use super::inputs::{Inputs, destination, read_ahead};
use super::many::{FileList, ListEntry, Refused};
use super::template::Template;
use crate::error::{JobError, MetalinkError, SpecError};
use crate::event::Note;
use crate::spec::GetTo;

/// How a Metalink was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetalinkOrigin {
    /// The user named it.
    Named,
    /// A server sent it instead of the file.
    Instead,
    /// A server named it in its answer with the file.
    Beside,
}

/// Fetches a Metalink from the first usable address.
pub async fn any_metalink_of(get_job: &GetJob<'_>, urls: &[Url]) -> Result<Inputs, JobError> {
    let mut last = None;
    for url in urls {
        match metalink_of(get_job, url, MetalinkOrigin::Named).await {
            Err(JobError::Metalink(error @ MetalinkError::Fetch { .. })) => {
                if let Some(error) = last.replace(error) {
                    get_job.note(Note::MetalinkElsewhere(error));
                }
            }
            other => return other,
        }
    }
    Err(last.map_or_else(|| SpecError::NoSource.into(), JobError::Metalink))
}

/// Fetches and reads a Metalink.
pub async fn metalink_of(
    get_job: &GetJob<'_>,
    url: &Url,
    origin: MetalinkOrigin,
) -> Result<Inputs, JobError> {
    let name = display_name(url);
    let document = match origin {
        // The user did not ask for it, and the file waits.
        MetalinkOrigin::Beside => {
            let asked = document_of(get_job, url, Trust::Discovered, 1);
            let limit_s = BESIDE_WITHIN.as_secs();
            timeout(BESIDE_WITHIN, asked)
                .await
                .unwrap_or_else(|_| Err(MetalinkError::Late { name: name.clone(), limit_s }))?
        }
        MetalinkOrigin::Named | MetalinkOrigin::Instead => {
            let trust =
                if origin == MetalinkOrigin::Named { Trust::Named } else { Trust::Discovered };
            let mut coming = std::pin::pin!(document_of(get_job, url, trust, METALINK_TRIES));
            match timeout(SILENCE_MAX, &mut coming).await {
                Ok(document) => document?,
                Err(_) => {
                    get_job.note(Note::WaitingForMetalink(name.clone()));
                    coming.await?
                }
            }
        }
    };
    let found = Some((document.final_url, origin));
    from_metalink(get_job, &name, Cursor::new(document.bytes), found)
}

async fn document_of(
    get_job: &GetJob<'_>,
    url: &Url,
    trust: Trust,
    tries_max: u32,
) -> Result<Document, MetalinkError> {
    let most = match trust {
        Trust::Discovered => METALINK_FOUND_BYTES_MAX,
        _ => METALINK_BYTES_MAX,
    };
    let net = get_job.job.engine.net();
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match fetch_small(net, url, trust, METALINK_WISHES, most).await {
            Ok(document) => return Ok(document),
            Err(error) => error,
        };
        let wait = match error.class() {
            Class::Transient => Some(Duration::from_millis(250) * tries),
            Class::Busy(wait) if wait <= BUSY_AT_MOST => Some(wait),
            _ => None,
        };
        match wait.filter(|_| tries < tries_max) {
            Some(wait) => sleep(wait).await,
            None => return Err(MetalinkError::Fetch { name: display_name(url), error }),
        }
    }
}

/// Reads the files of a Metalink; `found` is its address and origin, unless it is local.
pub fn from_metalink(
    get_job: &GetJob<'_>,
    name: &str,
    input: impl BufRead + Send + 'static,
    found: Option<(Url, MetalinkOrigin)>,
) -> Result<Inputs, JobError> {
    let named = || name.to_owned();
    let (base, origin) = found.unzip();
    let options = metalink::Options { base: base.clone(), ..metalink::Options::default() };
    let trust = if base.is_some() { Trust::Discovered } else { Trust::Listed };
    let metalink = metalink::parse_with(input, options)
        .map_err(|error| MetalinkError::Parse { name: named(), error })?;
    for (reason, count) in metalink.skipped_summary() {
        let count = count as u64;
        get_job.note(Note::MetalinkSkipped { name: named(), count, reason });
    }
    let mut files = metalink.files;
    let unusable: Vec<_> = files.iter().filter_map(metalink::File::unusable_pieces).collect();
    if let Some(&first) = unusable.first() {
        let (files, reason) = (unusable.len() as u64, first.clone());
        get_job.note(Note::MetalinkPieces { name: named(), files, reason });
    }
    let mut refused = metalink.refused.into_iter().map(|it| Refused {
        name: match it.name.as_str() {
            "" => format!("the file of line {}", it.line),
            _ => it.name,
        },
        error: it.why.into(),
    });
    if files.is_empty() {
        return Err(match refused.next() {
            Some(Refused { name: file, error }) => {
                MetalinkError::AllRefused { name: named(), file, error: Box::new(error) }
            }
            None => MetalinkError::Empty(named()),
        }
        .into());
    }
    let count = (files.len() + refused.len()) as u64;
    let mirrors: usize = files.iter().map(|file| file.mirrors.len()).sum();
    let mirrors = mirrors as u64;
    match origin {
        Some(MetalinkOrigin::Named | MetalinkOrigin::Instead) => {
            get_job.note(Note::Metalink { name: named(), files: count, mirrors });
        }
        // A Metalink of one file with one mirror only adds a digest.
        Some(MetalinkOrigin::Beside) if files.len() > 1 || mirrors > 1 => {
            get_job.note(Note::MetalinkBeside { files: count, mirrors });
        }
        Some(MetalinkOrigin::Beside) | None => {}
    }
    if count == 1 {
        let request = of_only_file(get_job, files.remove(0), trust);
        return match request {
            Ok(request) => {
                let mut request = request?;
                // The user has not named it: it is the word of the file's own server.
                if origin == Some(MetalinkOrigin::Beside) {
                    request.told_by = DigestFrom::Server;
                }
                Ok(Inputs::One(Box::new(request)))
            }
            Err(Refused { name: file, error }) => {
                // The server may have redirected the request.
                let name = base.as_ref().map_or_else(named, display_name);
                Err(MetalinkError::File { name, file, error: Box::new(error) }.into())
            }
        };
    }
    if !matches!(get_job.get.to, GetTo::Folder(_)) {
        return Err(SpecError::SeveralToOne { name: named(), count }.into());
    }
    if !get_job.digests.is_empty() {
        return Err(SpecError::DigestOfSeveral { name: named(), count }.into());
    }
    let template = Template::of(get_job.job.spec, get_job.get);
    let refused: Vec<_> = refused.collect();
    let entries = files.into_iter().map(move |file| match template.metalink_file(file, trust) {
        Ok(request) => ListEntry::of(request),
        Err(Refused { name, error }) => ListEntry::refused(name, error),
    });
    let refused = refused.into_iter().map(|it| ListEntry::refused(it.name, it.error));
    let entries = read_ahead(entries.chain(refused));
    Ok(Inputs::List(FileList { title: named(), count: Some(count), entries }))
}

/// Returns the request for the only file of a Metalink, which may get another name.
fn of_only_file(
    get_job: &GetJob<'_>,
    file: metalink::File,
    trust: Trust,
) -> Result<Result<Request, SpecError>, Refused> {
    let template = Template::of(get_job.job.spec, get_job.get);
    let mut request = template.metalink_file(file, trust)?;
    if !matches!(get_job.get.to, GetTo::Folder(_)) {
        match destination(get_job, None) {
            Ok(destination) => request.destination = destination,
            Err(error) => return Ok(Err(error)),
        }
        request.beneath = None;
    }
    request.plan.eager = true;
    request.ask_if_present = true;
    request.digests.clone_from(&get_job.digests);
    Ok(Ok(request))
}

/// A wait without a message.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// Size limit: a fetched Metalink is kept in memory.
const METALINK_BYTES_MAX: usize = 64_000_000;
/// Size limit of a discovered Metalink; its content may need ten times as much memory.
const METALINK_FOUND_BYTES_MAX: usize = 16_000_000;
const METALINK_WISHES: &str =
    "application/metalink4+xml, application/metalink+xml;q=0.9, */*;q=0.5";
/// Attempts to fetch a Metalink.
const METALINK_TRIES: u32 = 3;
/// Time limit of a discovered Metalink: the file can be fetched without it.
const BESIDE_WITHIN: Duration = Duration::from_secs(2);
/// Longest wait for a busy server.
const BUSY_AT_MOST: Duration = Duration::from_secs(30);
