//! One connection between peers, behind the handshake: a state machine without sockets and clock.
//!
//! The caller passes what arrives to [`Session::handle_input`], takes [`Event`]s from
//! [`Session::poll_event`] and bytes to send from [`Session::poll_transmit`]. Payloads of blocks
//! never pass through here: after the head of a `piece`, [`Session::payload`] says which bytes of
//! the stream are the block, and the caller reads them into its own buffer; to send a block, the
//! caller sends the head that [`Session::send_piece`] writes, then the bytes.
//!
//! Both sides are symmetric. States, and what changes them:
//!
//! | state | begins | ends |
//! | --- | --- | --- |
//! | peer chokes us | at the start, `choke` | `unchoke` |
//! | we choke the peer | at the start, [`choke`](Session::choke) | [`unchoke`](Session::unchoke) |
//! | we are interested | [`want`](Session::want), [`set_interested`](Session::set_interested) | `set_interested` |
//! | first message due | at the start | `bitfield`, `have all`, `have none`, or any message but `extended`, `port`, keep-alive and unknown ones |
//! | request waits | `want` | sent while the peer does not choke us or allows the piece; [`cancel`](Session::cancel); lost piece |
//! | request outstanding | sent | `piece`; `reject request`; without the fast extension also `choke`, `cancel`, lost piece |
//! | payload due | head of `piece` | [`take_payload`](Session::take_payload) of all its bytes |
//! | peer's request waits | `request` | [`poll_request`](Session::poll_request); `cancel`; our choke, unless the piece is allowed fast |
//!
//! With the fast extension every request is answered exactly once, by `piece` or `reject request`,
//! in both directions. Memory is bounded: [`Session::handle_input`] stops while much output or many
//! events wait, and floods are faults.

mod event;
mod extensions;
mod handle;
mod peer_pieces;
mod requests;
mod uploads;

pub use event::{Event, Payload, Refusal, SessionConfig};

use std::collections::VecDeque;
use std::time::Duration;

use swath_model::{Range, RangeSet, Time};

use self::extensions::Extensions;
use self::peer_pieces::{First, PeerPieces};
use self::requests::Requests;
use self::uploads::Uploads;
use super::bitfield::Bitfield;
use super::extension::{Extension, ExtensionHandshake};
use super::fault::{PeerFault, Violation};
use super::handshake::Reserved;
use super::layout::{Block, PieceIndex, PieceLayout};
use super::message::{HashRange, Limits, Message, MessageId};

/// One connection to a peer that shares one torrent.
#[derive(Debug)]
pub struct Session {
    agreed: Reserved,
    layout: Option<PieceLayout>,
    limits: Limits,
    choke: Choke,
    pieces: PeerPieces,
    is_first_due: bool,
    requests: Requests,
    pipeline: usize,
    allowed_fast: Vec<PieceIndex>,
    uploads: Uploads,
    extensions: Extensions,
    payload: Option<Payload>,
    events: VecDeque<Event>,
    /// Messages to send, except requests.
    output: Vec<u8>,
    sent_at: Time,
    received_at: Time,
}

/// Choke and interest of both sides.
#[derive(Clone, Copy, Debug)]
struct Choke {
    /// We answer no requests.
    by_us: bool,
    /// The peer answers no requests.
    by_peer: bool,
    /// We want pieces.
    we_want: bool,
    /// The peer wants pieces.
    peer_wants: bool,
}

impl Session {
    /// Returns a connection on which both handshakes were exchanged. `torrent` is how the torrent is
    /// cut, and which pieces this side has; `None` while the metadata is missing.
    pub fn new(
        now: Time,
        ours: Reserved,
        theirs: Reserved,
        torrent: Option<(PieceLayout, &Bitfield)>,
        config: SessionConfig,
    ) -> Session {
        let agreed = ours.both(theirs);
        let layout = torrent.map(|torrent| torrent.0);
        let pieces = layout.map(PieceLayout::count);
        let mut session = Session {
            agreed,
            layout,
            limits: Limits { pieces, ..config.limits },
            choke: Choke { by_us: true, by_peer: true, we_want: false, peer_wants: false },
            pieces: PeerPieces::new(pieces),
            is_first_due: true,
            requests: Requests::default(),
            pipeline: config.pipeline,
            allowed_fast: Vec::new(),
            uploads: Uploads::new(config.requests_max),
            extensions: Extensions::new(config.peer_exchange),
            payload: None,
            events: VecDeque::new(),
            output: Vec::new(),
            sent_at: now,
            received_at: now,
        };
        if agreed.extended {
            let payload = session.extensions.handshake(config.requests_max, config.handshake);
            session.send(Message::Extended { id: 0, payload: &payload });
        }
        match torrent.map(|torrent| torrent.1) {
            Some(own) if own.is_full() && agreed.fast => session.send(Message::HaveAll),
            Some(own) if !own.is_empty() => session.send(Message::Bitfield(own.as_wire())),
            _ if agreed.fast => session.send(Message::HaveNone),
            _ => {}
        }
        session
    }

    /// Sets how the torrent is cut, once its metadata is there.
    ///
    /// # Errors
    /// [`PeerFault`] if the peer claimed pieces that there are not.
    pub fn set_layout(&mut self, layout: PieceLayout) -> Result<(), PeerFault> {
        self.layout = Some(layout);
        self.limits.pieces = Some(layout.count());
        self.pieces.size(layout.count())?;
        self.allowed_fast.retain(|piece| piece.0 < layout.count());
        self.events.push_back(Event::Pieces);
        Ok(())
    }

    // What the peer is and has.

    /// Returns the extensions that both sides speak.
    pub fn agreed(&self) -> Reserved {
        self.agreed
    }

    /// Returns the pieces that the peer has; `None` while the torrent's size is not known.
    pub fn peer_pieces(&self) -> Option<&Bitfield> {
        self.pieces.known()
    }

    /// Returns the bytes that the peer has.
    pub fn peer_holds(&self) -> RangeSet {
        match (self.pieces.known(), self.layout) {
            (Some(pieces), Some(layout)) => pieces.to_ranges(layout),
            _ => RangeSet::new(),
        }
    }

    /// Returns what the peer told in its handshakes of extensions.
    pub fn peer_handshake(&self) -> &ExtensionHandshake {
        self.extensions.peer()
    }

    /// Returns whether the peer chokes us.
    pub fn is_choked(&self) -> bool {
        self.choke.by_peer
    }

    /// Returns whether we choke the peer.
    pub fn is_choking(&self) -> bool {
        self.choke.by_us
    }

    /// Returns whether the peer wants pieces.
    pub fn is_peer_interested(&self) -> bool {
        self.choke.peer_wants
    }

    // Input.

    /// Reads messages from the front of `input` and returns how many bytes it has used. It stops at
    /// a message that is not complete, before a payload (see [`Session::payload`]), and while output
    /// or events wait in plenty: take both, then call it again. If both are taken and it uses
    /// nothing, more input is needed.
    ///
    /// # Errors
    /// [`PeerFault`] if the peer breaks the protocol. The session is of no use any more.
    pub fn handle_input(&mut self, now: Time, input: &[u8]) -> Result<usize, PeerFault> {
        let mut rest = input;
        while self.payload.is_none()
            && self.output.len() < OUTPUT_BYTES_MAX
            && self.events.len() < EVENTS_MAX
        {
            let Some(message) = Message::decode(&mut rest, &self.limits)? else { break };
            self.handle(message)?;
        }
        if !input.is_empty() {
            self.received_at = now;
        }
        Ok(input.len() - rest.len())
    }

    /// Returns the block whose payload comes next in the stream, if one does.
    pub fn payload(&self) -> Option<Payload> {
        self.payload
    }

    /// Records that `bytes` of the payload were taken from the stream. Messages follow its end.
    pub fn take_payload(&mut self, now: Time, bytes: u32) {
        self.received_at = now;
        if let Some(payload) = &mut self.payload {
            payload.bytes_left = payload.bytes_left.saturating_sub(bytes);
            if payload.bytes_left == 0 {
                self.payload = None;
            }
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // Output and time.

    /// Appends what is to be sent to `out`: messages, and as many requests as may be outstanding.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) {
        self.send_requests();
        if !self.output.is_empty() {
            out.append(&mut self.output);
            self.sent_at = now;
        }
    }

    /// Returns when [`Session::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Time {
        self.sent_at.plus_secs(KEEP_ALIVE.as_secs_f64())
    }

    /// Prepares a keep-alive if one is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if now >= self.poll_timeout() && self.output.is_empty() {
            self.send(Message::KeepAlive);
        }
    }

    /// Returns for how long the peer has sent nothing. Peers send something every two minutes.
    pub fn quiet_for(&self, now: Time) -> Duration {
        now.since(self.received_at)
    }

    // Downloading.

    /// Sets how many requests may be outstanding. The peer's `reqq` limits them as well; a peer that
    /// tells none gets up to 250 (BEP 10).
    pub fn set_pipeline(&mut self, requests: usize) {
        self.pipeline = requests;
    }

    /// Returns how many requests are outstanding.
    pub fn outstanding(&self) -> usize {
        self.requests.outstanding()
    }

    /// Returns whether no wanted byte waits or is outstanding.
    pub fn is_idle(&self) -> bool {
        self.requests.is_idle()
    }

    /// Asks for a range, behind those asked for before, in blocks of at most 16 KiB. For every byte
    /// there is one answer: a payload, or [`Event::Refused`]. Nothing is asked for again by itself.
    pub fn want(&mut self, range: Range) {
        self.requests.want(range);
        self.set_interested(true);
    }

    /// Takes back what lies in `range`: nothing more comes of it, except a payload that is under
    /// way, with [`Payload::is_wanted`] unset. Blocks that lie in it only in part are left alone if
    /// they were requested already.
    pub fn cancel(&mut self, range: Range) {
        let Some(layout) = self.layout else { return };
        if let Some(payload) = &mut self.payload {
            payload.is_wanted &= !range.covers(payload.range);
        }
        for block in self.requests.cancel(range, layout, self.agreed.fast) {
            self.send(Message::Cancel(block));
        }
    }

    /// Tells the peer whether we want pieces.
    pub fn set_interested(&mut self, wants: bool) {
        if self.choke.we_want != wants {
            self.choke.we_want = wants;
            self.send(if wants { Message::Interested } else { Message::NotInterested });
        }
    }

    fn send_requests(&mut self) {
        let Some(layout) = self.layout else { return };
        let peer_max = self.peer_handshake().requests_max.map_or(REQUESTS_MAX, |max| max.max(1));
        let most = self.pipeline.min(peer_max as usize);
        // Requests for lost pieces were dropped when the piece was lost.
        while self.requests.outstanding() < most && self.output.len() < OUTPUT_BYTES_MAX {
            let only = self.choke.by_peer.then_some(&self.allowed_fast[..]);
            let Some(block) = self.requests.next(layout, only) else { break };
            self.send(Message::Request(block));
        }
    }

    // Uploading.

    /// Stops answering requests. Those that wait are rejected (BEP 6) or forgotten (BEP 3).
    pub fn choke(&mut self) {
        if !std::mem::replace(&mut self.choke.by_us, true) {
            self.send(Message::Choke);
            let ended = self.uploads.choke(self.agreed.fast);
            self.reject(ended);
        }
    }

    /// Starts answering requests.
    pub fn unchoke(&mut self) {
        if std::mem::replace(&mut self.choke.by_us, false) {
            self.uploads.forgive();
            self.send(Message::Unchoke);
        }
    }

    /// Allows the peer to ask for pieces although it is choked, see
    /// [`allowed_fast`](super::allowed_fast()). Needs the fast extension.
    pub fn allow_fast(&mut self, pieces: &[PieceIndex]) {
        for piece in pieces.iter().filter(|_| self.agreed.fast) {
            if self.uploads.allow(*piece) {
                Message::AllowedFast(*piece).encode(&mut self.output);
            }
        }
    }

    /// Suggests a piece (BEP 6), as a seeder does to spread different pieces. Needs the fast
    /// extension.
    pub fn suggest(&mut self, piece: PieceIndex) {
        if self.agreed.fast {
            self.send(Message::Suggest(piece));
        }
    }

    /// Tells that this side has one more piece.
    pub fn gain(&mut self, piece: PieceIndex) {
        self.send(Message::Have(piece));
    }

    /// Tells that this side has a piece no more (BEP 54), and rejects or forgets the peer's requests
    /// for it. Returns false if the peer does not understand that (or not yet, before
    /// [`Event::Handshake`]). Then close the connection if the peer knows that this side had the piece:
    /// otherwise it may wait for the piece for ever.
    pub fn lose(&mut self, piece: PieceIndex) -> bool {
        let payload = piece.0.to_be_bytes();
        let is_told = self.extensions.write(Extension::DontHave, &payload, &mut self.output);
        let ended = self.uploads.drop(|block| block.piece == piece);
        self.reject(ended);
        is_told
    }

    /// Returns how many requests of the peer wait.
    pub fn requests_waiting(&self) -> usize {
        self.uploads.len()
    }

    /// Takes the peer's next request; it lies within a piece, but this side may not have the piece.
    /// Answer it by [`Session::send_piece`] or [`Session::refuse`].
    pub fn poll_request(&mut self) -> Option<Block> {
        self.uploads.pop()
    }

    /// Appends what is to be sent and the head of `block` to `out`. The block's bytes must follow.
    pub fn send_piece(&mut self, now: Time, block: Block, out: &mut Vec<u8>) {
        self.uploads.forgive();
        self.send(Message::Piece(block));
        out.append(&mut self.output);
        self.sent_at = now;
    }

    /// Does not answer a request that [`Session::poll_request`] returned.
    ///
    /// # Errors
    /// [`PeerFault`] if the peer has asked in vain too often.
    pub fn refuse(&mut self, block: Block) -> Result<(), PeerFault> {
        self.refuse_request(block).map_err(|violation| violation.by(MessageId::REQUEST))
    }

    fn refuse_request(&mut self, block: Block) -> Result<(), Violation> {
        self.reject([block]);
        if self.uploads.is_flood() { Err(Violation::Flood) } else { Ok(()) }
    }

    fn reject(&mut self, blocks: impl IntoIterator<Item = Block>) {
        for block in blocks.into_iter().filter(|_| self.agreed.fast) {
            Message::Reject(block).encode(&mut self.output);
        }
    }

    fn send(&mut self, message: Message<'_>) {
        message.encode(&mut self.output);
    }
}

/// Peers send something every two minutes (BEP 3); several clients close a connection then.
const KEEP_ALIVE: Duration = Duration::from_secs(100);
/// Requests that a peer queues if it tells nothing else (BEP 10).
const REQUESTS_MAX: u32 = 250;
/// Allowed-fast pieces that are remembered; peers allow about ten.
const ALLOWED_FAST_MAX: usize = 100;
/// Output from which on no more input is read: a peer that reads nothing must not fill the memory.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Events from which on no more input is read.
const EVENTS_MAX: usize = 1024;

#[cfg(test)]
mod pair;
#[cfg(test)]
mod tests;
