//! Copies between servers: this machine orders, the destination fetches, and lines tell how far it is.
//!
//! The job belongs to the destination. If the connection to it breaks, this side connects again and sends
//! the same order, which then only shows the job that runs. Cancelling here cancels it there.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use swath_formats::delegation::Delegation;
use swath_formats::percent;
use swath_source::{Download, LaneError, Net, Trust, display_name, fetch_small, post};
use swath_transfer::Stop;
use swath_transfer::observe::{Event, Observer};
use swath_transfer::sending::Line;
use swath_transfer::third_party::{ServerJob, ServerJobs, SourceAccess, Sources, Terms};
use tokio::time::timeout;
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

/// An order with what opens its sources.
pub struct Ordered {
    job: String,
    sources: Sources,
}

/// Returns the sources with what the destination needs for them.
///
/// # Errors
/// [`CopyError::NotDelegated`].
pub fn sources(
    copy_job: &CopyJob<'_>,
    servers: Servers<'_>,
    terms: &Terms,
) -> Result<Ordered, CopyError> {
    let (job, net) = (new_id(), copy_job.job.engine.net());
    let both = servers.from.iter().zip(servers.from_there);
    let sources = both.map(|(from, there)| access(net, from, there, terms, &job));
    let sources = Sources {
        sources: sources.collect::<Result<_, CopyError>>()?,
        limit_bytes_per_s: copy_job.job.spec.network.limit_bytes_per_s,
        require_digest: copy_job.copy.require_digest,
    };
    Ok(Ordered { job, sources })
}

/// Lets a server fetch from other servers, and waits for the end unless the copy is to go on alone.
pub async fn order(
    copy_job: &CopyJob<'_>,
    servers: Servers<'_>,
    ordered: Ordered,
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
    let query = format!("swath=fetch&job={}&{}", ordered.job, wishes.query());
    let order = Order {
        net,
        to: query_of(&folder, &query),
        server: to.clone(),
        job: ordered.job,
        ask: Ask::Order(serde_json::to_vec(&ordered.sources).unwrap_or_default()),
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
    ask: Ask,
    /// The destination for the user.
    shown: String,
    /// The sources for the user; none if only the server knows them.
    from: Vec<String>,
    is_dry: bool,
}

/// What is asked of the server.
enum Ask {
    /// To carry out a copy, with this body, unless it does already.
    Order(Vec<u8>),
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
            Ended::Begun => return Ok(Outcome::Begun { job: self.job, at }),
            Ended::Stopped => {
                if let Ask::Order(_) = self.ask {
                    // It would go on there.
                    let cancelling = cancel(self.net, &self.job, &self.server);
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
                Ask::Order(body) => {
                    Download::begin_by_post(self.net, &self.to, Trust::Named, LINES, body).await
                }
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
        if let Ask::Order(_) = self.ask
            && !self.is_dry
            && is_first
        {
            if copy_job.copy.detach {
                return Ok(Ended::Begun);
            }
            // A server started by ssh ends with this command.
            if copy_job.pair.is_none() {
                let (job, at) = (self.job.clone(), display_name(&self.server));
                copy_job.job.observer.observe(JobEvent::Note(Note::Ordered { job, at }));
            }
        }
        let mut lines = Lines::of(told, "the server");
        loop {
            let line = tokio::select! {
                biased;
                () = stop.wait() => return Ok(Ended::Stopped),
                line = lines.next(again) => line,
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

/// Returns a source with what the destination needs for it.
fn access(
    net: &Net,
    from: &Url,
    from_there: &Url,
    terms: &Terms,
    id: &str,
) -> Result<SourceAccess, CopyError> {
    let not = |why| CopyError::NotDelegated { address: display_name(from), why };
    let own = net.access_to(from);
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
                until_s: (now + DELEGATED_FOR).as_secs(),
                key: key_of(&terms.certificate),
                job: id.to_owned(),
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

fn new_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// More than the jobs that a server keeps.
const LIST_BYTES_MAX: usize = 16 << 20;
const TERMS_BYTES_MAX: usize = 64 << 10;
/// The destination may have to wait its turn, and large datasets take days.
const DELEGATED_FOR: Duration = Duration::from_secs(7 * 86_400);
/// Nobody waits longer for a server at the end.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);
