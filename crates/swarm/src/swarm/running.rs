//! A torrent that takes part in its swarm: the task that owns all its state.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swath_formats::peer::{Bitfield, HandshakeError, PeerId, PieceIndex, PieceLayout};
use swath_model::Range;
use swath_source::Trust;
use swath_source::peer::{
    Peer, PeerEnd, PeerError, PeerEvent, PeerEventKind, PeerSource, Torrent, dial,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::addresses::{Addresses, canonical};
use super::bans::STRIKES_MAX;
use super::connected::Connected;
use super::event::{SourceChange, SwarmEvent};
use super::peer_exchange::exchange;
use super::serving::Serving;
use super::shared::{Arrived, Shared, for_peer};
use super::swarms::Counts;
use crate::announce::{Announced, Announcer, Standing};
use crate::slots::{CHOOSE_EVERY, PeerKey};

/// What a torrent is told to do.
pub(super) enum Order {
    /// Take this connection.
    Arrived(Box<Arrived>),
    /// Tell peers of a piece that was verified.
    Gained(PieceIndex),
    /// Offer these bytes of the piece space no more.
    Lost(Range),
    /// Do not let this peer in any more.
    Ban(SocketAddr, String),
    /// Report sources here, beginning with those that are connected.
    Sources(mpsc::UnboundedSender<SourceChange>),
}

pub(super) struct Running {
    pub shared: Arc<Shared>,
    pub name: Arc<str>,
    pub torrent: Arc<Torrent>,
    pub layout: PieceLayout,
    pub is_private: bool,
    pub have: watch::Sender<Bitfield>,
    pub peers: BTreeMap<PeerKey, Connected>,
    pub addresses: Addresses,
    pub serving: Serving,
    pub super_seeds: watch::Sender<bool>,
    pub counts: Arc<Mutex<Counts>>,
    pub standing: watch::Sender<Standing>,
    pub announcer: Announcer,
    pub channels: Channels,
    pub state: State,
}

/// What the task receives.
pub(super) struct Channels {
    pub orders: mpsc::UnboundedReceiver<Order>,
    pub events: mpsc::UnboundedReceiver<PeerEvent>,
    pub announced: mpsc::Receiver<Announced>,
    pub stop: CancellationToken,
}

/// What only the task itself needs.
#[derive(Default)]
pub(super) struct State {
    groups: HashMap<(PeerId, IpAddr), Group>,
    keys: u64,
    dialling: JoinSet<(SocketAddr, Result<Arrived, PeerError>)>,
    sources: Option<mpsc::UnboundedSender<SourceChange>>,
    uploaded_bytes: u64,
    downloaded_bytes: u64,
}

/// The connections of one peer.
struct Group {
    /// The first of them, by which it is known.
    key: PeerKey,
    /// The one that is its source. The others are those on which it fetches from us, or further lanes of
    /// that source.
    source: PeerKey,
    connections: usize,
}

impl Running {
    /// Takes part until it is stopped, and tells the trackers then.
    pub async fn run(mut self) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut due = Due::now();
        loop {
            tokio::select! {
                () = self.channels.stop.cancelled() => break,
                Some(order) = self.channels.orders.recv() => self.obey(order),
                Some(event) = self.channels.events.recv() => self.hear(event),
                Some(announced) = self.channels.announced.recv() => self.take_addresses(announced),
                Some(Ok((address, dialled))) = self.state.dialling.join_next() => {
                    self.take_dialled(address, dialled);
                }
                _ = tick.tick() => self.act(&mut due),
            }
        }
        self.count(due.counted.elapsed());
        self.close_all().await;
        self.announcer.stop().await;
    }

    /// Closes all connections, also those that were only just made: they would outlive us.
    async fn close_all(&mut self) {
        self.peers.values().for_each(|connected| connected.peer.close());
        self.channels.orders.close();
        while let Some(order) = self.channels.orders.recv().await {
            if let Order::Arrived(arrived) = order {
                arrived.peer.close();
            }
        }
        self.state.dialling.abort_all();
        while let Some(dialled) = self.state.dialling.join_next().await {
            if let Ok((_, Ok(arrived))) = dialled {
                arrived.peer.close();
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Arrived(arrived) => self.take(*arrived),
            Order::Gained(piece) => _ = self.have.send_if_modified(|have| have.insert(piece)),
            Order::Lost(range) => self.lose(range),
            Order::Ban(address, why) => {
                self.shared.strike(canonical(address).ip(), STRIKES_MAX, why);
                self.close_banned();
            }
            Order::Sources(sources) => {
                for group in self.state.groups.values() {
                    if let Some(connected) = self.peers.get(&group.source) {
                        let _ = sources.send(came(&self.torrent, connected));
                    }
                }
                self.state.sources = Some(sources);
            }
        }
    }

    /// Takes back the pieces that have bytes of `range`.
    fn lose(&mut self, range: Range) {
        let piece_bytes = u64::from(self.layout.piece_bytes());
        // Piece numbers have 32 bits.
        let pieces = range.start / piece_bytes..range.end.div_ceil(piece_bytes);
        let pieces: Vec<PieceIndex> = pieces.map(|piece| PieceIndex(piece as u32)).collect();
        let remove = |have: &mut Bitfield| {
            let removed = pieces.iter().filter(|piece| have.remove(**piece)).count();
            removed > 0
        };
        self.have.send_if_modified(remove);
        for shown in self.peers.values().filter_map(|peer| peer.shown.as_ref()) {
            shown.send_if_modified(remove);
        }
        // Who offers what it has not cannot be sparing with it.
        self.serving.stop_super_seeding(&self.have.borrow(), &self.peers);
        self.super_seeds.send_replace(false);
    }

    /// Does what is due.
    fn act(&mut self, due: &mut Due) {
        let now = self.shared.now();
        if self.serving.offer(&self.have.borrow(), &mut self.peers, now) {
            self.super_seeds.send_replace(false);
        }
        self.dial();
        if due.counted.elapsed() >= COUNT_EVERY {
            self.count(due.counted.elapsed());
            due.counted = Instant::now();
        }
        if due.chosen.elapsed() >= CHOOSE_EVERY {
            due.chosen = Instant::now();
            self.serving.choose(&self.have.borrow(), &mut self.peers, now);
        }
        if due.exchanged.elapsed() >= EXCHANGE_EVERY {
            due.exchanged = Instant::now();
            if !self.is_private {
                exchange(&mut self.peers);
            }
            if !self.have.borrow().is_full() && self.peers.len() < PEERS_FEW {
                self.announcer.hasten();
            }
        }
    }

    /// Connects to peers, as many at a time as allowed.
    fn dial(&mut self) {
        while self.peers.len() + self.state.dialling.len() < self.shared.peers_max {
            let Ok(permit) = Arc::clone(&self.shared.dialling).try_acquire_owned() else { return };
            let Some((address, trust)) = self.addresses.next(self.shared.now()) else { return };
            let super_seeds = self.serving.super_seeds();
            let torrent = Arc::clone(&self.torrent);
            self.state.dialling.spawn(async move {
                let _permit = permit;
                let (torrent, shown) = for_peer(&torrent, super_seeds);
                let dialled = dial(&torrent, address, trust).await;
                (address, dialled.map(|peer| Arrived { peer, shown, place: None }))
            });
        }
    }

    fn take_dialled(&mut self, address: SocketAddr, dialled: Result<Arrived, PeerError>) {
        let now = self.shared.now();
        match dialled {
            Ok(arrived) => self.take(arrived),
            Err(PeerError::Duplicate | PeerError::Handshake(HandshakeError::Ourselves)) => {
                self.addresses.left(address, AFTER_USELESS, now);
            }
            Err(error) => {
                self.addresses.failed(address, now);
                self.not_reached(address, error);
            }
        }
    }

    /// Takes a new connection, if there is room.
    fn take(&mut self, arrived: Arrived) {
        let peer = arrived.peer.clone();
        let (address, now) = (canonical(peer.address()), self.shared.now());
        let is_full = self.peers.len() >= self.shared.peers_max;
        if is_full || !self.shared.lets_in(address.ip()) {
            self.addresses.left(address, AFTER_USELESS, now);
            return peer.close();
        }
        let key = PeerKey(self.state.keys);
        self.state.keys += 1;
        let new = || Group { key, source: key, connections: 0 };
        let group = self.state.groups.entry(one_peer(&peer)).or_insert_with(new);
        group.connections += 1;
        let is_source = !self.peers.contains_key(&group.source);
        if is_source {
            group.source = key;
        }
        let (group, is_first) = (group.key, group.connections == 1);
        let connected = Connected::new(arrived, group, self.shared.knows(address.ip()), now);
        if is_first {
            self.serving.joined(group, now);
        }
        if let Some(shown) = &connected.shown {
            match self.serving.super_seeds() {
                // Super-seeding has ended while the connection was made.
                false => _ = shown.send_replace(self.have.borrow().clone()),
                // Another connection of the peer may show pieces already.
                true => {
                    let same = self.peers.values().find(|other| other.group == group);
                    if let Some(pieces) = same.and_then(|other| other.shown.as_ref()) {
                        shown.send_replace(pieces.borrow().clone());
                    }
                }
            }
        }
        self.addresses.connected(address);
        if let Some(sources) = self.state.sources.as_ref().filter(|_| is_source) {
            let _ = sources.send(came(&self.torrent, &connected));
        }
        let (torrent, client) = (Arc::clone(&self.name), peer.status().client);
        self.shared.tell(SwarmEvent::Joined { torrent, address, client });
        self.peers.insert(key, connected);
        self.look(key);
        if peer.is_closed() {
            self.forget(key, PeerEnd::Left);
        }
    }

    fn hear(&mut self, event: PeerEvent) {
        let address = canonical(event.peer.address());
        // Sources have connections of their own to the same peer, and connections by uTP may have the
        // same ports.
        let mut all = self.peers.iter();
        let taken = all.find(|(_, taken)| taken.peer.is_same(&event.peer));
        let key = taken.map(|(key, _)| *key);
        match event.kind {
            PeerEventKind::Changed => key.into_iter().for_each(|key| self.look(key)),
            PeerEventKind::Peers(told) => {
                if !self.is_private {
                    let addresses = told.added.into_iter().map(|peer| peer.address);
                    self.add_addresses(addresses);
                }
            }
            PeerEventKind::Ended(end) => {
                if let PeerEnd::Fault(fault) = &end {
                    let is_known = self.shared.knows(address.ip());
                    let strikes = if is_known { FAULT_OF_KNOWN } else { STRIKES_MAX };
                    self.shared.strike(address.ip(), strikes, fault.to_string());
                    self.close_banned();
                }
                if let Some(key) = key {
                    self.forget(key, end);
                }
            }
        }
    }

    /// Looks at what a peer says now.
    fn look(&mut self, key: PeerKey) {
        let now = self.shared.now();
        let Some(connected) = self.peers.get_mut(&key) else { return };
        let (gained, lost) = connected.look();
        let (group, listens_at) = (connected.group, connected.listens_at);
        self.serving.changed(group, &gained, &lost, now);
        let connected = &self.peers[&key];
        let is_useless = connected.seen.is_full() && self.have.borrow().is_full();
        let waits = connected.served_since.is_none() && connected.wants(now);
        if let Some(address) = listens_at {
            self.addresses.connected(address);
        }
        if is_useless {
            // Two seeders have nothing to say to each other.
            connected.peer.close();
        } else if waits && self.serving.has_room(&self.peers) {
            self.serving.choose(&self.have.borrow(), &mut self.peers, now);
        }
    }

    /// A connection has ended.
    fn forget(&mut self, key: PeerKey, end: PeerEnd) {
        let now = self.shared.now();
        let Some(mut connected) = self.peers.remove(&key) else { return };
        let address = canonical(connected.peer.address());
        let (sent, received) = connected.count(1.0, now);
        self.state.uploaded_bytes += sent;
        self.state.downloaded_bytes += received;
        let id = one_peer(&connected.peer);
        let is_last = match self.state.groups.get_mut(&id) {
            Some(group) if group.connections > 1 => {
                group.connections -= 1;
                false
            }
            _ => true,
        };
        self.serving.left(connected.group, &connected.seen, is_last);
        let is_useless = connected.seen.is_full() && self.have.borrow().is_full();
        let wait = if is_useless { AFTER_USELESS } else { AFTER_LEFT };
        let ends_at = [Some(address), connected.listens_at].into_iter().flatten();
        ends_at.for_each(|address| self.addresses.left(address, wait, now));
        self.replace_source(key, id, address);
        if is_last {
            self.state.groups.remove(&id);
        }
        self.shared.tell(SwarmEvent::Left { torrent: Arc::clone(&self.name), address, end });
        if connected.served_since.is_some() {
            self.serving.choose(&self.have.borrow(), &mut self.peers, now);
        }
    }

    /// If a connection that has ended was the source of its peer, another one of them is it now.
    fn replace_source(&mut self, ended: PeerKey, id: (PeerId, IpAddr), address: SocketAddr) {
        let Some(group) = self.state.groups.get_mut(&id).filter(|it| it.source == ended) else {
            return;
        };
        let mut others = self.peers.iter();
        let other = others.find(|(_, it)| it.group == group.key && !it.peer.is_closed());
        if let Some((key, _)) = other {
            group.source = *key;
        }
        if let Some(sources) = &self.state.sources {
            let _ = sources.send(SourceChange::Left { address });
            let came = other.map(|(_, connected)| came(&self.torrent, connected));
            came.into_iter().for_each(|came| _ = sources.send(came));
        }
    }

    fn close_banned(&self) {
        let now = self.shared.now();
        for connected in self.peers.values() {
            let ip = canonical(connected.peer.address()).ip();
            if self.shared.bans.has(ip, now) {
                connected.peer.close();
            }
        }
    }

    fn take_addresses(&mut self, announced: Announced) {
        if let Ok(answer) = &announced.outcome {
            self.add_addresses(answer.peers.iter().map(|peer| peer.address));
        }
        let torrent = Arc::clone(&self.name);
        self.shared.tell(SwarmEvent::Announced { torrent, announced });
    }

    /// Adds addresses that come from the network.
    fn add_addresses(&mut self, addresses: impl Iterator<Item = SocketAddr>) {
        let now = self.shared.now();
        let mut forbidden = None;
        for address in addresses.filter(|it| self.shared.lets_in(canonical(*it).ip())) {
            match self.shared.net.may_be_led_to(address) {
                Ok(()) => self.addresses.add(address, Trust::Discovered, now),
                Err(error) => forbidden = Some((address, error)),
            }
        }
        if let Some((address, error)) = forbidden {
            self.not_reached(address, error.into());
        }
    }

    fn not_reached(&self, address: SocketAddr, error: PeerError) {
        tracing::debug!(%address, %error, "cannot connect to a peer");
        self.shared.tell(SwarmEvent::NotReached {
            torrent: Arc::clone(&self.name),
            address,
            error,
        });
    }

    /// Adds up what was moved in the last while.
    fn count(&mut self, passed: Duration) {
        let (now, seconds) = (self.shared.now(), passed.as_secs_f64().max(1e-3));
        let (mut sent, mut received) = (0, 0);
        for connected in self.peers.values_mut() {
            let (up, down) = connected.count(seconds, now);
            sent += up;
            received += down;
        }
        self.serving.note_sent(sent, seconds);
        self.state.uploaded_bytes += sent;
        self.state.downloaded_bytes += received;
        let have = self.have.borrow();
        let left = match have.is_full() {
            true => 0,
            false => self.layout.total_bytes() - have.to_ranges(self.layout).total_bytes(),
        };
        let counts = Counts {
            peers: self.peers.len(),
            seeders: self.peers.values().filter(|peer| peer.seen.is_full()).count(),
            served: self.peers.values().filter(|peer| peer.served_since.is_some()).count(),
            uploaded_bytes: self.state.uploaded_bytes,
            downloaded_bytes: self.state.downloaded_bytes,
        };
        let standing = Standing {
            uploaded: counts.uploaded_bytes,
            downloaded: counts.downloaded_bytes,
            left: Some(left),
            want: self.shared.peers_max.saturating_sub(counts.peers).min(WANT_MAX) as u32,
        };
        self.standing.send_if_modified(|told| std::mem::replace(told, standing) != standing);
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

/// Identifies a peer. Peers at one address differ in their ids.
fn one_peer(peer: &Peer) -> (PeerId, IpAddr) {
    (peer.id(), canonical(peer.address()).ip())
}

fn came(torrent: &Arc<Torrent>, connected: &Connected) -> SourceChange {
    let peer = connected.peer.clone();
    let address = canonical(peer.address());
    SourceChange::Came { address, source: PeerSource::of(torrent, peer, Trust::Discovered) }
}

/// When things were last done.
struct Due {
    counted: Instant,
    chosen: Instant,
    exchanged: Instant,
}

impl Due {
    fn now() -> Due {
        let now = Instant::now();
        Due { counted: now, chosen: now, exchanged: now }
    }
}

/// Offers to peers must not wait long.
const TICK: Duration = Duration::from_millis(25);
/// How often bytes are added up.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// At most once a minute (BEP 11).
const EXCHANGE_EVERY: Duration = Duration::from_secs(60);
/// Another seeder, or ourselves: is still that after a while.
const AFTER_USELESS: Duration = Duration::from_secs(30 * 60);
/// Whoever has left on purpose is not asked back at once.
const AFTER_LEFT: Duration = Duration::from_secs(60);
/// A peer that the user knows, and an institute behind it, is not banned for one odd message.
const FAULT_OF_KNOWN: u32 = 7;
/// With fewer peers we ask for more.
const PEERS_FEW: usize = 5;
/// More addresses are not asked for at a time.
const WANT_MAX: usize = 100;
