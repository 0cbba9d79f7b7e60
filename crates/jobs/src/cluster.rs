//! This machine in a cluster whose machines run the same job.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use swath_formats::torrent::tracker_url;
use swath_share::{
    ClusterToken, Node, NodeOptions, Sameness, ShareError, ShareEvent, SharedContent, Sharing,
    Version,
};
use swath_source::Secret;
use tokio::sync::mpsc;
use tokio::time::sleep;
use url::Url;

use crate::error::{JobError, NotShared, TorrentError};
use crate::event::{JobEvent, JobObserver, Note};
use crate::get::tracker_note;
use crate::run::Job;
use crate::spec::SwarmSpec;

/// This machine among those of the cluster.
pub struct Membership {
    node: Node,
    nodes: Vec<SocketAddr>,
    trackers: Vec<Url>,
    observer: Arc<dyn JobObserver>,
    /// Whether the user knows that something is shared.
    is_told: AtomicBool,
}

impl Membership {
    /// Joins the cluster. Returns `None` if we cannot listen; the user then learns why.
    ///
    /// # Errors
    /// [`JobError::Engine`] if the network cannot be used, [`TorrentError::Tracker`] for an address that is
    /// none.
    pub async fn join(
        job: &Job<'_>,
        swarm: &SwarmSpec,
        token: &Secret,
    ) -> Result<Option<Membership>, JobError> {
        let trackers = swarm.trackers.iter().map(|text| tracker_url(text));
        let trackers = trackers.collect::<Option<_>>().ok_or(TorrentError::Tracker)?;
        let observer = Arc::clone(job.observer);
        let nodes = resolved(&*observer, &swarm.peers).await;
        let port = if swarm.peers.is_empty() { 0 } else { PORT };
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        let net = job.engine.net().without_credentials(SILENCE_MAX);
        let options = NodeOptions {
            net: net.map_err(|error| JobError::Engine(error.into()))?,
            listen: swarm.listen.unwrap_or(any),
            token: ClusterToken::new(token),
            upload_bytes_per_s: swarm.upload_bytes_per_s,
        };
        let (events, told) = mpsc::channel(64);
        let node = match Node::start(options, events).await {
            Ok(node) => node,
            Err(error) => {
                note(&*observer, Note::NotShared(NotShared::Listen(error)));
                return Ok(None);
            }
        };
        tell_events(Arc::clone(&observer), told);
        Ok(Some(Membership { node, nodes, trackers, observer, is_told: AtomicBool::new(false) }))
    }

    /// Returns what it takes to share a content of this size with this cluster.
    pub fn sharing(&self, sameness: Sameness, size_bytes: u64) -> Sharing {
        Sharing {
            sameness,
            size_bytes,
            piece_bytes: None,
            whole: None,
            version: Version::default(),
            sealed: None,
            nodes: self.nodes.clone(),
            trackers: self.trackers.clone(),
        }
    }

    /// Begins to share a content.
    ///
    /// # Errors
    /// [`ShareError`].
    pub fn share(&self, sharing: Sharing) -> Result<Arc<SharedContent>, ShareError> {
        self.node.share(sharing)
    }

    /// Tells the user that something is shared, or why it is not.
    pub fn tell<T>(&self, shared: Result<T, NotShared>) -> Option<T> {
        match shared {
            Ok(shared) => {
                if !self.is_told.swap(true, Ordering::Relaxed) {
                    note(&*self.observer, Note::Shared { address: self.node.address() });
                }
                Some(shared)
            }
            Err(why) => {
                note(&*self.observer, Note::NotShared(why));
                None
            }
        }
    }
}

/// Everything of a content of this size is here: passes it on until the others are done, and for longer if
/// that is wanted. `has_fetched` is whether some of it came in this run.
pub async fn pass_on(
    job: &Job<'_>,
    swarm: &SwarmSpec,
    content: &SharedContent,
    size_bytes: u64,
    has_fetched: bool,
) {
    let note = |event| note(&**job.observer, event);
    let passing = async {
        if let machines @ 1.. = content.others_lack() {
            note(Note::PassingOn { machines: machines as u64 });
        }
        content.others_are_done().await;
        if swarm.keeps_seeding {
            note(Note::Seeding { ratio: swarm.ratio });
            seed(content, size_bytes, swarm.ratio).await;
        } else if content.was_alone() {
            note(Note::NobodyShares { has_fetched });
        }
    };
    tokio::select! {
        () = passing => {}
        () = job.control.cancelled() => {}
    }
    note(Note::Seeded { uploaded_bytes: content.sent_bytes() });
}

/// Waits until as much was sent as `ratio` says, in sizes of the content; for ever without one.
async fn seed(content: &SharedContent, size_bytes: u64, ratio: Option<f64>) {
    let is_enough = || {
        let sent = content.sent_bytes() as f64;
        ratio.is_some_and(|ratio| sent >= ratio * size_bytes as f64)
    };
    while !is_enough() {
        sleep(LOOK_EVERY).await;
    }
}

fn note(observer: &dyn JobObserver, note: Note) {
    observer.observe(JobEvent::Note(note));
}

/// Reports events to the user, and of each tracker each thing once.
fn tell_events(observer: Arc<dyn JobObserver>, mut told: mpsc::Receiver<ShareEvent>) {
    tokio::spawn(async move {
        let mut heard = HashSet::new();
        while let Some(event) = told.recv().await {
            let text = match event {
                ShareEvent::Announced(announced) => tracker_note(announced, &mut heard),
                ShareEvent::NodeBanned { address } => Some(Note::MachineBanned { address }),
            };
            text.into_iter().for_each(|text| note(&*observer, text));
        }
    });
}

/// Resolves machines, given as HOST or HOST:PORT. Reports names that cannot be resolved.
async fn resolved(observer: &dyn JobObserver, machines: &[String]) -> Vec<SocketAddr> {
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
            Err(error) => {
                note(observer, Note::NoSuchMachine { name: machine.clone(), error });
            }
        }
    }
    all
}

/// Where machines of a cluster listen if they find each other by a list of names.
const PORT: u16 = 8475;
/// Longer than a question for the log of another machine waits.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(500);
