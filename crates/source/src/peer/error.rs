//! Why there is no connection to a peer, and why one has ended.

use std::io;
use std::time::Duration;

use swath_formats::peer::encryption::EncryptionError;
use swath_formats::peer::{HandshakeError, MetadataError, PeerFault, WireInfoHash};
use swath_formats::torrent::metainfo::MetainfoError;

use crate::error::LaneError;

/// Why a peer cannot be connected to, or is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It cannot be reached.
    #[error("{0}")]
    Unreachable(#[from] LaneError),
    /// It closed the connection during the handshake, as peers do that have no such torrent, no
    /// room, or another wish about encryption.
    #[error("the peer closed the connection during the handshake")]
    Closed,
    /// The connection broke during the handshake.
    #[error("the connection broke during the handshake: {0}")]
    Broken(String),
    /// It did not finish the handshake in time.
    #[error("the peer did not finish the handshake within {} s", .0.as_secs_f64())]
    Slow(Duration),
    /// Its handshake leads nowhere.
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    /// Its encrypted handshake leads nowhere.
    #[error("{0}")]
    Encryption(#[from] EncryptionError),
    /// It does not encrypt the connection, although we require that.
    #[error("the peer does not encrypt its connection")]
    NotEncrypted,
    /// It asks for a torrent that is not here.
    #[error("the peer asks for the torrent {0}, which is not shared here")]
    UnknownTorrent(WireInfoHash),
    /// It is connected already.
    #[error("the peer is connected already")]
    Duplicate,
    /// It broke the protocol.
    #[error("{0}")]
    Fault(#[from] PeerFault),
    /// It has no metadata, or will not send it.
    #[error("the peer does not send the torrent's metadata")]
    NoMetadata,
    /// The metadata that it sent is not that of the torrent.
    #[error("{0}")]
    Metadata(#[from] MetadataError),
    /// It has not all hashes of the pieces, or will not send them.
    #[error("the peer does not send the hashes of the torrent's pieces")]
    NoHashes,
    /// The hashes of pieces that it sent are not those of the torrent.
    #[error("the peer sent wrong hashes: {0}")]
    Hashes(#[source] MetainfoError),
    /// The metadata has the right info-hash, but describes no torrent that can be used.
    #[error("{0}")]
    Torrent(#[source] MetainfoError),
}

impl PeerError {
    pub(super) fn io(error: &io::Error) -> PeerError {
        match is_close(error) {
            true => PeerError::Closed,
            false => PeerError::Broken(error.to_string()),
        }
    }

    /// Returns whether the peer may take a connection with the other choice of encryption.
    pub(super) fn may_be_encryption(&self) -> bool {
        use EncryptionError::{Method, NoHandshake};
        matches!(
            self,
            PeerError::Closed
                | PeerError::Handshake(HandshakeError::NotBitTorrent)
                | PeerError::Encryption(NoHandshake | Method)
        )
    }
}

/// Returns whether the peer ended the connection on purpose.
fn is_close(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

impl From<PeerError> for LaneError {
    fn from(error: PeerError) -> LaneError {
        match error {
            PeerError::Unreachable(error) => error,
            PeerError::Fault(fault) => LaneError::PeerFault(Box::new(fault)),
            PeerError::Handshake(error) => LaneError::NoPeer(error),
            PeerError::Slow(after) => LaneError::Timeout { after },
            other => LaneError::Reset { reason: other.to_string() },
        }
    }
}

/// Why a connection to a peer has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerEnd {
    /// This side closed it.
    #[error("this side closed the connection")]
    Closed,
    /// The peer closed it.
    #[error("the peer closed the connection")]
    Left,
    /// It broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The peer sent nothing for this long.
    #[error("the peer sent nothing for {} s", .0.as_secs())]
    Silent(Duration),
    /// The peer broke the protocol.
    #[error("{0}")]
    Fault(#[from] PeerFault),
}

impl PeerEnd {
    pub(super) fn io(error: &io::Error) -> PeerEnd {
        match is_close(error) {
            true => PeerEnd::Left,
            false => PeerEnd::Broken(error.to_string()),
        }
    }
}

impl From<PeerEnd> for LaneError {
    fn from(end: PeerEnd) -> LaneError {
        match end {
            PeerEnd::Fault(fault) => LaneError::PeerFault(Box::new(fault)),
            PeerEnd::Silent(after) => LaneError::Timeout { after },
            PeerEnd::Closed | PeerEnd::Left | PeerEnd::Broken(_) => {
                LaneError::Reset { reason: end.to_string() }
            }
        }
    }
}
