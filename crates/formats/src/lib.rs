//! Formats defined by others, read and written: Metalink, Link and digest headers, ranges and
//! conditions of requests, input lists, checksum files, netrc, relays' reports, torrents, the
//! protocol of BitTorrent trackers, minisign's keys and signatures, scopes of tokens, WebDAV's bodies.
//!
//! Everything here parses bytes from strangers. No parser panics; each reports what it refuses with
//! its position, and limits its memory. Files, sockets and the clock are left to others: input
//! arrives as bytes or as a buffered reader, time as a number.

pub mod accept;
pub mod checksums;
pub mod chunks;
pub mod conditions;
pub mod content_disposition;
pub mod content_range;
pub mod delegation;
pub mod depot;
pub mod digest_header;
pub mod etag;
pub mod feed;
pub mod hop;
pub mod http_date;
pub mod keep_alive;
pub mod link;
pub mod list;
pub mod listing;
pub mod markers;
pub mod metalink;
pub mod minisign;
pub mod mirror_url;
pub mod netrc;
pub mod network;
pub mod peer;
mod peer_address;
pub mod percent;
pub mod plain_http;
pub mod proxy_status;
pub mod range_header;
pub mod relay;
pub mod scope;
mod text;
pub mod torrent;
pub mod tracker;
pub mod transfer_log;
pub mod webdav;

pub use content_range::ContentRange;
pub use etag::Etag;
pub use hop::Hop;
pub use keep_alive::KeepAlive;
pub use link::Link;
pub use mirror_url::mirror_url;
pub use netrc::Netrc;
pub use network::{Network, NetworkError};
pub use peer_address::PeerAddress;
pub use proxy_status::ProxyFault;
pub use text::{field_text, number, trim_blanks};
