//! Fetches one file, with the help of Metalinks.

use std::path::Path;

use swath_source::display_name;
use swath_transfer::{Destination, GetError, Mirror, Request};
use url::Url;

use super::inputs::{self, Inputs};
use super::metalink::{MetalinkOrigin, metalink_of};
use super::share::{Cluster, Offer};
use super::{GetJob, several};
use crate::error::{JobError, SpecError};
use crate::event::Note;
use crate::kept::KeptRecorder;
use crate::run::Outcome;

/// Fetches one file.
pub async fn run(get_job: &GetJob<'_>, mut request: Request) -> Result<Outcome, JobError> {
    let job = get_job.job;
    let cluster = Cluster::join(get_job).await?;
    loop {
        if let Destination::File(target) = &request.destination {
            reserved(&get_job.get.reserved, target)?;
        }
        let name = request.destination_name();
        let mirrors = request.mirrors.clone();
        let offer = cluster.as_ref().and_then(|_| Offer::of(&request));
        let shared = match &cluster {
            Some(cluster) if offer.is_none() => tokio::select! {
                shared = cluster.share(&mut request) => shared,
                () = job.control.cancelled() => return Err(JobError::Stopped),
            },
            _ => None,
        };
        let mut tell = job.transfer_observer();
        let mut observer = KeptRecorder::new(&mut tell);
        match job.control.fetch(&job.engine, request, &mut observer).await {
            Ok(summary) => {
                let shared = match (&cluster, offer) {
                    (Some(cluster), Some(offer)) => tokio::select! {
                        shared = cluster.offer(offer) => shared,
                        () = job.control.cancelled() => None,
                    },
                    _ => shared,
                };
                if let Some(shared) = shared {
                    shared.pass_on(get_job).await;
                }
                return Ok(Outcome::File(Box::new(summary)));
            }
            Err(GetError::Metalink { url }) => {
                let next = tokio::select! {
                    next = with_metalink(get_job, mirrors, &url) => next?,
                    () = job.control.cancelled() => return Err(JobError::Stopped),
                };
                match next {
                    Inputs::One(next) => request = *next,
                    // A Metalink is no torrent.
                    Inputs::Torrent(next, _) => request = *next,
                    Inputs::List(many) => return several(get_job, many).await,
                }
            }
            Err(error) => {
                let (error, kept) = (Box::new(error), observer.kept);
                return Err(JobError::Transfer { name, error, kept });
            }
        }
    }
}

/// Returns what to fetch with a Metalink that a server sent or named, or without it if it is unusable.
pub async fn with_metalink(
    get_job: &GetJob<'_>,
    mirrors: Vec<Mirror>,
    url: &Url,
) -> Result<Inputs, JobError> {
    let is_instead = mirrors.iter().any(|mirror| mirror.url == *url);
    let origin = if is_instead { MetalinkOrigin::Instead } else { MetalinkOrigin::Beside };
    let note = match metalink_of(get_job, url, origin).await {
        Ok(Inputs::One(mut next)) => {
            if !is_instead {
                next.destination = inputs::destination_again(get_job, &mirrors)?;
                next.beneath = None;
            }
            // The user's addresses come first among equals.
            let found = std::mem::replace(&mut next.mirrors, mirrors);
            for mirror in found {
                if !next.mirrors.iter().any(|known| known.url == mirror.url) {
                    next.mirrors.push(mirror);
                }
            }
            return Ok(Inputs::One(next));
        }
        Ok(many) if is_instead => return Ok(many),
        Ok(Inputs::List(_) | Inputs::Torrent(..)) => Note::MetalinkOfSeveral(display_name(url)),
        Err(error) => Note::WithoutMetalink(Box::new(error)),
    };
    get_job.note(note);
    Ok(Inputs::One(Box::new(inputs::request_again(get_job, mirrors)?)))
}

/// Checks that a file and its partial data do not overwrite a reserved path.
fn reserved(reserved: &[std::path::PathBuf], target: &Path) -> Result<(), SpecError> {
    let Ok(whole) = std::path::absolute(target) else { return Ok(()) };
    let is_beside = |path: &Path| {
        ["", ".swath", ".swath.part", ".swath.new"].iter().any(|side| {
            let mut name = whole.clone().into_os_string();
            name.push(side);
            path.as_os_str() == name
        })
    };
    let clash =
        reserved.iter().find(|path| std::path::absolute(path).is_ok_and(|it| is_beside(&it)));
    clash.map_or(Ok(()), |path| {
        Err(SpecError::Reserved { path: path.clone(), target: target.to_owned() })
    })
}
