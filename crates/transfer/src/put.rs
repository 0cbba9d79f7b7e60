//! Sends a single file to a server, by `PUT`.
//!
//! The file is read twice: for its digest, which goes ahead so that the server can check the data,
//! and to send it. The server gives it its name only when all of it has come.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_model::{Limiter, SourceName};
use swath_source::{Class, LaneError, Stored, Upload, display_name};
use tokio::sync::mpsc;
use tokio::time::Instant;
use url::Url;

use crate::engine::{Engine, Stop};
use crate::observe::{
    Event, LimitedBy, Observer, Phase, Snapshot, SourceSnapshot, SourceState, SourceSummary,
    Summary, Verified,
};

/// A file to send.
#[derive(Clone, Debug)]
pub struct PutRequest {
    /// The file.
    pub file: PathBuf,
    /// Its address on the server.
    pub to: Url,
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
    let path = request.file.as_path();
    let failed = |source| PutError::Read { path: path.to_owned(), source };
    let mut told =
        PutProgress::begin(observer, display_name(&request.to), path.display().to_string());
    let looked = {
        let (path, stop) = (path.to_owned(), stop.clone());
        engine.disk.work(move || look(&path, &stop)).await
    };
    let (file, state, digest) = looked.and_then(|looked| looked).map_err(failed)?;
    let file = Arc::new(file);
    told.opened(state.size_bytes);
    let limiter = Arc::new(Limiter::new(engine.limit_bytes_per_s));
    let mut patience = Patience::new(engine.net().timeout());
    let stored = loop {
        match send_once(engine, request, &file, state, &digest, &limiter, &mut told).await {
            Ok(stored) => break stored,
            Err(PutError::Server(error)) => match patience.wait_after(&error) {
                Some(wait) => {
                    told.waits(&error, wait);
                    tokio::time::sleep(wait).await;
                }
                None => return Err(error.into()),
            },
            Err(error) => return Err(error),
        }
    };
    Ok(told.finished(stored.is_checked, &digest))
}

/// Tries once to send the file. If that fails, the server has none of it, so that another try does
/// no harm: PUT is idempotent (RFC 9110, section 9.2.2).
async fn send_once(
    engine: &Engine,
    request: &PutRequest,
    file: &Arc<File>,
    state: State,
    digest: &Digest,
    limiter: &Arc<Limiter>,
    told: &mut PutProgress<'_>,
) -> Result<Stored, PutError> {
    let path = request.file.as_path();
    let failed = |source| PutError::Read { path: path.to_owned(), source };
    let changed = || PutError::Changed { path: path.to_owned() };
    let mut upload = Upload::begin(engine.net(), &request.to, state.size_bytes, digest).await?;
    told.running();
    let mut parts = read_ahead(Arc::clone(file), state);
    'sending: while let Some(part) = parts.recv().await {
        // An error here ends the connection, and the server drops the data.
        let part = part.map_err(failed)?.ok_or_else(changed)?;
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
    Ok(upload.finish().await?)
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

/// Metadata that shows whether a file is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl State {
    fn of(found: &Metadata) -> State {
        State {
            size_bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// Opens a file and computes its digest.
fn look(path: &Path, stop: &Stop) -> io::Result<(File, State, Digest)> {
    // Opening a pipe without a writer would wait for one.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let state = State::of(&found);
    let mut hasher = Hasher::new(Algorithm::Sha256);
    let mut part = vec![0; PART_BYTES];
    let mut at = 0;
    while !stop.is_set() {
        match file.read_at(&mut part, at) {
            Ok(0) => break,
            Ok(bytes) => {
                hasher.update(&part[..bytes]);
                at += bytes as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((file, state, hasher.finish()))
}

/// A part of a file; `None` if the file has changed.
type Part = io::Result<Option<Vec<u8>>>;

/// Reads a file a few parts ahead, until the receiver is dropped. Checks that it has not changed
/// before the last part: without that part the server has no file.
fn read_ahead(file: Arc<File>, state: State) -> mpsc::Receiver<Part> {
    let (give, take) = mpsc::channel(PARTS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut at = 0;
        while at < state.size_bytes {
            let bytes = (state.size_bytes - at).min(PART_BYTES as u64);
            let read = read_part(&file, &state, at, bytes);
            let is_last = !matches!(read, Ok(Some(_)));
            if give.blocking_send(read).is_err() || is_last {
                return;
            }
            at += bytes;
        }
    });
    take
}

fn read_part(file: &File, state: &State, at: u64, bytes: u64) -> Part {
    let mut part = vec![0; bytes as usize];
    match file.read_exact_at(&mut part, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let is_end = at + bytes == state.size_bytes;
    if is_end && State::of(&file.metadata()?) != *state {
        return Ok(None);
    }
    Ok(Some(part))
}

/// Reports progress to the observer.
struct PutProgress<'a> {
    observer: &'a mut dyn Observer,
    to: String,
    from: String,
    began: Instant,
    size_bytes: Option<u64>,
    sent_bytes: u64,
    phase: Phase,
    state: SourceState,
    /// Time of the last report, and the bytes sent by then.
    last: (Instant, u64),
    rate_bytes_per_s: f64,
}

impl PutProgress<'_> {
    fn begin(observer: &mut dyn Observer, to: String, from: String) -> PutProgress<'_> {
        let began = Instant::now();
        observer.observe(&Event::Started { path: to.clone(), sources: vec![from.clone()] });
        PutProgress {
            observer,
            to,
            from,
            began,
            size_bytes: None,
            sent_bytes: 0,
            phase: Phase::Probing,
            state: SourceState::Probing,
            last: (began, 0),
            rate_bytes_per_s: 0.0,
        }
    }

    fn opened(&mut self, size_bytes: u64) {
        self.size_bytes = Some(size_bytes);
        let verification = Algorithm::Sha256.name().to_owned();
        let size_bytes = Some(size_bytes);
        self.observer.observe(&Event::Opened {
            size_bytes,
            resumed_bytes: 0,
            kept_bytes: 0,
            verification,
        });
    }

    /// Reports that the server refuses for now.
    fn waits(&mut self, error: &LaneError, wait: Duration) {
        (self.sent_bytes, self.last) = (0, (Instant::now(), 0));
        self.state = SourceState::Waiting;
        let wait = swath_model::units::duration(wait.as_secs_f64());
        let text = format!("{}: {error}; trying again in {wait}", self.to);
        let at_s = self.began.elapsed().as_secs_f64();
        self.observer.observe(&Event::note(at_s, text, false));
    }

    fn running(&mut self) {
        (self.phase, self.state) = (Phase::Fetching, SourceState::Running);
        self.last.0 = Instant::now();
    }

    fn sent(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
        let now = Instant::now();
        let span_s = now.duration_since(self.last.0).as_secs_f64();
        if span_s >= TOLD_EVERY.as_secs_f64() {
            let rate = (self.sent_bytes - self.last.1) as f64 / span_s;
            // Smoothed, so that it can be read.
            let share = if self.rate_bytes_per_s == 0.0 { 1.0 } else { 0.3 };
            self.rate_bytes_per_s += share * (rate - self.rate_bytes_per_s);
            self.last = (now, self.sent_bytes);
            self.progress();
        }
    }

    fn finishing(&mut self) {
        (self.phase, self.state) = (Phase::Finishing, SourceState::Idle);
        self.progress();
    }

    fn progress(&mut self) {
        let at_s = self.began.elapsed().as_secs_f64();
        let source = SourceSnapshot {
            source: 0,
            name: SourceName::direct(&self.from),
            state: self.state,
            rate_bytes_per_s: self.rate_bytes_per_s,
            bytes: self.sent_bytes,
            share: 1.0,
            rtt_ms: None,
            lanes: 1,
            requests: 1,
        };
        self.observer.observe(&Event::Progress(Snapshot {
            at_s,
            phase: self.phase,
            size_bytes: self.size_bytes,
            done_bytes: self.sent_bytes,
            resumed_bytes: 0,
            verified_bytes: 0,
            rate_bytes_per_s: self.rate_bytes_per_s,
            eta: None,
            sources: vec![source],
        }));
    }

    fn finished(self, is_checked: bool, digest: &Digest) -> Summary {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let rate_bytes_per_s = self.sent_bytes as f64 / elapsed_s.max(f64::EPSILON);
        let verified_by = match is_checked {
            true => format!("{}, computed by the server", Algorithm::Sha256.name()),
            false => "the server reports no digest of the file".to_owned(),
        };
        let source = SourceSummary {
            source: 0,
            name: SourceName::direct(self.from),
            state: SourceState::Idle,
            reason: None,
            bytes: self.sent_bytes,
            share: 1.0,
            rate_bytes_per_s,
            capacity_bytes_per_s: rate_bytes_per_s,
            requests: 1,
            lanes: 1,
            rtt_ms: None,
            wasted_bytes: 0,
        };
        let summary = Summary {
            size_bytes: self.sent_bytes,
            fetched_bytes: self.sent_bytes,
            elapsed_s,
            rate_bytes_per_s,
            verified: if is_checked { Verified::Digest } else { Verified::None },
            verified_by,
            proved: is_checked,
            limited_by: LimitedBy::Receiver,
            digest: Some(*digest),
            sources: vec![source],
            sent: true,
            ..Summary::of_nothing(self.to)
        };
        self.observer.observe(&Event::Finished(summary.clone()));
        summary
    }
}

/// First wait before another try; each further one is twice as long.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Bytes of one read.
const PART_BYTES: usize = 1 << 20;
/// Most parts that wait to be sent.
const PARTS_AHEAD: usize = 4;
/// Interval of snapshots.
const TOLD_EVERY: Duration = Duration::from_millis(200);
