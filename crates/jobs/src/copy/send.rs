//! Sends a local folder, or what another server has, to a swath server, which fetches from this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use swath_serve::{Filter, Offer};
use swath_source::{Class, Download, Forward, Forwarding, LaneError, Net, Trust, Tunnel};
use swath_transfer::observe::{Event, Observer};
use swath_transfer::sending::{Failed, Line, Received, Wishes};
use swath_transfer::{Stop, Why};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::CopyJob;
use super::error::{OfferError, SendProgress};
use super::lines::{Lines, NoLine, planned};
use super::local::offer;
use super::retry::{Interruption, Retries};
use super::upload::{Content, Upload};
use crate::event::JobObserver;

/// Results of sending.
pub enum SendResult {
    /// Complete.
    All(Box<Received>),
    /// The receiver failed.
    Failed(Failed),
    /// The connection broke.
    Broken(SendProgress, Why),
    /// The source cannot be read.
    Unreadable(OfferError),
    /// The source is a single file, and the server is not a swath server or refuses uploads of trees; with
    /// its refusal.
    NotTreeServer(Option<LaneError>),
    /// Stopped by the user.
    Stopped {
        /// Whether the receiver had received something.
        has_something: bool,
    },
}

/// Sends an upload until its receiver has all of it, or gives up.
pub async fn send(
    copy_job: &CopyJob<'_>,
    upload: &Upload,
    filter: Filter,
    wishes: &Wishes,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> SendResult {
    let (job, net) = (copy_job.job, copy_job.job.engine.net());
    let offered = match &upload.from {
        Content::Through { forward, .. } => Offered::Through(forward.clone()),
        Content::Here(from) => {
            let (reads, limit) = (job.spec.disk.io.into(), job.spec.network.limit_bytes_per_s);
            match offer(from, upload.single.as_deref(), filter, reads, limit) {
                Ok(offer) => Offered::Here(offer),
                Err(error) => return SendResult::Unreadable(error),
            }
        }
    };
    if let Offered::Here(offer) = &offered
        && wishes.delete
    {
        offer.keep_first();
    }
    // A server started by ssh ends with its connection; a plan is reported once.
    let retries = copy_job.session.is_none() && !copy_job.copy.dry_run;
    let mut again = Retries::new(observer, &upload.shown, retries.then(|| net.timeout()));
    let events = &**job.observer;
    let sending = Sending { net, upload, events, offered, was_asked: Arc::default() };
    let mut wishes = wishes.clone();
    loop {
        let broken = match sending.once(&wishes, &mut again, stop).await {
            Ok(sent) => return sent,
            Err(broken) => broken,
        };
        if !again.waits(&broken, stop).await {
            return sending.ended(&again, SendProgress::Nothing, broken.why);
        }
        // Resume this copy, even if earlier runs must not be resumed.
        wishes.resume |= again.is_ours();
        wishes.first_walk = sending.offered.first();
    }
}

/// What the receiver reads on its lanes.
#[derive(Clone)]
enum Offered {
    /// A local folder or file.
    Here(Offer),
    /// What another server has.
    Through(Forward),
}

impl Offered {
    /// Returns the first walk of a local folder that was completed.
    fn first(&self) -> Option<String> {
        match self {
            Offered::Here(offer) => offer.first(),
            // Nothing can be added to it by this copy.
            Offered::Through(_) => None,
        }
    }
}

/// Sends to one receiver after another.
struct Sending<'a> {
    net: &'a Net,
    upload: &'a Upload,
    events: &'a dyn JobObserver,
    offered: Offered,
    /// Whether the receiver has connected.
    was_asked: Arc<AtomicBool>,
}

impl Sending<'_> {
    /// Sends to one receiver.
    async fn once(
        &self,
        wishes: &Wishes,
        again: &mut Retries<'_>,
        stop: &Stop,
    ) -> Result<SendResult, Interruption> {
        let Sending { net, upload, .. } = self;
        let stopped =
            |again: &Retries<'_>| SendResult::Stopped { has_something: again.has_something() };
        let asked = query_of(&upload.to, &format!("swath=receive&{}", wishes.query()));
        let asking = Download::begin_by_post(net, &asked, Trust::Named, LINES, b"");
        let begun = tokio::select! {
            biased;
            () = stop.wait() => return Ok(stopped(again)),
            begun = within(again.until(), net, asking) => begun,
        };
        let may_be_foreign = wishes.single.is_some() && !again.has_begun();
        let told = match begun {
            Ok(told) if may_be_foreign && told.field("content-type") != Some(LINES) => {
                return Ok(SendResult::NotTreeServer(None));
            }
            // After 401 `PUT` would fail too.
            Err(error) if may_be_foreign && error.code().is_some_and(|code| code != 401) => {
                return Ok(SendResult::NotTreeServer(Some(error)));
            }
            Ok(told) => told,
            Err(error) => {
                if again.has_begun()
                    && let Some(broken) = Interruption::of(&error)
                {
                    return Err(broken);
                }
                let is_refused = error.code().is_some_and(is_of_the_place);
                let progress = match is_refused {
                    true => SendProgress::Refused,
                    false => SendProgress::Nothing,
                };
                return Ok(self.ended(again, progress, error));
            }
        };
        again.begins();
        // Each ends with the server's error if it refuses access.
        let mut lanes: JoinSet<Option<LaneError>> = JoinSet::new();
        let mut lines = Lines::of(told, "the receiver");
        let mut id = String::new();
        loop {
            let line = tokio::select! {
                biased;
                () = stop.wait() => return Ok(stopped(again)),
                Some(over) = lanes.join_next() => match over {
                    // The receiver would request connections until it gives up.
                    Ok(Some(refused)) if lanes.is_empty() => {
                        return Ok(self.ended(again, SendProgress::Nothing, refused));
                    }
                    _ => continue,
                },
                line = lines.next(again) => line,
            };
            match line {
                Ok(Line::Receiving(name)) => id = name,
                Ok(Line::Dial(count)) => {
                    let free = DIALS_MAX.saturating_sub(lanes.len());
                    for _ in 0..free.min(count as usize) {
                        lanes.spawn(self.lane(&id));
                    }
                }
                Ok(Line::Event(mut event)) => {
                    // The receiver does not know the names that the user sees.
                    if let Event::Started { path, sources } = &mut *event {
                        *path = super::upload::title(&upload.shown);
                        *sources = vec![upload.from.shown()];
                    }
                    again.tell(*event);
                }
                Ok(Line::Change(bytes, path, further_of)) => {
                    self.events.observe(planned(bytes, path, further_of));
                }
                Ok(Line::Received(mut received)) => {
                    again.sum(&mut received);
                    return Ok(SendResult::All(received));
                }
                Ok(Line::Failed(failed)) => {
                    return match again.is_break(&failed) {
                        true => Err(Interruption::new(failed.error)),
                        false => Ok(SendResult::Failed(failed)),
                    };
                }
                Err(NoLine::Broken(broken)) => return Err(broken),
                Err(NoLine::Invalid(text)) => {
                    return Ok(self.ended(again, SendProgress::Nothing, text));
                }
            }
        }
    }

    /// Serves a connection that the receiver requested; ends with the server's error if it refuses access,
    /// or that of the source if it cannot be connected.
    fn lane(&self, id: &str) -> impl Future<Output = Option<LaneError>> + Send + use<> {
        let (net, offered, was_asked) =
            (self.net.clone(), self.offered.clone(), Arc::clone(&self.was_asked));
        let lane = query_of(&self.upload.to, &format!("swath=lane&of={id}"));
        async move {
            let source = match &offered {
                Offered::Here(_) => None,
                Offered::Through(forward) => match connected(&net, forward).await {
                    Ok(source) => Some(source),
                    Err(error) => return Some(error),
                },
            };
            match Tunnel::upgraded(&net, &lane, Trust::Named, PROTOCOL).await {
                Ok(turned) => {
                    let peer = turned.peer();
                    was_asked.store(true, Ordering::Relaxed);
                    match (offered, source) {
                        (_, Some(source)) => source.pass(turned).await,
                        (Offered::Here(offer), None) => offer.serve(turned, peer).await,
                        (Offered::Through(_), None) => {}
                    }
                    None
                }
                Err(error)
                    if matches!(error.class(), Class::Unauthenticated | Class::Forbidden) =>
                {
                    Some(error)
                }
                // The receiver requests another one if necessary.
                Err(error) => {
                    tracing::debug!(%error, "cannot open a lane");
                    None
                }
            }
        }
    }

    /// Returns the broken result; `progress` applies if nothing was sent.
    fn ended(
        &self,
        again: &Retries<'_>,
        progress: SendProgress,
        why: impl Into<Why>,
    ) -> SendResult {
        let was_asked = self.was_asked.load(Ordering::Relaxed);
        let has_some = again.has_something() || was_asked;
        SendResult::Broken(if has_some { SendProgress::Some } else { progress }, why.into())
    }
}

/// Connects to a source, which may be about to come back.
async fn connected(net: &Net, forward: &Forward) -> Result<Forwarding, LaneError> {
    let until = Instant::now() + net.timeout();
    loop {
        match forward.connect().await {
            Err(error)
                if matches!(error.class(), Class::Transient | Class::Busy(_))
                    && Instant::now() + CONNECT_AGAIN < until =>
            {
                tokio::time::sleep(CONNECT_AGAIN).await;
            }
            connected => return connected,
        }
    }
}

/// Applies a time limit, if there is one.
pub(super) async fn within(
    until: Option<Instant>,
    net: &Net,
    asking: impl Future<Output = Result<Download, LaneError>>,
) -> Result<Download, LaneError> {
    match until {
        None => asking.await,
        Some(until) => {
            let answered = timeout_at(until, asking).await;
            answered.unwrap_or(Err(LaneError::Timeout { after: net.timeout() }))
        }
    }
}

/// Whether a refusal concerns the destination, not the server.
fn is_of_the_place(status: u16) -> bool {
    matches!(status, 403 | 404 | 405 | 409 | 413 | 507)
}

pub(super) fn query_of(url: &Url, query: &str) -> Url {
    let mut url = url.clone();
    url.set_query(Some(query));
    url
}

/// The media type of a receiver's messages.
pub(super) const LINES: &str = "application/x-ndjson";
/// The protocol name, see `docs/protocol.md`.
const PROTOCOL: &str = "swath-lane";
/// Pause before the source is connected again.
const CONNECT_AGAIN: Duration = Duration::from_millis(500);
/// Most connections at once.
const DIALS_MAX: usize = 64;
