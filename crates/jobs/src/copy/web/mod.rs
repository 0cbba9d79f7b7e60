//! Fetches folders of plain web servers, from the links of their pages, of WebDAV servers, and of object
//! stores, from their listings. The files are fetched like those of a list.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use swath_formats::listing::{self, Listing};
use swath_formats::{http_date, percent};
use swath_model::path::SafePath;
use swath_source::{
    Depth, Document, LaneError, Net, Trust, display_name, fetch_small, head, head_without_digests,
    properties,
};
use swath_transfer::{Destination, Filter, Overwrite, Request, Verdict, Why};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::error::{CopyError, CopyOption, Unfit};
use super::{CopyJob, mirror};
use crate::error::{EntryError, JobError};
use crate::event::JobEvent;
use crate::get::many::{self, FileList, ListEntry, Refused};
use crate::get::template::Template;
use crate::get::{READ_AHEAD, ended};
use crate::run::Outcome;
use crate::spec::Compare;

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
            told = tell(copy_job, entries) => told,
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
    let looked = tokio::select! {
        biased;
        () = job.control.cancelled() => return Ok(Err(JobError::Stopped)),
        looked = look(job.engine.net(), first) => looked,
    };
    let (kind, page) = looked?;
    if let Err(error) = check(copy_job, first) {
        return Ok(Err(error.into()));
    }
    let title = display_name(first);
    let (sender, entries) = mpsc::channel(READ_AHEAD);
    let net = job.engine.net().clone();
    let template = Template::of_web(job.spec, copy_job.copy, to);
    let walk = Walk { net, kind, filter, replicas, template, sender };
    let walking = AbortOnDropHandle::new(tokio::spawn(walk.run(page)));
    Ok(Ok(Listed { title, entries, walking }))
}

/// Whether an address with a page at the same address with a final `/` is that of a folder: it redirects
/// there, or WebDAV says so.
pub async fn is_folder(net: &Net, url: &Url) -> bool {
    let led = head_without_digests(net, url, Trust::Named).await.map(|facts| facts.final_url);
    match led {
        Ok(Some(led)) if led.path() == format!("{}/", url.path()) => true,
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

/// How a folder is listed.
#[derive(Clone, Debug)]
enum ListingKind {
    /// One page for each folder.
    Pages,
    /// One answer to `PROPFIND` for each folder.
    Dav,
    /// An object store's listing of all keys with a prefix, in several parts.
    Bucket { prefix: String },
}

/// Returns the first part of the listing, and its kind.
async fn look(net: &Net, folder: &Url) -> Result<(ListingKind, Listing), Why> {
    let failed: Why = match fetch(net, folder).await {
        Ok(document) => match read(&document, folder, "") {
            Some(found) => return Ok(found),
            None => "its page has no links to entries below it".into(),
        },
        Err(error) if error.is_no_such_thing() => error.into(),
        Err(error) => return Err(error.into()),
    };
    for (asked, prefix) in buckets(folder) {
        if let Ok(document) = fetch(net, &asked).await
            && let Some(listing) = Listing::of_bucket(&document.bytes, &asked, &prefix)
            && !listing.entries.is_empty()
        {
            return Ok((ListingKind::Bucket { prefix }, listing));
        }
    }
    match dav(net, folder).await {
        Some(listing) => Ok((ListingKind::Dav, listing)),
        None => Err(failed),
    }
}

/// Returns what a WebDAV server says of a folder.
async fn dav(net: &Net, folder: &Url) -> Option<Listing> {
    let answer = properties(net, folder, Trust::Named, Depth::Children, PAGE_BYTES_MAX);
    let answer = answer.await.ok()?;
    Listing::of_multistatus(&answer.bytes, folder)
}

fn read(document: &Document, asked: &Url, prefix: &str) -> Option<(ListingKind, Listing)> {
    if let Some(listing) = Listing::of_bucket(&document.bytes, asked, prefix) {
        return Some((ListingKind::Bucket { prefix: prefix.to_owned() }, listing));
    }
    let kind = document.content_type.as_deref().unwrap_or_default();
    if !kind.starts_with("text/html") && !kind.starts_with("application/xhtml") {
        return None;
    }
    // The server may have redirected to another scheme or host.
    let base = &document.final_url;
    let base = if base.path().ends_with('/') { base.clone() } else { base.join(".").ok()? };
    let listing = Listing::of_page(&document.bytes, &base);
    let is_empty = listing.entries.is_empty() && listing.refused.is_empty();
    (!is_empty).then_some((ListingKind::Pages, listing))
}

async fn fetch(net: &Net, url: &Url) -> Result<Document, LaneError> {
    fetch_small(net, url, Trust::Named, KINDS, PAGE_BYTES_MAX).await
}

/// Returns the possible listings of an object store for a folder, with the prefix of its keys: at the top
/// of the host, or of the bucket that is first in the path.
fn buckets(folder: &Url) -> Vec<(Url, String)> {
    let decoded = |path: &str| String::from_utf8(percent::decode(path)).ok();
    let ask = |bucket: &str, prefix: String| {
        let mut url = folder.clone();
        url.set_path(bucket);
        url.query_pairs_mut().clear().append_pair("list-type", "2").append_pair("prefix", &prefix);
        (url, prefix)
    };
    let path = folder.path().trim_start_matches('/');
    let whole = decoded(path).map(|prefix| ask("/", prefix));
    let first = path.split_once('/').filter(|(_, rest)| !rest.is_empty());
    let within = first.and_then(|(bucket, rest)| Some(ask(&format!("/{bucket}"), decoded(rest)?)));
    whole.into_iter().chain(within).collect()
}

fn below(folder: &Url, address: &str) -> Url {
    let mut url = folder.clone();
    url.set_path(&format!("{}{address}", folder.path()));
    url.set_query(None);
    url
}

/// A folder with its own page.
struct Folder {
    address: String,
    path: String,
}

struct Walk {
    net: Net,
    kind: ListingKind,
    filter: Filter,
    replicas: Vec<Url>,
    template: Template,
    sender: mpsc::Sender<ListEntry>,
}

/// The content of a folder below the first one.
enum Page {
    Listing(Listing),
    /// An empty folder, or a page without links to entries.
    Empty,
    None,
    Failed(LaneError),
}

impl Page {
    async fn of_links(net: &Net, url: &Url) -> Page {
        match fetch(net, url).await {
            Ok(document) => match read(&document, url, "") {
                Some((ListingKind::Pages, page)) => Page::Listing(page),
                None if document.content_type.is_some() => Page::Empty,
                _ => Page::None,
            },
            Err(error) => Page::Failed(error),
        }
    }

    async fn of_dav(net: &Net, url: &Url) -> Page {
        match properties(net, url, Trust::Named, Depth::Children, PAGE_BYTES_MAX).await {
            Ok(answer) => {
                Listing::of_multistatus(&answer.bytes, url).map_or(Page::None, Page::Listing)
            }
            Err(error) => Page::Failed(error),
        }
    }
}

/// The receiver of files is gone.
struct ReceiverGone;

impl Walk {
    async fn run(self, page: Listing) {
        let _ = match self.kind.clone() {
            ListingKind::Pages | ListingKind::Dav => self.pages(page).await,
            ListingKind::Bucket { prefix } => self.bucket(&prefix, page).await,
        };
    }

    async fn bucket(&self, prefix: &str, mut page: Listing) -> Result<(), ReceiverGone> {
        let mut parts = HashSet::new();
        loop {
            let next = page.next.take();
            self.files("", "", page).await?;
            let Some(next) = next else { return Ok(()) };
            let failed = if parts.insert(next.clone()) {
                match fetch(&self.net, &next).await {
                    Ok(document) => match Listing::of_bucket(&document.bytes, &next, prefix) {
                        Some(more) => {
                            page = more;
                            continue;
                        }
                        None => EntryError::NoNextPart,
                    },
                    Err(error) => error.into(),
                }
            } else {
                EntryError::Circle
            };
            return self.failed("the rest of the listing", failed).await;
        }
    }

    async fn pages(&self, page: Listing) -> Result<(), ReceiverGone> {
        let mut due: VecDeque<Folder> = self.files("", "", page).await?.into();
        let mut seen: HashSet<String> = due.iter().map(|folder| folder.path.clone()).collect();
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < PAGES_AT_ONCE
                && let Some(folder) = due.pop_front()
            {
                let url = below(&self.replicas[0], &format!("{}/", folder.address));
                let (net, is_dav) = (self.net.clone(), matches!(self.kind, ListingKind::Dav));
                asked.spawn(async move {
                    let page = match is_dav {
                        true => Page::of_dav(&net, &url).await,
                        false => Page::of_links(&net, &url).await,
                    };
                    (page, folder)
                });
            }
            let Some(answer) = asked.join_next().await else { return Ok(()) };
            let Ok((answer, folder)) = answer else { continue };
            match answer {
                Page::Listing(page) => {
                    let found = self.files(&folder.address, &folder.path, page).await?;
                    due.extend(found.into_iter().filter(|it| seen.insert(it.path.clone())));
                }
                Page::Empty => {}
                Page::None => {
                    self.failed(&folder.path, EntryError::NoListing).await?;
                }
                Page::Failed(error) => self.failed(&folder.path, error).await?,
            }
        }
    }

    /// Sends the files of a listing; returns its folders.
    async fn files(
        &self,
        address: &str,
        path: &str,
        page: Listing,
    ) -> Result<Vec<Folder>, ReceiverGone> {
        let join = |above: &str, name: &str| match above {
            "" => name.to_owned(),
            above => format!("{above}/{name}"),
        };
        let mut folders = Vec::new();
        for listing::Entry { address: own, path: name, is_folder, size_bytes } in page.entries {
            let (address, path) = (join(address, &own), join(path, name.as_str()));
            let safe = match SafePath::new(&path) {
                Ok(safe) => safe,
                Err(error) => {
                    self.failed(&path, error).await?;
                    continue;
                }
            };
            match self.filter.judge_whole(&path, is_folder) {
                Verdict::Out => {}
                _ if is_folder => folders.push(Folder { address, path }),
                _ => {
                    let request = self.request(&address, &safe, size_bytes);
                    self.send(ListEntry::of(request)).await?;
                }
            }
        }
        for (name, why) in page.refused {
            self.failed(&join(path, &name), why).await?;
        }
        if page.is_cut {
            let name = if path.is_empty() { "the folder" } else { path };
            self.failed(name, EntryError::TooMany).await?;
        }
        Ok(folders)
    }

    fn request(&self, address: &str, path: &SafePath, size_bytes: Option<u64>) -> Request {
        let dir = &self.template.dir;
        let file = Destination::File(dir.join(path.as_path()));
        let mirrors = self.replicas.iter().map(|replica| mirror(below(replica, address)));
        Request {
            beneath: Some(dir.clone()),
            mirrors: mirrors.collect(),
            size_bytes,
            ..self.template.request(file)
        }
    }

    async fn failed(&self, name: &str, why: impl Into<EntryError>) -> Result<(), ReceiverGone> {
        self.send(ListEntry::refused(name, why)).await
    }

    async fn send(&self, entry: ListEntry) -> Result<(), ReceiverGone> {
        self.sender.send(entry).await.map_err(|_| ReceiverGone)
    }
}

/// Reports what would be fetched.
async fn tell(
    copy_job: &CopyJob<'_>,
    mut entries: mpsc::Receiver<ListEntry>,
) -> Result<Outcome, JobError> {
    let job = copy_job.job;
    let mut asked: JoinSet<Result<Option<Planned>, Refused>> = JoinSet::new();
    let mut files: u64 = 0;
    let mut is_whole = true;
    let mut take = |file: u64, ended: Result<Result<Option<Planned>, Refused>, _>| match ended {
        Ok(Ok(Some(planned))) => job.observer.observe(JobEvent::Planned {
            bytes: Some(planned.size_bytes.unwrap_or(0)),
            path: planned.name.into_bytes(),
            further_of: None,
        }),
        Ok(Err(Refused { name, error })) => {
            is_whole = false;
            let error = error.into();
            job.observer.observe(JobEvent::FileFailed { file, name, error });
        }
        _ => {}
    };
    while let Some(entry) = entries.recv().await {
        files += 1;
        if asked.len() >= HEADS_AT_ONCE
            && let Some(ended) = asked.join_next().await
        {
            take(files, ended);
        }
        let planned = entry.request.map(|request| Planned::of(&request));
        let net = job.engine.net().clone();
        asked.spawn(async move { planned?.look(&net).await });
    }
    while let Some(ended) = asked.join_next().await {
        take(files, ended);
    }
    let matches = files > 0;
    match is_whole {
        true => Ok(Outcome::Planned { matches }),
        false => Err(CopyError::PlanIncomplete { matches }.into()),
    }
}

/// A file that would be fetched unless it is up to date.
struct Planned {
    from: Option<Url>,
    path: PathBuf,
    name: String,
    is_taken_anyway: bool,
    size_bytes: Option<u64>,
}

impl Planned {
    fn of(request: &Request) -> Planned {
        let path = match &request.destination {
            Destination::File(path) => path.clone(),
            _ => PathBuf::new(),
        };
        let name = path.strip_prefix(request.beneath.as_deref().unwrap_or(Path::new("")));
        Planned {
            from: request.mirrors.first().map(|mirror| mirror.url.clone()),
            name: name.unwrap_or(&path).to_string_lossy().into_owned(),
            is_taken_anyway: request.overwrite == Overwrite::Always,
            size_bytes: request.size_bytes,
            path,
        }
    }

    /// Queries the file; returns it if it would be fetched.
    async fn look(self, net: &Net) -> Result<Option<Planned>, Refused> {
        let Some(from) = &self.from else { return Ok(None) };
        let facts = match head(net, from, Trust::Named).await {
            Ok(facts) => facts,
            Err(error) => return Err(Refused { name: self.name, error: error.into() }),
        };
        let size_bytes = facts.size_bytes.or(self.size_bytes);
        let modified = facts.last_modified.as_deref().and_then(http_date::parse);
        let is_same = |there: std::fs::Metadata| {
            let since = there.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let seconds = since.map(|since| since.as_secs());
            there.is_file() && Some(there.len()) == size_bytes && seconds == modified
        };
        let is_there = !self.is_taken_anyway && self.path.metadata().is_ok_and(is_same);
        Ok((!is_there).then_some(Planned { size_bytes, ..self }))
    }
}

/// Of one entry.
const PROPERTIES_BYTES_MAX: usize = 64 << 10;
const KINDS: &str = "text/html, application/xml;q=0.9, */*;q=0.1";
/// Enough for a page of a hundred thousand files.
const PAGE_BYTES_MAX: usize = 32 << 20;
/// Pages that are fetched at the same time.
const PAGES_AT_ONCE: usize = 4;
/// Files that are queried at the same time in a dry run.
const HEADS_AT_ONCE: usize = 8;
