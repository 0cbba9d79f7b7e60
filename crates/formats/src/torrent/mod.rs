//! BitTorrent: metafiles, magnet links and what they are made of.

pub mod bencode;
mod info_hash;
pub mod magnet;
pub mod metainfo;
pub mod piece_size;
mod tracker_url;
mod unused;

pub use info_hash::{InfoHash, InfoHashError, InfoHashV1, InfoHashV2};
pub use magnet::Magnet;
pub use metainfo::{Info, Metainfo, MetainfoError};
pub use tracker_url::tracker_url;
pub use unused::Unused;
