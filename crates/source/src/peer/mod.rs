//! Peers of BitTorrent swarms: connections on which each side fetches and serves.
//!
//! A [`Torrent`] is what all connections of one torrent share. [`dial`] and [`accept`] make a
//! connection, whose task runs until it ends; a [`Peer`] is its handle. A [`PeerSource`] is a source
//! like any other: its lanes attach to the connection's task, which reads payloads straight into
//! pool buffers. The same task answers the peer's requests, with bytes from [`Uploads`].
//!
//! The protocol itself is `swath_formats::peer`. Here are sockets, time limits and memory limits:
//! `connection` is the task, `download` and `upload` are its two directions, `stream` its bytes.
//! Whom to serve, and whom to connect to, is decided elsewhere.

mod accept;
mod allowance;
mod connection;
mod dial;
mod download;
mod error;
mod flights;
mod handle;
mod handshake;
mod hashes;
mod layers;
mod low_water;
mod metadata;
mod peer_lane;
mod peer_source;
mod pipeline;
mod queue;
mod stream;
mod torrent;
mod upload;

pub use accept::{Torrents, accept};
pub use dial::dial;
pub use error::{PeerEnd, PeerError};
pub use handle::{Peer, PeerEvent, PeerEventKind, PeerStatus};
pub use metadata::{MetadataRequest, fetch_metadata};
pub use peer_source::PeerSource;
pub use torrent::{EncryptionPolicy, Identity, Torrent, TorrentOptions};
pub use upload::Uploads;

/// What a connection consists of, and what makes connections by uTP: [`Net::utp`](crate::Net::utp) opens
/// a port for them.
pub use swath_transport::{Transport, Utp, UtpAdmission};
