//! Sends a single file to a server, by `PUT`.
//!
//! Its digest goes ahead, if it is known, so that the server can check the data; else the server is asked
//! for its digest afterwards. The server gives the file its name only when all of it has come.

mod local;
pub(crate) mod progress;
mod server;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swath_model::Limiter;
use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_source::{Class, LaneError, Net, Trust, Upload, display_name, head};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use url::Url;

use crate::engine::{Engine, Stop};
use crate::observe::{LimitedBy, Observer, Summary};
use local::LocalReader;
use progress::FileProgress;

/// A file to send.
#[derive(Clone, Debug)]
pub struct PutRequest {
    /// The file.
    pub from: PutFrom,
    /// Its address on the server.
    pub to: Url,
    /// The digest of a local file that goes ahead.
    pub announced: Announced,
}

/// The digest of a local file that goes ahead of it.
#[derive(Clone, Debug)]
pub enum Announced {
    /// The file is read for it before it is sent: servers of swath check it.
    Computed,
    /// It is known.
    Known(Digest),
    /// None: the file is read once, and the server is asked for its digest at the end.
    Nothing,
}

/// Where the bytes of a sent file come from.
#[derive(Clone, Debug)]
pub enum PutFrom {
    /// A local file.
    File(PathBuf),
    /// Another server.
    Server(Url),
}

/// Why a file was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// It cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It changed while it was sent.
    #[error("{} changed while it was sent", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The other server does not deliver it.
    #[error("{address}: {error}")]
    Source {
        /// Its address there.
        address: String,
        /// The error.
        #[source]
        error: LaneError,
    },
    /// The other server does not tell its size.
    #[error("{address}: the server does not tell the size of the file")]
    NoSize {
        /// Its address there.
        address: String,
    },
    /// The other server sends the file in another form.
    #[error("{address}: the server insists on sending the file encoded as {coding}")]
    Encoded {
        /// Its address there.
        address: String,
        /// The form.
        coding: String,
    },
    /// The other server delivered other bytes than it tells the digest of.
    #[error("{address}: the bytes differ from the digest that the server tells")]
    SourceDiffers {
        /// Its address there.
        address: String,
    },
    /// The server has other bytes than were sent.
    #[error("{address}: the server took the file, and tells another {what} of it")]
    Differs {
        /// Its address there.
        address: String,
        /// What differs.
        what: &'static str,
    },
    /// The server said that it has taken the file, and does not have it.
    #[error("{address}: the server says that it took the file, and has no such file")]
    Missing {
        /// Its address there.
        address: String,
    },
    /// The server refuses it, or cannot be reached.
    #[error(transparent)]
    Server(#[from] LaneError),
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

pub(crate) async fn put(
    engine: &Engine,
    request: &PutRequest,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<Summary, PutError> {
    tokio::select! {
        biased;
        () = stop.wait() => Err(PutError::Stopped),
        sent = send(engine, request, observer, stop) => sent,
    }
}

async fn send(
    engine: &Engine,
    request: &PutRequest,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<Summary, PutError> {
    let from = match &request.from {
        PutFrom::File(path) => path.display().to_string(),
        PutFrom::Server(url) => display_name(url),
    };
    let mut told = FileProgress::begin(observer, display_name(&request.to), from);
    let (file, limited_by) = match &request.from {
        PutFrom::File(path) => {
            let reader = LocalReader::open(engine, path, &request.announced, stop).await?;
            (Some(reader), LimitedBy::Receiver)
        }
        PutFrom::Server(_) => (None, LimitedBy::ThroughHere),
    };
    let limiter = Arc::new(Limiter::new(engine.limit_bytes_per_s));
    let mut patience = Patience::new(engine.net().timeout());
    let sent = loop {
        let reading = match (&file, &request.from) {
            (Some(file), _) => Ok(file.read()),
            (None, PutFrom::Server(url)) => server::read(engine, url).await,
            (None, PutFrom::File(_)) => Err(PutError::Stopped),
        };
        let sent = match reading {
            Ok(reading) => send_once(engine, &request.to, reading, &limiter, &mut told).await,
            Err(error) => Err(error),
        };
        let wait = match &sent {
            Err(PutError::Server(error) | PutError::Source { error, .. }) => {
                patience.wait_after(error).inspect(|wait| told.waits(error, *wait))
            }
            _ => None,
        };
        match wait {
            Some(wait) => tokio::time::sleep(wait).await,
            None => break sent?,
        }
    };
    let by = match sent.checked_by {
        Some(by) => Some(by),
        None => match check(engine.net(), &request.to, sent.size_bytes, &sent.digests).await {
            // Some servers take files and show nothing.
            Err(PutError::Missing { .. }) => None,
            checked => checked?,
        },
    };
    let digest = sent.digests.into_iter().find(|digest| digest.algorithm() == Algorithm::Sha256);
    Ok(told.finished(by, digest, limited_by))
}

/// A file that is being read.
struct Reading {
    size_bytes: u64,
    /// The digest to send ahead.
    announced: Option<Digest>,
    parts: mpsc::Receiver<Part>,
    /// Its digests, at the latest when the last part has come.
    digests: oneshot::Receiver<Vec<Digest>>,
}

/// A part of a file.
type Part = Result<Vec<u8>, PutError>;

/// A file that a server has taken.
struct Sent {
    size_bytes: u64,
    digests: Vec<Digest>,
    /// The server has checked this digest.
    checked_by: Option<Algorithm>,
}

/// Tries once to send the file. If that fails, the server has none of it, so that another try does
/// no harm: PUT is idempotent (RFC 9110, section 9.2.2).
async fn send_once(
    engine: &Engine,
    to: &Url,
    reading: Reading,
    limiter: &Arc<Limiter>,
    told: &mut FileProgress<'_>,
) -> Result<Sent, PutError> {
    let Reading { size_bytes, announced, mut parts, digests } = reading;
    told.opened(Some(size_bytes), announced.map(|digest| digest.algorithm()));
    let mut upload = Upload::begin(engine.net(), to, size_bytes, announced.as_ref()).await?;
    told.running();
    'sending: while let Some(part) = parts.recv().await {
        // An error here ends the connection, and the server drops the data.
        let part = part?;
        let mut rest = part.as_slice();
        while !rest.is_empty() {
            let mut now = rest.len();
            if let Some(mut share) = limiter.reserve(Instant::now().into_std()) {
                if let Some(due) = share.due(Instant::now().into_std()) {
                    tokio::time::sleep_until(due.into()).await;
                }
                now = now.min(usize::try_from(share.left_bytes()).unwrap_or(usize::MAX));
                share.spend(now as u64);
            }
            if !upload.send(&rest[..now]).await? {
                break 'sending;
            }
            rest = &rest[now..];
            told.sent(now as u64);
        }
    }
    told.finishing();
    let stored = upload.finish().await?;
    let checked_by = announced.filter(|_| stored.is_checked).map(|digest| digest.algorithm());
    Ok(Sent { size_bytes, digests: digests.await.unwrap_or_default(), checked_by })
}

/// Asks a server what it has now, and compares. Returns the strongest algorithm of which it tells the right
/// digest; `None` if it tells no digest that is known here.
///
/// # Errors
/// [`PutError::Differs`] or [`PutError::Missing`].
pub(crate) async fn check(
    net: &Net,
    to: &Url,
    size_bytes: u64,
    digests: &[Digest],
) -> Result<Option<Algorithm>, PutError> {
    // Whoever may write need not be allowed to read.
    let facts = match head(net, to, Trust::Named).await {
        Ok(facts) => facts,
        Err(error) if matches!(error.code(), Some(404 | 410)) => {
            return Err(PutError::Missing { address: display_name(to) });
        }
        Err(_) => return Ok(None),
    };
    let differs = |what| PutError::Differs { address: display_name(to), what };
    if facts.size_bytes.is_some_and(|bytes| bytes != size_bytes) {
        return Err(differs("size"));
    }
    let mut by = None;
    for theirs in &facts.digests {
        let own = digests.iter().find(|own| own.algorithm() == theirs.algorithm());
        match own {
            Some(own) if own != theirs => return Err(differs(theirs.algorithm().name())),
            Some(_) => by = by.max(Some(theirs.algorithm())),
            None => {}
        }
    }
    Ok(by)
}

/// Computes the digests that servers may tell.
struct Hashers(Vec<Hasher>);

impl Hashers {
    /// SHA-256 first, then the checksum of grid storage, then those of `known`.
    fn new(known: &[Digest]) -> Hashers {
        let mut all = vec![Algorithm::Sha256, Algorithm::Adler32];
        all.extend(
            known.iter().map(Digest::algorithm).filter(|it| !all.contains(it)).collect::<Vec<_>>(),
        );
        Hashers(all.into_iter().map(Hasher::new).collect())
    }

    fn update(&mut self, part: &[u8]) {
        self.0.iter_mut().for_each(|hasher| hasher.update(part));
    }

    fn finish(self) -> Vec<Digest> {
        self.0.iter().map(Hasher::finish).collect()
    }
}

/// Limits the retries with a busy gateway, or one that fails for a moment.
struct Patience {
    began: Instant,
    limit: Duration,
    tries: u32,
}

impl Patience {
    fn new(limit: Duration) -> Patience {
        Patience { began: Instant::now(), limit, tries: 0 }
    }

    /// Returns the wait before the next try after this error; `None` if it is final.
    fn wait_after(&mut self, error: &LaneError) -> Option<Duration> {
        let wait = match error.class() {
            Class::Busy(wait) => wait,
            // A server that never answered is not there, but a status comes from a gateway.
            Class::Transient if error.refusal().is_some() => Duration::ZERO,
            Class::Transient if self.tries > 0 => Duration::ZERO,
            _ => return None,
        };
        let doubled = TRY_AGAIN_AFTER * 2u32.saturating_pow(self.tries.min(5));
        // Jitter: clients that were refused together must not retry together.
        let wait = wait.max(doubled).mul_f64(1.0 + fastrand::f64() / 4.0);
        self.tries += 1;
        (self.began.elapsed() + wait <= self.limit).then_some(wait)
    }
}

/// First wait before another try; each further one is twice as long.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Most parts that wait to be sent.
const PARTS_AHEAD: usize = 4;
