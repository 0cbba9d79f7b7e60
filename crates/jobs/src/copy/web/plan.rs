//! Dry runs: which files of a web folder would be fetched.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use swath_formats::http_date;
use swath_source::{Net, Trust, head};
use swath_transfer::{Destination, Overwrite, Request};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use url::Url;

use crate::copy::CopyJob;
use crate::copy::error::CopyError;
use crate::error::JobError;
use crate::event::JobEvent;
use crate::get::many::{ListEntry, Refused};
use crate::run::Outcome;

/// Reports what would be fetched.
pub async fn tell(
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
            is_folder: false,
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

/// Files that are queried at the same time.
const HEADS_AT_ONCE: usize = 8;
