//! The torrent of a magnet link: its description comes from peers.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use swath_formats::torrent::magnet::MagnetError;
use swath_formats::torrent::metainfo::MetainfoError;
use swath_formats::torrent::{InfoHash, Magnet, Metainfo, tracker_url};
use swath_formats::tracker::{Announce, Event, PeerForm, PeerId};
use swath_source::peer::{
    EncryptionPolicy, Identity, MetadataRequest, PeerError, Utp, fetch_metadata,
};
use swath_source::{Net, Trust};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use url::Url;

use super::GetJob;
use super::swarm::{LISTEN, resolved};
use crate::error::TorrentError;
use crate::event::Note;

/// Fetches the metafile of a magnet link from its peers, which are returned as well.
///
/// # Errors
/// [`TorrentError`], above all if no peer has it in time.
pub async fn metainfo_of(
    get_job: &GetJob<'_>,
    magnet: &Magnet,
) -> Result<(Metainfo, Vec<SocketAddr>), TorrentError> {
    let spec = &get_job.get.swarm;
    if spec.is_off {
        return Err(TorrentError::MagnetWithoutPeers);
    }
    let mut trackers = magnet.trackers.clone();
    for text in &spec.trackers {
        trackers.push(tracker_url(text).ok_or(TorrentError::Tracker)?);
    }
    let mut named = spec.peers.clone();
    // Peers of a link may have left long ago, and their names with them.
    let host = |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let linked = magnet.peers.iter().map(|peer| format!("{}:{}", host(&peer.host), peer.port));
    let net = get_job.job.engine.net().clone();
    let mut search = Search {
        utp: port(&net).await,
        net,
        identity: Identity::new(None),
        info_hash: hash_of(magnet)?,
        tried: HashSet::new(),
        asked: JoinSet::new(),
        last: None,
    };
    if trackers.is_empty() && named.is_empty() && magnet.peers.is_empty() {
        return Err(TorrentError::NoPeers);
    }
    named.dedup();
    let mut addresses: Vec<(SocketAddr, Trust)> =
        resolved(&named).await?.into_iter().map(|it| (it, Trust::Named)).collect();
    for peer in linked {
        let found = tokio::net::lookup_host(peer).await;
        addresses.extend(found.into_iter().flatten().map(|it| (it, Trust::Listed)));
    }
    get_job.note(Note::WaitingForMetadata);
    let until = Instant::now() + Duration::from_secs_f64(get_job.job.spec.network.stall_s());
    loop {
        let told = search.announced(&trackers, Event::Started, until).await;
        addresses.extend(told.into_iter().map(|it| (it, Trust::Listed)));
        let name = || magnet.name.clone().unwrap_or_else(|| "the magnet link".to_owned());
        let found = search.ask(&addresses, until).await;
        let found = found.map_err(|error| TorrentError::Parse { name: name(), error })?;
        if let Some(metainfo) = found {
            tokio::spawn(async move { search.leave(&trackers).await });
            let peers = addresses.iter().map(|(address, _)| *address).take(PEERS_WANTED as usize);
            return Ok((with_link(magnet, metainfo)?, peers.collect()));
        }
        // Peers come and go.
        if Instant::now() + ASK_AGAIN >= until {
            search.leave(&trackers).await;
            return Err(TorrentError::NoMetadata { last: search.last });
        }
        sleep(ASK_AGAIN).await;
        search.tried.clear();
    }
}

/// Opens a port from which peers are reached by uTP, if that is possible; nobody can connect to it.
async fn port(net: &Net) -> Option<Utp> {
    net.utp(LISTEN, |_| false).await.ok().flatten()
}

/// Returns the info-hash by which peers are asked: of a hybrid torrent, that which all peers know.
fn hash_of(magnet: &Magnet) -> Result<InfoHash, TorrentError> {
    let (v1, v2) = (magnet.hash_v1.map(InfoHash::V1), magnet.hash_v2.map(InfoHash::V2));
    v1.or(v2).ok_or(TorrentError::Magnet(MagnetError::NoHash))
}

/// Adds what the link says to a torrent that was verified by one info-hash of the link.
fn with_link(magnet: &Magnet, mut metainfo: Metainfo) -> Result<Metainfo, TorrentError> {
    let is_other = magnet.hash_v2.is_some_and(|hash| metainfo.info.hash_v2() != Some(hash));
    if is_other {
        return Err(TorrentError::OtherHash);
    }
    metainfo.trackers =
        Some(magnet.trackers.clone()).filter(|it| !it.is_empty()).into_iter().collect();
    metainfo.web_seeds.clone_from(&magnet.web_seeds);
    Ok(metainfo)
}

/// The search for a peer that sends the description of the torrent.
struct Search {
    net: Net,
    utp: Option<Utp>,
    identity: Identity,
    info_hash: InfoHash,
    tried: HashSet<SocketAddr>,
    asked: JoinSet<Result<Metainfo, PeerError>>,
    /// The last error of a peer.
    last: Option<PeerError>,
}

impl Search {
    /// Tells the trackers that we have left, so that they send no peers here.
    async fn leave(&self, trackers: &[Url]) {
        self.announced(trackers, Event::Stopped, Instant::now() + LEAVE_WITHIN).await;
    }

    /// Asks all trackers for peers. Those that are slow are not waited for.
    ///
    /// Each question says that we start: a tracker gives no peers to one that asks again too early,
    /// and an earlier run on this machine, or another one behind the same address, has asked too.
    async fn announced(&self, trackers: &[Url], event: Event, until: Instant) -> Vec<SocketAddr> {
        let mut asked = JoinSet::new();
        for tracker in trackers.iter().take(TRACKERS_MAX) {
            let tracker = tracker.clone();
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
            asked.spawn(
                async move { swath_swarm::ask(&net, &tracker, Trust::Listed, &announce).await },
            );
        }
        let until = until.min(Instant::now() + TRACKERS_WITHIN);
        let mut addresses = Vec::new();
        while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
            if let Ok(Ok(answer)) = answer {
                addresses.extend(answer.peers.iter().map(|peer| peer.address));
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
        addresses: &[(SocketAddr, Trust)],
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

/// Trackers of a link that are asked.
const TRACKERS_MAX: usize = 16;
/// One of them will do.
const TRACKERS_WITHIN: Duration = Duration::from_secs(5);
/// Nobody waits longer for a tracker at the end.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
const PEERS_WANTED: u32 = 50;
const ASKED_AT_ONCE: usize = 8;
const ASK_AGAIN: Duration = Duration::from_secs(5);
