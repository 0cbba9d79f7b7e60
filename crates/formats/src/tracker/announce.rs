//! What an announce says and what a tracker answers, whichever way they are sent.

use core::net::{IpAddr, SocketAddr};

use super::InfoHash;
use crate::peer_address::PeerAddress;

/// The name that a client gives itself, new at every start (BEP 3, BEP 20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PeerId(pub [u8; 20]);

/// What has happened at the peer since its last announce (BEP 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// Nothing: one of the announces that come at every interval.
    #[default]
    None,
    /// It has started.
    Started,
    /// It has just got its last piece.
    Completed,
    /// It is about to leave.
    Stopped,
}

/// The form in which a client wants peers by HTTP; by UDP there is only the compact one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerForm {
    /// Address and port as bytes (BEP 23, BEP 7).
    #[default]
    Compact,
    /// A dictionary for each peer (BEP 3).
    Dictionary,
    /// The same without peer ids.
    DictionaryWithoutIds,
}

/// An announce: a peer tells a tracker that it takes part, and asks for other peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announce {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer.
    pub peer_id: PeerId,
    /// The TCP and UDP port at which the peer accepts connections.
    pub port: u16,
    /// Bytes sent to other peers since `Started`.
    pub uploaded: u64,
    /// Bytes received from other peers since `Started`.
    pub downloaded: u64,
    /// Bytes that the peer still lacks; `None` if it does not know, as with magnet links. Zero makes
    /// it a seeder.
    pub left: Option<u64>,
    /// What has happened.
    pub event: Event,
    /// The number of peers wanted; `None` leaves it to the tracker.
    pub want: Option<u32>,
    /// A number by which a tracker recognizes the peer after a change of its address.
    pub key: Option<u32>,
    /// The form of the answer.
    pub form: PeerForm,
}

/// A peer in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it accepts connections.
    pub address: SocketAddr,
    /// Its name, which only the dictionary form has.
    pub id: Option<PeerId>,
}

/// The answer to an announce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnounceAnswer {
    /// Seconds until the next announce.
    pub interval_s: u32,
    /// Announces that come sooner than this get no peers. Only HTTP has it.
    pub min_interval_s: Option<u32>,
    /// Peers with all pieces.
    pub seeders: Option<u32>,
    /// Peers that lack pieces.
    pub leechers: Option<u32>,
    /// Other peers, all of the address family of the client.
    pub peers: Vec<Peer>,
    /// Peers of whom the answer has a host name instead of an address (BEP 3). Only HTTP has it.
    pub named: Vec<PeerAddress>,
    /// Something that the user should read. Only HTTP has it.
    pub warning: Option<String>,
    /// The client's address as the tracker sees it (BEP 24). Only HTTP has it.
    pub own_address: Option<IpAddr>,
}

/// The counts of one swarm, as a scrape has them (BEP 48).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwarmCounts {
    /// Peers with all pieces.
    pub seeders: u32,
    /// How often a peer has become complete.
    pub completed: u32,
    /// Peers that lack pieces.
    pub leechers: u32,
}
