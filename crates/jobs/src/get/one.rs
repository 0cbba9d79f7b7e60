//! Fetches one file, with the help of Metalinks.

use std::path::Path;

use swath_source::display_name;
use swath_transfer::observe::{Event, Observer as _};
use swath_transfer::{Destination, GetError, Mirror, Request};
use url::Url;

use super::inputs::{self, Inputs};
use super::metalink::{Place, metalink_of};
use super::{Fetching, several};
use crate::error::{JobError, SpecError};
use crate::event::{JobEvent, Note};
use crate::kept::KeptRecorder;
use crate::run::Outcome;

/// Fetches one file.
pub async fn run(fetching: &Fetching<'_>, mut request: Request) -> Result<Outcome, JobError> {
    let job = fetching.job;
    loop {
        if let Destination::File(target) = &request.destination {
            reserved(&fetching.get.reserved, target)?;
        }
        let name = request.destination_name();
        let mirrors = request.mirrors.clone();
        let kept = KeptRecorder::default();
        let mut keeps = kept.clone();
        let mut observer = |event: &Event| {
            keeps.observe(event);
            job.observer.observe(JobEvent::Transfer(event.clone()));
        };
        match job.control.fetch(&job.engine, request, &mut observer).await {
            Ok(summary) => return Ok(Outcome::File(Box::new(summary))),
            Err(GetError::Metalink { url }) => {
                let next = tokio::select! {
                    next = with_metalink(fetching, mirrors, &url) => next?,
                    () = job.control.cancelled() => return Err(JobError::Stopped),
                };
                match next {
                    Inputs::One(next) => request = *next,
                    Inputs::Many(many) => return several(fetching, many).await,
                }
            }
            Err(error) => {
                let (error, kept) = (Box::new(error), kept.kept());
                return Err(JobError::Transfer { name, error, kept });
            }
        }
    }
}

/// Returns what to fetch with a Metalink that a server sent or named, or without it if it is unusable.
async fn with_metalink(
    fetching: &Fetching<'_>,
    mirrors: Vec<Mirror>,
    url: &Url,
) -> Result<Inputs, JobError> {
    let is_instead = mirrors.iter().any(|mirror| mirror.url == *url);
    let place = if is_instead { Place::Instead } else { Place::Beside };
    let note = match metalink_of(fetching, url, place).await {
        Ok(Inputs::One(mut next)) => {
            if !is_instead {
                next.destination = inputs::destination_again(fetching, &mirrors)?;
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
        Ok(Inputs::Many(_)) => Note::MetalinkOfSeveral { name: display_name(url) },
        Err(error) => Note::WithoutMetalink { error: Box::new(error) },
    };
    fetching.note(note);
    Ok(Inputs::One(Box::new(inputs::request_again(fetching, mirrors)?)))
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
