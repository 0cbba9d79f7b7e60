//! What each message of the peer changes, and the exchange of metadata, addresses and hashes.

use super::extensions::Said;
use super::*;
use crate::peer::extension::{MetadataMessage, PeerExchange};

impl Session {
    pub(super) fn handle(&mut self, message: Message<'_>) -> Result<(), PeerFault> {
        let Some(id) = message.id() else { return Ok(()) };
        self.check(message).and_then(|()| self.apply(message)).map_err(|it| it.by(id))
    }

    /// Checks the order of messages, and that their extension was agreed on.
    fn check(&mut self, message: Message<'_>) -> Result<(), Violation> {
        // aria2 sends its bitfield again instead of many `have` messages, and `have all` at the end.
        if matches!(message, Message::HaveNone) && !self.is_first_due {
            return Err(Violation::OutOfOrder);
        }
        // Transmission sends `port` first, and most clients their handshake of extensions.
        if !matches!(message, Message::Extended { .. } | Message::Port(_) | Message::Unknown(_)) {
            self.is_first_due = false;
        }
        let needs_fast = matches!(
            message,
            Message::HaveAll
                | Message::HaveNone
                | Message::Suggest(_)
                | Message::Reject(_)
                | Message::AllowedFast(_)
        );
        if needs_fast && !self.agreed.fast {
            return Err(Violation::NoFastExtension);
        }
        if matches!(message, Message::Extended { .. }) && !self.agreed.extended {
            return Err(Violation::NoExtensionMessages);
        }
        Ok(())
    }

    fn apply(&mut self, message: Message<'_>) -> Result<(), Violation> {
        match message {
            Message::KeepAlive | Message::Unknown(_) => {}
            Message::Choke => self.choked(),
            Message::Unchoke if self.choke.by_peer => {
                self.choke.by_peer = false;
                self.events.push_back(Event::Unchoked);
            }
            Message::Interested if !self.choke.peer_wants => {
                self.choke.peer_wants = true;
                self.events.push_back(Event::Interested);
            }
            Message::NotInterested if self.choke.peer_wants => {
                self.choke.peer_wants = false;
                self.events.push_back(Event::NotInterested);
            }
            Message::Unchoke | Message::Interested | Message::NotInterested => {}
            Message::Bitfield(wire) => self.start(First::Bitfield(wire.to_vec()))?,
            Message::HaveAll => self.start(First::All)?,
            Message::HaveNone => self.start(First::None)?,
            Message::Have(piece) => {
                if self.pieces.change(piece, true)? {
                    self.events.push_back(Event::Gained(piece));
                }
            }
            Message::Request(block) => self.requested(block)?,
            Message::Piece(block) => self.arrives(block)?,
            Message::Cancel(block) => {
                if self.uploads.cancel(block) {
                    self.reject([block]);
                }
            }
            Message::Reject(block) => self.rejected(block)?,
            Message::AllowedFast(piece) => self.allowed(piece)?,
            Message::Suggest(piece) => {
                self.check_piece(piece)?;
                self.events.push_back(Event::Suggested(piece));
            }
            Message::Port(port) => {
                if self.agreed.dht && port != 0 {
                    self.events.push_back(Event::DhtPort(port));
                }
            }
            Message::Extended { id, payload } => self.extended(id, payload)?,
            Message::HashRequest(range) if !range.is_valid() => {
                self.send(Message::HashReject(range));
            }
            Message::HashRequest(range) => {
                self.extensions.owe_hashes()?;
                self.events.push_back(Event::HashesRequested(range));
            }
            Message::Hashes { range, hashes } => {
                self.extensions.end_hashes(range)?;
                let (hashes, _) = hashes.as_chunks::<32>();
                let least = range.length as usize;
                let most = least + range.proof_layers as usize;
                if !(least..=most).contains(&hashes.len()) {
                    return Err(Violation::HashesNotRequested);
                }
                self.events.push_back(Event::Hashes { range, hashes: hashes.to_vec() });
            }
            Message::HashReject(range) => {
                self.extensions.end_hashes(range)?;
                self.events.push_back(Event::HashesRefused(range));
            }
        }
        Ok(())
    }

    fn start(&mut self, first: First) -> Result<(), Violation> {
        self.pieces.start(first)?;
        if self.pieces.known().is_some() {
            self.events.push_back(Event::Pieces);
        }
        Ok(())
    }

    /// Without the fast extension a choke ends all outstanding requests (BEP 3); with it the peer
    /// rejects each (BEP 6).
    fn choked(&mut self) {
        if !std::mem::replace(&mut self.choke.by_peer, true) {
            self.events.push_back(Event::Choked);
        }
        if let Some(layout) = self.layout.filter(|_| !self.agreed.fast) {
            let dropped = self.requests.drop_sent(layout, |_| true);
            self.refused(&dropped, Refusal::Choked);
        }
    }

    fn refused(&mut self, ranges: &RangeSet, reason: Refusal) {
        self.events.extend(ranges.iter().map(|range| Event::Refused { range, reason }));
    }

    fn requested(&mut self, block: Block) -> Result<(), Violation> {
        // A peer cannot know of a piece before we know the torrent's size.
        let layout = self.layout.ok_or(Violation::NoSuchBlock(block))?;
        if layout.range_of_request(block).is_none() {
            return Err(Violation::NoSuchBlock(block));
        }
        if self.uploads.push(block, self.choke.by_us) {
            self.events.push_back(Event::Requested);
            return Ok(());
        }
        self.refuse_request(block)
    }

    fn arrives(&mut self, block: Block) -> Result<(), Violation> {
        let range = self.layout.and_then(|layout| layout.range_of_block(block));
        let (Some(range), Some(is_wanted)) = (range, self.requests.deliver(block)) else {
            return Err(Violation::NotRequested(block));
        };
        self.payload = Some(Payload { block, range, bytes_left: block.length, is_wanted });
        Ok(())
    }

    fn rejected(&mut self, block: Block) -> Result<(), Violation> {
        let was_wanted = self.requests.reject(block).ok_or(Violation::NotRequested(block))?;
        let range = self.layout.and_then(|layout| layout.range_of_block(block));
        // What is allowed fast may be rejected: it is not asked for again while we are choked.
        if self.choke.by_peer {
            self.allowed_fast.retain(|piece| *piece != block.piece);
        }
        if let Some(range) = range.filter(|_| was_wanted) {
            self.events.push_back(Event::Refused { range, reason: Refusal::Rejected });
        }
        Ok(())
    }

    fn check_piece(&self, piece: PieceIndex) -> Result<(), Violation> {
        match self.layout {
            Some(layout) if piece.0 >= layout.count() => Err(Violation::NoSuchPiece(piece)),
            _ => Ok(()),
        }
    }

    fn allowed(&mut self, piece: PieceIndex) -> Result<(), Violation> {
        self.check_piece(piece)?;
        if self.allowed_fast.len() < ALLOWED_FAST_MAX && !self.allowed_fast.contains(&piece) {
            self.allowed_fast.push(piece);
            self.events.push_back(Event::AllowedFast(piece));
        }
        Ok(())
    }

    fn extended(&mut self, id: u8, payload: &[u8]) -> Result<(), Violation> {
        match self.extensions.read(id, payload)? {
            Said::Handshake => self.events.push_back(Event::Handshake),
            Said::Metadata(message) => self.events.push_back(Event::Metadata(message)),
            Said::Peers(peers) => self.events.push_back(Event::Peers(peers)),
            Said::DontHave(piece) => self.lost(piece)?,
            Said::Nothing => {}
        }
        Ok(())
    }

    /// The peer has a piece no more (BEP 54). Outstanding requests end like those of a choke.
    fn lost(&mut self, piece: PieceIndex) -> Result<(), Violation> {
        if !self.pieces.change(piece, false)? {
            return Ok(());
        }
        self.events.push_back(Event::Lost(piece));
        let Some(layout) = self.layout else { return Ok(()) };
        let mut dropped = match layout.range_of(piece) {
            Some(range) => self.requests.drop_waiting(range, layout),
            None => RangeSet::new(),
        };
        if !self.agreed.fast {
            let sent = self.requests.drop_sent(layout, |block| block.piece == piece);
            dropped.union_with(&sent);
        }
        self.refused(&dropped, Refusal::Lost);
        Ok(())
    }

    // Metadata, addresses, hashes.

    /// Sends a message about metadata (BEP 9); returns false if the peer does not speak that.
    pub fn send_metadata(&mut self, message: &MetadataMessage) -> bool {
        self.extensions.write(Extension::Metadata, &message.encode(), &mut self.output)
    }

    /// Sends addresses of peers (BEP 11), at most once a minute; returns false if either side does
    /// not speak that.
    pub fn send_peers(&mut self, peers: &PeerExchange) -> bool {
        self.extensions.exchanges_peers()
            && self.extensions.write(Extension::PeerExchange, &peers.encode(), &mut self.output)
    }

    /// Asks for hashes (BEP 52). There is one answer: [`Event::Hashes`] or [`Event::HashesRefused`].
    pub fn want_hashes(&mut self, range: HashRange) {
        self.extensions.ask_hashes(range);
        self.send(Message::HashRequest(range));
    }

    /// Answers a request for hashes.
    pub fn send_hashes(&mut self, range: HashRange, hashes: &[[u8; 32]]) {
        self.extensions.answer_hashes();
        self.send(Message::Hashes { range, hashes: hashes.as_flattened() });
    }

    /// Does not answer a request for hashes.
    pub fn refuse_hashes(&mut self, range: HashRange) {
        self.extensions.answer_hashes();
        self.send(Message::HashReject(range));
    }
}
