//! BitTorrent: bencoding, info-hashes and magnet links.

pub mod bencode;
mod info_hash;
pub mod magnet;
pub mod piece_size;
mod tracker_url;

pub use info_hash::{InfoHash, InfoHashError, InfoHashV1, InfoHashV2};
pub use magnet::Magnet;
pub use tracker_url::tracker_url;
