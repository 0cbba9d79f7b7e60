//! Copies between servers: chooses who moves the data.
//!
//! A swath server that fetches for others is ordered to (`steer.rs`). Of other servers one is asked to copy a
//! single file from or to the other one (WLCG HTTP third-party copy). If neither is possible, or the user
//! says so, the data goes through this machine (`through.rs`).

use swath_source::{CopyWay, LaneError, Secret, display_name};
use swath_transfer::observe::Observer;
use swath_transfer::{Filter, FolderKind, RemoteCopyError, RemoteCopyRequest, Stop};
use url::Url;

use super::error::{CopyError, NotDelegated};
use super::kind::{in_folder, name_there};
use super::{CopyJob, mirror, steer, through, web};
use crate::error::JobError;
use crate::event::{JobEvent, Note, ThroughHere};
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
        Ok(terms) => match steer::sources(copy_job, servers, &terms) {
            Ok(ordered) => {
                let ended = Box::pin(steer::order(copy_job, servers, ordered, observer)).await;
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
        },
        Err(error) if copy_job.copy.detach || !is_not_offered(&error) => {
            return Err(CopyError::NoThirdParty { address, error: Box::new(error) }.into());
        }
        Err(error) => match servers.from {
            [from] if is_file(copy_job, from).await => {
                match Box::pin(by_one_of_them(copy_job, from, servers, observer)).await? {
                    Asked::Copied(outcome) => return Ok(outcome),
                    Asked::NotCopied(whys) if whys.iter().all(ThroughHere::is_about_tokens) => {
                        ThroughHere::NotOffered { address, error: Box::new(error) }
                    }
                    Asked::NotCopied(whys) => ThroughHere::Neither(whys),
                }
            }
            _ => ThroughHere::NotOffered { address, error: Box::new(error) },
        },
    };
    Box::pin(through::copy(copy_job, servers, Some(why), filter, observer)).await
}

/// Whether a source is a file, to which no option for folders applies.
async fn is_file(copy_job: &CopyJob<'_>, from: &Url) -> bool {
    if from.path().ends_with('/') || copy_job.copy.option_of_trees().is_some() {
        return false;
    }
    let kind = kind_of(copy_job, from).await;
    matches!(kind, SourceKind::File | SourceKind::TreeFile(..))
}

/// Whether a server does not know how to fetch for others, or is not allowed to.
fn is_not_offered(error: &LaneError) -> bool {
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

/// How asking two servers ended.
enum Asked {
    Copied(Outcome),
    /// Neither copies from or to the other.
    NotCopied(Vec<ThroughHere>),
}

/// Asks the destination to fetch a single file, then the source to send it.
async fn by_one_of_them(
    copy_job: &CopyJob<'_>,
    from: &Url,
    servers: Servers<'_>,
    observer: &mut dyn Observer,
) -> Result<Asked, JobError> {
    let job = copy_job.job;
    let to = file_at(from, servers)?;
    let mut whys = Vec::new();
    for way in [CopyWay::Pull, CopyWay::Push] {
        let (asked, other) = match way {
            CopyWay::Pull => (&to, from),
            CopyWay::Push => (from, &to),
        };
        let asked_name = display_name(asked);
        let token = match token_for(copy_job, asked, other) {
            Ok(token) => token,
            Err(why) => {
                let address = display_name(other);
                whys.push(ThroughHere::NotDelegated { address, why });
                continue;
            }
        };
        if token.is_some() {
            let (given_to, opens) = (asked_name.clone(), display_name(other));
            job.observer.observe(JobEvent::Note(Note::TokenGiven { given_to, opens }));
        }
        let request = RemoteCopyRequest { way, from: from.clone(), to: to.clone(), token };
        let stop = Stop::default();
        copy_job.started(true);
        let copying = job.engine.remote_copy(&request, observer, &stop);
        let address = asked_name;
        match job.control.until_paused(&stop, copying).await {
            Ok(summary) => return Ok(Asked::Copied(Outcome::File(Box::new(summary)))),
            Err(RemoteCopyError::Refused(error)) if is_not_offered(&error) => {
                whys.push(ThroughHere::NotOffered { address, error: Box::new(error) });
            }
            // It may not reach the other one, while the other one reaches it.
            Err(RemoteCopyError::Failed { why, has_some: false }) => {
                whys.push(ThroughHere::Failed { address, why });
            }
            Err(RemoteCopyError::Stopped) => return Err(JobError::Stopped),
            Err(error) => {
                let address = display_name(&to);
                return Err(CopyError::Remote { address, error: Box::new(error) }.into());
            }
        }
    }
    Ok(Asked::NotCopied(whys))
}

/// Returns the token for `other` that the server at `asked` may have, if `other` needs one.
fn token_for(
    copy_job: &CopyJob<'_>,
    asked: &Url,
    other: &Url,
) -> Result<Option<Secret>, NotDelegated> {
    let own = copy_job.job.engine.net().access_to(other);
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

/// Whether a token is a JWT.
pub fn is_issued(token: &Secret) -> bool {
    let text = token.expose();
    text.starts_with("eyJ") && text.matches('.').count() == 2
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
        FolderKind::Page if web::is_folder(engine.net(), from).await => {
            return SourceKind::WebFolder;
        }
        _ if from.path().ends_with('/') => return SourceKind::WebFolder,
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
