//! Staging: the depots of relays fetch ranges of a file, near its later readers.
//!
//! To the planner each depot is a source whose lanes fetch, so that faster depots take more and all
//! end together; the bytes never come here. One round adds a copy of all bytes with too few; a
//! depot must not fetch bytes that it holds. At the end of a round only the depots' own lists of
//! their bytes count: a dead depot does not answer, and its part goes to others.
//!
//! `depots` keeps the state of each depot, `round` connects them with the planner, `depot_fetch` is
//! one fetch of one depot, `watch` detects depots that are gone.

mod depot_fetch;
mod depots;
mod rates;
mod round;
mod watch;

use std::time::Duration;

use crate::reason::{Reason, Why};
use futures_util::future::BoxFuture;
use futures_util::future::join_all;
use swath_model::digest::Digest;
use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::{RangeSet, Time, Validators};
use swath_source::{AboutRelay, Facts, LaneError, Net, Trust, probe};
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use crate::engine::Stop;
use crate::executor::Version;
use crate::observe::{Event, Observer};
use crate::request::Mirror;
use depots::{Condition, Depot};
use round::Round;
use swath_model::units;

/// A file to stage, where and for how long.
#[derive(Clone, Debug)]
pub struct StageRequest {
    /// Its replicas, from which depots fetch.
    pub mirrors: Vec<Mirror>,
    /// Its size, if known beforehand.
    pub size_bytes: Option<u64>,
    /// Digests that replicas must agree with, if they report any.
    pub digests: Vec<Digest>,
    /// The relays whose depots hold it.
    pub depots: Vec<Url>,
    /// The time of the leases.
    pub length: Duration,
    /// Number of copies of each byte, in different depots.
    pub replicas: usize,
    /// Name of the file in progress reports.
    pub name: String,
    /// End with an error when no depot has fetched a byte for this long, in seconds.
    pub stall_s: f64,
}

/// A file that lies in depots.
#[derive(Clone, Debug)]
pub struct Staged {
    /// Its size.
    pub size_bytes: u64,
    /// Digests that its replicas report.
    pub digests: Vec<Digest>,
    /// Validators of its version at the replicas.
    pub version: Validators,
    /// The replicas that have it, without credentials.
    pub origins: Vec<Url>,
    /// The depots that hold some of it.
    pub depots: Vec<StagedDepot>,
    /// Depots whose bytes are unknown and whose leases could not be released: the leases run on.
    pub unreached: Vec<StagedDepot>,
    /// The depots that hold nothing, and why.
    pub left_out: Vec<Reason>,
    /// How long the staging took.
    pub elapsed_s: f64,
}

/// The staged bytes of one depot.
#[derive(Clone, Debug)]
pub struct StagedDepot {
    /// The relay.
    pub relay: Url,
    /// Address to read it.
    pub read: Url,
    /// Address to extend and release the lease: a secret of the client that staged the file.
    pub manage: Url,
    /// Bytes that it holds.
    pub held: RangeSet,
    /// How long its lease still runs.
    pub left: Duration,
    /// Why it did not take more, or release its lease, if it failed.
    pub reason: Option<String>,
}

/// A failed staging. Depots hold nothing of the file, except `unreached` ones.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotStaged {
    /// The error.
    #[source]
    pub error: StageError,
    /// The size of the file; 0 if unknown.
    pub size_bytes: u64,
    /// Depots whose leases could not be released: they run on.
    pub unreached: Vec<StagedDepot>,
}

/// Why a file is not staged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// No replica can be used.
    #[error("no source can be used")]
    NoSource {
        /// Each with the reason.
        reasons: Vec<Reason>,
    },
    /// The file has no bytes.
    #[error("the file is empty: there is nothing to stage")]
    Empty,
    /// More copies are wanted than depots can be used.
    #[error("{} needed and {usable} can be used", if *wanted == 1 { "1 depot is".to_owned() } else { format!("{wanted} depots are") })]
    TooFew {
        /// How many are needed at least.
        wanted: usize,
        /// How many there are.
        usable: usize,
        /// Each that cannot be used, with the reason.
        reasons: Vec<Reason>,
    },
    /// The depots have less room than all copies need: nothing was fetched.
    #[error("the depots have room for {free_bytes} bytes, and {wanted_bytes} are needed")]
    NoRoom {
        /// How much of it they could take.
        free_bytes: u64,
        /// Size of all copies.
        wanted_bytes: u64,
        /// Each depot with its room.
        reasons: Vec<Reason>,
    },
    /// The remaining depots cannot take the missing bytes.
    #[error("{lacking_bytes} bytes could not be stored")]
    NoPlace {
        /// How many bytes have too few copies.
        lacking_bytes: u64,
        /// Each depot with what became of it.
        reasons: Vec<Reason>,
    },
    /// No depot has fetched anything for too long.
    #[error("no depot has fetched anything for {stall_s} s")]
    Stalled {
        /// How long that was, in seconds.
        stall_s: f64,
        /// Each depot with what became of it.
        reasons: Vec<Reason>,
    },
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

/// Called once, with the size of the file and the leases, as soon as depots have leased space.
pub type Leased<'a> = &'a mut (dyn FnMut(u64, Vec<StagedDepot>) + Send);

/// Stages a file. On any error, and when `stop` is set, all leases are released. A killed process
/// cannot do that, so `leased` gets the leases before anything is fetched.
///
/// # Errors
/// [`NotStaged`].
pub fn stage<'a>(
    net: &'a Net,
    request: &'a StageRequest,
    observer: &'a mut dyn Observer,
    leased: Leased<'a>,
    stop: &'a Stop,
) -> BoxFuture<'a, Result<Staged, NotStaged>> {
    Box::pin(async move {
        let mut staging = Staging {
            net,
            request,
            observer,
            began: Instant::now(),
            depots: request.depots.iter().cloned().map(Depot::new).collect(),
            file: File::default(),
        };
        let done = staging.all(leased, stop).await;
        let is_done = done.is_ok();
        // An empty depot is useless, so its lease is released.
        let leased = staging.depots.iter().filter(|depot| !is_done || depot.held.is_empty());
        let unreached = release(net, leased.filter_map(Depot::staged)).await;
        match done {
            Ok(staged) => Ok(Staged { unreached, ..staged }),
            Err(error) => Err(NotStaged { error, size_bytes: staging.file.size_bytes, unreached }),
        }
    })
}

/// Releases leases. Returns the depots where that failed, with the reason.
pub async fn release(net: &Net, depots: impl IntoIterator<Item = StagedDepot>) -> Vec<StagedDepot> {
    let told = depots.into_iter().map(|depot| async move {
        let reason = match timeout(RELEASE_WITHIN, net.depot_release(&depot.manage)).await {
            Ok(Ok(_)) => return None,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", RELEASE_WITHIN.as_secs()),
        };
        Some(StagedDepot { reason: Some(reason), ..depot })
    });
    join_all(told).await.into_iter().flatten().collect()
}

/// The facts about the file.
#[derive(Default)]
struct File {
    size_bytes: u64,
    digests: Vec<Digest>,
    version: Validators,
    /// The replicas that agree.
    replicas: Vec<Replica>,
}

/// A replica that depots may fetch from.
#[derive(Clone, Debug)]
struct Replica {
    url: Url,
    trust: Trust,
    version: Validators,
}

/// A file that is being staged.
struct Staging<'a> {
    net: &'a Net,
    request: &'a StageRequest,
    observer: &'a mut dyn Observer,
    began: Instant,
    depots: Vec<Depot>,
    file: File,
}

impl Staging<'_> {
    async fn all(&mut self, leased: Leased<'_>, stop: &Stop) -> Result<Staged, StageError> {
        let depots = self.depots.iter().map(|depot| depot.name.clone()).collect();
        self.observer.observe(&Event::Staging { path: self.request.name.clone(), depots });
        tokio::select! {
            biased;
            () = stop.wait() => return Err(StageError::Stopped),
            found = self.find() => found?,
        }
        let verification = String::new();
        let (size_bytes, resumed_bytes) = (Some(self.file.size_bytes), 0);
        self.observer.observe(&Event::Opened {
            size_bytes,
            resumed_bytes,
            kept_bytes: 0,
            verification,
        });
        tokio::select! {
            biased;
            () = stop.wait() => return Err(StageError::Stopped),
            () = self.ask_for_room() => self.must_find_room()?,
        }
        self.allocate(stop).await;
        leased(self.file.size_bytes, self.depots.iter().filter_map(Depot::staged).collect());
        if stop.is_set() {
            return Err(StageError::Stopped);
        }
        let usable = self.depots.iter().filter(|depot| depot.is_usable()).count();
        if usable < self.request.replicas {
            let (wanted, reasons) = (self.request.replicas, self.reasons());
            return Err(StageError::TooFew { wanted, usable, reasons });
        }
        // Depots that could not report their room before may be lost by now.
        self.must_find_room()?;
        // Each round adds a copy, or replaces a lost depot.
        for _ in 0..self.request.replicas + self.depots.len() + 1 {
            let lacking =
                depots::lacking(&self.depots, self.request.replicas, self.file.size_bytes);
            if lacking.is_empty() {
                return Ok(self.staged());
            }
            let (net, began) = (self.net, self.began);
            let replicas = self.request.replicas;
            Round::new(net, began, &self.file, &mut self.depots, replicas, lacking)
                .run(self.observer, stop, self.request.stall_s)
                .await?;
            tokio::select! {
                biased;
                () = stop.wait() => return Err(StageError::Stopped),
                () = self.count() => {}
            }
            if !self.depots.iter().any(Depot::is_usable) {
                break;
            }
        }
        let lacking = depots::lacking(&self.depots, self.request.replicas, self.file.size_bytes);
        if lacking.is_empty() {
            return Ok(self.staged());
        }
        Err(StageError::NoPlace { lacking_bytes: lacking.total_bytes(), reasons: self.reasons() })
    }

    /// Asks the replicas about their files; those with the same file as the first one are used.
    async fn find(&mut self) -> Result<(), StageError> {
        let (net, request) = (self.net, self.request);
        let asked = request.mirrors.iter().map(|mirror| async move {
            let found = probe(net, &mirror.url, mirror.trust).await;
            (mirror, usable(mirror, found.map(|report| report.facts)))
        });
        let mut reasons = Vec::new();
        let mut first: Option<Version> = None;
        for (mirror, found) in join_all(asked).await {
            let judged = found.and_then(|(version, facts)| {
                if let Some(wanted) = request.size_bytes.filter(|it| *it != version.size_bytes) {
                    let has = version.size_bytes;
                    return Err(format!("it has {has} bytes, {wanted} are expected").into());
                }
                let known = || request.digests.iter().chain(&self.file.digests);
                let rival = facts.digests.iter().find(|theirs| {
                    known().any(|it| it.algorithm() == theirs.algorithm() && it != *theirs)
                });
                if let Some(digest) = rival {
                    let words = format!("its file has another digest, {digest}");
                    return Err(words.into());
                }
                let is_proved = known().next().is_some();
                if let Some(first) = &first {
                    let admitted = first.admits(&version, is_proved);
                    admitted.map_err(|unlike| unlike.with_advice())?;
                }
                Ok((version, facts))
            });
            match judged {
                Ok((version, facts)) => {
                    let trust = mirror.trust;
                    let own = version.validators.clone();
                    if first.is_none() {
                        self.file.size_bytes = version.size_bytes;
                        self.file.version = own.clone();
                        first = Some(version);
                    }
                    for digest in facts.digests {
                        if !self.file.digests.contains(&digest) {
                            self.file.digests.push(digest);
                        }
                    }
                    let url = mirror.url.clone();
                    self.file.replicas.push(Replica { url, trust, version: own });
                }
                Err(why) => reasons.push(Reason::of_source(mirror.name(), why)),
            }
        }
        for digest in &request.digests {
            if !self.file.digests.contains(digest) {
                self.file.digests.push(*digest);
            }
        }
        if first.is_none() {
            return Err(StageError::NoSource { reasons });
        }
        for Reason { of, why } in reasons {
            self.note(format!("{of} is not used: {why}"), true);
        }
        if self.file.size_bytes == 0 {
            return Err(StageError::Empty);
        }
        Ok(())
    }

    /// Asks the depots how much they can lease. A depot that does not answer fails later, at its
    /// lease.
    async fn ask_for_room(&mut self) {
        let net = self.net;
        let asked = self.depots.iter().map(|depot| async move {
            timeout(ROOM_WITHIN, net.depot_room(&depot.relay)).await.ok()?.ok()
        });
        for (at, room) in join_all(asked).await.into_iter().enumerate() {
            self.depots[at].free_bytes = room;
        }
    }

    /// Fails early if the depots have too little room, before hours of fetching.
    fn must_find_room(&self) -> Result<(), StageError> {
        let (size_bytes, replicas) = (self.file.size_bytes, self.request.replicas);
        let too_little = depots::too_little_room(&self.depots, replicas, size_bytes);
        too_little.map_or(Ok(()), |free_bytes| {
            let size_bytes = size_bytes.next_multiple_of(depots::BLOCK_BYTES);
            let wanted_bytes = size_bytes.saturating_mul(replicas as u64);
            let reasons = depots::rooms(&self.depots);
            Err(StageError::NoRoom { free_bytes, wanted_bytes, reasons })
        })
    }

    /// Asks the depots about themselves, and for leases. A stop waits a little for their answers: a
    /// lease must be known to be released.
    async fn allocate(&mut self, stop: &Stop) {
        let net = self.net;
        let (size_bytes, length) = (self.file.size_bytes, self.request.length);
        let origins: Vec<Url> = self.file.replicas.iter().map(|it| it.url.clone()).collect();
        let replicas = &self.file.replicas;
        let asked = self.depots.iter().map(|depot| {
            let (relay, origins) = (&depot.relay, &origins);
            let asked = async move {
                let about = net.about_relay(relay, origins).await?;
                let open: Vec<bool> = replicas.iter().map(|it| can_show(net, relay, it)).collect();
                if !open.contains(&true) {
                    let text = "credentials for the source are not sent to it, as its key came unencrypted (use https://)";
                    return Err(text.into());
                }
                let lease = net.depot_allocate(relay, size_bytes, length).await;
                Ok((about, open, lease?))
            };
            async move {
                tokio::select! {
                    biased;
                    answer = asked => answer,
                    () = async {
                        stop.wait().await;
                        sleep(ANSWER_WITHIN).await;
                    } => Err("it had not answered by the end".into()),
                }
            }
        });
        let answers = join_all(asked).await;
        for (at, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok((about, open, lease)) => {
                    let depot = &mut self.depots[at];
                    depot.rtt = trip(&about);
                    depot.mirrors = depot_fetch::Mirrors::new(at, open);
                    depot.left = lease.left;
                    depot.lease = Some(lease);
                }
                Err(reason) => {
                    let condition = Condition::Lost(reason);
                    self.depots[at].tell(at, condition, self.began, self.observer);
                }
            }
        }
    }

    /// Asks every depot with a lease which bytes it holds now.
    async fn count(&mut self) {
        let (net, size_bytes) = (self.net, self.file.size_bytes);
        let asked = self.depots.iter().map(|depot| async move {
            let lease = depot.lease.as_ref()?;
            let asking = async {
                // A depot that restarts is not lost.
                let mut status = net.depot_status(&lease.manage, size_bytes).await;
                for wait in STATUS_WAITS {
                    match &status {
                        Err(error) if error.may_pass() => {
                            sleep(wait).await;
                            status = net.depot_status(&lease.manage, size_bytes).await;
                        }
                        _ => break,
                    }
                }
                status.map_err(Why::from)
            };
            // A lost depot may still report its bytes, but gets less time.
            let is_lost = matches!(depot.condition, Condition::Lost(_));
            let within = if is_lost { COUNT_LOST_WITHIN } else { COUNT_WITHIN };
            let none = |_| Err(format!("no answer within {} s", within.as_secs()).into());
            Some(timeout(within, asking).await.unwrap_or_else(none))
        });
        let answers = join_all(asked).await;
        for (at, answer) in answers.into_iter().enumerate() {
            let reason = match answer {
                None => continue,
                Some(Ok(status)) => {
                    let depot = &mut self.depots[at];
                    let mut missing = std::mem::replace(&mut depot.held, status.held);
                    depot.left = status.left;
                    for range in depot.held.iter().chain(status.damaged.iter()) {
                        missing.remove(range);
                    }
                    if missing.total_bytes() < GROUP_BYTES || !depot.is_usable() {
                        continue;
                    }
                    // It would get the same bytes again, and fail the same way.
                    let missing = units::bytes(missing.total_bytes());
                    let why = format!("it reported {missing} more than it has").into();
                    depot.tell(at, Condition::Lost(why), self.began, self.observer);
                    continue;
                }
                Some(Err(reason)) => reason,
            };
            self.depots[at].held = RangeSet::new();
            self.depots[at].tell(at, Condition::Lost(reason), self.began, self.observer);
        }
    }

    fn staged(&self) -> Staged {
        let holds = |depot: &&Depot| !depot.held.is_empty();
        let depots = self.depots.iter().filter(holds).filter_map(Depot::staged);
        let without = self.depots.iter().filter(|depot| depot.held.is_empty());
        let left_out = without.map(|depot| {
            let reason = depot.condition.reason().cloned();
            let why = reason.unwrap_or_else(|| "others had all of it first".into());
            Reason::of_depot(&depot.name, why)
        });
        Staged {
            size_bytes: self.file.size_bytes,
            digests: self.file.digests.clone(),
            version: self.file.version.clone(),
            origins: self.file.replicas.iter().map(|it| bare(&it.url)).collect(),
            depots: depots.collect(),
            unreached: Vec::new(),
            left_out: left_out.collect(),
            elapsed_s: self.began.elapsed().as_secs_f64(),
        }
    }

    fn reasons(&self) -> Vec<Reason> {
        depots::reasons(&self.depots, |depot| match depot.held.total_bytes() {
            0 => "it has fetched nothing".to_owned(),
            _ if self.request.replicas > 1 => {
                "further copies of its data must be in other depots".to_owned()
            }
            bytes => format!("it holds {}, but no more came", units::bytes(bytes)),
        })
    }

    fn note(&mut self, text: String, warning: bool) {
        let at_s = self.began.elapsed().as_secs_f64();
        self.observer.observe(&Event::note(at_s, text, warning));
    }
}

/// Returns the version and facts of a replica, if depots can fetch ranges of it.
fn usable(mirror: &Mirror, found: Result<Facts, LaneError>) -> Result<(Version, Facts), Why> {
    let facts = found?;
    let version = Version::of(&facts).ok_or("it does not report the file size")?;
    let name = mirror.url.path().rsplit('/').next().unwrap_or_default();
    if facts.is_web_page() && !facts.ranges && !Facts::names_web_page(name) {
        return Err(LaneError::Html.into());
    }
    if !facts.ranges && version.size_bytes > 0 {
        return Err("it does not answer with ranges".into());
    }
    Ok((version, facts))
}

/// Returns whether the depot of this relay may get the credentials of a replica.
fn can_show(net: &Net, relay: &Url, replica: &Replica) -> bool {
    let is_open = !net.has_secrets_for(&replica.url, replica.trust);
    is_open || net.can_encrypt_for(relay) == swath_source::CanEncrypt::Yes
}

/// Returns the longer of a request's two round trips: to the depot, and from there to the nearest
/// replica.
fn trip(about: &AboutRelay) -> Duration {
    let nearest = about.hops.iter().flatten().min().copied().unwrap_or_default();
    about.rtt.max(nearest)
}

/// Returns an address without credentials.
fn bare(url: &Url) -> Url {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    url
}

fn since(began: Instant) -> Time {
    Time::ZERO + began.elapsed()
}

/// Longest wait, after a stop, for depots that were asked for leases.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Longest wait for a depot's free space: nothing is lost if that is unknown.
const ROOM_WITHIN: Duration = Duration::from_secs(5);
/// Longest wait for a release: the user has decided to end.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);
/// Longest wait for a depot's list of its bytes.
const COUNT_WITHIN: Duration = Duration::from_secs(12);
/// The same for a lost depot: its bytes are elsewhere by then, or are fetched once more.
const COUNT_LOST_WITHIN: Duration = Duration::from_secs(3);
/// Pauses before a depot that does not answer is asked again for its bytes.
const STATUS_WAITS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
