//! The torrent of a magnet link: its description comes from a server that the link names, or from peers.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use swath_formats::torrent::magnet::MagnetError;
use swath_formats::torrent::metainfo::MetainfoError;
use swath_formats::torrent::{InfoHash, Magnet, Metainfo, tracker_url};
use swath_formats::tracker::{Announce, Event, PeerForm, PeerId};
use swath_source::peer::{
    EncryptionPolicy, Identity, MetadataRequest, PeerError, Utp, UtpAdmission, fetch_metadata,
};
use swath_source::{Net, Trust};
use swath_swarm::{AnnounceError, Announced, tracker_name};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use url::Url;

use super::GetJob;
use super::swarm::{KnownPeer, LISTEN, resolved, tracker_note};
use super::torrent::{self, Described};
use crate::error::TorrentError;
use crate::event::{JobEvent, JobObserver, Note};

/// Finds the description of the torrent of a magnet link: at an address that the link names, else at peers.
/// `trust` says who named the link.
///
/// # Errors
/// [`TorrentError`], above all if nobody has it in time.
pub async fn described(
    get_job: &GetJob<'_>,
    magnet: &Magnet,
    trust: Trust,
) -> Result<Described, TorrentError> {
    let mut described = match from_server(get_job, magnet, trust).await {
        Ok(Some(described)) => described,
        Ok(None) => from_peers(get_job, magnet, trust).await?,
        // There may be nobody else to ask.
        Err(error) => match from_peers(get_job, magnet, trust).await {
            Err(TorrentError::NoPeers | TorrentError::MagnetWithoutPeers) => return Err(error),
            described => {
                get_job.note(Note::WithoutMetafile(error));
                described?
            }
        },
    };
    described.numbers = magnet.select.clone();
    described.unused.extend(magnet.unused.iter().cloned());
    Ok(described)
}

/// Fetches the metafile from the first address in the link that has it; `None` if the link names none.
///
/// # Errors
/// The last error, if none has it.
async fn from_server(
    get_job: &GetJob<'_>,
    magnet: &Magnet,
    trust: Trust,
) -> Result<Option<Described>, TorrentError> {
    let mut failed = None;
    for url in magnet.metafiles.iter().take(METAFILES_MAX) {
        let fetched = torrent::of_server(get_job.job.engine.net(), url, trust).await;
        match fetched.and_then(|metainfo| with_link(magnet, metainfo)) {
            Ok(mut metainfo) => {
                for seed in &magnet.web_seeds {
                    if !metainfo.web_seeds.contains(seed) {
                        metainfo.web_seeds.push(seed.clone());
                    }
                }
                metainfo.trackers.extend(tier(magnet));
                let name = metainfo.info.name().to_string();
                // A server has named some of it.
                return Ok(Some(Described::new(name, metainfo, Trust::Discovered)));
            }
            Err(error) => {
                if let Some(error) = failed.replace(error) {
                    get_job.note(Note::WithoutMetafile(error));
                }
            }
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Fetches the description from peers, which are returned as well.
async fn from_peers(
    get_job: &GetJob<'_>,
    magnet: &Magnet,
    trust: Trust,
) -> Result<Described, TorrentError> {
    let spec = &get_job.get.swarm;
    if spec.is_off {
        return Err(TorrentError::MagnetWithoutPeers);
    }
    let mut trackers: Vec<_> = magnet.trackers.iter().map(|url| (url.clone(), trust)).collect();
    for text in &spec.trackers {
        trackers.push((tracker_url(text).ok_or(TorrentError::Tracker)?, Trust::Named));
    }
    let mut named = spec.peers.clone();
    let net = get_job.job.engine.net().clone();
    if trackers.is_empty() && named.is_empty() && magnet.peers.is_empty() {
        return Err(TorrentError::NoPeers);
    }
    let mut search = Search {
        utp: port(&net).await,
        net,
        identity: Identity::new(None),
        info_hash: hash_of(magnet)?,
        observer: Arc::clone(get_job.job.observer),
        told: HashSet::new(),
        silent: BTreeSet::new(),
        failed: BTreeMap::new(),
        tried: HashSet::new(),
        asked: JoinSet::new(),
        last: None,
    };
    named.dedup();
    let mut addresses: Vec<KnownPeer> =
        resolved(&named).await?.into_iter().map(|it| (it, Trust::Named)).collect();
    // Peers of a link may have left long ago, and their names with them.
    for peer in &magnet.peers {
        let found = search.net.peer_addresses(&peer.host, peer.port, trust).await;
        // What the link may name was judged just now.
        addresses.extend(found.into_iter().flatten().map(|it| (it, Trust::Discovered)));
    }
    get_job.note(Note::WaitingForMetadata);
    let until = Instant::now() + Duration::from_secs_f64(get_job.job.spec.network.stall_s());
    loop {
        let told = search.announced(&trackers, Event::Started, until).await;
        addresses.extend(told.into_iter().map(|it| (it, Trust::Discovered)));
        let name = || magnet.name.clone().unwrap_or_else(|| "the magnet link".to_owned());
        let found = search.ask(&addresses, until).await;
        let found = found.map_err(|error| TorrentError::Parse { name: name(), error })?;
        if let Some(metainfo) = found {
            tokio::spawn(async move { search.leave(&trackers).await });
            let mut metainfo = with_link(magnet, metainfo)?;
            metainfo.trackers = tier(magnet).into_iter().collect();
            metainfo.web_seeds.clone_from(&magnet.web_seeds);
            addresses.truncate(PEERS_WANTED as usize);
            let name = metainfo.info.name().to_string();
            return Ok(Described { peers: addresses, ..Described::new(name, metainfo, trust) });
        }
        // Peers come and go.
        if Instant::now() + ASK_AGAIN >= until {
            let silent = search.silent.iter().cloned().collect();
            let failed = std::mem::take(&mut search.failed).into_iter().collect();
            search.leave(&trackers).await;
            return Err(TorrentError::NoMetadata { last: search.last, silent, failed });
        }
        sleep(ASK_AGAIN).await;
        search.tried.clear();
    }
}

/// Opens a port from which peers are reached by uTP, if that is possible; nobody can connect to it.
async fn port(net: &Net) -> Option<Utp> {
    net.utp(LISTEN, |_| UtpAdmission::Ignored).await.ok().flatten()
}

/// Returns the info-hash by which peers are asked: of a hybrid torrent, that which all peers know.
fn hash_of(magnet: &Magnet) -> Result<InfoHash, TorrentError> {
    let (v1, v2) = (magnet.hash_v1.map(InfoHash::V1), magnet.hash_v2.map(InfoHash::V2));
    v1.or(v2).ok_or(TorrentError::Magnet(MagnetError::NoHash))
}

/// Returns the torrent if it is that of the link.
fn with_link(magnet: &Magnet, metainfo: Metainfo) -> Result<Metainfo, TorrentError> {
    let info = &metainfo.info;
    let is_other_v1 = magnet.hash_v1.is_some_and(|hash| info.hash_v1() != Some(hash));
    let is_other_v2 = magnet.hash_v2.is_some_and(|hash| info.hash_v2() != Some(hash));
    match (is_other_v1, is_other_v2) {
        (true, _) => Err(TorrentError::OtherTorrent),
        (_, true) if magnet.hash_v1.is_some() => Err(TorrentError::OtherHash),
        (_, true) => Err(TorrentError::OtherTorrent),
        _ => Ok(metainfo),
    }
}

/// Returns the trackers of a link, which are one tier.
fn tier(magnet: &Magnet) -> Option<Vec<Url>> {
    Some(magnet.trackers.clone()).filter(|trackers| !trackers.is_empty())
}

/// The search for a peer that sends the description of the torrent.
struct Search {
    net: Net,
    utp: Option<Utp>,
    identity: Identity,
    info_hash: InfoHash,
    observer: Arc<dyn JobObserver>,
    /// What the user has been told of trackers already.
    told: HashSet<String>,
    /// Trackers that have not answered.
    silent: BTreeSet<String>,
    /// Trackers that could not be asked the last time, or refused.
    failed: BTreeMap<String, AnnounceError>,
    tried: HashSet<SocketAddr>,
    asked: JoinSet<Result<Metainfo, PeerError>>,
    /// The last error of a peer.
    last: Option<PeerError>,
}

impl Search {
    /// Tells the trackers that we have left, so that they send no peers here.
    async fn leave(&mut self, trackers: &[(Url, Trust)]) {
        self.announced(trackers, Event::Stopped, Instant::now() + LEAVE_WITHIN).await;
    }

    /// Asks all trackers for peers. Those that are slow are not waited for.
    ///
    /// Each question says that we start: a tracker gives no peers to one that asks again too early,
    /// and an earlier run on this machine, or another one behind the same address, has asked too.
    async fn announced(
        &mut self,
        trackers: &[(Url, Trust)],
        event: Event,
        until: Instant,
    ) -> Vec<SocketAddr> {
        let mut asked = JoinSet::new();
        self.silent.clear();
        self.failed.clear();
        for (tracker, trust) in trackers.iter().take(TRACKERS_MAX) {
            let (tracker, trust) = (tracker.clone(), *trust);
            let (net, info_hash) = (self.net.clone(), self.info_hash);
            let announce = Announce {
                info_hash: match info_hash {
                    InfoHash::V1(hash) => hash.into(),
                    InfoHash::V2(hash) => hash.into(),
                },
                peer_id: PeerId(self.identity.peer_id.0),
                // Nobody can connect to us yet: a port that nobody uses.
                port: 1,
                uploaded: 0,
                downloaded: 0,
                left: None,
                event,
                want: Some(PEERS_WANTED),
                key: None,
                form: PeerForm::Compact,
            };
            let name = tracker_name(&tracker);
            self.silent.insert(name.clone());
            asked.spawn(async move {
                let outcome = swath_swarm::ask(&net, &tracker, trust, &announce).await;
                Announced { tracker: name, info_hash: announce.info_hash, outcome }
            });
        }
        let until = until.min(Instant::now() + TRACKERS_WITHIN);
        let mut addresses = Vec::new();
        while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
            let Ok(announced) = answer else { continue };
            self.silent.remove(&announced.tracker);
            match &announced.outcome {
                Ok(answer) => addresses.extend(answer.peers.iter().map(|peer| peer.address)),
                Err(error) => _ = self.failed.insert(announced.tracker.clone(), error.clone()),
            }
            if event == Event::Started {
                let note = tracker_note(announced, &mut self.told);
                note.into_iter().for_each(|note| self.observer.observe(JobEvent::Note(note)));
            }
        }
        addresses
    }

    /// Asks peers that were not asked yet, a few at a time, until one has answered.
    ///
    /// # Errors
    /// [`MetainfoError`] if the torrent is unusable, so that no other peer need be asked.
    async fn ask(
        &mut self,
        addresses: &[KnownPeer],
        until: Instant,
    ) -> Result<Option<Metainfo>, MetainfoError> {
        let mut left = addresses.iter();
        loop {
            while self.asked.len() < ASKED_AT_ONCE
                && let Some(&(address, trust)) = left.next()
            {
                if self.tried.insert(address) {
                    let (net, utp) = (self.net.clone(), self.utp.clone());
                    let (info_hash, identity) = (self.info_hash, self.identity);
                    let encryption = EncryptionPolicy::default();
                    let request = MetadataRequest { info_hash, identity, trust, encryption };
                    self.asked.spawn(async move {
                        fetch_metadata(&net, utp.as_ref(), address, request).await
                    });
                }
            }
            match timeout_at(until, self.asked.join_next()).await {
                Ok(Some(Ok(Ok(metainfo)))) => {
                    self.asked.abort_all();
                    return Ok(Some(metainfo));
                }
                Ok(Some(Ok(Err(PeerError::Torrent(error))))) => return Err(error),
                Ok(Some(Ok(Err(error)))) => self.last = Some(error),
                Ok(Some(Err(_))) => {}
                Ok(None) | Err(_) => return Ok(None),
            }
        }
    }
}

/// Addresses of the metafile that are asked.
const METAFILES_MAX: usize = 4;
/// Trackers of a link that are asked.
const TRACKERS_MAX: usize = 16;
/// One of them will do.
const TRACKERS_WITHIN: Duration = Duration::from_secs(5);
/// Nobody waits longer for a tracker at the end.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
const PEERS_WANTED: u32 = 50;
const ASKED_AT_ONCE: usize = 8;
const ASK_AGAIN: Duration = Duration::from_secs(5);
