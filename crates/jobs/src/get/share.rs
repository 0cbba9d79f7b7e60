//! Fetches a file together with other machines of a cluster, which run the same job.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use swath_formats::torrent::tracker_url;
use swath_share::{
    ClusterToken, Node, NodeOptions, Sameness, ShareEvent, SharedContent, Sharing, Version,
};
use swath_source::{Facts, Opening, Source};
use swath_transfer::{Destination, Discovery, PickerKind, Request};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::GetJob;
use crate::error::{JobError, NotShared, TorrentError};
use crate::event::{JobEvent, Note};

/// This machine among those of the cluster.
pub struct Cluster<'a> {
    get_job: &'a GetJob<'a>,
    node: Node,
}

/// A file that is shared, and its destination.
pub struct SharedFile {
    content: Arc<SharedContent>,
    path: PathBuf,
}

impl<'a> Cluster<'a> {
    /// Joins the cluster, if the job says so; `None` too if that is impossible, which the user is told.
    ///
    /// # Errors
    /// [`JobError::Engine`] if the network cannot be used.
    pub async fn join(get_job: &'a GetJob<'a>) -> Result<Option<Cluster<'a>>, JobError> {
        let Some(token) = &get_job.cluster_token else { return Ok(None) };
        let token = ClusterToken::new(token);
        let spec = &get_job.get.swarm;
        let port = if spec.peers.is_empty() { 0 } else { PORT };
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        let net = get_job.job.engine.net().without_credentials(SILENCE_MAX);
        let options = NodeOptions {
            net: net.map_err(|error| JobError::Engine(error.into()))?,
            listen: spec.listen.unwrap_or(any),
            token,
            upload_bytes_per_s: spec.upload_bytes_per_s,
        };
        let (events, mut told) = mpsc::channel(64);
        let node = match Node::start(options, events).await {
            Ok(node) => node,
            Err(error) => {
                get_job.note(Note::NotShared(NotShared::Listen(error)));
                return Ok(None);
            }
        };
        let observer = Arc::clone(get_job.job.observer);
        tokio::spawn(async move {
            let mut failed = std::collections::HashSet::new();
            while let Some(event) = told.recv().await {
                let note = match event {
                    ShareEvent::TrackerFailed { tracker, error } => failed
                        .insert(tracker.clone())
                        .then_some(Note::TrackerFailed { tracker, error }),
                    ShareEvent::NodeBanned { address, why } => {
                        Some(Note::PeerBanned { address, why })
                    }
                };
                note.into_iter().for_each(|note| observer.observe(JobEvent::Note(note)));
            }
        });
        Ok(Some(Cluster { get_job, node }))
    }

    /// Shares what this request fetches; `None` if that is impossible, which the user is told.
    ///
    /// # Errors
    /// [`TorrentError::Peer`] or [`TorrentError::Tracker`] for an address that is none.
    pub async fn share(&self, request: &mut Request) -> Result<Option<SharedFile>, JobError> {
        match self.shared(request).await? {
            Ok(shared) => {
                self.get_job.note(Note::Shared { address: self.node.address() });
                Ok(Some(shared))
            }
            Err(why) => {
                self.get_job.note(Note::NotShared(why));
                Ok(None)
            }
        }
    }

    async fn shared(
        &self,
        request: &mut Request,
    ) -> Result<Result<SharedFile, NotShared>, JobError> {
        let Destination::File(path) = &request.destination else {
            return Ok(Err(NotShared::Destination));
        };
        let path = path.clone();
        let spec = &self.get_job.get.swarm;
        let trackers = spec.trackers.iter().map(|text| tracker_url(text));
        let trackers = trackers.collect::<Option<_>>().ok_or(TorrentError::Tracker)?;
        let nodes = resolved(&spec.peers).await?;
        let net = self.get_job.job.engine.net();
        let mut opened = Vec::new();
        for mirror in std::mem::take(&mut request.mirrors) {
            let opening = Opening { net, url: &mirror.url, trust: mirror.trust, sealed: None };
            match swath_source::open(opening) {
                Ok(source) => opened.push((mirror, source)),
                // The transfer says why it cannot be used.
                Err(_) => request.mirrors.push(mirror),
            }
        }
        let sharing = sharing(request, &opened).await;
        let content = sharing
            .and_then(|sharing| Ok(self.node.share(Sharing { nodes, trackers, ..sharing })?));
        let content = match content {
            Ok(content) => content,
            Err(why) => {
                request.mirrors.extend(opened.into_iter().map(|(mirror, _)| mirror));
                return Ok(Err(why));
            }
        };
        let origins = opened.into_iter().map(|(_, source)| content.origin(source));
        request.sources.extend(origins);
        request.discovery = Some(Arc::clone(&content) as Arc<dyn Discovery>);
        request.plan.picker = PickerKind::RarestFirst;
        request.plan.seed = fastrand::u64(..);
        Ok(Ok(SharedFile { content, path }))
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
        let size_bytes = Path::new(&self.path).metadata().map_or(0, |about| about.len());
        let is_enough = || {
            let sent = self.content.sent_bytes() as f64;
            ratio.is_some_and(|ratio| sent >= ratio * size_bytes as f64)
        };
        while !is_enough() {
            sleep(LOOK_EVERY).await;
        }
    }
}

/// Returns what identifies the content: what the user knows of it, and the first server that answers.
async fn sharing(
    request: &mut Request,
    opened: &[(swath_transfer::Mirror, Arc<dyn Source>)],
) -> Result<Sharing, NotShared> {
    let known = request.known_digests().max_by_key(|digest| digest.as_bytes().len());
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
        let sameness = Sameness::find(known, &mirror.url, &facts).ok_or(NotShared::NoVersion)?;
        request.size_bytes.get_or_insert(size_bytes);
        let Facts { etag, last_modified, .. } = facts;
        let version = Version { etag, last_modified };
        return Ok(Sharing {
            sameness,
            size_bytes,
            version,
            nodes: Vec::new(),
            trackers: Vec::new(),
        });
    }
    // Perhaps others have it all.
    match (known, request.size_bytes) {
        (Some(digest), Some(size_bytes)) => Ok(Sharing {
            sameness: Sameness::Digest(digest),
            size_bytes,
            version: Version::default(),
            nodes: Vec::new(),
            trackers: Vec::new(),
        }),
        _ => Err(error.map_or(NotShared::NoMirror, NotShared::Unreached)),
    }
}

/// Returns the addresses of machines, given as HOST or HOST:PORT.
async fn resolved(machines: &[String]) -> Result<Vec<SocketAddr>, TorrentError> {
    let mut all = Vec::new();
    for machine in machines {
        let has_port = machine.parse::<IpAddr>().is_err()
            && machine.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = match machine.parse::<IpAddr>() {
            _ if has_port => machine.clone(),
            Ok(ip) => SocketAddr::new(ip, PORT).to_string(),
            Err(_) => format!("{machine}:{PORT}"),
        };
        all.extend(super::swarm::resolved(&[address]).await?);
    }
    Ok(all)
}

/// Where machines of a cluster listen if they find each other by a list of names.
const PORT: u16 = 8475;
/// Longer than a question for the log of another machine waits.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(500);
