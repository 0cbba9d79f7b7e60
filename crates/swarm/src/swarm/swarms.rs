//! The interface: the swarms of a process, and one of them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use swath_formats::Network;
use swath_formats::peer::{Bitfield, PieceIndex, PieceLayout};
use swath_formats::torrent::{Info, Metainfo};
use swath_formats::tracker::{InfoHash, PeerId};
use swath_model::{Limiter, Range, Time};
use swath_source::peer::{EncryptionPolicy, Identity, Torrent, TorrentOptions, Uploads, Utp};
use swath_source::{Net, Trust};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::addresses::Addresses;
use super::event::{SourceChange, SwarmEvent};
use super::listener;
use super::running::{Channels, Order, Running};
use super::serving::Serving;
use super::shared::{Entry, Shared};
use super::utp_listener;
use crate::announce::{Announcer, Announcing, Standing, TrackerList};
use crate::random::random;
use crate::super_seeding::SuperSeeding;

/// What all torrents of a process share.
pub struct SwarmsOptions {
    /// The network.
    pub net: Net,
    /// Where peers can connect to us; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Let peers in by uTP too, where no proxy forbids it and the UDP port with the number of the TCP port
    /// is free.
    pub listens_for_utp: bool,
    /// Whether connections are encrypted.
    pub encryption: EncryptionPolicy,
    /// The networks whose peers are let in; empty lets everybody in.
    pub allow: Vec<Network>,
    /// Limit of the uploads of all torrents together.
    pub upload_bytes_per_s: Option<u64>,
    /// Keeps that limit; `None`: one of our own, which nobody else shares.
    pub upload_limiter: Option<Arc<Limiter>>,
    /// Most connections of each torrent.
    pub peers_max: usize,
}

/// The swarms of a process. Dropped, it lets nobody in any more; its torrents live on.
pub struct Swarms {
    shared: Arc<Shared>,
    address: SocketAddr,
    utp: Option<Utp>,
    _listening: JoinSet<()>,
}

/// How a torrent takes part.
pub struct Participation {
    /// The torrent.
    pub metainfo: Arc<Metainfo>,
    /// The pieces that were verified.
    pub have: Bitfield,
    /// Reads what peers ask for; `None`: nothing is served.
    pub uploads: Option<Arc<dyn Uploads>>,
    /// Trackers, as [`Announcing::lists`](crate::Announcing::lists).
    pub trackers: Vec<TrackerList>,
    /// Peers to begin with, and who named them; not used for a private torrent.
    pub peers: Vec<(SocketAddr, Trust)>,
    /// While nobody else has everything, offer each piece to one peer only.
    pub super_seeds: bool,
}

/// A torrent in its swarm. Dropped, it leaves in the background.
pub struct Swarm {
    shared: Arc<Shared>,
    torrent: Arc<Torrent>,
    orders: mpsc::UnboundedSender<Order>,
    counts: Arc<Mutex<Counts>>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// What a torrent has done so far, up to about a second ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections to peers.
    pub peers: usize,
    /// Those with all pieces.
    pub seeders: usize,
    /// Those that have a slot.
    pub served: usize,
    /// Payload bytes that were sent.
    pub uploaded_bytes: u64,
    /// Payload bytes that were received.
    pub downloaded_bytes: u64,
}

/// Why a torrent cannot take part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwarmsError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The torrent has no bytes.
    #[error("the torrent has no data")]
    Empty,
    /// The torrent takes part already.
    #[error("the torrent is shared already")]
    Twice,
}

impl Swarms {
    /// Listens. What happens is told to `events`; a reader that is too slow misses some.
    ///
    /// # Errors
    /// [`SwarmsError::Listen`].
    pub fn bind(
        options: SwarmsOptions,
        events: mpsc::Sender<SwarmEvent>,
    ) -> BoxFuture<'static, Result<Swarms, SwarmsError>> {
        Box::pin(async move {
            let failed = |error| SwarmsError::Listen { address: options.listen, error };
            let listener = listener::bind(options.listen).await.map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            // Trackers name us by the address at which they see us.
            let net = match address.ip().is_unspecified() {
                true => options.net,
                false => options.net.from_address(address.ip()),
            };
            let shared = Arc::new(Shared {
                net,
                identity: Identity::new(Some(address.port())),
                encryption: options.encryption,
                allow: options.allow,
                upload_limiter: options
                    .upload_limiter
                    .unwrap_or_else(|| Arc::new(Limiter::new(options.upload_bytes_per_s))),
                upload_bytes_per_s: options.upload_bytes_per_s,
                peers_max: options.peers_max,
                bans: Default::default(),
                half_open: Default::default(),
                established: Default::default(),
                dialling: Arc::new(Semaphore::new(DIALLING_MAX)),
                torrents: Mutex::default(),
                events,
                began: Instant::now(),
            });
            let mut listening = JoinSet::new();
            listening.spawn(listener::listen(listener, Arc::clone(&shared)));
            let listener = match options.listens_for_utp {
                true => utp_listener::bind(&shared, address).await,
                false => None,
            };
            let utp = match listener {
                Some(listener) => {
                    let utp = listener.utp().clone();
                    listening.spawn(listener.listen(Arc::clone(&shared)));
                    Some(utp)
                }
                None => utp_listener::bind_refusing(&shared, address).await,
            };
            Ok(Swarms { shared, address, utp, _listening: listening })
        })
    }

    /// Returns where peers can connect to us.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes part in a swarm.
    ///
    /// # Errors
    /// [`SwarmsError::Empty`], [`SwarmsError::Twice`].
    pub fn join(&self, participation: Participation) -> Result<Swarm, SwarmsError> {
        let shared = &self.shared;
        let info = &participation.metainfo.info;
        // Pieces have at most 1 GiB.
        let layout = PieceLayout::new(info.piece_bytes() as u32, info.total_bytes());
        let layout = layout.ok_or(SwarmsError::Empty)?;
        let (is_private, name) = (info.is_private(), Arc::<str>::from(info.name().as_str()));
        let info_hashes = info_hashes(info);
        let is_complete = participation.have.is_full();
        let (have, watched) = watch::channel(participation.have);
        let (event_sender, events) = mpsc::unbounded_channel();
        let torrent = Torrent::new(TorrentOptions {
            net: shared.net.clone(),
            utp: self.utp.clone(),
            identity: shared.identity,
            metainfo: participation.metainfo,
            have: watched,
            uploads: participation.uploads,
            upload_limiter: Arc::clone(&shared.upload_limiter),
            encryption: shared.encryption,
            events: event_sender,
        });
        let seeding = (participation.super_seeds && is_complete).then(|| {
            let piece_bytes = u64::from(layout.piece_bytes());
            SuperSeeding::new(layout.count(), piece_bytes, u64::from_be_bytes(random()))
        });
        let (super_seeds, super_seeds_now) = watch::channel(seeding.is_some());
        let (orders, order_receiver) = mpsc::unbounded_channel();
        self.enter(&torrent, &orders, super_seeds_now)?;

        let (standing, standing_now) = watch::channel(Standing {
            left: Some(if is_complete { 0 } else { layout.total_bytes() }),
            want: 50,
            ..Standing::default()
        });
        let (told, announced) = mpsc::channel(16);
        let announcing = Announcing {
            net: shared.net.clone(),
            lists: participation.trackers,
            info_hashes,
            peer_id: PeerId(shared.identity.peer_id.0),
            port: self.address.port(),
        };
        let mut addresses = Addresses::default();
        if !is_private {
            let peers = participation.peers.into_iter();
            peers.for_each(|(peer, trust)| addresses.add(peer, trust, Time::ZERO));
        }
        let (counts, stop) = (Arc::<Mutex<Counts>>::default(), CancellationToken::new());
        let channels = Channels { orders: order_receiver, events, announced, stop: stop.clone() };
        let seed = u64::from_be_bytes(random());
        let running = Running {
            shared: Arc::clone(shared),
            name,
            torrent: Arc::clone(&torrent),
            layout,
            is_private,
            have,
            peers: BTreeMap::new(),
            addresses,
            serving: Serving::new(layout.count(), seeding, shared.upload_bytes_per_s, seed),
            super_seeds,
            counts: Arc::clone(&counts),
            standing,
            announcer: Announcer::start(announcing, standing_now, told),
            channels,
            state: Default::default(),
        };
        let task = Some(tokio::spawn(running.run()));
        Ok(Swarm { shared: Arc::clone(shared), torrent, orders, counts, stop, task })
    }

    /// Makes the torrent known to peers that connect to us.
    fn enter(
        &self,
        torrent: &Arc<Torrent>,
        orders: &mpsc::UnboundedSender<Order>,
        super_seeds: watch::Receiver<bool>,
    ) -> Result<(), SwarmsError> {
        let mut all = self.shared.torrents.lock().unwrap_or_else(PoisonError::into_inner);
        if torrent.info_hashes().iter().any(|hash| all.contains_key(hash)) {
            return Err(SwarmsError::Twice);
        }
        for hash in torrent.info_hashes() {
            let (torrent, orders) = (Arc::clone(torrent), orders.clone());
            all.insert(*hash, Entry { torrent, orders, super_seeds: super_seeds.clone() });
        }
        Ok(())
    }
}

impl Swarm {
    /// A piece was verified: peers are told of it, and may ask for it.
    pub fn gained(&self, piece: PieceIndex) {
        self.order(Order::Gained(piece));
    }

    /// These bytes of the piece space cannot be read any more: their pieces are taken back.
    pub fn lost(&self, range: Range) {
        self.order(Order::Lost(range));
    }

    /// Lets a peer in no more, for instance because it sent wrong bytes. `why` is told to the user.
    pub fn ban(&self, peer: SocketAddr, why: String) {
        self.order(Order::Ban(peer, why));
    }

    /// Returns the peers as sources, as they come and go; first those that are connected. Only the
    /// last receiver is told.
    pub fn sources(&self) -> mpsc::UnboundedReceiver<SourceChange> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.order(Order::Sources(sender));
        receiver
    }

    /// Returns what was done so far.
    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the swarm: closes all connections and tells the trackers, for which it waits some
    /// seconds. Returns what was done.
    pub fn stop(mut self) -> BoxFuture<'static, Counts> {
        Box::pin(async move {
            self.leave();
            if let Some(task) = self.task.take() {
                let _ = task.await;
            }
            self.counts()
        })
    }

    fn leave(&self) {
        self.stop.cancel();
        let mut all = self.shared.torrents.lock().unwrap_or_else(PoisonError::into_inner);
        self.torrent.info_hashes().iter().for_each(|hash| _ = all.remove(hash));
    }

    fn order(&self, order: Order) {
        // One that has stopped takes no orders.
        let _ = self.orders.send(order);
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns the names by which trackers know the torrent.
fn info_hashes(info: &Info) -> Vec<InfoHash> {
    let (v1, v2) = (info.hash_v1().map(InfoHash::from), info.hash_v2().map(InfoHash::from));
    [v1, v2].into_iter().flatten().collect()
}

/// Connections that are being made at once: addresses may lead nowhere, and some routers cannot stand
/// many.
const DIALLING_MAX: usize = 40;
