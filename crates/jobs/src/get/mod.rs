//! Jobs that fetch files.

mod checksums;
mod inputs;
mod list;
pub mod many;
mod metalink;
mod names;
mod one;
mod template;

use swath_model::digest::Digest;

pub use checksums::checked_file;
pub use inputs::{READ_AHEAD, name_of};

use crate::error::{Files, JobError, SpecError};
use crate::event::{JobEvent, Note};
use crate::run::{Job, Outcome};
use crate::spec::GetSpec;
use inputs::Inputs;

/// A running job that fetches files.
struct Fetching<'a> {
    job: &'a Job<'a>,
    get: &'a GetSpec,
    /// Digests of a single file, from the specification and from checksum files.
    digests: Vec<Digest>,
}

impl Fetching<'_> {
    fn note(&self, note: Note) {
        self.job.observer.observe(JobEvent::Note(note));
    }
}

/// Checks a specification before anything is contacted.
pub fn check(get: &GetSpec) -> Result<(), SpecError> {
    one_value_each(&get.digests)
}

/// Runs the job.
pub async fn run(job: &Job<'_>, get: &GetSpec) -> Result<Outcome, JobError> {
    let mut fetching = Fetching { job, get, digests: get.digests.clone() };
    // Servers and pipes may block.
    let inputs = tokio::select! {
        biased;
        () = job.control.cancelled() => return Err(JobError::Stopped),
        inputs = begin(&mut fetching) => inputs?,
    };
    match inputs {
        Inputs::One(request) => one::run(&fetching, *request).await,
        Inputs::Many(many) => several(&fetching, many).await,
    }
}

async fn begin(fetching: &mut Fetching<'_>) -> Result<Inputs, JobError> {
    if let Some(from) = &fetching.get.checksums {
        let digests = checksums::find(fetching, from).await?;
        fetching.digests.extend(digests);
        one_value_each(&fetching.digests)?;
    }
    inputs::read(fetching).await
}

async fn several(fetching: &Fetching<'_>, many: many::Many) -> Result<Outcome, JobError> {
    let Job { engine, observer, control, .. } = fetching.job;
    let files = many::run(fetching.get.files_at_once, engine, many, observer, control).await;
    ended(files)
}

/// Returns the result of a list: an error unless all files are complete.
pub fn ended(files: Files) -> Result<Outcome, JobError> {
    match files.failed == 0 && !files.is_stopped {
        true => Ok(Outcome::Files(files)),
        false => Err(JobError::Files(files)),
    }
}

/// Refuses two values of one algorithm: both cannot be right.
fn one_value_each(digests: &[Digest]) -> Result<(), SpecError> {
    for (at, digest) in digests.iter().enumerate() {
        let rival = |other: &&Digest| other.algorithm() == digest.algorithm() && *other != digest;
        if let Some(other) = digests[..at].iter().find(rival) {
            let (one, other) = (Box::new(*other), Box::new(*digest));
            return Err(SpecError::Contradiction { one, other });
        }
    }
    Ok(())
}
