//! Copies from one server to another through this machine.
//!
//! A swath server receives a tree or a file as in an upload; what it asks for is passed on to the source.
//! Other servers get single files by `PUT`.

use swath_source::{Forward, ForwardedFile, Trust, display_name, head_without_digests};
use swath_transfer::observe::Observer;
use swath_transfer::{Announced, Filter, PutFrom};
use url::Url;

use super::CopyJob;
use super::between::{Servers, SourceKind, file_at, kind_of};
use super::error::{CopyError, Unfit};
use super::kind::{go_below, in_folder, name_there};
use super::upload::{self, Content, Upload};
use crate::error::{JobError, SpecError};
use crate::event::{JobEvent, Note, ThroughHere};
use crate::run::Outcome;

/// Copies through this machine; `why` is said to the user who did not ask for it.
pub async fn copy(
    copy_job: &CopyJob<'_>,
    servers: Servers<'_>,
    why: Option<ThroughHere>,
    filter: Filter,
    observer: &mut dyn Observer,
) -> Result<Outcome, JobError> {
    let job = copy_job.job;
    let note = |note| job.observer.observe(JobEvent::Note(note));
    let looking = first_of(copy_job, servers);
    let (from, kind) = tokio::select! {
        biased;
        () = job.control.cancelled() => return Err(JobError::Stopped),
        found = looking => found?,
    };
    if let Some(why) = why {
        note(Note::ThroughHere(why));
    }
    if servers.from.len() > 1 {
        note(Note::OneReplica { used: display_name(from) });
    }
    let forward = |folder, file| Forward::new(job.engine.net().clone(), folder, file);
    let shown = display_name(from);
    match kind {
        SourceKind::Tree(folder) => {
            let mut to = servers.to.clone();
            let name = match from.path().ends_with('/') {
                true => String::new(),
                false => name_there(from).map_err(CopyError::from)?,
            };
            go_below(&mut to, &name);
            if !name.is_empty() {
                go_below(&mut to, "");
            }
            let from = Content::Through { forward: forward(folder, None), shown };
            let shown = display_name(&to);
            copy_job.send(Upload { from, to, single: None, shown }, filter, observer).await
        }
        SourceKind::TreeFile(folder, name) => {
            copy_job.copy.check_single()?;
            copy_job.started(true);
            let to = file_at(from, servers)?;
            if let Some((into, shown_as)) = in_folder(&to) {
                let file = ForwardedFile { name, shown_as: shown_as.clone() };
                let content = Content::Through { forward: forward(folder, Some(file)), shown };
                let (single, shown) = (Some(shown_as), display_name(&to));
                let upload = Upload { from: content, to: into, single, shown };
                let sent = Box::pin(upload::send(copy_job, &upload, filter, observer)).await;
                if let Ok(sent) = sent {
                    return sent;
                }
            }
            put(copy_job, from, to, observer).await
        }
        SourceKind::File => {
            copy_job.started(true);
            put(copy_job, from, file_at(from, servers)?, observer).await
        }
        SourceKind::WebFolder => Err(CopyError::WebFolderThrough { address: shown }.into()),
    }
}

/// Returns the first source that is a folder or a file of a swath server, else the first that answers.
async fn first_of<'a>(
    copy_job: &CopyJob<'_>,
    servers: Servers<'a>,
) -> Result<(&'a Url, SourceKind), JobError> {
    let net = copy_job.job.engine.net();
    let (mut first, mut failed) = (None, None);
    for url in servers.from {
        match kind_of(copy_job, url).await {
            kind @ (SourceKind::Tree(_) | SourceKind::TreeFile(..)) => return Ok((url, kind)),
            kind => match head_without_digests(net, url, Trust::Named).await {
                Ok(_) => first = first.or(Some((url, kind))),
                Err(error) => failed = failed.or(Some((url, error))),
            },
        }
    }
    match (first, failed) {
        (Some(first), _) => Ok(first),
        (None, None) => Err(SpecError::NoSource.into()),
        (None, Some((url, error))) => {
            let (destination, address) = (display_name(servers.to), display_name(url));
            let error = Box::new(error);
            Err(CopyError::Unreachable { destination, address, error }.into())
        }
    }
}

async fn put(
    copy_job: &CopyJob<'_>,
    from: &Url,
    to: Url,
    observer: &mut dyn Observer,
) -> Result<Outcome, JobError> {
    let address = display_name(&to);
    if let Some(option) = copy_job.copy.option_of_trees() {
        let (unfit, address) = (Unfit::Put, Some(address));
        return Err(CopyError::Option { option, unfit, address }.into());
    }
    let from = PutFrom::Server(from.clone());
    copy_job.put(from, to, address, Announced::Nothing, observer).await
}
