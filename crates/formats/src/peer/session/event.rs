//! What a session reports, and how it is set up.

use swath_model::Range;

use crate::peer::extension::{ExtensionHandshake, MetadataMessage, PeerExchange};
use crate::peer::layout::{Block, PieceIndex};
use crate::peer::message::{HashRange, Limits};

/// How a session behaves.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Accepted lengths; the session sets the number of pieces itself.
    pub limits: Limits,
    /// Requests of ours that may be outstanding, see
    /// [`set_pipeline`](super::Session::set_pipeline).
    pub pipeline: usize,
    /// Requests of the peer that may wait; told to the peer as `reqq`.
    pub requests_max: usize,
    /// Whether addresses of peers may be exchanged (BEP 11): never for private torrents (BEP 27).
    pub peer_exchange: bool,
    /// What else to tell the peer; the session sets `ids` and `requests_max`.
    pub handshake: ExtensionHandshake,
}

impl Default for SessionConfig {
    fn default() -> Self {
        SessionConfig {
            limits: Limits::default(),
            pipeline: 64,
            requests_max: 2000,
            peer_exchange: false,
            handshake: ExtensionHandshake::default(),
        }
    }
}

/// Something that a peer did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer answers no requests from now on.
    Choked,
    /// The peer answers requests from now on.
    Unchoked,
    /// The peer wants pieces of ours.
    Interested,
    /// The peer wants none of our pieces.
    NotInterested,
    /// The peer told which pieces it has, see [`peer_pieces`](super::Session::peer_pieces).
    Pieces,
    /// The peer has one more piece.
    Gained(PieceIndex),
    /// The peer has a piece no more.
    Lost(PieceIndex),
    /// The peer will not deliver these bytes that were wanted.
    Refused {
        /// The bytes.
        range: Range,
        /// Why not.
        reason: Refusal,
    },
    /// The peer answers requests for this piece also while it chokes us.
    AllowedFast(PieceIndex),
    /// The peer suggests this piece.
    Suggested(PieceIndex),
    /// A request waits, see [`poll_request`](super::Session::poll_request).
    Requested,
    /// The peer told its extensions, see [`peer_handshake`](super::Session::peer_handshake).
    Handshake,
    /// A message about metadata (BEP 9).
    Metadata(MetadataMessage),
    /// Addresses of peers (BEP 11).
    Peers(PeerExchange),
    /// The UDP port of the peer's node of the distributed hash table (BEP 5).
    DhtPort(u16),
    /// The peer asks for hashes (BEP 52). Answer by
    /// [`send_hashes`](super::Session::send_hashes) or
    /// [`refuse_hashes`](super::Session::refuse_hashes).
    HashesRequested(HashRange),
    /// Hashes that we asked for: those of the base layer, then the uncle hashes.
    Hashes {
        /// The request.
        range: HashRange,
        /// The hashes; at least as many as were asked for of the base layer. Not verified.
        hashes: Vec<[u8; 32]>,
    },
    /// The peer will not send these hashes.
    HashesRefused(HashRange),
}

/// Why a peer does not deliver a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It choked us, which ends all requests without the fast extension.
    Choked,
    /// It rejected the request.
    Rejected,
    /// It has the piece no more.
    Lost,
}

/// A block whose payload comes next in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The block.
    pub block: Block,
    /// Where it lies in the torrent.
    pub range: Range,
    /// Bytes of it that are still in the stream; they are the last of the block.
    pub bytes_left: u32,
    /// Whether it is still wanted. If not, the bytes must be skipped.
    pub is_wanted: bool,
}
