//! The handle of a connection to a peer, and what its task reports.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swath_formats::peer::{Bitfield, PeerExchange, PeerId, PieceIndex};
use swath_model::RangeSet;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::watch;

use super::error::PeerEnd;
use super::peer_lane::NewLane;

/// A connection to a peer. Clones are one connection; it lives on when all of them are dropped.
#[derive(Clone)]
pub struct Peer {
    pub(super) shared: Arc<Shared>,
    pub(super) orders: UnboundedSender<Order>,
    pub(super) pieces: watch::Receiver<Bitfield>,
    pub(super) holdings: watch::Receiver<RangeSet>,
    /// What of the holdings the peer delivers now.
    pub(super) offered: watch::Receiver<RangeSet>,
}

/// What the task and its handles share.
#[derive(Debug)]
pub(super) struct Shared {
    pub address: SocketAddr,
    pub id: PeerId,
    pub is_incoming: bool,
    pub is_encrypted: bool,
    pub rtt: Duration,
    /// Without the numbers of requests, which change all the time.
    pub status: Mutex<PeerStatus>,
    pub requests_waiting: AtomicUsize,
    pub requests_outstanding: AtomicUsize,
    pub downloaded_bytes: AtomicU64,
    pub uploaded_bytes: AtomicU64,
    /// Each lane has a clone.
    pub lanes: Arc<()>,
    /// A `Changed` event waits to be looked at.
    pub is_change_told: AtomicBool,
}

/// An order to a connection's task.
pub(super) enum Order {
    Choke,
    Unchoke,
    Suggest(PieceIndex),
    Exchange(Box<PeerExchange>),
    Attach(Box<NewLane>),
    CloseUnused,
    Close,
}

/// What both sides of a connection say now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer's program and version, as it names itself; control characters escaped.
    pub client: String,
    /// We answer none of its requests.
    pub is_choked_by_us: bool,
    /// It answers none of ours.
    pub is_choking_us: bool,
    /// It has told its pieces, after which it says whether it is interested.
    pub are_pieces_known: bool,
    /// It wants pieces that we have.
    pub is_interested: bool,
    /// We want pieces that it has.
    pub are_we_interested: bool,
    /// It says that it wants nothing, now or ever (BEP 21), or it has everything.
    pub is_upload_only: bool,
    /// The TCP port at which it accepts connections, if it has said.
    pub port: Option<u16>,
    /// Requests of the peer that wait for an answer.
    pub requests_waiting: usize,
    /// Requests of ours that wait for an answer.
    pub requests_outstanding: usize,
}

/// Something that a peer did.
#[derive(Debug)]
pub struct PeerEvent {
    /// The peer.
    pub peer: Peer,
    /// What it did.
    pub kind: PeerEventKind,
}

/// What a peer did.
#[derive(Debug)]
pub enum PeerEventKind {
    /// Its [status](Peer::status) or its pieces have changed. Comes once until the status is asked
    /// for.
    Changed,
    /// It told addresses of other peers (BEP 11); not of private torrents. At most one a minute,
    /// apart from the first.
    Peers(PeerExchange),
    /// The connection has ended; the last event.
    Ended(PeerEnd),
}

impl Peer {
    /// Returns the other end of the connection; its port accepts connections only if we made this
    /// one.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Returns the peer's id.
    pub fn id(&self) -> PeerId {
        self.shared.id
    }

    /// Returns whether the peer has made the connection.
    pub fn is_incoming(&self) -> bool {
        self.shared.is_incoming
    }

    /// Returns whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.shared.is_encrypted
    }

    /// Returns the round trip that was seen when the connection was made.
    pub fn rtt(&self) -> Duration {
        self.shared.rtt
    }

    /// Returns the address at which the peer accepts connections, as far as known.
    pub fn listens_at(&self) -> Option<SocketAddr> {
        match self.shared.is_incoming {
            false => Some(self.address()),
            true => self.peek().port.map(|port| SocketAddr::new(self.address().ip(), port)),
        }
    }

    /// Returns what both sides say now. A later change is told by a new
    /// [`Changed`](PeerEventKind::Changed).
    pub fn status(&self) -> PeerStatus {
        self.shared.is_change_told.store(false, Ordering::Release);
        self.peek()
    }

    /// Returns the same for somebody to whom changes are not told.
    pub(super) fn peek(&self) -> PeerStatus {
        let status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        PeerStatus {
            requests_waiting: self.shared.requests_waiting.load(Ordering::Relaxed),
            requests_outstanding: self.shared.requests_outstanding.load(Ordering::Relaxed),
            ..status
        }
    }

    /// Returns the payload bytes that came from the peer.
    pub fn downloaded_bytes(&self) -> u64 {
        self.shared.downloaded_bytes.load(Ordering::Relaxed)
    }

    /// Returns the payload bytes that were sent to the peer.
    pub fn uploaded_bytes(&self) -> u64 {
        self.shared.uploaded_bytes.load(Ordering::Relaxed)
    }

    /// Returns the pieces that the peer has. The sender ends with the connection.
    pub fn pieces(&self) -> &watch::Receiver<Bitfield> {
        &self.pieces
    }

    /// Returns the bytes of the content that the peer has. The sender ends with the connection.
    pub fn holdings(&self) -> &watch::Receiver<RangeSet> {
        &self.holdings
    }

    /// Returns whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.orders.is_closed()
    }

    /// Stops answering the peer's requests.
    pub fn choke(&self) {
        self.order(Order::Choke);
    }

    /// Starts answering the peer's requests.
    pub fn unchoke(&self) {
        self.order(Order::Unchoke);
    }

    /// Suggests a piece to the peer (BEP 6).
    pub fn suggest(&self, piece: PieceIndex) {
        self.order(Order::Suggest(piece));
    }

    /// Tells the peer addresses of others (BEP 11), at most once a minute; never those of a private
    /// torrent.
    pub fn tell_peers(&self, peers: PeerExchange) {
        self.order(Order::Exchange(Box::new(peers)));
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.order(Order::Close);
    }

    /// Closes the connection as soon as no lane is attached to it.
    pub(super) fn close_unused(&self) {
        self.order(Order::CloseUnused);
    }

    /// Attaches a lane.
    pub(super) fn attach(&self, lane: NewLane) {
        let token = Some(Arc::clone(&self.shared.lanes));
        let order = Order::Attach(Box::new(NewLane { token, ..lane }));
        if let Err(SendError(Order::Attach(lane))) = self.orders.send(order) {
            lane.fail(PeerEnd::Left.into());
        }
    }

    /// Returns how many lanes are attached.
    pub(super) fn lanes(&self) -> usize {
        Arc::strong_count(&self.shared.lanes) - 1
    }

    /// Returns whether both are handles of one connection.
    pub fn is_same(&self, other: &Peer) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    fn order(&self, order: Order) {
        // A connection that has ended has said so by an event.
        let _ = self.orders.send(order);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({}, {})", self.shared.address, self.shared.id)
    }
}
