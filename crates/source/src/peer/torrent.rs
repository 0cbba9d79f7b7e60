//! What all connections of one torrent share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use swath_formats::peer::{Bitfield, PeerId, PieceIndex, PieceLayout, Reserved, WireInfoHash};
use swath_formats::torrent::{InfoHash, Metainfo};
use swath_model::{Limiter, PieceMap};
use swath_transport::Utp;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::error::PeerError;
use super::handle::PeerEvent;
use super::upload::Uploads;
use crate::net::Net;

/// Who this program is to peers: one value for all torrents of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Our peer id.
    pub peer_id: PeerId,
    /// The port at which peers can connect to us, if there is one.
    pub port: Option<u16>,
}

impl Identity {
    /// Returns a new random identity.
    pub fn new(port: Option<u16>) -> Identity {
        let mut bytes = [0; 12];
        random(&mut bytes);
        Identity { peer_id: PeerId::new(bytes), port }
    }
}

/// Fills `out` with bytes that nobody can guess.
pub(super) fn random(out: &mut [u8]) {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    if provider.secure_random.fill(out).is_err() {
        // Only a system without any randomness fails here: two peers would have one id.
        std::process::abort();
    }
}

/// Whether connections are encrypted (message stream encryption, which hides that a connection is
/// BitTorrent, and protects nothing else).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EncryptionPolicy {
    /// Plain connections first; encrypted ones with peers that close plain ones. Takes both.
    #[default]
    PlainFirst,
    /// Encrypted connections first; plain ones with peers that do not understand. Takes both.
    EncryptedFirst,
    /// Encrypted connections only, in both directions.
    Require,
}

/// What a [`Torrent`] is made of.
pub struct TorrentOptions {
    /// Makes the connections, and limits what they download.
    pub net: Net,
    /// Makes connections by uTP, where it is spoken.
    pub utp: Option<Utp>,
    /// Who we are.
    pub identity: Identity,
    /// The torrent. Its piece layers are told to peers that ask for them.
    pub metainfo: Arc<Metainfo>,
    /// The pieces that we have and offer; peers are told of new ones.
    pub have: watch::Receiver<Bitfield>,
    /// Reads what peers ask for; `None`: nothing is served.
    pub uploads: Option<Arc<dyn Uploads>>,
    /// Limits what all connections upload together.
    pub upload_limiter: Arc<Limiter>,
    /// Whether connections are encrypted.
    pub encryption: EncryptionPolicy,
    /// Receives what peers do. Each peer has at most a few events waiting here.
    pub events: UnboundedSender<PeerEvent>,
}

/// One torrent, as its connections share it.
pub struct Torrent {
    pub(super) options: TorrentOptions,
    /// Where the wanted content lies in the pieces.
    pub(super) map: PieceMap,
    /// The pieces that have some of it.
    pub(super) wanted: Bitfield,
    /// `None` if the torrent has no byte.
    pub(super) layout: Option<PieceLayout>,
    info_hashes: Vec<WireInfoHash>,
    connected: Arc<Connected>,
}

/// How many connections there are to each peer.
type Connected = Mutex<HashMap<PeerId, u32>>;

impl Torrent {
    /// Returns a torrent without connections.
    pub fn new(options: TorrentOptions) -> Arc<Torrent> {
        let info = &options.metainfo.info;
        // `Info` allows no more pieces than a layout, and no longer ones.
        let piece_bytes = u32::try_from(info.piece_bytes()).unwrap_or(u32::MAX);
        let v1 = info.hash_v1().map(InfoHash::V1);
        let v2 = info.hash_v2().map(InfoHash::V2);
        let layout = PieceLayout::new(piece_bytes, info.total_bytes());
        let map = options.metainfo.piece_map();
        let count = layout.map_or(0, PieceLayout::count);
        let wanted = match options.metainfo.is_reduced() {
            true => with_content(&map, count),
            false => Bitfield::all(count),
        };
        Arc::new(Torrent {
            map,
            wanted,
            layout,
            info_hashes: [v1, v2].into_iter().flatten().map(WireInfoHash::from).collect(),
            connected: Arc::default(),
            options,
        })
    }

    /// Returns the same torrent for connections that are to see other pieces, as in super-seeding.
    /// A peer is connected to one of both.
    pub fn offering(&self, have: watch::Receiver<Bitfield>) -> Arc<Torrent> {
        let options = &self.options;
        Arc::new(Torrent {
            options: TorrentOptions {
                net: options.net.clone(),
                utp: options.utp.clone(),
                identity: options.identity,
                metainfo: Arc::clone(&options.metainfo),
                have,
                uploads: options.uploads.clone(),
                upload_limiter: Arc::clone(&options.upload_limiter),
                encryption: options.encryption,
                events: options.events.clone(),
            },
            map: self.map.clone(),
            wanted: self.wanted.clone(),
            layout: self.layout,
            info_hashes: self.info_hashes.clone(),
            connected: Arc::clone(&self.connected),
        })
    }

    /// Returns the torrent's metafile.
    pub fn metainfo(&self) -> &Arc<Metainfo> {
        &self.options.metainfo
    }

    /// Returns the names by which peers know it: the v1 info-hash, then the truncated v2 info-hash;
    /// a hybrid torrent has both.
    pub fn info_hashes(&self) -> &[WireInfoHash] {
        &self.info_hashes
    }

    /// Returns where content lies in the pieces.
    pub fn piece_map(&self) -> &PieceMap {
        &self.map
    }

    /// Returns the number of pieces.
    pub fn piece_count(&self) -> u32 {
        self.layout.map_or(0, PieceLayout::count)
    }

    /// Returns the truncated v2 info-hash of a hybrid torrent, to which peers may upgrade.
    pub(super) fn upgrade(&self) -> Option<WireInfoHash> {
        self.info_hashes.get(1).copied()
    }

    /// Returns the extensions that we speak.
    pub(super) fn reserved(&self) -> Reserved {
        let v2 = self.options.metainfo.info.kind().has_v2();
        Reserved { extended: true, fast: true, dht: false, v2 }
    }

    /// Counts a connection to the peer with this id.
    ///
    /// # Errors
    /// [`PeerError::Duplicate`] if there is one already, or many if it runs swath.
    pub(super) fn admit(&self, peer_id: PeerId) -> Result<Admission, PeerError> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let count = connected.entry(peer_id).or_insert(0);
        if *count >= connections_max(peer_id) {
            return Err(PeerError::Duplicate);
        }
        *count += 1;
        Ok(Admission { connected: Arc::clone(&self.connected), peer_id })
    }
}

impl fmt::Debug for Torrent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Torrent({:?})", self.info_hashes)
    }
}

/// Returns the pieces that have content.
fn with_content(map: &PieceMap, count: u32) -> Bitfield {
    let mut pieces = Bitfield::none(count);
    for piece in (0..count).filter(|&piece| map.range_of(u64::from(piece)).is_some()) {
        pieces.insert(PieceIndex(piece));
    }
    pieces
}

/// Returns how many connections to this peer make sense: several programs of ours bring a route
/// with loss up to speed, others close a second one.
pub(super) fn connections_max(peer_id: PeerId) -> u32 {
    if is_swath(peer_id) { SWATH_CONNECTIONS_MAX } else { 1 }
}

/// Returns whether a peer runs this program (BEP 20).
pub(super) fn is_swath(peer_id: PeerId) -> bool {
    peer_id.0.starts_with(b"-SW")
}

/// The right to have a connection to a peer, until it is dropped.
#[derive(Debug)]
pub(super) struct Admission {
    connected: Arc<Connected>,
    peer_id: PeerId,
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = connected.get_mut(&self.peer_id) {
            *count -= 1;
            if *count == 0 {
                connected.remove(&self.peer_id);
            }
        }
    }
}

/// As many lanes as the planner opens to a server.
const SWATH_CONNECTIONS_MAX: u32 = 16;
