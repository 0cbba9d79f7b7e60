//! Copies of single files between servers of others: one of them is asked to fetch the file from the other,
//! or to send it there, and the outcome is checked with what both tell of the file.

use std::time::Duration;

use swath_formats::markers::Outcome;
use swath_model::digest::Algorithm;
use swath_source::{
    Class, CopyRequest, CopyTold, CopyWay, Facts, LaneError, Net, RemoteCopy, Secret, Trust,
    display_name, head, make_folder,
};
use url::Url;

use crate::engine::{Engine, Stop};
use crate::observe::{LimitedBy, Observer, Summary};
use crate::put::progress::FileProgress;
use crate::put::{PutError, check};

/// A file that one server copies from or to another one.
#[derive(Clone, Debug)]
pub struct RemoteCopyRequest {
    /// Which of the two is asked.
    pub way: CopyWay,
    /// The source.
    pub from: Url,
    /// The destination; an existing file is replaced.
    pub to: Url,
    /// A file of which the destination tells the size and a digest of the source stays as it is.
    pub keeps_same: bool,
    /// A copy that no digest proves is an error.
    pub requires_digest: bool,
    /// The token that the asked server shows the other one. It learns it.
    pub token: Option<Secret>,
}

/// Why a server did not copy a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteCopyError {
    /// The source does not have it, or cannot be asked.
    #[error("{address}: {error}")]
    Source {
        /// The source.
        address: String,
        /// The error.
        #[source]
        error: LaneError,
    },
    /// The asked server refuses, or cannot be reached.
    #[error(transparent)]
    Refused(LaneError),
    /// It reports that the copy failed.
    #[error("{}", said(.why))]
    Failed {
        /// In its words.
        why: String,
        /// Whether any byte was copied, as it counts them.
        has_some: bool,
    },
    /// The answer ended without an outcome, and the destination does not have the file.
    #[error("the server stopped telling of the copy, and the file is not there")]
    Unknown(Option<LaneError>),
    /// The destination has other bytes than the source.
    #[error(transparent)]
    Differs(PutError),
    /// No digest proves the copy.
    #[error("no digest proves the copy: the two servers tell none that both know")]
    Unproved,
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

fn said(why: &str) -> String {
    match why {
        "" => "the copy failed there, for no reason that it names".to_owned(),
        why => format!("the copy failed there: {why}"),
    }
}

/// Copies, and checks the outcome.
pub(crate) async fn copy(
    engine: &Engine,
    request: &RemoteCopyRequest,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<Summary, RemoteCopyError> {
    tokio::select! {
        biased;
        // The connection is dropped, which cancels the copy.
        () = stop.wait() => Err(RemoteCopyError::Stopped),
        copied = carry_out(engine, request, observer) => copied,
    }
}

async fn carry_out(
    engine: &Engine,
    request: &RemoteCopyRequest,
    observer: &mut dyn Observer,
) -> Result<Summary, RemoteCopyError> {
    let net = engine.net();
    let RemoteCopyRequest { from, to, .. } = request;
    let facts = head(net, from, Trust::Named).await;
    let failed = |error| RemoteCopyError::Source { address: display_name(from), error };
    let facts = facts.map_err(failed)?;
    let own_digest =
        || facts.digests.iter().find(|it| it.algorithm() == Algorithm::Sha256).copied();
    if request.keeps_same
        && let Some(size_bytes) = facts.size_bytes
        && let Ok(Some(by)) = check(net, to, size_bytes, &facts.digests).await
    {
        let told = FileProgress::begin(observer, display_name(to), display_name(from));
        return Ok(told.kept(size_bytes, by, own_digest()));
    }
    if request.requires_digest && facts.digests.is_empty() {
        return Err(RemoteCopyError::Unproved);
    }
    let remote = begin(net, request, &facts).await.map_err(RemoteCopyError::Refused)?;
    let mut told = FileProgress::begin(observer, display_name(to), display_name(from));
    let strongest = facts.digests.iter().map(|digest| digest.algorithm()).max();
    told.opened(facts.size_bytes, strongest);
    told.running();
    let (copied_bytes, outcome) = follow(remote, &mut told).await;
    told.finishing();
    if let Ok(Outcome::Failure(why)) = outcome {
        return Err(RemoteCopyError::Failed { why, has_some: copied_bytes > 0 });
    }
    let size_bytes = match (facts.size_bytes, &outcome) {
        (Some(bytes), _) => bytes,
        (None, Ok(_)) => copied_bytes,
        (None, Err(_)) => return Err(RemoteCopyError::Unknown(outcome.err().flatten())),
    };
    let by = match check(net, to, size_bytes, &facts.digests).await {
        Ok(by) => by,
        // Nothing says that it had ended.
        Err(_) if outcome.is_err() => {
            return Err(RemoteCopyError::Unknown(outcome.err().flatten()));
        }
        Err(differs) => return Err(RemoteCopyError::Differs(differs)),
    };
    if let (Err(error), None) = (outcome, by) {
        return Err(RemoteCopyError::Unknown(error));
    }
    if request.requires_digest && by.is_none() {
        return Err(RemoteCopyError::Unproved);
    }
    told.sent_in_all(size_bytes);
    Ok(told.finished(by, own_digest(), LimitedBy::Between))
}

/// Follows a copy to its end. Returns the bytes that were copied and the outcome, if it was told.
async fn follow(
    mut remote: RemoteCopy,
    told: &mut FileProgress<'_>,
) -> (u64, Result<Outcome, Option<LaneError>>) {
    let outcome = loop {
        match remote.next().await {
            Ok(CopyTold::More) => told.sent_in_all(remote.copied_bytes()),
            Ok(CopyTold::Ended(outcome)) => break Ok(outcome),
            Ok(CopyTold::Nothing) => break Err(None),
            Err(error) => break Err(Some(error)),
        }
    };
    (remote.copied_bytes(), outcome)
}

/// Asks for the copy. Missing folders at the destination are made.
async fn begin(
    net: &Net,
    request: &RemoteCopyRequest,
    facts: &Facts,
) -> Result<RemoteCopy, LaneError> {
    let RemoteCopyRequest { way, from, to, token, .. } = request;
    let token = token.as_ref();
    let order = CopyRequest { way: *way, from, to, token, digests: &facts.digests };
    let mut tries = 0;
    loop {
        let error = match RemoteCopy::begin(net, &order).await {
            Ok(remote) => return Ok(remote),
            Err(error) => error,
        };
        tries += 1;
        match error.class() {
            Class::Busy(wait) if tries < TRIES_MAX => {
                tokio::time::sleep(wait.max(TRY_AGAIN_AFTER)).await;
            }
            _ if tries == 1
                && matches!(error.code(), Some(404 | 409))
                && make_folders(net, to).await.is_ok() => {}
            _ => return Err(error),
        }
    }
}

/// Makes the folders above a file at a server that does not make them by itself.
///
/// # Errors
/// Any [`LaneError`].
pub(crate) async fn make_folders(net: &Net, to: &Url) -> Result<(), LaneError> {
    let mut missing = Vec::new();
    let mut folder = to.clone();
    while missing.len() < FOLDERS_MAX {
        let above = if folder.path().ends_with('/') { ".." } else { "." };
        folder = match folder.join(above) {
            Ok(above) if above.path() != "/" => above,
            _ => break,
        };
        match make_folder(net, &folder).await {
            Ok(_) => break,
            Err(error) if matches!(error.code(), Some(404 | 409)) => missing.push(folder.clone()),
            Err(error) => return Err(error),
        }
    }
    for folder in missing.iter().rev() {
        make_folder(net, folder).await?;
    }
    Ok(())
}

/// A server that is busy is asked so often.
const TRIES_MAX: u32 = 5;
/// The least pause before that.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// More levels than paths have.
const FOLDERS_MAX: usize = 100;
