//! What all torrents of a process share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use swath_formats::Network;
use swath_formats::peer::{Bitfield, WireInfoHash};
use swath_model::{Limiter, Time};
use swath_source::Net;
use swath_source::peer::{EncryptionPolicy, Identity, Peer, Torrent, Torrents};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;

use super::bans::Bans;
use super::event::SwarmEvent;
use super::places::{Place, Places};
use super::running::Order;

pub(super) struct Shared {
    pub net: Net,
    pub identity: Identity,
    pub encryption: EncryptionPolicy,
    /// Whom the user knows; empty means that everybody is let in and nobody is known.
    pub allow: Vec<Network>,
    pub upload_limiter: Arc<Limiter>,
    /// The user's limit of the upload rate.
    pub upload_bytes_per_s: Option<u64>,
    pub peers_max: usize,
    pub bans: Bans,
    pub half_open: Places,
    pub established: Places,
    /// Connections that are being made by us.
    pub dialling: Arc<Semaphore>,
    pub torrents: Mutex<HashMap<WireInfoHash, Entry>>,
    pub events: mpsc::Sender<SwarmEvent>,
    pub began: Instant,
}

/// A torrent that peers may ask for.
#[derive(Clone)]
pub(super) struct Entry {
    pub torrent: Arc<Torrent>,
    pub orders: mpsc::UnboundedSender<Order>,
    /// Whether each peer is shown pieces of its own.
    pub super_seeds: watch::Receiver<bool>,
}

/// A connection that was made.
pub(super) struct Arrived {
    pub peer: Peer,
    /// What the peer is shown, if that is its own.
    pub shown: Option<watch::Sender<Bitfield>>,
    pub place: Option<Place>,
}

impl Shared {
    pub fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// Returns whether the user knows this address.
    pub fn knows(&self, ip: IpAddr) -> bool {
        self.allow.iter().any(|network| network.contains(ip))
    }

    /// Returns whether a peer with this address may be connected.
    pub fn lets_in(&self, ip: IpAddr) -> bool {
        (self.allow.is_empty() || self.knows(ip)) && !self.bans.has(ip, self.now())
    }

    /// Holds something against an address; many strikes are a ban.
    pub fn strike(&self, address: IpAddr, strikes: u32, why: String) {
        if self.bans.strike(address, strikes, self.now()) {
            self.tell(SwarmEvent::Banned { address, why });
        }
    }

    /// Reports; a reader that is too slow misses some.
    pub fn tell(&self, event: SwarmEvent) {
        let _ = self.events.try_send(event);
    }
}

impl Entry {
    /// Returns the torrent as the next peer is to see it, and what changes what it sees.
    pub fn for_peer(&self) -> (Arc<Torrent>, Option<watch::Sender<Bitfield>>) {
        for_peer(&self.torrent, *self.super_seeds.borrow())
    }
}

/// Returns the torrent as a peer is to see it: with pieces of its own, none at first, if it super-seeds.
pub(super) fn for_peer(
    torrent: &Arc<Torrent>,
    super_seeds: bool,
) -> (Arc<Torrent>, Option<watch::Sender<Bitfield>>) {
    if !super_seeds {
        return (Arc::clone(torrent), None);
    }
    let (shown, watched) = watch::channel(Bitfield::none(torrent.piece_count()));
    (torrent.offering(watched), Some(shown))
}

/// The torrents of a process, for one connection that comes in.
pub(super) struct Lookup<'a> {
    pub shared: &'a Shared,
    /// The torrent that was asked for.
    pub found: Mutex<Option<Found>>,
}

/// Whom the connection belongs to, and what its peer is shown.
pub(super) type Found = (mpsc::UnboundedSender<Order>, Option<watch::Sender<Bitfield>>);

impl Torrents for Lookup<'_> {
    fn find(&self, info_hash: WireInfoHash) -> Option<Arc<Torrent>> {
        let torrents = self.shared.torrents.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = torrents.get(&info_hash)?;
        let (torrent, shown) = entry.for_peer();
        let found = Some((entry.orders.clone(), shown));
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Some(torrent)
    }

    fn info_hashes(&self) -> Vec<WireInfoHash> {
        let torrents = self.shared.torrents.lock().unwrap_or_else(PoisonError::into_inner);
        torrents.keys().copied().collect()
    }
}
