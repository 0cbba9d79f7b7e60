//! What a swarm reports.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use swath_source::Source;
use swath_source::peer::{PeerEnd, PeerError};

use crate::announce::Announced;

/// Something that the user may want to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SwarmEvent {
    /// A tracker has answered, or has not.
    Announced {
        /// The name of the torrent.
        torrent: Arc<str>,
        /// The answer.
        announced: Announced,
    },
    /// An address was not reached, or must not be.
    NotReached {
        /// The name of the torrent.
        torrent: Arc<str>,
        /// The address.
        address: SocketAddr,
        /// Why.
        error: PeerError,
    },
    /// A peer was connected.
    Joined {
        /// The name of the torrent.
        torrent: Arc<str>,
        /// The peer.
        address: SocketAddr,
        /// Its program, as it names itself; control characters escaped.
        client: String,
    },
    /// A connection has ended.
    Left {
        /// The name of the torrent.
        torrent: Arc<str>,
        /// The peer.
        address: SocketAddr,
        /// Why.
        end: PeerEnd,
    },
    /// An address is not let in for a while.
    Banned {
        /// The address.
        address: IpAddr,
        /// What its peer did.
        why: String,
    },
    /// Peers are reached by TCP only: there is no port for uTP.
    WithoutUtp {
        /// The address that was wanted.
        address: SocketAddr,
        /// The system's error.
        error: Arc<io::Error>,
    },
}

/// A change of the sources of a transfer.
#[derive(Clone)]
pub enum SourceChange {
    /// A peer was connected.
    Came {
        /// The peer.
        address: SocketAddr,
        /// The source of its pieces.
        source: Arc<dyn Source>,
    },
    /// The peer has left.
    Left {
        /// The peer.
        address: SocketAddr,
    },
}
