//! Copies that servers of others carry out: one of the two is asked to copy a single file from or to the
//! other one (WLCG HTTP third-party copy). Folders are copied file by file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use swath_formats::percent;
use swath_source::{CopyWay, Secret, display_name};
use swath_transfer::observe::{Event, Observer, Summary};
use swath_transfer::{
    Announced, Destination, Engine, Filter, PutFrom, PutRequest, RemoteCopyError,
    RemoteCopyRequest, Request, Stop,
};
use tokio::task::JoinSet;
use url::Url;

use super::CopyJob;
use super::between::{Servers, is_not_offered};
use super::error::{CopyError, NotDelegated};
use super::kind::{go_below, name_there};
use super::web::{self, Listed};
use crate::control::Control;
use crate::error::{FileCounts, FileError, JobError};
use crate::event::{JobEvent, JobObserver, Note, ThroughHere};
use crate::get::ended;
use crate::get::many::Refused;
use crate::run::Outcome;
use crate::spec::Compare;

/// Asks two servers. Clones share what is known of them.
#[derive(Clone)]
pub struct ByOthers {
    engine: Engine,
    control: Control,
    observer: Arc<dyn JobObserver>,
    /// Files that are the same already stay.
    keeps_same: bool,
    requires_digest: bool,
    known: Arc<Mutex<Known>>,
}

/// What earlier files have shown.
#[derive(Default)]
struct Known {
    /// Ways in which these two servers do not copy.
    closed: Vec<CopyWay>,
    /// It was said that a token is given away.
    has_told: bool,
}

/// How asking two servers ended.
pub enum Asked {
    /// One of them has copied the file.
    Copied(Box<Summary>),
    /// Neither copies from or to the other.
    NotCopied(Vec<ThroughHere>),
}

impl ByOthers {
    /// Returns what asks for this copy.
    pub fn new(copy_job: &CopyJob<'_>) -> ByOthers {
        ByOthers {
            engine: copy_job.job.engine.clone(),
            control: copy_job.job.control.clone(),
            observer: Arc::clone(copy_job.job.observer),
            keeps_same: copy_job.copy.compare != Compare::Nothing,
            requires_digest: copy_job.copy.require_digest,
            known: Arc::default(),
        }
    }

    /// Asks the destination to fetch a file, then the source to send it.
    pub async fn copy(
        &self,
        from: &Url,
        to: &Url,
        observer: &mut dyn Observer,
    ) -> Result<Asked, JobError> {
        let mut whys = Vec::new();
        for way in [CopyWay::Pull, CopyWay::Push] {
            if self.known().closed.contains(&way) {
                continue;
            }
            let (asked, other) = match way {
                CopyWay::Pull => (to, from),
                CopyWay::Push => (from, to),
            };
            let address = display_name(asked);
            let token = match self.token_for(asked, other) {
                Ok(token) => token,
                Err(why) => {
                    let address = display_name(other);
                    whys.push(ThroughHere::NotDelegated { address, why });
                    continue;
                }
            };
            if token.is_some() && !std::mem::replace(&mut self.known().has_told, true) {
                let (given_to, opens) = (address.clone(), display_name(other));
                self.observer.observe(JobEvent::Note(Note::TokenGiven { given_to, opens }));
            }
            let (from, to, keeps_same) = (from.clone(), to.clone(), self.keeps_same);
            let requires_digest = self.requires_digest;
            let request = RemoteCopyRequest { way, from, to, keeps_same, requires_digest, token };
            let stop = Stop::default();
            let copying = self.engine.remote_copy(&request, observer, &stop);
            let why = match self.control.until_paused(&stop, copying).await {
                Ok(summary) => return Ok(Asked::Copied(Box::new(summary))),
                Err(RemoteCopyError::Refused(error)) if is_not_offered(&error) => {
                    ThroughHere::NotOffered { address, error: Box::new(error) }
                }
                // It may not reach the other one, while the other one reaches it.
                Err(RemoteCopyError::Failed { why, has_some: false }) => {
                    ThroughHere::Failed { address, why }
                }
                Err(RemoteCopyError::Stopped) => return Err(JobError::Stopped),
                Err(error) => {
                    let (address, error) = (display_name(&request.to), Box::new(error));
                    return Err(CopyError::Remote { address, error }.into());
                }
            };
            if let ThroughHere::NotOffered { .. } = why {
                self.known().closed.push(way);
            }
            whys.push(why);
        }
        Ok(Asked::NotCopied(whys))
    }

    /// Returns the token for `other` that the server at `asked` may have, if `other` needs one.
    fn token_for(&self, asked: &Url, other: &Url) -> Result<Option<Secret>, NotDelegated> {
        let own = self.engine.net().access_to(other);
        if own.has_other {
            return Err(NotDelegated::Headers);
        }
        let Some(token) = own.token else { return Ok(None) };
        if asked.scheme() != "https" || other.scheme() != "https" {
            return Err(NotDelegated::Plain);
        }
        // Tokens of issuers and macaroons are made for this: they end soon, and open little.
        match is_issued(&token) || token.expose().starts_with("MDA") {
            true => Ok(Some(token)),
            false => Err(NotDelegated::Lasting),
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies a file of a folder, through this machine if there is no other way.
    async fn one(self, file: u64, request: Request, to: Url) -> bool {
        let name = request.destination_name();
        let Some(from) = request.mirrors.into_iter().next().map(|mirror| mirror.url) else {
            return false;
        };
        let observer = Arc::clone(&self.observer);
        let mut tell =
            |event: &Event| observer.observe(JobEvent::File { file, event: event.clone() });
        let copied = match self.copy(&from, &to, &mut tell).await {
            Ok(Asked::Copied(_)) => Ok(()),
            Ok(Asked::NotCopied(_)) => self.through(from, to, &mut tell).await,
            Err(error) => Err(error),
        };
        let (event, is_complete) = match copied {
            Ok(()) => (JobEvent::FileDone(file), true),
            Err(JobError::Stopped) => (JobEvent::FileStopped(file), false),
            Err(JobError::Copy(error)) => {
                (JobEvent::FileFailed { file, name, error: FileError::Between(error) }, false)
            }
            Err(_) => (JobEvent::FileFailed { file, name, error: FileError::Internal }, false),
        };
        self.observer.observe(event);
        is_complete
    }

    async fn through(
        &self,
        from: Url,
        to: Url,
        observer: &mut dyn Observer,
    ) -> Result<(), JobError> {
        let address = display_name(&to);
        let request = PutRequest { from: PutFrom::Server(from), to, announced: Announced::Nothing };
        let stop = Stop::default();
        let putting = self.engine.put(&request, observer, &stop);
        match self.control.until_paused(&stop, putting).await {
            Ok(_) => Ok(()),
            Err(swath_transfer::PutError::Stopped) => Err(JobError::Stopped),
            Err(error) => Err(CopyError::Put { address, error: Box::new(error) }.into()),
        }
    }
}

/// Copies what a web folder lists to another server.
pub async fn folder(
    copy_job: &CopyJob<'_>,
    servers: Servers<'_>,
    filter: Filter,
) -> Result<Outcome, JobError> {
    let (mut from, mut to) = (servers.from[0].clone(), servers.to.clone());
    if !from.path().ends_with('/') {
        go_below(&mut to, &name_there(&from).map_err(CopyError::from)?);
        from.set_path(&format!("{}/", from.path()));
    }
    go_below(&mut to, "");
    let address = display_name(&from);
    let listed = web::list(copy_job, filter, vec![from], PathBuf::new()).await;
    let Listed { title, mut entries, walking: _walking } =
        listed.map_err(|why| CopyError::NoListing { address, why: Box::new(why) })??;
    let others = ByOthers::new(copy_job);
    let (observer, control) = (copy_job.job.observer, copy_job.job.control);
    observer.observe(JobEvent::ListStarted { title, count: None });
    let mut files = FileCounts::default();
    let mut running: JoinSet<bool> = JoinSet::new();
    let mut number = 0;
    loop {
        let entry = tokio::select! {
            biased;
            () = control.cancelled() => break,
            Some(copied) = running.join_next(), if !running.is_empty() => {
                files.count(copied.unwrap_or(false));
                continue;
            }
            entry = entries.recv(), if running.len() < FILES_AT_ONCE => entry,
        };
        let Some(entry) = entry else { break };
        let file = number;
        number += 1;
        match entry.request {
            Ok(request) => {
                let to = below(&to, &request);
                running.spawn(others.clone().one(file, request, to));
            }
            Err(Refused { name, error }) => {
                observer.observe(JobEvent::FileFailed { file, name, error: error.into() });
                files.count(false);
            }
        }
    }
    while let Some(copied) = running.join_next().await {
        files.count(copied.unwrap_or(false));
    }
    files.is_stopped = control.is_cancelled();
    observer.observe(JobEvent::ListEnded { is_whole: !files.is_stopped });
    ended(files)
}

/// Returns the address of a file below the destination.
fn below(to: &Url, request: &Request) -> Url {
    let mut url = to.clone();
    let path = match &request.destination {
        Destination::File(path) => path.to_string_lossy().into_owned(),
        _ => String::new(),
    };
    let parts = path.split('/').map(|part| percent::encode(part.as_bytes()));
    url.set_path(&format!("{}{}", to.path(), parts.collect::<Vec<_>>().join("/")));
    url
}

/// Whether a token is a JWT.
pub fn is_issued(token: &Secret) -> bool {
    let text = token.expose();
    text.starts_with("eyJ") && text.matches('.').count() == 2
}

/// Files that are copied at the same time: what grid tools use, too.
const FILES_AT_ONCE: usize = 8;
