//! Fetches a file together with other machines of a cluster, which run the same job.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use swath_formats::torrent::tracker_url;
use swath_model::digest::Digest;
use swath_model::pieces::Pieces;
use swath_share::{
    ClusterToken, Node, NodeOptions, Sameness, ShareEvent, SharedContent, Sharing, Version,
};
use swath_source::{Facts, Opening, Source};
use swath_transfer::{Destination, Discovery, Mirror, Overwrite, PickerKind, Request};
use tokio::sync::mpsc;
use tokio::time::sleep;
use url::Url;

use super::GetJob;
use crate::error::{JobError, NotShared, TorrentError};
use crate::event::{JobEvent, Note};

/// This machine among those of the cluster.
pub struct Cluster<'a> {
    get_job: &'a GetJob<'a>,
    node: Node,
    nodes: Vec<SocketAddr>,
    trackers: Vec<Url>,
    /// Whether the user knows that files are shared.
    is_told: AtomicBool,
}

/// A file that is shared, and its place.
pub struct SharedFile {
    content: Arc<SharedContent>,
    path: PathBuf,
}

/// A file that was there before the job.
pub struct Offer {
    path: PathBuf,
    mirrors: Vec<Mirror>,
    known: Known,
}

/// What is known of a file before any server is asked.
struct Known {
    digest: Option<Digest>,
    size_bytes: Option<u64>,
    piece_bytes: Option<u64>,
}

/// A mirror and its source.
type Opened = (Mirror, Arc<dyn Source>);

impl<'a> Cluster<'a> {
    /// Joins the cluster. Returns `None` if the job has no token, or if we cannot listen; the user then learns
    /// why.
    ///
    /// # Errors
    /// [`JobError::Engine`] if the network cannot be used, [`TorrentError::Tracker`] for an address that is
    /// none.
    pub async fn join(get_job: &'a GetJob<'a>) -> Result<Option<Cluster<'a>>, JobError> {
        let Some(token) = &get_job.cluster_token else { return Ok(None) };
        let spec = &get_job.get.swarm;
        let trackers = spec.trackers.iter().map(|text| tracker_url(text));
        let trackers = trackers.collect::<Option<_>>().ok_or(TorrentError::Tracker)?;
        let nodes = resolved(get_job, &spec.peers).await;
        let port = if spec.peers.is_empty() { 0 } else { PORT };
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        let net = get_job.job.engine.net().without_credentials(SILENCE_MAX);
        let options = NodeOptions {
            net: net.map_err(|error| JobError::Engine(error.into()))?,
            listen: spec.listen.unwrap_or(any),
            token: ClusterToken::new(token),
            upload_bytes_per_s: spec.upload_bytes_per_s,
        };
        let (events, told) = mpsc::channel(64);
        let node = match Node::start(options, events).await {
            Ok(node) => node,
            Err(error) => {
                get_job.note(Note::NotShared(NotShared::Listen(error)));
                return Ok(None);
            }
        };
        tell_events(get_job, told);
        let is_told = AtomicBool::new(false);
        Ok(Some(Cluster { get_job, node, nodes, trackers, is_told }))
    }

    /// Shares what this request fetches. Returns `None` if that is impossible; the user then learns why.
    pub async fn share(&self, request: &mut Request) -> Option<SharedFile> {
        let shared = self.shared(request).await;
        self.tell(shared)
    }

    /// Shares a file that was there before.
    pub async fn offer(&self, offer: Offer) -> Option<SharedFile> {
        let Offer { path, mirrors, known } = offer;
        let opened = self.open(mirrors).0;
        let shared = self.sharing(&known, &opened).await.and_then(|sharing| {
            let whole = Some(path.clone());
            Ok(SharedFile { content: self.node.share(Sharing { whole, ..sharing })?, path })
        });
        let shared = self.tell(shared)?;
        shared.content.meets_others(MEET_WITHIN).await;
        Some(shared)
    }

    fn tell(&self, shared: Result<SharedFile, NotShared>) -> Option<SharedFile> {
        match shared {
            Ok(shared) => {
                if !self.is_told.swap(true, Ordering::Relaxed) {
                    self.get_job.note(Note::Shared { address: self.node.address() });
                }
                Some(shared)
            }
            Err(why) => {
                self.get_job.note(Note::NotShared(why));
                None
            }
        }
    }

    async fn shared(&self, request: &mut Request) -> Result<SharedFile, NotShared> {
        let Destination::File(path) = &request.destination else {
            return Err(NotShared::Destination);
        };
        let path = path.clone();
        let (opened, unopened) = self.open(std::mem::take(&mut request.mirrors));
        // The transfer says why these cannot be used.
        request.mirrors = unopened;
        let content = self.sharing(&Known::of(request), &opened).await.and_then(|sharing| {
            request.size_bytes.get_or_insert(sharing.size_bytes);
            Ok(self.node.share(sharing)?)
        });
        let content = match content {
            Ok(content) => content,
            Err(why) => {
                request.mirrors.extend(opened.into_iter().map(|(mirror, _)| mirror));
                return Err(why);
            }
        };
        let origins = opened.into_iter().map(|(_, source)| content.origin(source));
        request.sources.extend(origins);
        request.discovery = Some(Arc::clone(&content) as Arc<dyn Discovery>);
        request.plan.picker = PickerKind::RarestFirst;
        request.plan.seed = fastrand::u64(..);
        Ok(SharedFile { content, path })
    }

    /// Opens mirrors; those that cannot be opened come second.
    fn open(&self, mirrors: Vec<Mirror>) -> (Vec<Opened>, Vec<Mirror>) {
        let net = self.get_job.job.engine.net();
        let (mut opened, mut unopened) = (Vec::new(), Vec::new());
        for mirror in mirrors {
            let opening = Opening { net, url: &mirror.url, trust: mirror.trust, sealed: None };
            match swath_source::open(opening) {
                Ok(source) => opened.push((mirror, source)),
                Err(_) => unopened.push(mirror),
            }
        }
        (opened, unopened)
    }

    /// Returns what identifies the content: what the user knows of it, and the first server that answers.
    async fn sharing(&self, known: &Known, opened: &[Opened]) -> Result<Sharing, NotShared> {
        let of = |sameness, size_bytes, version| Sharing {
            sameness,
            size_bytes,
            piece_bytes: known.piece_bytes,
            whole: None,
            version,
            nodes: self.nodes.clone(),
            trackers: self.trackers.clone(),
        };
        let mut error = None;
        for (mirror, source) in opened {
            let facts = match source.describe().await {
                Ok(facts) => facts,
                Err(failed) => {
                    error.get_or_insert(failed);
                    continue;
                }
            };
            let size_bytes = facts.size_bytes.ok_or(NotShared::NoSize)?;
            if !facts.ranges {
                return Err(NotShared::NoRanges);
            }
            let sameness = Sameness::find(known.digest, &mirror.url, &facts);
            let Facts { etag, last_modified, .. } = facts;
            let version = Version { etag, last_modified };
            return Ok(of(sameness.ok_or(NotShared::NoVersion)?, size_bytes, version));
        }
        // Perhaps others have it all.
        match (known.digest, known.size_bytes) {
            (Some(digest), Some(size_bytes)) => {
                Ok(of(Sameness::Digest(digest), size_bytes, Version::default()))
            }
            _ => Err(error.map_or(NotShared::NoMirror, NotShared::Unreached)),
        }
    }
}

impl SharedFile {
    /// The file is at its place: passes it on until the others are done, and for longer if that is wanted.
    pub async fn pass_on(&self, get_job: &GetJob<'_>) {
        self.content.completed(&self.path);
        let spec = &get_job.get.swarm;
        let passing = async {
            if let machines @ 1.. = self.content.others_lack() {
                get_job.note(Note::PassingOn { machines: machines as u64 });
            }
            self.content.others_are_done().await;
            if spec.keeps_seeding {
                get_job.note(Note::Seeding { ratio: spec.ratio });
                self.seed(spec.ratio).await;
            } else if self.content.was_alone() {
                get_job.note(Note::NobodyShares);
            }
        };
        tokio::select! {
            () = passing => {}
            () = get_job.job.control.cancelled() => {}
        }
        get_job.note(Note::Seeded { uploaded_bytes: self.content.sent_bytes() });
    }

    /// Waits until as much was sent as `ratio` says, in sizes of the content; for ever without one.
    async fn seed(&self, ratio: Option<f64>) {
        let size_bytes = self.path.metadata().map_or(0, |about| about.len());
        let is_enough = || {
            let sent = self.content.sent_bytes() as f64;
            ratio.is_some_and(|ratio| sent >= ratio * size_bytes as f64)
        };
        while !is_enough() {
            sleep(LOOK_EVERY).await;
        }
    }
}

impl Offer {
    /// Returns the file of a request if one with its name is there, which is to be kept.
    pub fn of(request: &Request) -> Option<Offer> {
        let Destination::File(path) = &request.destination else { return None };
        let is_kept = request.overwrite == Overwrite::Never && path.exists();
        is_kept.then(|| Offer {
            path: path.clone(),
            mirrors: request.mirrors.clone(),
            known: Known::of(request),
        })
    }
}

impl Known {
    fn of(request: &Request) -> Known {
        Known {
            digest: request.known_digests().max_by_key(|digest| digest.as_bytes().len()),
            size_bytes: request.size_bytes,
            piece_bytes: request.pieces.as_ref().map(Pieces::length_bytes),
        }
    }
}

/// Reports events to the user, and each failing tracker once.
fn tell_events(get_job: &GetJob<'_>, mut told: mpsc::Receiver<ShareEvent>) {
    let observer = Arc::clone(get_job.job.observer);
    tokio::spawn(async move {
        let mut failed = HashSet::new();
        while let Some(event) = told.recv().await {
            let note = match event {
                ShareEvent::TrackerFailed { tracker, error } => {
                    failed.insert(tracker.clone()).then_some(Note::TrackerFailed { tracker, error })
                }
                ShareEvent::NodeBanned { address } => Some(Note::MachineBanned { address }),
            };
            note.into_iter().for_each(|note| observer.observe(JobEvent::Note(note)));
        }
    });
}

/// Resolves machines, given as HOST or HOST:PORT. Reports names that cannot be resolved.
async fn resolved(get_job: &GetJob<'_>, machines: &[String]) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for machine in machines.iter().filter(|machine| !machine.is_empty()) {
        let has_port = machine.parse::<IpAddr>().is_err()
            && machine.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = match machine.parse::<IpAddr>() {
            _ if has_port => machine.clone(),
            Ok(ip) => SocketAddr::new(ip, PORT).to_string(),
            Err(_) => format!("{machine}:{PORT}"),
        };
        match tokio::net::lookup_host(&address).await {
            Ok(found) => all.extend(found),
            Err(error) => get_job.note(Note::NoSuchMachine { name: machine.clone(), error }),
        }
    }
    all
}

/// Where machines of a cluster listen if they find each other by a list of names.
const PORT: u16 = 8475;
/// Longer than a question for the log of another machine waits.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Others are heard within this time, if they are there.
const MEET_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(500);
