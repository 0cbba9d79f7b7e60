//! Announces a torrent to its trackers until it is stopped.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use swath_formats::tracker::{Announce, AnnounceAnswer, Event, InfoHash, PeerForm, PeerId};
use swath_model::Time;
use swath_source::{Net, Trust};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{AnnounceError, Next, Tiers, TrackerIndex, ask};
use crate::random::random;

/// What is announced, and where.
#[derive(Clone)]
pub struct Announcing {
    /// The network that trackers are reached by.
    pub net: Net,
    /// Lists of trackers. One tracker of each list is told: those of the metafile are one list, and
    /// each tracker that the user names is another.
    pub lists: Vec<TrackerList>,
    /// The info-hashes of the torrent: two of a hybrid one.
    pub info_hashes: Vec<InfoHash>,
    /// Our id.
    pub peer_id: PeerId,
    /// The port at which we accept connections.
    pub port: u16,
}

/// Trackers that were named together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackerList {
    /// The trackers, in tiers (BEP 12).
    pub tiers: Vec<Vec<Url>>,
    /// Who named them: those that the network named must not lead to machines that only we can reach.
    pub trust: Trust,
}

impl TrackerList {
    /// Returns a tracker that the user named.
    pub fn of_user(tracker: Url) -> TrackerList {
        TrackerList { tiers: vec![vec![tracker]], trust: Trust::Named }
    }
}

/// What announces say of us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Bytes sent to peers.
    pub uploaded: u64,
    /// Bytes received from peers.
    pub downloaded: u64,
    /// Bytes that we lack; `None` while unknown.
    pub left: Option<u64>,
    /// The number of peers that we want to hear of.
    pub want: u32,
}

/// What a tracker has answered.
#[derive(Clone, Debug)]
pub struct Announced {
    /// Scheme, host and port of the tracker: its path may hold a passkey.
    pub tracker: String,
    /// What was announced.
    pub info_hash: InfoHash,
    /// Its answer.
    pub outcome: Result<AnnounceAnswer, AnnounceError>,
}

/// Announces until it is stopped; dropped, it ends without a word to the trackers.
pub struct Announcer {
    stop: CancellationToken,
    hasten: Vec<Arc<Notify>>,
    tasks: JoinSet<()>,
}

impl Announcer {
    /// Starts to announce. What `standing` holds is told with each announce, and that all bytes are
    /// there at once. Answers go to `told`.
    pub fn start(
        announcing: Announcing,
        standing: watch::Receiver<Standing>,
        told: mpsc::Sender<Announced>,
    ) -> Announcer {
        let (stop, mut hasten, mut tasks) = (CancellationToken::new(), Vec::new(), JoinSet::new());
        let key = u32::from_be_bytes(random());
        for list in &announcing.lists {
            for &info_hash in &announcing.info_hashes {
                let sizes: Vec<usize> = list.tiers.iter().map(Vec::len).collect();
                let more = Arc::new(Notify::new());
                hasten.push(Arc::clone(&more));
                let one = One {
                    announcing: announcing.clone(),
                    trackers: list.tiers.iter().flatten().cloned().collect(),
                    trust: list.trust,
                    info_hash,
                    key,
                    tiers: Tiers::new(&sizes, u64::from_be_bytes(random())),
                    began: Instant::now(),
                    standing: standing.clone(),
                    told: told.clone(),
                    hasten: more,
                    stop: stop.clone(),
                };
                tasks.spawn(one.run());
            }
        }
        Announcer { stop, hasten, tasks }
    }

    /// More peers are wanted: asks again as soon as the trackers allow.
    pub fn hasten(&self) {
        self.hasten.iter().for_each(|more| more.notify_one());
    }

    /// Tells all trackers that know of us that we leave, and waits for them for some seconds.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// One info-hash at one list of trackers.
struct One {
    announcing: Announcing,
    trackers: Vec<Url>,
    trust: Trust,
    info_hash: InfoHash,
    key: u32,
    tiers: Tiers,
    began: Instant,
    standing: watch::Receiver<Standing>,
    told: mpsc::Sender<Announced>,
    hasten: Arc<Notify>,
    stop: CancellationToken,
}

impl One {
    async fn run(mut self) {
        let stop = self.stop.clone();
        // Whoever is asked when we stop may know of us.
        let mut asked = None;
        let announcing = async {
            loop {
                match self.tiers.poll(self.now()) {
                    Next::Ask(index) => {
                        asked = Some(index);
                        self.announce(index).await;
                        asked = None;
                    }
                    Next::Wait(until) => self.wait(until).await,
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = announcing => {}
        }
        let announce = self.words(Event::Stopped, Some(0));
        let (net, announce) = (&self.announcing.net, &announce);
        let trackers = self.tiers.know_us().chain(asked).filter_map(|index| self.tracker(index));
        let leaving = trackers.map(|url| ask(net, url, self.trust, announce));
        let _ = timeout(STOP_WITHIN, join_all(leaving)).await;
    }

    async fn announce(&mut self, index: TrackerIndex) {
        let Some(url) = self.tracker(index).cloned() else { return };
        let standing = *self.standing.borrow_and_update();
        let left = standing.left.unwrap_or(u64::MAX);
        let announce = self.words(self.tiers.event(index, left), None);
        let outcome = ask(&self.announcing.net, &url, self.trust, &announce).await;
        let now = self.now();
        match &outcome {
            Ok(answer) => self.tiers.answered(index, left, answer, now),
            Err(error) => self.tiers.failed(index, error.retry_after(), now),
        }
        let (tracker, info_hash) = (tracker_name(&url), self.info_hash);
        // Whoever does not listen any more stops us soon.
        let _ = self.told.send(Announced { tracker, info_hash, outcome }).await;
    }

    async fn wait(&mut self, until: Time) {
        let now = self.now();
        let due = self.began + until.min(now + LONGEST_WAIT).since(Time::ZERO);
        tokio::select! {
            () = sleep_until(due) => {}
            () = self.hasten.notified() => self.tiers.hasten(now),
            changed = became_complete(&mut self.standing) => if changed {
                self.tiers.complete(now);
            },
        }
    }

    fn words(&self, event: Event, want: Option<u32>) -> Announce {
        let standing = *self.standing.borrow();
        Announce {
            info_hash: self.info_hash,
            peer_id: self.announcing.peer_id,
            port: self.announcing.port,
            uploaded: standing.uploaded,
            downloaded: standing.downloaded,
            left: standing.left,
            event,
            want: Some(want.unwrap_or(standing.want)),
            key: Some(self.key),
            form: PeerForm::Compact,
        }
    }

    fn tracker(&self, index: TrackerIndex) -> Option<&Url> {
        self.trackers.get(index.0)
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }
}

/// Waits until the last byte is there that was lacking before; never returns if nothing changes.
async fn became_complete(standing: &mut watch::Receiver<Standing>) -> bool {
    let lacked = standing.borrow().left != Some(0);
    let is_there = standing.wait_for(|it| lacked && it.left == Some(0)).await.is_ok();
    match is_there {
        true => true,
        false => std::future::pending().await,
    }
}

/// Returns what of a tracker's address may be shown: scheme, host and port.
pub fn tracker_name(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

/// Trackers that are gone must not keep us from leaving.
const STOP_WITHIN: Duration = Duration::from_secs(4);
/// Timers cannot wait for ever.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);
