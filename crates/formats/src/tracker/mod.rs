//! The protocol between BitTorrent clients and trackers, both sides: requests and answers.
//!
//! `http` has the forms of BEP 3, 7, 23 and 48, `udp` those of BEP 15 and 41. Both carry the same
//! [`Announce`] and [`AnnounceAnswer`]. Readers are lenient where clients and trackers in use are
//! sloppy, never panic, and limit the memory of what they return.

mod announce;
pub mod http;
mod info_hash;
pub mod udp;

pub use announce::{Announce, AnnounceAnswer, Event, Peer, PeerForm, PeerId, SwarmCounts};
pub use info_hash::{InfoHash, InfoHashError};

/// The most torrents that one scrape asks for. With more, a UDP request would not fit into one
/// packet (BEP 15 names about 74).
pub const SCRAPE_MAX: usize = 74;

/// The most peers that a reader takes from an answer. Trackers send at most some hundreds.
pub const PEERS_MAX: usize = 2_000;
