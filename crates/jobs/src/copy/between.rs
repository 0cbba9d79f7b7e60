//! Copies between servers: chooses who moves the data.
//!
//! A swath server that fetches for others is ordered to (`steer.rs`). Of other servers one is asked to copy a
//! single file from or to the other one (`by_others.rs`). If neither is possible, or the user
//! says so, the data goes through this machine (`through.rs`).

use swath_source::{LaneError, display_name};
use swath_transfer::observe::Observer;
use swath_transfer::{Filter, FolderKind};
use url::Url;

use super::by_others::{self, Asked, ByOthers};
use super::error::CopyError;
use super::kind::{in_folder, name_there};
use super::steer::Granting;
use super::{CopyJob, mirror, steer, through, web};
use crate::error::JobError;
use crate::event::ThroughHere;
use crate::run::Outcome;

/// What is copied, and where it goes.
#[derive(Clone, Copy)]
pub struct Servers<'a> {
    /// Replicas of one folder, whose paths end in `/`; or one address without final `/`.
    pub from: &'a [Url],
    /// Their addresses for the destination.
    pub from_there: &'a [Url],
    /// The destination.
    pub to: &'a Url,
    /// Whether a file may get the name `to`, if that is not a folder.
    pub is_alone: bool,
}

/// What a source is.
pub enum SourceKind {
    /// A folder of a swath server; its path ends in `/`.
    Tree(Url),
    /// A file of a swath server: its folder, and its name.
    TreeFile(Url, String),
    /// A folder of another server.
    WebFolder,
    /// A file of another server.
    File,
}

/// Copies between servers.
pub async fn copy(
    copy_job: &CopyJob<'_>,
    servers: Servers<'_>,
    filter: Filter,
    observer: &mut dyn Observer,
) -> Result<Outcome, JobError> {
    if copy_job.copy.through_here {
        return Box::pin(through::copy(copy_job, servers, None, filter, observer)).await;
    }
    let net = copy_job.job.engine.net();
    let terms = tokio::select! {
        biased;
        () = copy_job.job.control.cancelled() => return Err(JobError::Stopped),
        terms = steer::terms(net, servers.to) => terms,
    };
    let address = display_name(servers.to);
    let why = match terms {
        Ok(terms) => {
            let granting = Granting::new(copy_job, servers, &terms);
            match granting.sources() {
                Ok(_) => {
                    let ended = Box::pin(steer::order(copy_job, servers, granting, observer)).await;
                    match not_reached(copy_job, servers, &ended).await {
                        Some(why) => why,
                        None => return ended,
                    }
                }
                Err(error) if copy_job.copy.detach => return Err(error.into()),
                Err(CopyError::NotDelegated { address, why }) => {
                    ThroughHere::NotDelegated { address, why }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(error) if copy_job.copy.detach || !is_not_offered(&error) => {
            return Err(CopyError::NoThirdParty { address, error: Box::new(error) }.into());
        }
        Err(error) => match servers.from {
            [from] if copy_job.copy.option_of_trees().is_none() => {
                let not_offered = ThroughHere::NotOffered { address, error: Box::new(error) };
                match kind_of(copy_job, from).await {
                    SourceKind::Tree(_) => not_offered,
                    SourceKind::WebFolder => {
                        return Box::pin(by_others::folder(copy_job, servers, filter)).await;
                    }
                    SourceKind::File | SourceKind::TreeFile(..) => {
                        let to = file_at(from, servers)?;
                        copy_job.started(true);
                        let others = ByOthers::new(copy_job);
                        match Box::pin(others.copy(from, &to, observer)).await? {
                            Asked::Copied(summary) => return Ok(Outcome::File(summary)),
                            Asked::NotCopied(whys)
                                if whys.iter().all(ThroughHere::is_about_tokens) =>
                            {
                                not_offered
                            }
                            Asked::NotCopied(whys) => ThroughHere::Neither(whys),
                        }
                    }
                }
            }
            _ => ThroughHere::NotOffered { address, error: Box::new(error) },
        },
    };
    Box::pin(through::copy(copy_job, servers, Some(why), filter, observer)).await
}

/// Whether a server does not know how to fetch for others, or is not allowed to.
pub fn is_not_offered(error: &LaneError) -> bool {
    match error.code() {
        Some(code) => matches!(code, 400 | 403..=406 | 409..=411 | 415 | 422 | 501),
        None => matches!(error, LaneError::Protocol { .. } | LaneError::TooLarge { .. }),
    }
}

/// Whether the destination fetched nothing at all from a source that this machine reaches; with its reason.
async fn not_reached(
    copy_job: &CopyJob<'_>,
    servers: Servers<'_>,
    ended: &Result<Outcome, JobError>,
) -> Option<ThroughHere> {
    let Err(JobError::Copy(error)) = ended else { return None };
    let CopyError::Receiver { failed, .. } = &**error else { return None };
    let is_about_sources = failed.exit == SOURCES_EXIT && failed.kept_bytes.unwrap_or(0) == 0;
    if !is_about_sources || copy_job.copy.detach || copy_job.copy.dry_run {
        return None;
    }
    let kind = kind_of(copy_job, &servers.from[0]).await;
    let is_there = matches!(kind, SourceKind::Tree(_) | SourceKind::TreeFile(..));
    let (address, why) = (display_name(servers.to), failed.error.clone());
    is_there.then_some(ThroughHere::Failed { address, why })
}

/// Returns the destination address of a file.
pub fn file_at(from: &Url, servers: Servers<'_>) -> Result<Url, CopyError> {
    let mut to = servers.to.clone();
    if !servers.is_alone || to.path().ends_with('/') {
        let name = name_there(from)?;
        super::kind::go_below(&mut to, &name);
    }
    Ok(to)
}

/// Finds out what a source is.
pub async fn kind_of(copy_job: &CopyJob<'_>, from: &Url) -> SourceKind {
    let engine = &copy_job.job.engine;
    let mut folder = from.clone();
    if !from.path().ends_with('/') {
        folder.set_path(&format!("{}/", from.path()));
    }
    match engine.folder_kind(&mirror(folder.clone())).await {
        FolderKind::Tree => return SourceKind::Tree(folder),
        _ if from.path().ends_with('/') => return SourceKind::WebFolder,
        FolderKind::Page | FolderKind::Refused if web::is_folder(engine.net(), from).await => {
            return SourceKind::WebFolder;
        }
        _ => {}
    }
    match in_folder(from) {
        Some((above, name)) if engine.is_file(&mirror(above.clone()), &name).await => {
            SourceKind::TreeFile(above, name)
        }
        _ => SourceKind::File,
    }
}

/// The exit code of a copy that has no usable source.
const SOURCES_EXIT: u8 = 7;
