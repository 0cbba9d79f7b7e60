//! The task of one connection to a peer: it reads, writes, and keeps both directions going.
//!
//! One poll does whatever can be done, until the socket, the disk or somebody's orders are waited
//! for. It ends with a [`PeerEnd`], which all lanes and the owner of the torrent are told.
//!
//! Limits: a peer that sends nothing for three minutes is left, and so is one that breaks the
//! protocol or floods (`Session`). While much waits to be sent, messages are not read.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use swath_formats::peer::{
    Bitfield, Event, ExtensionHandshake, Handshake, HashRange, METADATA_PIECE_BYTES, MessageId,
    MetadataMessage, PieceIndex, Session, SessionConfig,
};
use swath_model::{Range, RangeSet, Time};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

use super::download::Download;
use super::error::PeerEnd;
use super::handle::{Order, Peer, PeerEvent, PeerEventKind, PeerStatus, Shared};
use super::hashes;
use super::pipeline::{ANSWER_OF_OTHERS, ANSWER_OF_SWATH};
use super::stream::{FILL_BYTES, PeerStream};
use super::torrent::{Admission, Torrent, is_swath};
use super::upload::{Sending, Upload};

/// A connection on which both handshakes were exchanged.
pub(super) struct Established {
    pub address: SocketAddr,
    pub is_incoming: bool,
    pub theirs: Handshake,
    pub rtt: Duration,
    pub admission: Admission,
}

/// Starts the task of a connection.
pub(super) fn start(torrent: Arc<Torrent>, stream: PeerStream, established: Established) -> Peer {
    let Established { address, is_incoming, theirs, rtt, admission } = established;
    let mut have = torrent.options.have.clone();
    let told = have.borrow_and_update().clone();
    let config = config(&torrent, address, &told);
    let known = torrent.layout.map(|layout| (layout, &told));
    let session = Session::new(Time::ZERO, torrent.reserved(), theirs.reserved, known, config);
    let (pieces_sender, pieces) = watch::channel(Bitfield::none(torrent.piece_count()));
    let (holdings_sender, holdings) = watch::channel(RangeSet::new());
    let (offered_sender, offered) = watch::channel(RangeSet::new());
    let (sender, orders) = unbounded_channel();
    let status = PeerStatus {
        client: theirs.peer_id.client(),
        is_choked_by_us: true,
        is_choking_us: true,
        are_pieces_known: false,
        is_interested: false,
        are_we_interested: false,
        is_upload_only: false,
        port: None,
        requests_waiting: 0,
        requests_outstanding: 0,
    };
    let shared = Arc::new(Shared {
        address,
        id: theirs.peer_id,
        is_incoming,
        is_encrypted: stream.is_encrypted(),
        rtt,
        status: Mutex::new(status),
        requests_waiting: AtomicUsize::new(0),
        requests_outstanding: AtomicUsize::new(0),
        downloaded_bytes: AtomicU64::new(0),
        uploaded_bytes: AtomicU64::new(0),
        lanes: Arc::new(()),
        is_change_told: AtomicBool::new(false),
    });
    let peer = Peer { shared, orders: sender, pieces, holdings, offered };
    let answer = if is_swath(theirs.peer_id) { ANSWER_OF_SWATH } else { ANSWER_OF_OTHERS };
    let metadata_pieces = torrent.options.metainfo.info.raw().len() as u32 / METADATA_PIECE_BYTES;
    let connection = Connection {
        download: Download::new(Arc::clone(&torrent), address, rtt, answer),
        upload: Upload::new(&torrent),
        torrent,
        peer: peer.clone(),
        session,
        stream,
        begin: Instant::now(),
        heard_at: Instant::now(),
        told,
        pieces: pieces_sender,
        holdings: holdings_sender,
        offered: offered_sender,
        are_we_interested: false,
        is_leaving: false,
        is_changed: true,
        exchanged_at: None,
        told_peers_at: None,
        metadata_left: (metadata_pieces + 1) * METADATA_COPIES,
        timer: Box::pin(sleep_until(Instant::now() + TICK)),
        tick_at: Instant::now() + TICK,
        _admission: admission,
    };
    tokio::spawn(connection.run(orders, have));
    peer
}

/// Returns how a session behaves, and what it tells the peer of us.
fn config(torrent: &Torrent, address: SocketAddr, have: &Bitfield) -> SessionConfig {
    let info = &torrent.options.metainfo.info;
    SessionConfig {
        pipeline: usize::MAX,
        requests_max: REQUESTS_MAX,
        peer_exchange: !info.is_private(),
        handshake: ExtensionHandshake {
            client: Some(concat!("swath ", env!("CARGO_PKG_VERSION")).to_owned()),
            metadata_bytes: u32::try_from(info.raw().len()).ok(),
            your_address: Some(address.ip()),
            port: torrent.options.identity.port,
            upload_only: have.is_full().then_some(true),
            ..ExtensionHandshake::default()
        },
        ..SessionConfig::default()
    }
}

struct Connection {
    torrent: Arc<Torrent>,
    peer: Peer,
    session: Session,
    stream: PeerStream,
    download: Download,
    upload: Upload,
    begin: Instant,
    /// When anything came last.
    heard_at: Instant,
    /// The pieces that the peer was told of.
    told: Bitfield,
    pieces: watch::Sender<Bitfield>,
    holdings: watch::Sender<RangeSet>,
    offered: watch::Sender<RangeSet>,
    are_we_interested: bool,
    /// It ends with its last lane.
    is_leaving: bool,
    /// The status has changed since it was shared.
    is_changed: bool,
    /// When the peer told addresses last.
    exchanged_at: Option<Instant>,
    told_peers_at: Option<Instant>,
    /// Requests for metadata that are answered.
    metadata_left: u32,
    timer: Pin<Box<Sleep>>,
    tick_at: Instant,
    _admission: Admission,
}

impl Connection {
    async fn run(
        mut self,
        mut orders: UnboundedReceiver<Order>,
        mut have: watch::Receiver<Bitfield>,
    ) {
        let end = self.live(&mut orders, &mut have).await;
        tracing::debug!(peer = %self.peer.shared.address, %end, "connection to a peer ended");
        self.download.end_lanes(&end.clone().into(), &mut self.session);
        // Whoever hears that it has ended can order nothing more.
        orders.close();
        while let Ok(order) = orders.try_recv() {
            if let Order::Attach(lane) = order {
                lane.fail(end.clone().into());
            }
        }
        self.report(PeerEventKind::Ended(end));
    }

    async fn live(
        &mut self,
        orders: &mut UnboundedReceiver<Order>,
        have: &mut watch::Receiver<Bitfield>,
    ) -> PeerEnd {
        loop {
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    None | Some(Order::Close) => return PeerEnd::Closed,
                    Some(order) => self.obey(order),
                },
                changed = have.changed() => match changed {
                    // Nobody shares the torrent any more.
                    Err(_) => return PeerEnd::Closed,
                    Ok(()) => {
                        let now = have.borrow_and_update().clone();
                        self.tell_pieces(now);
                    }
                },
                end = poll_fn(|cx| self.poll(cx)) => return end,
            }
        }
    }

    fn obey(&mut self, order: Order) {
        self.is_changed = true;
        match order {
            Order::Choke => {
                self.session.choke();
                self.upload.choked(&mut self.session);
            }
            Order::Unchoke => self.session.unchoke(),
            Order::Suggest(piece) => self.session.suggest(piece),
            Order::Exchange(peers) => {
                let now = Instant::now();
                if self.told_peers_at.is_none_or(|at| now >= at + EXCHANGE_INTERVAL)
                    && self.session.send_peers(&peers)
                {
                    self.told_peers_at = Some(now);
                }
            }
            Order::Attach(lane) => self.download.attach(*lane, &mut self.session),
            Order::CloseUnused => self.is_leaving = true,
            Order::Close => {}
        }
    }

    /// Tells the peer which pieces we have gained or lost.
    fn tell_pieces(&mut self, have: Bitfield) {
        if have.pieces() != self.told.pieces() {
            return;
        }
        let bytes = self.told.as_wire().iter().zip(have.as_wire());
        let changed = bytes.enumerate().filter(|(_, (old, new))| old != new);
        let mut pieces: Vec<PieceIndex> =
            changed.flat_map(|(at, _)| at as u32 * 8..at as u32 * 8 + 8).map(PieceIndex).collect();
        // Pieces that the peer lacks come first: they make it interested. libtorrent disconnects from a
        // seeder if the message about its last piece comes while libtorrent is not interested.
        if let Some(theirs) = self.session.peer_pieces() {
            pieces.sort_by_key(|piece| theirs.contains(*piece));
        }
        for piece in pieces {
            match (self.told.contains(piece), have.contains(piece)) {
                (false, true) => self.session.gain(piece),
                (true, false) => _ = self.session.lose(piece),
                _ => {}
            }
        }
        self.told = have;
        self.show_interest();
    }

    /// Tells the peer whether it has pieces that we want and lack.
    fn show_interest(&mut self) {
        let pieces = self.pieces.borrow();
        let ours = self.told.as_wire().iter().zip(self.torrent.wanted.as_wire());
        let bytes = pieces.as_wire().iter().zip(ours);
        let wants = bytes.into_iter().any(|(theirs, (ours, wanted))| theirs & !ours & wanted != 0);
        drop(pieces);
        self.are_we_interested = wants;
        self.session.set_interested(wants);
        self.is_changed = true;
    }

    fn time(&self, now: Instant) -> Time {
        Time::ZERO + now.duration_since(self.begin)
    }

    fn report(&self, kind: PeerEventKind) {
        let _ = self.torrent.options.events.send(PeerEvent { peer: self.peer.clone(), kind });
    }

    /// Does whatever can be done; ready when the connection ends.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<PeerEnd> {
        loop {
            match self.advance(cx) {
                Err(end) => return Poll::Ready(end),
                Ok(true) => {}
                Ok(false) => {
                    self.share_status();
                    return Poll::Pending;
                }
            }
        }
    }

    /// Takes a step in each direction; returns whether there may be more to be done at once.
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<bool, PeerEnd> {
        let now = Instant::now();
        let time = self.time(now);
        let mut is_any = self.download.poll_orders(cx, &mut self.session);
        if self.is_leaving && !self.download.has_lanes() {
            return Err(PeerEnd::Closed);
        }
        is_any |= self.digest(now)?;
        is_any |= self.poll_input(cx, now)?;
        is_any |= self.download.poll_settle(cx, &mut self.session);
        self.download.request(&mut self.session, now);
        let (session, stream, have) = (&mut self.session, &mut self.stream, &self.told);
        let queued = self.upload.poll(cx, Sending { session, stream, have, time })?;
        self.peer.shared.uploaded_bytes.fetch_add(queued, Ordering::Relaxed);
        if self.stream.unsent_bytes() < UNSENT_BYTES_MAX {
            let mut out = Vec::new();
            self.session.poll_transmit(time, &mut out);
            self.stream.push(out);
        }
        if self.stream.unsent_bytes() > 0
            && let Poll::Ready(sent) = self.stream.poll_send(cx)
        {
            is_any |= sent.map_err(|error| PeerEnd::io(&error))? > 0;
        }
        is_any |= self.poll_time(cx, now)?;
        Ok(is_any)
    }

    /// Understands what was read, up to the next payload.
    fn digest(&mut self, now: Instant) -> Result<bool, PeerEnd> {
        let time = self.time(now);
        let mut is_any = false;
        loop {
            let used = self.session.handle_input(time, self.stream.input())?;
            self.stream.consume(used);
            while let Some(event) = self.session.poll_event() {
                self.happened(event, now);
            }
            if used == 0 {
                return Ok(is_any);
            }
            is_any = true;
        }
    }

    /// Reads what is there: payload, or more messages.
    fn poll_input(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, PeerEnd> {
        let time = self.time(now);
        let read = match self.session.payload() {
            Some(payload) => {
                let (stream, session) = (&mut self.stream, &mut self.session);
                let read = self.download.poll_payload(cx, stream, session, payload, time);
                if let Poll::Ready(Ok(bytes)) = &read {
                    let downloaded = &self.peer.shared.downloaded_bytes;
                    downloaded.fetch_add(*bytes as u64, Ordering::Relaxed);
                }
                read
            }
            // Somebody who does not read what he asked for is not heard.
            None if self.stream.unsent_bytes() >= UNSENT_BYTES_MAX => return Ok(false),
            None => self.stream.poll_fill(cx, self.fill_bytes()),
        };
        match read {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => Err(PeerEnd::Left),
            Poll::Ready(Ok(_)) => {
                self.heard_at = now;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(PeerEnd::io(&error)),
        }
    }

    /// Returns how much to read: what the next message lacks; little if a payload may follow, which
    /// is to be read to where it belongs.
    fn fill_bytes(&self) -> usize {
        if !self.download.is_under_way() {
            return FILL_BYTES;
        }
        let input = self.stream.input();
        match input.first_chunk::<5>() {
            Some(&[a, b, c, d, id]) if MessageId(id) != MessageId::PIECE => {
                let message_bytes = 4 + u32::from_be_bytes([a, b, c, d]) as usize;
                message_bytes.saturating_sub(input.len()).clamp(FILL_LEAST_BYTES, FILL_BYTES)
            }
            _ => FILL_LEAST_BYTES,
        }
    }

    fn poll_time(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, PeerEnd> {
        let is_tick = now >= self.tick_at;
        if is_tick {
            self.tick(now)?;
        }
        let dues = [self.download.due, self.upload.due].into_iter().flatten();
        let due = dues.fold(self.tick_at, Instant::min);
        if self.timer.deadline() != due {
            self.timer.as_mut().reset(due);
        }
        let is_due = self.timer.as_mut().poll(cx).is_ready();
        Ok(is_tick || is_due)
    }

    fn tick(&mut self, now: Instant) -> Result<(), PeerEnd> {
        self.tick_at = now + TICK;
        if now.duration_since(self.heard_at) >= QUIET_AFTER {
            self.stream.slow_down();
        }
        self.download.rtt = self.stream.rtt().unwrap_or(self.download.rtt);
        self.download.look_around(&mut self.session, now, now.duration_since(self.begin));
        let time = self.time(now);
        self.session.handle_timeout(time);
        let awake = self.torrent.options.net.awake();
        match awake.silence(self.heard_at) >= SILENCE_MAX {
            true => Err(PeerEnd::Silent(SILENCE_MAX)),
            false => Ok(()),
        }
    }

    fn happened(&mut self, event: Event, now: Instant) {
        match event {
            Event::Choked => {
                self.download.choked(now);
                self.offer_anew();
            }
            Event::Unchoked => {
                self.download.unchoked(now);
                self.offer_anew();
            }
            Event::Pieces => self.pieces_told(),
            Event::Gained(piece) => self.changed(piece, true),
            Event::Lost(piece) => self.changed(piece, false),
            Event::Refused { range, reason } => {
                self.download.refused(range, reason, &mut self.session);
            }
            Event::AllowedFast(piece) => {
                self.download.allowed_fast(piece);
                self.offer_anew();
            }
            Event::Peers(peers) => {
                let is_due = self.exchanged_at.is_none_or(|at| now >= at + EXCHANGE_INTERVAL_LEAST);
                if is_due {
                    self.exchanged_at = Some(now);
                    self.report(PeerEventKind::Peers(peers));
                }
            }
            Event::Metadata(MetadataMessage::Request { piece }) => self.send_metadata(piece),
            Event::HashesRequested(range) => self.send_hashes(range),
            Event::Interested | Event::NotInterested | Event::Handshake => {}
            Event::Suggested(_)
            | Event::Requested
            | Event::DhtPort(_)
            | Event::Metadata(_)
            | Event::Hashes { .. }
            | Event::HashesRefused(_) => return,
        }
        self.is_changed = true;
    }

    // What the peer has.

    fn pieces_told(&mut self) {
        self.download.pieces_told();
        let Some(pieces) = self.session.peer_pieces().cloned() else { return };
        let held = match self.torrent.layout {
            Some(layout) => pieces.to_ranges(layout),
            None => RangeSet::new(),
        };
        let content = held.iter().map(|wire| self.torrent.map.to_content(wire)).collect();
        self.pieces.send_replace(pieces);
        self.holdings.send_replace(content);
        self.offer_anew();
        self.show_interest();
    }

    fn changed(&mut self, piece: PieceIndex, has: bool) {
        self.download.pieces_told();
        let content = self.content_of(piece);
        let change = |set: &mut RangeSet| match has {
            true => _ = set.insert(content),
            false => _ = set.remove(content),
        };
        self.pieces.send_modify(|pieces| {
            match has {
                true => pieces.insert(piece),
                false => pieces.remove(piece),
            };
        });
        self.holdings.send_modify(change);
        if !self.session.is_choked() {
            self.offered.send_modify(change);
        }
        let is_lacked = !self.told.contains(piece) && self.torrent.wanted.contains(piece);
        match has && is_lacked {
            true => {
                self.are_we_interested = true;
                self.session.set_interested(true);
            }
            false if has => {}
            false => self.show_interest(),
        }
    }

    /// Returns the content of a piece; empty if it has none.
    fn content_of(&self, piece: PieceIndex) -> Range {
        let content = self.torrent.map.range_of(u64::from(piece.0));
        content.unwrap_or(Range::new(0, 0))
    }

    /// Tells what the peer delivers now: all that it has, or while it chokes us the pieces that it
    /// allows all the same.
    fn offer_anew(&mut self) {
        let offered = match self.session.is_choked() {
            false => self.holdings.borrow().clone(),
            true => {
                let pieces = self.pieces.borrow();
                let allowed = self.download.allowed().iter().filter(|it| pieces.contains(**it));
                allowed.map(|piece| self.content_of(*piece)).collect()
            }
        };
        self.offered.send_if_modified(|old| {
            let is_new = *old != offered;
            *old = offered;
            is_new
        });
    }

    // What the peer asks besides.

    fn send_metadata(&mut self, piece: u32) {
        let answer = match self.metadata_left.checked_sub(1) {
            Some(left) => {
                self.metadata_left = left;
                MetadataMessage::answer(piece, self.torrent.options.metainfo.info.raw())
            }
            None => MetadataMessage::Reject { piece },
        };
        self.session.send_metadata(&answer);
    }

    fn send_hashes(&mut self, range: HashRange) {
        match hashes::answer(&self.torrent.options.metainfo, range) {
            Some(hashes) => self.session.send_hashes(range, &hashes),
            None => self.session.refuse_hashes(range),
        }
    }

    /// Shares what has changed, and tells it once.
    fn share_status(&mut self) {
        let shared = &self.peer.shared;
        let waiting = self.session.requests_waiting() + self.upload.waiting();
        shared.requests_waiting.store(waiting, Ordering::Relaxed);
        shared.requests_outstanding.store(self.download.under_way(), Ordering::Relaxed);
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let told = self.session.peer_handshake();
        let status = PeerStatus {
            client: told.client.clone().unwrap_or_else(|| shared.id.client()),
            is_choked_by_us: self.session.is_choking(),
            is_choking_us: self.session.is_choked(),
            are_pieces_known: self.session.peer_pieces().is_some(),
            is_interested: self.session.is_peer_interested(),
            are_we_interested: self.are_we_interested,
            is_upload_only: told.upload_only == Some(true) || self.pieces.borrow().is_full(),
            port: told.port,
            requests_waiting: 0,
            requests_outstanding: 0,
        };
        *shared.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
        if !shared.is_change_told.swap(true, Ordering::AcqRel) {
            self.report(PeerEventKind::Changed);
        }
    }
}

/// How often a connection looks around.
const TICK: Duration = Duration::from_millis(250);
/// Peers send something every two minutes (BEP 3).
const SILENCE_MAX: Duration = Duration::from_secs(180);
/// Requests of a peer that are queued: 64 MiB, what 1 Gbit/s carries in half a second.
const REQUESTS_MAX: usize = 4096;
/// Each piece of the metadata is sent to a peer so often; it needs it once.
const METADATA_COPIES: u32 = 3;
/// BEP 11 allows one message a minute …
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(60);
/// … and clocks differ.
const EXCHANGE_INTERVAL_LEAST: Duration = Duration::from_secs(45);
/// Messages are not read while so much waits to be sent. Uploads queue less than half of it, so
/// that two peers that both send do not wait for each other.
const UNSENT_BYTES_MAX: usize = 2 << 20;
/// Longer than any wait for the low-water mark while bytes come.
const QUIET_AFTER: Duration = Duration::from_millis(100);
/// The head of a payload, and some short messages.
const FILL_LEAST_BYTES: usize = 256;
