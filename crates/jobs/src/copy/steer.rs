//! Copies between servers: this machine orders, the destination fetches, and lines tell how far it is.
//!
//! The job belongs to the destination. If the connection to it breaks, this side connects again and sends
//! the same order, which then only shows the job that runs. The rights to read the sources are limited in
//! time: each order that is sent has new ones, and while this side is there, it sends the order again before
//! they end. Cancelling here cancels it there.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use swath_formats::delegation::Delegation;
use swath_formats::percent;
use swath_source::{Download, LaneError, Net, Trust, display_name, fetch_small, post};
use swath_transfer::Stop;
use swath_transfer::observe::{Event, Observer};
use swath_transfer::sending::Line;
use swath_transfer::third_party::{ServerJob, ServerJobs, SourceAccess, Sources, Terms};
use tokio::time::{sleep, timeout};
use url::Url;

use super::CopyJob;
use super::between::Servers;
use super::by_others::is_issued;
use super::error::{CopyError, NotDelegated, SendProgress};
use super::kind::in_folder;
use super::lines::{Lines, NoLine, planned};
use super::names::DisplayNames;
use super::retry::{Interruption, Retries};
use super::send::{LINES, query_of, within};
use super::upload::{self, title};
use crate::error::JobError;
use crate::event::{JobEvent, Note};
use crate::run::Outcome;

/// What a copy is ordered by: its sources, with what opens them.
pub struct Granting<'a> {
    net: &'a Net,
    servers: Servers<'a>,
    job: String,
    /// SHA-256 of the certificate by which the destination is known to the sources.
    key: [u8; 32],
    /// How long the rights to read last.
    lasts: Duration,
    limit_bytes_per_s: Option<u64>,
    require_digest: bool,
}

impl<'a> Granting<'a> {
    /// Prepares an order, by what the destination needs.
    pub fn new(copy_job: &'a CopyJob<'_>, servers: Servers<'a>, terms: &Terms) -> Granting<'a> {
        Granting {
            net: copy_job.job.engine.net(),
            servers,
            job: new_id(),
            key: key_of(&terms.certificate),
            lasts: Duration::from_secs(copy_job.copy.grant_s),
            limit_bytes_per_s: copy_job.job.spec.network.limit_bytes_per_s,
            require_digest: copy_job.copy.require_digest,
        }
    }

    /// Returns the sources, with rights to read them that begin now.
    ///
    /// # Errors
    /// [`CopyError::NotDelegated`].
    pub fn sources(&self) -> Result<Sources, CopyError> {
        let both = self.servers.from.iter().zip(self.servers.from_there);
        Ok(Sources {
            sources: both
                .map(|(from, there)| self.access(from, there))
                .collect::<Result<_, _>>()?,
            limit_bytes_per_s: self.limit_bytes_per_s,
            require_digest: self.require_digest,
        })
    }

    /// Returns a source with what the destination needs for it.
    fn access(&self, from: &Url, from_there: &Url) -> Result<SourceAccess, CopyError> {
        let not = |why| CopyError::NotDelegated { address: display_name(from), why };
        let own = self.net.access_to(from);
        if own.has_other {
            return Err(not(NotDelegated::Headers));
        }
        let token = match &own.token {
            None => None,
            Some(_) if from.scheme() != "https" => return Err(not(NotDelegated::Plain)),
            Some(token) if is_issued(token) => return Err(not(NotDelegated::Issued)),
            Some(token) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let delegation = Delegation {
                    path: percent::decode(from.path()),
                    until_s: (now + self.lasts).as_secs(),
                    key: self.key,
                    job: self.job.clone(),
                };
                let text = delegation.text(token.expose());
                Some(text.map_err(|short| not(NotDelegated::Short(short)))?)
            }
        };
        let mut url = from_there.clone();
        // They fail only for addresses without a host.
        let _ = (url.set_username(""), url.set_password(None));
        let fingerprints = own.fingerprints.iter().map(|digest| digest.to_hex()).collect();
        Ok(SourceAccess { url: url.to_string(), token, fingerprints })
    }
}

/// Lets a server fetch from other servers, and waits for the end unless the copy is to go on alone.
pub async fn order(
    copy_job: &CopyJob<'_>,
    servers: Servers<'_>,
    granting: Granting<'_>,
    observer: &mut dyn Observer,
) -> Result<Outcome, JobError> {
    let (net, to) = (copy_job.job.engine.net(), servers.to);
    copy_job.started(false);
    // A file may get the name of the destination: that is for the destination to find out.
    let (folder, single) = match (servers.is_alone, in_folder(to)) {
        (true, Some((above, name))) if !to.path().ends_with('/') => (above, Some(name)),
        _ => (to.clone(), None),
    };
    let wishes = upload::wishes(copy_job, single);
    let query = format!("swath=fetch&job={}&{}", granting.job, wishes.query());
    let order = Order {
        net,
        to: query_of(&folder, &query),
        server: to.clone(),
        job: granting.job.clone(),
        joined: OnceLock::new(),
        ask: Ask::Order(granting),
        shown: display_name(to),
        from: servers.from.iter().map(display_name).collect(),
        is_dry: wishes.dry,
    };
    order.carry_out(copy_job, observer).await
}

/// Follows a copy that a server carries out, to its end.
pub async fn attach(
    copy_job: &CopyJob<'_>,
    job: &str,
    at: &Url,
    observer: &mut dyn Observer,
) -> Result<Outcome, JobError> {
    copy_job.started(false);
    let order = Order {
        net: copy_job.job.engine.net(),
        to: query_of(at, &format!("swath=job&job={job}")),
        server: at.clone(),
        job: job.to_owned(),
        joined: OnceLock::new(),
        ask: Ask::Look,
        shown: display_name(at),
        from: Vec::new(),
        is_dry: false,
    };
    order.carry_out(copy_job, observer).await
}

/// Cancels a copy that a server carries out; what it has received is kept.
///
/// # Errors
/// [`LaneError`], 404 if there is no such copy, or it has ended.
pub async fn cancel(net: &Net, job: &str, at: &Url) -> Result<(), LaneError> {
    let asked = query_of(at, &format!("swath=cancel&job={job}"));
    post(net, &asked, Trust::Named, b"").await.map(drop)
}

/// Returns the copies that a server carries out, or has carried out, for this user.
///
/// # Errors
/// [`LaneError`].
pub async fn list(net: &Net, at: &Url) -> Result<Vec<ServerJob>, LaneError> {
    let asked = query_of(at, "swath=jobs");
    let kind = "application/json";
    let document = fetch_small(net, &asked, Trust::Named, kind, LIST_BYTES_MAX).await?;
    let jobs: ServerJobs = serde_json::from_slice(&document.bytes).map_err(not_swath)?;
    Ok(jobs.jobs)
}

/// An order to a server.
struct Order<'a> {
    net: &'a Net,
    to: Url,
    server: Url,
    job: String,
    /// The job that carries it out, if another order of the same copy came first.
    joined: OnceLock<String>,
    ask: Ask<'a>,
    /// The destination for the user.
    shown: String,
    /// The sources for the user; none if only the server knows them.
    from: Vec<String>,
    is_dry: bool,
}

/// What is asked of the server.
enum Ask<'a> {
    /// To carry out a copy, unless it does already.
    Order(Granting<'a>),
    /// How a copy goes.
    Look,
}

/// How an order ended here.
enum Ended {
    /// As the last line says.
    Said(Box<Line>),
    /// It goes on alone.
    Begun,
    /// The user stopped it.
    Stopped,
    /// The server is not reached any more, or does not make sense.
    Broken(swath_transfer::Why),
}

impl Order<'_> {
    async fn carry_out(
        self,
        copy_job: &CopyJob<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, JobError> {
        let job = copy_job.job;
        let at = display_name(&self.server);
        let stop = Stop::default();
        let mut again = Retries::new(&mut *observer, &self.shown, Some(self.net.timeout()));
        let ended = {
            let watching = self.watch(copy_job, &mut again, &stop);
            job.control.until_paused(&stop, watching).await
        };
        let has_something = again.has_something();
        let destination = self.shown.clone();
        Err(match ended {
            Ended::Said(line) => match *line {
                Line::Received(mut received) => {
                    again.sum(&mut received);
                    if !self.is_dry {
                        let mut summary = received.transfer.clone();
                        summary.path = title(&self.shown);
                        observer.observe(&Event::Finished(summary));
                    }
                    return Ok(copy_job.copied(*received, destination));
                }
                Line::Failed(failed) => {
                    CopyError::Receiver { destination, failed, is_single: false }
                }
                _ => CopyError::SendStopped { destination, has_something },
            },
            Ended::Begun => return Ok(Outcome::Begun { job: self.job().to_owned(), at }),
            Ended::Stopped => {
                if let Ask::Order(_) = self.ask {
                    // It would go on there.
                    let cancelling = cancel(self.net, self.job(), &self.server);
                    let _ = timeout(CANCEL_WITHIN, cancelling).await;
                }
                match self.ask {
                    Ask::Order(_) => CopyError::SendStopped { destination, has_something },
                    Ask::Look => CopyError::StoppedLooking { destination },
                }
            }
            Ended::Broken(why) => {
                let progress = match has_something {
                    true => SendProgress::Some,
                    false => SendProgress::Nothing,
                };
                let names = DisplayNames::default();
                CopyError::Broken { destination, why: Box::new(why), progress, names }
            }
        }
        .into())
    }

    fn job(&self) -> &str {
        self.joined.get().unwrap_or(&self.job)
    }

    /// Sends the order with new rights; the server goes on with the job that it has.
    async fn send(&self, granting: &Granting<'_>) -> Result<Download, LaneError> {
        // It was possible when the copy began.
        let sources = granting.sources().unwrap_or_default();
        let body = serde_json::to_vec(&sources).unwrap_or_default();
        Download::begin_by_post(self.net, &self.to, Trust::Named, LINES, &body).await
    }

    /// Renews the rights to read as long as somebody waits for it.
    async fn keep_renewing(&self) {
        let Ask::Order(granting) = &self.ask else { return std::future::pending().await };
        let mut wait = granting.lasts / 2;
        loop {
            sleep(wait).await;
            wait = match self.send(granting).await {
                Ok(_) => granting.lasts / 2,
                Err(error) => {
                    tracing::info!(%error, "the rights to read the sources are not renewed yet");
                    (granting.lasts / 16).max(RENEW_AGAIN)
                }
            };
        }
    }

    /// Follows the job to its end, on one connection after another.
    async fn watch(&self, copy_job: &CopyJob<'_>, again: &mut Retries<'_>, stop: &Stop) -> Ended {
        loop {
            let broken = match self.once(copy_job, again, stop).await {
                Ok(ended) => return ended,
                Err(broken) => broken,
            };
            if !again.waits(&broken, stop).await {
                return if stop.is_set() { Ended::Stopped } else { Ended::Broken(broken.why) };
            }
        }
    }

    async fn once(
        &self,
        copy_job: &CopyJob<'_>,
        again: &mut Retries<'_>,
        stop: &Stop,
    ) -> Result<Ended, Interruption> {
        let asking = async {
            match &self.ask {
                Ask::Order(granting) => self.send(granting).await,
                Ask::Look => Download::begin(self.net, &self.to, Trust::Named, LINES).await,
            }
        };
        let begun = tokio::select! {
            biased;
            () = stop.wait() => return Ok(Ended::Stopped),
            begun = within(again.until(), self.net, asking) => begun,
        };
        let told = match begun {
            Ok(told) => told,
            Err(error) => match Interruption::of(&error).filter(|_| again.has_begun()) {
                Some(broken) => return Err(broken),
                None => return Ok(Ended::Broken(error.into())),
            },
        };
        let is_first = !again.has_begun();
        again.begins();
        if let Some(job) = told.field("swath-job").filter(|job| *job != self.job && is_name(job)) {
            let _ = self.joined.set(job.to_owned());
        }
        if let Ask::Order(_) = self.ask
            && !self.is_dry
            && is_first
        {
            if copy_job.copy.detach {
                let lines = Lines::of(told, "the server");
                return Ok(until_begun(lines, again, stop).await);
            }
            // A server started by ssh ends with this command.
            if copy_job.pair.is_none() {
                let (job, at) = (self.job().to_owned(), display_name(&self.server));
                let ran_already = self.joined.get().is_some();
                copy_job.job.observer.observe(JobEvent::Note(Note::Ordered {
                    job,
                    at,
                    ran_already,
                }));
            }
        }
        let mut lines = Lines::of(told, "the server");
        let mut renewing = std::pin::pin!(self.keep_renewing());
        loop {
            let line = tokio::select! {
                biased;
                () = stop.wait() => return Ok(Ended::Stopped),
                line = lines.next(again) => line,
                () = &mut renewing => continue,
            };
            match line {
                Ok(Line::Receiving(_) | Line::Dial(_)) => {}
                Ok(Line::Event(mut event)) => {
                    // The server knows its folder by another name.
                    if let Event::Started { path, sources } = &mut *event
                        && !self.from.is_empty()
                    {
                        *path = title(&self.shown);
                        sources.clone_from(&self.from);
                    }
                    again.tell(*event);
                }
                Ok(Line::Change(bytes, path, further_of)) => {
                    copy_job.job.observer.observe(planned(bytes, path, further_of));
                }
                Ok(line @ (Line::Received(_) | Line::Failed(_))) => {
                    return Ok(Ended::Said(Box::new(line)));
                }
                Err(NoLine::Broken(broken)) => return Err(broken),
                Err(NoLine::Invalid(text)) => return Ok(Ended::Broken(text.into())),
            }
        }
    }
}

/// Waits until a copy is known to run or to wait there, or has failed at once.
async fn until_begun(mut lines: Lines, again: &mut Retries<'_>, stop: &Stop) -> Ended {
    let begins = async {
        loop {
            match lines.next(again).await {
                Ok(Line::Failed(failed)) => return Ended::Said(Box::new(Line::Failed(failed))),
                Ok(Line::Event(event)) => {
                    if let Event::Opened { .. } | Event::Note { .. } = *event {
                        return Ended::Begun;
                    }
                }
                // It is there, whatever becomes of this connection.
                Ok(Line::Received(_)) | Err(_) => return Ended::Begun,
                Ok(_) => {}
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.wait() => Ended::Stopped,
        begun = timeout(BEGINS_WITHIN, begins) => begun.unwrap_or(Ended::Begun),
    }
}

/// Asks the destination what it needs.
///
/// # Errors
/// [`LaneError`].
pub async fn terms(net: &Net, to: &Url) -> Result<Terms, LaneError> {
    let asked = query_of(to, "swath=third-party");
    let kind = "application/json";
    let document = fetch_small(net, &asked, Trust::Named, kind, TERMS_BYTES_MAX).await?;
    serde_json::from_slice(&document.bytes).map_err(not_swath)
}

fn not_swath(error: serde_json::Error) -> LaneError {
    LaneError::Protocol { reason: format!("not a swath server: {error}") }
}

/// Returns the fingerprint of a certificate; zeros, which are of none, if the text is none.
fn key_of(text: &str) -> [u8; 32] {
    let mut key = [0; 32];
    let digits = text.as_bytes().chunks_exact(2);
    if text.len() == 64 {
        for (byte, pair) in key.iter_mut().zip(digits) {
            let pair = str::from_utf8(pair).unwrap_or_default();
            *byte = u8::from_str_radix(pair, 16).unwrap_or(0);
        }
    }
    key
}

/// Whether a server may call a job so.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_part)
}

fn new_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

const NAME_BYTES_MAX: usize = 64;
/// More than the jobs that a server keeps.
const LIST_BYTES_MAX: usize = 16 << 20;
const TERMS_BYTES_MAX: usize = 64 << 10;
/// After a failure to renew rights.
const RENEW_AGAIN: Duration = Duration::from_secs(1);
/// Nobody who lets it run alone waits longer to see it begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);
/// Nobody waits longer for a server at the end.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);
