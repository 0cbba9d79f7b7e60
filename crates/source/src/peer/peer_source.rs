//! A peer as a source. Offsets are bytes of the content: all files end to end, without padding.
//!
//! The first lane attaches to the connection that there is, or makes one. A further lane makes a
//! connection of its own if the peer runs swath; others allow only one, which the lanes then share.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use swath_model::{LaneId, Pool, Range, RangeSet, SourceName, SwathId};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use url::Url;

use super::dial::dial;
use super::handle::Peer;
use super::peer_lane::NewLane;
use super::torrent::{Torrent, connections_max};
use crate::error::LaneError;
use crate::facts::Facts;
use crate::lane::local::SharedExpected;
use crate::lane::{Command, Delivery, LaneEvent, LaneEventKind, LaneHandle, Meter};
use crate::source::{Expected, Lane, Limits, Pending, Source, Trust};

/// A peer of a torrent, as a source.
pub struct PeerSource {
    name: SourceName,
    url: Url,
    torrent: Arc<Torrent>,
    trust: Trust,
    /// The address that it was made of …
    address: Option<SocketAddr>,
    /// … or the connection.
    given: Option<Peer>,
    connections: Mutex<Vec<Peer>>,
    expected: Arc<SharedExpected>,
}

impl PeerSource {
    /// Returns the peer at the other end of a connection as a source, which leaves when the
    /// connection ends. While the peer chokes us it holds only what it delivers all the same.
    pub fn of(torrent: &Arc<Torrent>, peer: Peer, trust: Trust) -> Arc<PeerSource> {
        PeerSource::new(torrent, peer.address(), None, Some(peer), trust)
    }

    /// Returns the peer at an address as a source. It is connected to when its first lane opens,
    /// and counts as one that holds everything.
    pub fn at(torrent: &Arc<Torrent>, address: SocketAddr, trust: Trust) -> Arc<PeerSource> {
        PeerSource::new(torrent, address, Some(address), None, trust)
    }

    fn new(
        torrent: &Arc<Torrent>,
        shown: SocketAddr,
        address: Option<SocketAddr>,
        given: Option<Peer>,
        trust: Trust,
    ) -> Arc<PeerSource> {
        // Without a zone.
        let shown = SocketAddr::new(shown.ip(), shown.port());
        let url = Url::parse(&format!("peer://{shown}")).expect("an address with a port");
        Arc::new(PeerSource {
            name: SourceName::direct(url.as_str()),
            url,
            torrent: Arc::clone(torrent),
            trust,
            address,
            connections: Mutex::new(given.iter().cloned().collect()),
            given,
            expected: Arc::default(),
        })
    }

    fn facts(&self) -> Facts {
        let size_bytes = Some(self.torrent.piece_map().content_bytes());
        Facts { size_bytes, ranges: true, ..Facts::default() }
    }

    /// Returns a connection that is open.
    fn connected(&self) -> Option<Peer> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|peer| !peer.is_closed());
        connections.iter().min_by_key(|peer| peer.peek().requests_outstanding).cloned()
    }

    /// Returns an open connection, or makes one.
    async fn connect(&self) -> Result<Peer, LaneError> {
        match self.connected() {
            Some(peer) => Ok(peer),
            None => self.connect_anew().await,
        }
    }

    /// Returns where the peer can be connected to, if that is known.
    fn listens_at(&self) -> Option<SocketAddr> {
        self.address.or_else(|| self.given.as_ref()?.listens_at())
    }

    async fn connect_anew(&self) -> Result<Peer, LaneError> {
        // With the connection that it was made of a source has left.
        let has_left = self.given.as_ref().is_some_and(Peer::is_closed);
        let Some(address) = self.listens_at().filter(|_| !has_left) else {
            return Err(LaneError::Reset { reason: "the peer has left".to_owned() });
        };
        let peer = dial(&self.torrent, address, self.trust).await?;
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(peer.clone());
        Ok(peer)
    }

    /// Returns whether a lane beside others should have a connection of its own.
    fn wants_another(&self, peer: &Peer) -> bool {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let is_used = |peer: &Peer| peer.lanes() > 0;
        let most = connections_max(peer.id()) as usize;
        self.listens_at().is_some() && connections.iter().all(is_used) && connections.len() < most
    }
}

/// Returns a lane that is not attached yet, and its handle.
fn new_lane(
    lane: LaneId,
    pool: &Pool,
    events: UnboundedSender<LaneEvent>,
    expected: Arc<SharedExpected>,
) -> (LaneHandle, NewLane) {
    let (commands, orders) = unbounded_channel();
    let meter = Arc::new(Meter::default());
    let out = Delivery::new(lane, pool.clone(), events, Arc::clone(&meter), None);
    let new =
        NewLane { orders, received: Vec::new(), out, expected, is_reused: false, token: None };
    (LaneHandle { id: lane, commands, meter }, new)
}

/// Makes a connection for a lane, unless its owner closes it meanwhile.
async fn connect_for(source: Arc<PeerSource>, mut lane: NewLane) {
    let connected = {
        let mut connecting = std::pin::pin!(source.connect_anew());
        loop {
            tokio::select! {
                biased;
                order = lane.orders.recv() => match order {
                    None | Some(Command::Close) => break None,
                    Some(order) => lane.received.push(order),
                },
                connected = &mut connecting => break Some(connected),
            }
        }
    };
    match (connected, source.connected()) {
        (None, _) => lane.close(),
        (Some(Ok(peer)), _) => peer.attach(lane),
        // Without one of its own it shares the one that there is.
        (Some(Err(_)), Some(peer)) => peer.attach(lane),
        (Some(Err(error)), None) => lane.fail(error),
    }
}

impl Source for PeerSource {
    fn name(&self) -> &SourceName {
        &self.name
    }

    fn url(&self) -> &Url {
        &self.url
    }

    fn trust(&self) -> Trust {
        self.trust
    }

    fn expect(&self, expected: Expected) {
        self.expected.set(&expected);
    }

    fn describe(&self) -> Pending<'_, Result<Facts, LaneError>> {
        Box::pin(async {
            self.connect().await?;
            Ok(self.facts())
        })
    }

    fn fetch_part(&self, range: Range) -> Pending<'_, Result<(Facts, Vec<u8>), LaneError>> {
        Box::pin(async move {
            let facts = self.facts();
            if let Some(size_bytes) = facts.size_bytes.filter(|&size| range.end > size) {
                return Err(LaneError::BeyondEnd { size_bytes });
            }
            let bytes = part(&self.connect().await?, range).await?;
            Ok((facts, bytes))
        })
    }

    fn open_lane(
        self: Arc<Self>,
        lane: LaneId,
        pool: &Pool,
        events: UnboundedSender<LaneEvent>,
    ) -> Box<dyn Lane> {
        let (handle, new) = new_lane(lane, pool, events, Arc::clone(&self.expected));
        match self.connected() {
            Some(peer) if !self.wants_another(&peer) => {
                peer.attach(NewLane { is_reused: true, ..new });
            }
            _ => _ = tokio::spawn(connect_for(self, new)),
        }
        Box::new(handle)
    }

    fn renewed(&self) -> Arc<dyn Source> {
        Arc::new(PeerSource {
            name: self.name.clone(),
            url: self.url.clone(),
            torrent: Arc::clone(&self.torrent),
            trust: self.trust,
            address: self.address,
            connections: Mutex::new(self.given.iter().cloned().collect()),
            given: self.given.clone(),
            expected: Arc::default(),
        })
    }

    fn holdings(&self) -> Option<watch::Receiver<RangeSet>> {
        self.given.as_ref().map(|peer| peer.offered.clone())
    }

    fn limits(&self) -> Limits {
        let peer = self.connected();
        // Until the peer has said what it runs, one connection must do.
        let connections = Some(peer.map_or(1, |peer| connections_max(peer.id())));
        Limits { connections, ..Limits::default() }
    }
}

/// Closes the connections that it has made, once their lanes have ended.
impl Drop for PeerSource {
    fn drop(&mut self) {
        let connections = self.connections.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_given = |peer: &Peer| self.given.as_ref().is_some_and(|given| given.is_same(peer));
        connections.iter().filter(|peer| !is_given(peer)).for_each(Peer::close_unused);
    }
}

impl fmt::Debug for PeerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerSource({})", self.name)
    }
}

/// Fetches a part by a lane of its own.
async fn part(peer: &Peer, range: Range) -> Result<Vec<u8>, LaneError> {
    let pool = Pool::new(PART_SLOTS, PART_SLOT_BYTES);
    let (sender, mut events) = unbounded_channel();
    let (handle, new) = new_lane(LaneId(0), &pool, sender, Arc::default());
    peer.attach(NewLane { is_reused: true, ..new });
    handle.fetch(SwathId(0), range);
    let mut bytes = Vec::new();
    while let Some(event) = events.recv().await {
        match event.kind {
            LaneEventKind::Chunk { buffer, .. } => bytes.extend_from_slice(&buffer),
            LaneEventKind::Done { .. } => return Ok(bytes),
            LaneEventKind::Failed { error, .. } => return Err(error),
            LaneEventKind::Closed { error: Some(error), .. } => return Err(error),
            LaneEventKind::Closed { error: None, .. } => break,
            LaneEventKind::Up { .. } | LaneEventKind::Facts(_) | LaneEventKind::Hops(_) => {}
        }
    }
    Err(LaneError::Truncated { got: bytes.len() as u64, wanted: range.len() })
}

/// Room for what a part is fetched through.
const PART_SLOTS: usize = 4;
const PART_SLOT_BYTES: usize = 64 << 10;
