//! The receiving direction of a connection: swaths of its lanes become requests for blocks, and
//! payloads become their bytes.
//!
//! A block is *under way* from its request until it has come or was refused, and counts on while it
//! waits for its turn. Life of a swath: it waits until the peer has told its pieces, fails if some
//! are missing, and is asked for block by block while the peer does not choke us. A choke puts its
//! blocks back; if the choke lasts, the swath fails, so that others are asked.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use swath_formats::peer::{BLOCK_BYTES, Payload, PieceIndex, Refusal, Session};
use swath_model::pool::Take;
use swath_model::{Range, Requests, SwathId, Time};
use tokio::time::Instant;

use super::allowance::Allowance;
use super::flights::{AskId, Flight, Flights};
use super::peer_lane::{Front, NewLane, PeerLane};
use super::pipeline::Pipeline;
use super::stream::{FILL_BYTES, PeerStream};
use super::torrent::Torrent;
use crate::error::LaneError;
use crate::lane::{Command, LaneEventKind};

/// All lanes of a connection.
pub(super) struct Download {
    torrent: Arc<Torrent>,
    address: SocketAddr,
    lanes: Vec<PeerLane>,
    flights: Flights,
    /// What has come of a block that is out of turn.
    partial: Vec<u8>,
    pipeline: Pipeline,
    allowance: Allowance,
    /// When the rate limit allows the next request.
    pub due: Option<Instant>,
    /// A place in the line of the pool of this lane, which needs a buffer.
    place: Option<(u64, Take)>,
    /// The place is still needed; an unused one would hold up those behind it.
    is_place_needed: bool,
    next_lane: u64,
    next_ask: u64,
    pub rtt: Duration,
    is_choked: bool,
    choked_since: Instant,
    allowed_fast: Vec<PieceIndex>,
    /// The peer has told its pieces, or has none to tell.
    are_pieces_known: bool,
    /// When a payload came last, or was first due.
    heard_at: Instant,
}

/// A block to be asked for.
struct NextBlock {
    lane: usize,
    ask: usize,
    content: Range,
    wire: Range,
}

impl Download {
    pub fn new(
        torrent: Arc<Torrent>,
        address: SocketAddr,
        rtt: Duration,
        answer: Duration,
    ) -> Download {
        let now = Instant::now();
        Download {
            allowance: Allowance::new(Arc::clone(torrent.options.net.limiter())),
            torrent,
            address,
            lanes: Vec::new(),
            flights: Flights::default(),
            partial: Vec::new(),
            pipeline: Pipeline::new(answer, now),
            due: None,
            place: None,
            is_place_needed: false,
            next_lane: 0,
            next_ask: 0,
            rtt,
            is_choked: true,
            choked_since: now,
            allowed_fast: Vec::new(),
            are_pieces_known: false,
            heard_at: now,
        }
    }

    /// Returns whether blocks are under way.
    pub fn is_under_way(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Returns how many blocks are under way.
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    pub fn has_lanes(&self) -> bool {
        !self.lanes.is_empty()
    }

    // Lanes and their orders.

    pub fn attach(&mut self, new: NewLane, session: &mut Session) {
        let is_reused = new.is_reused;
        let (lane, received) = PeerLane::new(new, self.next_lane);
        self.next_lane += 1;
        lane.out.meter.note_rtt(self.rtt);
        lane.out.send(LaneEventKind::Up {
            rtt: self.rtt,
            requests: Requests::Blocks,
            protocol: "BitTorrent",
            reused: is_reused,
            peer: Some(self.address),
        });
        self.lanes.push(lane);
        let at = self.lanes.len() - 1;
        for order in received {
            if !self.obey(at, Some(order), session) {
                return;
            }
        }
    }

    /// Obeys the orders of all lanes; returns whether there were any.
    pub fn poll_orders(&mut self, cx: &mut Context<'_>, session: &mut Session) -> bool {
        let mut is_any = false;
        let mut at = 0;
        while at < self.lanes.len() {
            match self.lanes[at].orders.poll_recv(cx) {
                Poll::Pending => at += 1,
                Poll::Ready(order) => {
                    is_any = true;
                    self.obey(at, order, session);
                }
            }
        }
        is_any
    }

    /// Obeys an order; `None` is the handle's end. Returns false if that ended the lane.
    fn obey(&mut self, at: usize, order: Option<Command>, session: &mut Session) -> bool {
        match order {
            Some(Command::Fetch { swath, range }) => {
                let id = AskId(self.next_ask);
                self.next_ask += 1;
                self.lanes[at].ask(swath, range, self.torrent.map.content_bytes(), id);
            }
            // What lies behind the end is cancelled, so there is nothing to be drained or dropped.
            Some(Command::Trim { swath, end, .. }) => self.trim(at, swath, end, session),
            None | Some(Command::Close) => {
                self.end_lane(at, None, session);
                return false;
            }
        }
        true
    }

    fn trim(&mut self, at: usize, swath: SwathId, end: u64, session: &mut Session) {
        let lane = &mut self.lanes[at];
        let Some(place) = lane.asks.iter().position(|ask| ask.ask.swath == swath) else { return };
        let ask = &mut lane.asks[place];
        if end >= ask.ask.end {
            return;
        }
        lane.under_way -= ask.shorten(end);
        let (id, is_complete) = (ask.id, ask.ask.is_complete());
        self.cancel(at, id, if is_complete { 0 } else { end }, session);
        if is_complete {
            let lane = &mut self.lanes[at];
            if place == 0 {
                lane.flush();
            }
            lane.drop_ask(place);
            lane.out.done(swath);
        }
    }

    /// Takes back the requests of a swath from this byte of the content on.
    fn cancel(&mut self, at: usize, id: AskId, from: u64, session: &mut Session) {
        for flight in self.flights.take_of(id, from) {
            session.cancel(flight.wire);
            self.lanes[at].under_way -= 1;
        }
    }

    /// Ends a swath with an error.
    fn fail(&mut self, at: usize, place: usize, error: LaneError, session: &mut Session) {
        let lane = &mut self.lanes[at];
        if place == 0 {
            lane.flush();
        }
        let Some(ask) = lane.drop_ask(place) else { return };
        lane.out.send(LaneEventKind::Failed { swath: ask.ask.swath, error });
        self.cancel(at, ask.id, 0, session);
    }

    fn end_lane(&mut self, at: usize, error: Option<LaneError>, session: &mut Session) {
        let mut lane = self.lanes.remove(at);
        (self.place, self.due) = (None, None);
        lane.hold(false);
        lane.flush();
        lane.orders.close();
        let mut unfinished: Vec<SwathId> = lane.asks.iter().map(|ask| ask.ask.swath).collect();
        while let Ok(order) = lane.orders.try_recv() {
            if let Command::Fetch { swath, .. } = order {
                unfinished.push(swath);
            }
        }
        for ask in &lane.asks {
            for flight in self.flights.take_of(ask.id, 0) {
                session.cancel(flight.wire);
            }
        }
        lane.out.send(LaneEventKind::Closed { error, unfinished });
    }

    /// Ends all lanes: the connection has ended, or the peer does not answer.
    pub fn end_lanes(&mut self, error: &LaneError, session: &mut Session) {
        while !self.lanes.is_empty() {
            self.end_lane(0, Some(error.clone()), session);
        }
    }

    /// Returns lane and place of a swath.
    fn find(&self, id: AskId) -> Option<(usize, usize)> {
        self.lanes
            .iter()
            .enumerate()
            .find_map(|(at, lane)| Some((at, lane.asks.iter().position(|ask| ask.id == id)?)))
    }

    // Requests.

    /// Asks for as much as may be under way.
    pub fn request(&mut self, session: &mut Session, now: Instant) {
        self.due = None;
        if self.lanes.is_empty() {
            return;
        }
        let most = (self.pipeline.depth() / self.lanes.len()).max(1);
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            // Several at a time, for one write.
            let is_time = lane.under_way == 0 || lane.under_way + most / 8 <= most;
            let is_missed = lane.early_blocks() >= EARLY_BLOCKS_MAX;
            while is_time && !is_missed && self.lanes[at].under_way < most {
                let Some(next) = self.next_block(at, session) else { break };
                match self.allowance.now() {
                    Ok(_) => self.ask_for(&next, session, now),
                    Err(due) => {
                        self.due = Some(due);
                        break;
                    }
                }
            }
            let lane = &mut self.lanes[at];
            let waits_for_limit = self.due.is_some() && lane.under_way == 0;
            let waits_for_buffer = self.place.as_ref().is_some_and(|it| it.0 == lane.serial);
            lane.hold(waits_for_limit || waits_for_buffer);
        }
    }

    fn ask_for(&mut self, next: &NextBlock, session: &mut Session, now: Instant) {
        if self.flights.is_empty() {
            self.heard_at = now;
            self.pipeline.restart(now);
        }
        session.want(next.wire);
        self.allowance.spend(next.wire.len());
        let lane = &mut self.lanes[next.lane];
        let ask = &mut lane.asks[next.ask];
        ask.asked(next.content.end);
        self.flights.insert(Flight { wire: next.wire, content: next.content.start, ask: ask.id });
        lane.under_way += 1;
        lane.out.meter.count_request();
    }

    /// Returns the next block of a lane that can be asked for now. Swaths that the peer cannot
    /// deliver fail.
    fn next_block(&mut self, at: usize, session: &mut Session) -> Option<NextBlock> {
        if !self.are_pieces_known {
            return None;
        }
        let mut place = 0;
        loop {
            let ask = self.lanes[at].asks.get(place)?;
            if !ask.is_held {
                let range = Range::new(ask.ask.position, ask.ask.end);
                let lacking = self.lacking(range, session);
                if !lacking.is_empty() {
                    self.fail(at, place, LaneError::NotHeld { range, lacking }, session);
                    continue;
                }
                self.lanes[at].asks[place].is_held = true;
                continue;
            }
            let Some(wanted) = ask.wanted() else {
                place += 1;
                continue;
            };
            // No block is longer, and a long range may reach over many files.
            let most = wanted.start.saturating_add(u64::from(BLOCK_BYTES));
            let wanted = Range::new(wanted.start, wanted.end.min(most));
            let layout = self.torrent.layout?;
            let (content, wire) = self.torrent.map.to_space(wanted).next()?;
            let block = layout.first_block(wire)?;
            let wire = layout.range_of_block(block)?;
            let content = Range::of_len(content.start, wire.len());
            let may_ask = !self.is_choked || self.allowed_fast.contains(&block.piece);
            // The same byte for another swath: that one first.
            if !may_ask || self.flights.overlaps(wire) {
                return None;
            }
            return Some(NextBlock { lane: at, ask: place, content, wire });
        }
    }

    /// Returns the parts of `range` that the peer does not have.
    fn lacking(&self, range: Range, session: &Session) -> Vec<Range> {
        let (Some(layout), Some(pieces)) = (self.torrent.layout, session.peer_pieces()) else {
            return vec![range];
        };
        let piece_bytes = u64::from(layout.piece_bytes());
        let mut lacking: Vec<Range> = Vec::new();
        for (content, wire) in self.torrent.map.to_space(range) {
            for piece in wire.start / piece_bytes..wire.end.div_ceil(piece_bytes) {
                let piece = PieceIndex(piece as u32);
                let part = layout.range_of(piece).and_then(|it| it.intersect(wire));
                let Some(part) = part.filter(|_| !pieces.contains(piece)) else { continue };
                let part = Range::of_len(content.start + (part.start - wire.start), part.len());
                match lacking.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => lacking.push(part),
                }
            }
        }
        lacking
    }

    // What the peer says.

    pub fn pieces_told(&mut self) {
        self.are_pieces_known = true;
    }

    pub fn choked(&mut self, now: Instant) {
        (self.is_choked, self.choked_since) = (true, now);
    }

    pub fn unchoked(&mut self, now: Instant) {
        (self.is_choked, self.heard_at) = (false, now);
    }

    pub fn allowed_fast(&mut self, piece: PieceIndex) {
        self.allowed_fast.push(piece);
    }

    /// Returns the pieces that the peer delivers although it chokes us.
    pub fn allowed(&self) -> &[PieceIndex] {
        &self.allowed_fast
    }

    /// The peer will not deliver these bytes of the piece space.
    pub fn refused(&mut self, wire: Range, reason: Refusal, session: &mut Session) {
        for flight in self.flights.take_within(wire) {
            let Some((at, place)) = self.find(flight.ask) else { continue };
            self.lanes[at].under_way -= 1;
            let range = flight.content_range();
            match reason {
                Refusal::Rejected if !self.is_choked => {
                    self.fail(at, place, LaneError::Rejected { range }, session);
                }
                Refusal::Lost => {
                    let error = LaneError::NotHeld { range, lacking: vec![range] };
                    self.fail(at, place, error, session);
                }
                Refusal::Choked | Refusal::Rejected => {
                    let ask = &mut self.lanes[at].asks[place];
                    let range = Range::new(range.start, range.end.min(ask.ask.end));
                    if !range.is_empty() {
                        ask.again.push_back(range);
                    }
                }
            }
        }
    }

    // Payloads.

    /// Moves bytes of the payload that is due. Returns how many: 0 is the end of the connection.
    pub fn poll_payload(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut PeerStream,
        session: &mut Session,
        payload: Payload,
        at_time: Time,
    ) -> Poll<io::Result<usize>> {
        let flight = self.flights.get(payload.range.start).filter(|_| payload.is_wanted);
        let wanted = flight.and_then(|flight| Some((flight, self.find(flight.ask)?)));
        let Some((flight, (at, place))) = wanted else {
            self.partial.clear();
            let bytes = ready!(skip(cx, stream, payload.bytes_left))?;
            session.take_payload(at_time, bytes as u32);
            return Poll::Ready(Ok(bytes));
        };
        let done = payload.range.len() - u64::from(payload.bytes_left);
        let ask = &self.lanes[at].asks[place];
        let is_due = place == 0 && ask.ask.position == flight.content + done;
        let is_early = !self.partial.is_empty() || !is_due;
        let bytes = match is_early {
            true => ready!(self.read_early(cx, stream, payload, done as usize))?,
            false => ready!(self.read_due(cx, stream, payload, at))?,
        };
        if bytes == 0 {
            return Poll::Ready(Ok(0));
        }
        session.take_payload(at_time, bytes as u32);
        let now = Instant::now();
        self.heard_at = now;
        self.pipeline.came(bytes as u64, self.rtt, now);
        if bytes == payload.bytes_left as usize {
            self.flights.remove(flight.wire.start);
            let lane = &mut self.lanes[at];
            match is_early {
                true => {
                    let block = std::mem::take(&mut self.partial);
                    lane.asks[place].keep_early(flight.content, block);
                }
                false => lane.under_way -= 1,
            }
        }
        self.settle(at, session);
        Poll::Ready(Ok(bytes))
    }

    /// Reads into the buffer of a lane, for its front swath.
    fn read_due(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut PeerStream,
        payload: Payload,
        at: usize,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_buffer(cx, at));
        let lane = &mut self.lanes[at];
        let Some(front) = lane.asks.front_mut() else { return Poll::Pending };
        let room = lane.out.room(&front.ask, u64::from(payload.bytes_left));
        let bytes = match stream.input().is_empty() {
            false => stream.take_input(room),
            true => ready!(stream.poll_payload(cx, room))?,
        };
        if bytes > 0 {
            lane.out.wrote(&mut front.ask, bytes);
        }
        Poll::Ready(Ok(bytes))
    }

    /// Reads a block whose turn has not come.
    fn read_early(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut PeerStream,
        payload: Payload,
        done: usize,
    ) -> Poll<io::Result<usize>> {
        self.partial.resize(payload.block.length as usize, 0);
        let room = &mut self.partial[done..];
        match stream.input().is_empty() {
            false => Poll::Ready(Ok(stream.take_input(room))),
            true => stream.poll_payload(cx, room),
        }
    }

    /// Sees to it that a lane has a buffer.
    fn poll_buffer(&mut self, cx: &mut Context<'_>, at: usize) -> Poll<()> {
        if self.lanes[at].out.has_buffer() {
            return Poll::Ready(());
        }
        let serial = self.lanes[at].serial;
        if self.place.as_ref().is_none_or(|place| place.0 != serial) {
            let lane = &mut self.lanes[at];
            let front = lane.asks.front().map(|front| &front.ask);
            if let Some(buffer) = lane.out.try_take(front) {
                lane.out.supply(buffer);
                return Poll::Ready(());
            }
            self.place = Some((serial, lane.out.pool.take()));
            // Nobody waits for a buffer while he holds another one.
            self.lanes.iter_mut().filter(|lane| lane.out.has_buffer()).for_each(PeerLane::flush);
        }
        let Some((_, place)) = &mut self.place else { return Poll::Pending };
        self.is_place_needed = true;
        let buffer = ready!(std::pin::Pin::new(place).poll(cx));
        self.place = None;
        self.lanes[at].out.supply(buffer);
        Poll::Ready(())
    }

    /// Delivers what came early on a lane, as far as there are buffers.
    fn settle(&mut self, at: usize, session: &mut Session) -> Front {
        let before: Vec<AskId> = self.lanes[at].asks.iter().map(|ask| ask.id).collect();
        let front = self.lanes[at].settle();
        // What is still under way of a swath that is complete lies behind its end.
        let left = self.lanes[at].asks.len();
        for id in &before[..before.len() - left] {
            self.cancel(at, *id, 0, session);
        }
        front
    }

    /// Waits for a buffer where something came early and has none; returns whether one came. Called
    /// after [`Download::poll_payload`], which may wait for one, too.
    pub fn poll_settle(&mut self, cx: &mut Context<'_>, session: &mut Session) -> bool {
        let mut has_come = false;
        for at in 0..self.lanes.len() {
            if self.settle(at, session) == Front::NeedsBuffer && !self.is_place_needed {
                has_come |= self.poll_buffer(cx, at).is_ready();
            }
        }
        if !std::mem::take(&mut self.is_place_needed) {
            self.place = None;
        }
        has_come
    }

    // Time.

    /// Looks around, several times a second.
    pub fn look_around(&mut self, session: &mut Session, now: Instant, since_start: Duration) {
        // A peer that has nothing need not say so.
        self.are_pieces_known |= since_start >= PIECES_WITHIN;
        for lane in &mut self.lanes {
            lane.out.meter.note_rtt(self.rtt);
            let is_slow = lane.out.held_for() >= BUFFER_HELD_MAX;
            if lane.out.has_buffer() && is_slow && lane.out.pool.free_slots() == 0 {
                lane.flush();
            }
        }
        if self.is_choked {
            self.fail_choked(session, now);
        }
        let net = &self.torrent.options.net;
        let after = net.timeout();
        let is_silent = net.awake().silence(self.heard_at) >= after;
        if self.is_under_way() && !self.is_choked && is_silent && self.place.is_none() {
            self.end_lanes(&LaneError::Timeout { after }, session);
        }
    }

    /// Fails what a choked lane has waited for long enough.
    fn fail_choked(&mut self, session: &mut Session, now: Instant) {
        for at in 0..self.lanes.len() {
            let waits = |since: Instant| now.duration_since(since.max(self.choked_since));
            let asks = &self.lanes[at].asks;
            let is_over = asks.front().is_some_and(|ask| waits(ask.since) >= CHOKED_PATIENCE);
            if is_over && self.lanes[at].under_way == 0 {
                while !self.lanes[at].asks.is_empty() {
                    self.fail(at, 0, LaneError::Choked, session);
                }
            }
        }
    }
}

/// Throws payload away.
fn skip(cx: &mut Context<'_>, stream: &mut PeerStream, bytes_left: u32) -> Poll<io::Result<usize>> {
    let left = bytes_left as usize;
    if stream.input().is_empty() {
        ready!(stream.poll_fill(cx, left.min(FILL_BYTES)))?;
    }
    let bytes = left.min(stream.input().len());
    stream.consume(bytes);
    Poll::Ready(Ok(bytes))
}

/// A peer tells its pieces first of all, if it has any.
const PIECES_WITHIN: Duration = Duration::from_secs(2);
/// Peers give their slots to others for ten seconds and more; who waits for one asks others
/// meanwhile.
const CHOKED_PATIENCE: Duration = Duration::from_secs(2);
/// So many blocks ahead of a missing one, 8 MiB, are enough.
const EARLY_BLOCKS_MAX: usize = 512;
/// A buffer is not kept for longer while others wait for one.
const BUFFER_HELD_MAX: Duration = Duration::from_millis(500);
