//! The BitTorrent peer protocol (BEP 3, 6, 9, 10, 11, 52, 54): handshake, messages, and a state
//! machine of one connection, without sockets and clock.
//!
//! [`Handshake`] comes first in each direction, inside [`encryption`] if a peer demands it. Then
//! [`Session`] reads and writes [`Message`]s, keeps what both sides may do, and reports what the peer
//! did. A peer that breaks the protocol is a [`PeerFault`], never a panic. Connecting, timeouts,
//! choosing what to ask for, and verifying it are left to others.

mod allowed_fast;
mod bitfield;
pub mod encryption;
mod extension;
mod fault;
mod handshake;
mod layout;
mod message;
mod peer_id;
mod session;

pub use allowed_fast::{ALLOWED_FAST_MAX, allowed_fast};
pub use bitfield::{Bitfield, BitfieldError};
pub use extension::{
    EXCHANGED_PEERS_MAX, ExchangedPeer, Extension, ExtensionError, ExtensionHandshake,
    ExtensionIds, METADATA_BYTES_MAX, METADATA_PIECE_BYTES, MetadataAssembly, MetadataError,
    MetadataMessage, PeerExchange, PeerFlags,
};
pub use fault::{PeerFault, Violation};
pub use handshake::{HANDSHAKE_BYTES, Handshake, HandshakeError, Reserved, WireInfoHash};
pub use layout::{BLOCK_BYTES, Block, PIECES_MAX, PieceIndex, PieceLayout};
pub use message::{HASHES_MAX, HashRange, Limits, Message, MessageId};
pub use peer_id::PeerId;
pub use session::{Event, Payload, Refusal, Session, SessionConfig};
