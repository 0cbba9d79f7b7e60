//! Fetches folders of plain web servers, from the links of their pages, of WebDAV servers, and of object
//! stores, from their listings. The files are fetched like those of a list.

mod bounds;
mod look;
mod plan;
mod walk;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use swath_formats::listing;
use swath_source::{Depth, Net, Trust, display_name, head_without_digests, properties};
use swath_transfer::{Filter, Why};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::CopyJob;
use super::error::{CopyError, CopyOption, Unfit};
use crate::error::JobError;
use crate::get::many::{self, FileList, ListEntry};
use crate::get::template::Template;
use crate::get::{READ_AHEAD, ended};
use crate::run::Outcome;
use crate::spec::Compare;
use bounds::Bounds;
use look::{Found, Lister, ListingKind};
use walk::Walk;

/// Fetches what the first replica lists from all replicas; the outer error says why there is no listing.
pub async fn copy(
    copy_job: &CopyJob<'_>,
    filter: Filter,
    replicas: Vec<Url>,
    to: PathBuf,
) -> Result<Result<Outcome, JobError>, Why> {
    let job = copy_job.job;
    let Listed { title, entries, walking } = match list(copy_job, filter, replicas, to).await? {
        Ok(listed) => listed,
        Err(error) => return Ok(Err(error)),
    };
    let copied = if copy_job.copy.dry_run {
        tokio::select! {
            biased;
            () = job.control.cancelled() => Err(JobError::Stopped),
            told = plan::tell(copy_job, entries) => told,
        }
    } else {
        let many = FileList { title, count: None, entries };
        ended(many::run(None, &job.engine, many, job.observer, job.control).await)
    };
    drop(walking);
    Ok(copied)
}

/// What a web folder lists.
pub struct Listed {
    /// Its address for the user.
    pub title: String,
    /// Its files, as they are found, with paths below the destination folder.
    pub entries: mpsc::Receiver<ListEntry>,
    /// Ends the walk when it is dropped.
    pub walking: AbortOnDropHandle<()>,
}

/// Begins to list what is in the first replica; the outer error says why there is no listing.
pub async fn list(
    copy_job: &CopyJob<'_>,
    filter: Filter,
    replicas: Vec<Url>,
    to: PathBuf,
) -> Result<Result<Listed, JobError>, Why> {
    let job = copy_job.job;
    let first = &replicas[0];
    let lister = Lister::new(job.engine.net().clone());
    let found = tokio::select! {
        biased;
        () = job.control.cancelled() => return Ok(Err(JobError::Stopped)),
        found = lister.first(first, copy_job.copy.kind.is_webdav()) => found?,
    };
    if let Err(error) = check(copy_job, first) {
        return Ok(Err(error.into()));
    }
    let title = display_name(first);
    let (sender, entries) = mpsc::channel(READ_AHEAD);
    let template = Template::of_web(job.spec, copy_job.copy, to);
    let (observer, bounds) = (Arc::clone(job.observer), Bounds::default());
    let walk = Walk { lister, filter, replicas, template, observer, sender, bounds };
    let walking = AbortOnDropHandle::new(tokio::spawn(walk.run(found)));
    Ok(Ok(Listed { title, entries, walking }))
}

/// An entry of a web folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebEntry {
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Its size, if the listing gives it to the byte.
    pub size_bytes: Option<u64>,
}

/// Lists one folder, whose address ends in `/`, of a web or WebDAV server or an object store, as a copy
/// would read it: the entries by their names.
///
/// # Errors
/// Why there is no listing.
pub async fn entries(
    net: &Net,
    folder: &Url,
    is_dav: bool,
) -> Result<BTreeMap<String, WebEntry>, Why> {
    let lister = Lister::new(net.clone());
    let Found { kind, mut listing, .. } = lister.first(folder, is_dav).await?;
    let mut found = BTreeMap::new();
    for _ in 0..Bounds::default().folders {
        for listing::Entry { path, is_folder, size_bytes, .. } in listing.entries {
            // Object stores list everything below it.
            let (name, entry) = match path.as_str().split_once('/') {
                Some((name, _)) => (name, WebEntry { is_folder: true, size_bytes: None }),
                None => (path.as_str(), WebEntry { is_folder, size_bytes }),
            };
            found.entry(name.to_owned()).or_insert(entry);
        }
        let (Some(next), ListingKind::Bucket { prefix }) = (listing.next, &kind) else { break };
        listing = lister.part(&next, prefix).await.map_err(|error| error.to_string())?;
    }
    Ok(found)
}

/// Whether an address is that of a folder: it redirects to one with a final `/`, or WebDAV says so.
pub async fn is_folder(net: &Net, url: &Url) -> bool {
    let led = head_without_digests(net, url, Trust::Named).await.map(|facts| facts.final_url);
    match led {
        Ok(Some(led)) if led.path().ends_with('/') => true,
        _ => {
            let limit = PROPERTIES_BYTES_MAX;
            let answer = properties(net, url, Trust::Named, Depth::Itself, limit).await;
            answer.is_ok_and(|answer| listing::is_folder(&answer.bytes) == Some(true))
        }
    }
}

fn check(copy_job: &CopyJob<'_>, url: &Url) -> Result<(), CopyError> {
    let copy = copy_job.copy;
    let option = if copy.delete {
        CopyOption::Delete
    } else if copy.compare == Compare::Content {
        CopyOption::Checksum
    } else if copy.keep_index.is_some() {
        CopyOption::KeepIndex
    } else if copy.preserve.xattrs {
        CopyOption::Xattrs
    } else if copy.cluster.is_some() {
        CopyOption::Cluster
    } else {
        return Ok(());
    };
    let address = Some(display_name(url));
    Err(CopyError::Option { option, unfit: Unfit::WebFolder, address })
}

/// Of one entry.
const PROPERTIES_BYTES_MAX: usize = 64 << 10;
