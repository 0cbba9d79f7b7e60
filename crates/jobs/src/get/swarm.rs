//! A transfer's part in the swarm of its torrent: peers become sources, and verified pieces are passed on.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use swath_formats::peer::{Bitfield, PieceIndex};
use swath_formats::torrent::{Metainfo, tracker_url};
use swath_model::{PieceMap, Range, RangeSet};
use swath_source::peer::{EncryptionPolicy, PeerError, Uploads};
use swath_source::{Pending, Source, Trust};
use swath_swarm::{
    Announced, Counts, FileUploads, OpenFiles, Participation, SourceChange, Swarm, SwarmEvent,
    Swarms, SwarmsOptions, TorrentFiles, TrackerList,
};
use swath_transfer::{Discovery, VerifiedContent};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use url::Url;

use super::GetJob;
use crate::error::TorrentError;
use crate::event::{JobEvent, Note};

/// The address of a peer, and who named it.
pub type KnownPeer = (SocketAddr, Trust);

/// A transfer in the swarm of its torrent.
pub struct InSwarm {
    metainfo: Arc<Metainfo>,
    map: PieceMap,
    /// `None` once it was left.
    swarm: Mutex<Option<Swarm>>,
    /// Lets peers in while it lives.
    _swarms: Swarms,
    passed_on: Arc<PassedOn>,
    state: Mutex<State>,
    not_reached: Arc<Mutex<NotReached>>,
}

/// The addresses of peers that were not reached.
#[derive(Default)]
struct NotReached {
    all: HashSet<SocketAddr>,
    last: Option<(SocketAddr, PeerError)>,
}

struct State {
    verified: RangeSet,
    /// Bytes of files that are not wanted: their pieces will be gone.
    fleeting: RangeSet,
    /// Pieces that peers were told of.
    have: Bitfield,
}

/// The bytes that are passed on: those of the transfer, later those of its files.
struct PassedOn {
    map: PieceMap,
    from: RwLock<ReadFrom>,
}

#[derive(Clone)]
enum ReadFrom {
    Nothing,
    Transfer(Arc<dyn VerifiedContent>),
    Files(Arc<FileUploads>),
}

impl InSwarm {
    /// Joins the swarm of a torrent, whose trackers `trust` named and where `more` peers are known; `None` if
    /// there is no way to find any.
    ///
    /// # Errors
    /// [`TorrentError::Peer`] or [`TorrentError::Tracker`] for an address that is none.
    pub async fn join(
        get_job: &GetJob<'_>,
        metainfo: Arc<Metainfo>,
        trust: Trust,
        more: &[KnownPeer],
    ) -> Result<Option<Arc<InSwarm>>, TorrentError> {
        let spec = &get_job.get.swarm;
        let mut trackers = vec![TrackerList { tiers: metainfo.trackers.clone(), trust }];
        for text in &spec.trackers {
            let tracker = tracker_url(text).ok_or(TorrentError::Tracker)?;
            trackers.push(TrackerList::of_user(tracker));
        }
        let has_trackers =
            trackers.iter().flat_map(|list| &list.tiers).any(|tier| !tier.is_empty());
        let map = metainfo.piece_map();
        let is_empty = map.content_bytes() == 0;
        if spec.is_off || is_empty || !has_trackers && spec.peers.is_empty() && more.is_empty() {
            return Ok(None);
        }
        let named = resolved(&spec.peers).await?.into_iter();
        let mut peers: Vec<KnownPeer> = named.map(|address| (address, Trust::Named)).collect();
        if metainfo.info.is_private() && !peers.is_empty() {
            get_job.note(Note::PrivateTorrent);
        }
        peers.extend(more);
        let options = |listen| SwarmsOptions {
            net: get_job.job.engine.net().clone(),
            listen,
            encryption: EncryptionPolicy::default(),
            listens_for_utp: spec.listens_for_utp,
            allow: Vec::new(),
            upload_bytes_per_s: spec.upload_bytes_per_s,
            upload_limiter: None,
            peers_max: PEERS_MAX,
        };
        let (events, mut told) = mpsc::channel(64);
        let wanted = spec.listen.unwrap_or(LISTEN);
        let mut bound = Swarms::bind(options(wanted), events.clone()).await;
        if bound.is_err()
            && let Ok(other) = Swarms::bind(options(SocketAddr::new(wanted.ip(), 0)), events).await
            && let Err(error) = std::mem::replace(&mut bound, Ok(other))
        {
            get_job.note(Note::OtherPort(error));
        }
        let joined = bound.and_then(|swarms| {
            let passed_on =
                Arc::new(PassedOn { map: map.clone(), from: RwLock::new(ReadFrom::Nothing) });
            let pieces = u32::try_from(metainfo.info.piece_count()).unwrap_or(u32::MAX);
            let swarm = swarms.join(Participation {
                metainfo: Arc::clone(&metainfo),
                have: Bitfield::none(pieces),
                uploads: Some(Arc::clone(&passed_on) as Arc<dyn Uploads>),
                trackers,
                peers,
                super_seeds: false,
            })?;
            let (verified, fleeting) = (RangeSet::new(), unwanted(&metainfo));
            let state = State { verified, fleeting, have: Bitfield::none(pieces) };
            let (state, swarm) = (Mutex::new(state), Mutex::new(Some(swarm)));
            let not_reached = Arc::default();
            let _swarms = swarms;
            Ok(Arc::new(InSwarm { metainfo, map, swarm, _swarms, passed_on, state, not_reached }))
        });
        match joined {
            Ok(swarm) => {
                let observer = Arc::clone(get_job.job.observer);
                let not_reached = Arc::clone(&swarm.not_reached);
                tokio::spawn(async move {
                    let mut failed = HashSet::new();
                    while let Some(event) = told.recv().await {
                        if let SwarmEvent::NotReached { address, error, .. } = event {
                            lock(&not_reached).note(address, error);
                        } else if let Some(note) = note(event, &mut failed) {
                            observer.observe(JobEvent::Note(note));
                        }
                    }
                });
                Ok(Some(swarm))
            }
            Err(error) => {
                get_job.note(Note::WithoutPeers(error));
                Ok(None)
            }
        }
    }

    /// Everything is verified. From now on, what is passed on comes from the files at their final place.
    pub fn completed(&self, path: &Path) {
        self.verified(Range::new(0, self.map.content_bytes()));
        let (lost, _) = mpsc::channel(1);
        let open = Arc::new(OpenFiles::new(OPEN_FILES_MAX));
        let info = &self.metainfo.info;
        // With a name of the user's choice.
        let selected = match path.is_file() && !info.is_single_file() {
            true => self.metainfo.content().iter().find(|part| part.is_wanted).map(|it| it.file),
            false => None,
        };
        let found = match selected {
            Some(file) => TorrentFiles::one(info, file, path, open),
            None => TorrentFiles::find(info, path, open),
        };
        // If the files are gone already, peers are refused.
        if let Ok(files) = found {
            self.passed_on.set(ReadFrom::Files(Arc::new(FileUploads::new(Arc::new(files), lost))));
        }
    }

    /// Seeds until as much was sent as `ratio` says, in sizes of the content; for ever without one.
    pub async fn seed(&self, ratio: Option<f64>) {
        let wanted = ratio.map(|ratio| ratio * self.map.content_bytes() as f64);
        let is_enough =
            || wanted.is_some_and(|wanted| self.counts().uploaded_bytes as f64 >= wanted);
        while !is_enough() {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Returns what was done so far.
    pub fn counts(&self) -> Counts {
        self.in_swarm(Swarm::counts).unwrap_or_default()
    }

    /// Returns what is known of the peers that are waited for.
    pub fn waiting(&self) -> Note {
        let not_reached = lock(&self.not_reached);
        Note::WaitingForPeers { failed: not_reached.all.len(), last: not_reached.last.clone() }
    }

    /// Leaves the swarm. Waits a moment for trackers to be told.
    pub async fn leave(&self) {
        let swarm = self.lock().take();
        if let Some(swarm) = swarm {
            let _ = timeout(LEAVE_WITHIN, swarm.stop()).await;
        }
    }

    fn in_swarm<T>(&self, run: impl FnOnce(&Swarm) -> T) -> Option<T> {
        self.lock().as_ref().map(run)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Swarm>> {
        lock(&self.swarm)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NotReached {
    fn note(&mut self, address: SocketAddr, error: PeerError) {
        if self.all.len() < ADDRESSES_MAX {
            self.all.insert(address);
        }
        self.last = Some((address, error));
    }
}

impl std::fmt::Debug for InSwarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InSwarm({})", self.metainfo.info.name())
    }
}

impl Discovery for InSwarm {
    fn sources(&self) -> mpsc::Receiver<Arc<dyn Source>> {
        let (sender, sources) = mpsc::channel(SOURCES_AHEAD);
        let Some(mut changes) = self.in_swarm(Swarm::sources) else { return sources };
        tokio::spawn(async move {
            while let Some(change) = changes.recv().await {
                // A source that leaves says so itself.
                if let SourceChange::Came { source, .. } = change
                    && sender.send(source).await.is_err()
                {
                    return;
                }
            }
        });
        sources
    }

    fn begun(&self, content: Arc<dyn VerifiedContent>) {
        let mut state = self.state();
        for range in std::mem::take(&mut state.verified).iter() {
            // Of an earlier try, whose bytes are gone.
            let spaces = self.map.to_space(range).map(|(_, space)| space);
            self.in_swarm(|swarm| spaces.for_each(|space| swarm.lost(space)));
        }
        state.have = Bitfield::none(state.have.pieces());
        self.passed_on.set(ReadFrom::Transfer(content));
    }

    fn verified(&self, range: Range) {
        if range.is_empty() {
            return;
        }
        let mut state = self.state();
        state.verified.insert(range);
        for piece in self.map.piece_at(range.start)..=self.map.piece_at(range.end - 1) {
            let is_whole = self.map.range_of(piece).is_some_and(|whole| {
                state.verified.covers(whole) && state.fleeting.bytes_within(whole) == 0
            });
            if let Ok(number) = u32::try_from(piece)
                && is_whole
                && state.have.insert(PieceIndex(number))
            {
                self.in_swarm(|swarm| swarm.gained(PieceIndex(number)));
            }
        }
    }

    fn convicted(&self, source: &dyn Source, _: Range, why: &str) {
        let url = source.url();
        if let Some(address) = peer_address(url) {
            self.in_swarm(|swarm| swarm.ban(address, why.to_owned()));
        }
    }
}

/// Returns the content that is of files which are not wanted.
fn unwanted(metainfo: &Metainfo) -> RangeSet {
    let mut end = 0;
    let places = metainfo.content().into_iter().map(|part| {
        let place = Range::of_len(end, part.range.len());
        end = place.end;
        (place, part.is_wanted)
    });
    places.filter(|(_, is_wanted)| !is_wanted).map(|(place, _)| place).collect()
}

/// Returns the note for an event, if there is one. Each message of a tracker is noted once.
fn note(event: SwarmEvent, failed: &mut HashSet<String>) -> Option<Note> {
    match event {
        SwarmEvent::Announced { announced, .. } => tracker_note(announced, failed),
        SwarmEvent::Banned { address, why } => Some(Note::PeerBanned { address, why }),
        _ => None,
    }
}

/// Returns what a user should know of an answer: that a tracker failed, and what it says to users, each once.
pub fn tracker_note(announced: Announced, told: &mut HashSet<String>) -> Option<Note> {
    let Announced { tracker, outcome, .. } = announced;
    match outcome {
        Err(error) => {
            told.insert(tracker.clone()).then_some(Note::TrackerFailed { tracker, error })
        }
        Ok(answer) => {
            let text = answer.warning?;
            let is_new = told.len() < TOLD_MAX && told.insert(format!("{tracker} {text}"));
            is_new.then_some(Note::TrackerWarns { tracker, text })
        }
    }
}

/// Returns the address of a source that is a peer.
fn peer_address(url: &Url) -> Option<SocketAddr> {
    let host = url.host_str().filter(|_| url.scheme() == "peer")?;
    format!("{host}:{}", url.port()?).parse().ok()
}

impl PassedOn {
    fn set(&self, from: ReadFrom) {
        *self.from.write().unwrap_or_else(PoisonError::into_inner) = from;
    }
}

impl Uploads for PassedOn {
    fn read<'a>(&'a self, range: Range, into: &'a mut Vec<u8>) -> Pending<'a, io::Result<()>> {
        let from = self.from.read().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            let content = match from {
                ReadFrom::Nothing => return Err(io::ErrorKind::NotFound.into()),
                ReadFrom::Files(files) => return files.read(range, into).await,
                ReadFrom::Transfer(content) => content,
            };
            let start = into.len();
            into.resize(start + range.len() as usize, 0);
            let parts: Vec<_> = self.map.to_space(self.map.to_content(range)).collect();
            for (part, space) in parts {
                let bytes = content.read(part).await?;
                let at = start + (space.start - range.start) as usize;
                into[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            Ok(())
        })
    }
}

/// Returns the addresses of peers that the user names as HOST:PORT.
pub async fn resolved(peers: &[String]) -> Result<Vec<SocketAddr>, TorrentError> {
    let mut all = Vec::new();
    for peer in peers {
        if peer.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            return Err(TorrentError::PeerPort(peer.clone()));
        }
        let found = tokio::net::lookup_host(peer).await;
        all.extend(found.map_err(|error| TorrentError::Peer { peer: peer.clone(), error })?);
    }
    Ok(all)
}

/// Any free port of all interfaces.
pub const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
/// Most peers of a transfer: as many as the planner uses at once.
const PEERS_MAX: usize = 64;
/// Addresses that were not reached and are counted.
const ADDRESSES_MAX: usize = 2_000;
/// A tracker that says something else each time must not fill the memory, nor the screen.
const TOLD_MAX: usize = 100;
/// Sources that wait to be entered.
const SOURCES_AHEAD: usize = 16;
/// Files of a complete torrent that are open for peers.
const OPEN_FILES_MAX: usize = 128;
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Nobody waits longer for a tracker at the end.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
