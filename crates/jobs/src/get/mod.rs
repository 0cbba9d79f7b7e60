//! Jobs that fetch files.

mod checksums;
pub mod feed;
mod inputs;
mod list;
mod magnet;
pub mod many;
mod metalink;
mod names;
mod one;
pub mod order;
mod reuse;
mod server_name;
mod share;
pub mod size;
mod swarm;
pub mod template;
pub mod torrent;

use std::sync::OnceLock;

use swath_model::digest::Digest;
use swath_model::path::SafePath;
use swath_source::Secret;
use swath_transfer::Trust;

pub use checksums::checked_file;
pub use inputs::{READ_AHEAD, name_of};
pub use server_name::{ServerNames, UnknownServerNames};
pub use swarm::tracker_note;

use crate::error::{FileCounts, JobError, SpecError};
use crate::event::{JobEvent, Note};
use crate::run::{Job, Outcome};
use crate::spec::GetSpec;
use feed::Metafile;
use inputs::Inputs;
use torrent::Described;

/// A running job that fetches files.
pub struct GetJob<'a> {
    job: &'a Job<'a>,
    get: &'a GetSpec,
    /// What the machines of the cluster have in common, with which a file is shared.
    cluster_token: Option<Secret>,
    /// Digests of a single file, from the specification and from checksum files.
    digests: Vec<Digest>,
    /// Whether it only asks what there is to fetch, and joins no swarm.
    only_asks: bool,
    /// The name that its server has given a single file.
    given_name: OnceLock<SafePath>,
}

impl<'a> GetJob<'a> {
    fn of(job: &'a Job<'a>, get: &'a GetSpec) -> GetJob<'a> {
        GetJob {
            job,
            get,
            cluster_token: None,
            digests: Vec::new(),
            only_asks: false,
            given_name: OnceLock::new(),
        }
    }

    fn note(&self, note: Note) {
        self.job.observer.observe(JobEvent::Note(note));
    }
}

/// Runs the job.
pub async fn run(
    job: &Job<'_>,
    get: &GetSpec,
    cluster_token: Option<Secret>,
) -> Result<Outcome, JobError> {
    let mut get_job =
        GetJob { cluster_token, digests: get.digests.clone(), ..GetJob::of(job, get) };
    // Servers and pipes may block.
    let inputs = tokio::select! {
        biased;
        () = job.control.cancelled() => return Err(JobError::Stopped),
        inputs = begin(&mut get_job) => inputs?,
    };
    if !matches!(inputs, Inputs::Torrent(..))
        && get.swarm.needs_torrent(get.cluster_token.is_some())
    {
        get_job.note(Note::NoTorrent);
    }
    fetch(&get_job, inputs).await
}

/// Fetches the content of a torrent that is known already.
pub async fn run_torrent(
    job: &Job<'_>,
    get: &GetSpec,
    described: Described,
) -> Result<Outcome, JobError> {
    let get_job = GetJob::of(job, get);
    let inputs = tokio::select! {
        biased;
        () = job.control.cancelled() => return Err(JobError::Stopped),
        inputs = torrent::inputs(&get_job, described, &[]) => inputs?,
    };
    fetch(&get_job, inputs).await
}

/// Returns the torrent that a feed announces; `None` if it announces none.
pub async fn described(
    job: &Job<'_>,
    get: &GetSpec,
    metafile: &Metafile,
) -> Result<Option<Described>, JobError> {
    let get_job = GetJob { only_asks: true, ..GetJob::of(job, get) };
    let trust = Trust::Discovered;
    Ok(match metafile {
        Metafile::Torrent(url) => Some(torrent::at_address(&get_job, url, trust).await?),
        Metafile::Magnet(link) => Some(magnet::described(&get_job, link, trust).await?),
        Metafile::Metalink(_) => None,
    })
}

async fn fetch(get_job: &GetJob<'_>, inputs: Inputs) -> Result<Outcome, JobError> {
    match inputs {
        Inputs::One(request) => one::run(get_job, *request).await,
        Inputs::Torrent(request, swarm) => torrent::run(get_job, *request, &swarm).await,
        Inputs::List(many) => several(get_job, many).await,
    }
}

async fn begin(get_job: &mut GetJob<'_>) -> Result<Inputs, JobError> {
    if let Some(from) = &get_job.get.checksums {
        let digests = checksums::find(get_job, from).await?;
        get_job.digests.extend(digests);
        one_value_each(&get_job.digests)?;
    }
    inputs::read(get_job).await
}

async fn several(get_job: &GetJob<'_>, many: many::FileList) -> Result<Outcome, JobError> {
    let Job { engine, observer, control, .. } = get_job.job;
    let files = many::run(get_job.get.files_at_once, engine, many, observer, control).await;
    ended(files)
}

/// Returns the result of a list: an error unless all files are complete.
pub fn ended(files: FileCounts) -> Result<Outcome, JobError> {
    match files.failed == 0 && !files.is_stopped {
        true => Ok(Outcome::Files(files)),
        false => Err(JobError::Files(files)),
    }
}

/// Refuses two values of one algorithm: both cannot be right.
///
/// # Errors
/// [`SpecError::Contradiction`].
pub fn one_value_each(digests: &[Digest]) -> Result<(), SpecError> {
    for (at, digest) in digests.iter().enumerate() {
        let rival = |other: &&Digest| other.algorithm() == digest.algorithm() && *other != digest;
        if let Some(other) = digests[..at].iter().find(rival) {
            let (one, other) = (Box::new(*other), Box::new(*digest));
            return Err(SpecError::Contradiction { one, other });
        }
    }
    Ok(())
}
