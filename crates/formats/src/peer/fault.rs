//! How a peer can break the protocol.

use thiserror::Error;

use super::bitfield::BitfieldError;
use super::extension::ExtensionError;
use super::layout::{Block, PieceIndex};
use super::message::MessageId;

/// A message by which a peer broke the protocol. The connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the peer broke the protocol by its message \"{message}\": {violation}")]
pub struct PeerFault {
    /// The message.
    pub message: MessageId,
    /// The rule that it broke.
    pub violation: Violation,
}

/// A rule of the protocol that a message broke.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// The message cannot have this length (without the four bytes of the length itself).
    #[error("{0} bytes is no length of it")]
    Length(u32),
    /// The block that it names is empty or too long.
    #[error("no such length of a block: {0}")]
    BlockLength(Block),
    /// The piece is past the last of the torrent.
    #[error("there is no {0}")]
    NoSuchPiece(PieceIndex),
    /// The block is not within one piece of the torrent.
    #[error("there is no such block: {0}")]
    NoSuchBlock(Block),
    /// The bitfield does not fit the torrent.
    #[error("{0}")]
    Bitfield(#[from] BitfieldError),
    /// A peer says that it has no pieces before any other message about pieces.
    #[error("it came too late or twice")]
    OutOfOrder,
    /// The fast extension was not agreed on.
    #[error("the fast extension was not agreed on")]
    NoFastExtension,
    /// Extension messages were not agreed on.
    #[error("extension messages were not agreed on")]
    NoExtensionMessages,
    /// An answer to a request that was not sent, or was answered already.
    #[error("{0} were not requested")]
    NotRequested(Block),
    /// Hashes that were not asked for, or not as many.
    #[error("these hashes were not requested")]
    HashesNotRequested,
    /// More requests, or more messages before the torrent's size is known, than are taken.
    #[error("more of them than are allowed")]
    Flood,
    /// The extension message cannot be read.
    #[error("{0}")]
    Extension(#[from] ExtensionError),
}

impl Violation {
    /// Returns the fault of the message that broke this rule.
    pub(super) fn by(self, message: MessageId) -> PeerFault {
        PeerFault { message, violation: self }
    }
}
