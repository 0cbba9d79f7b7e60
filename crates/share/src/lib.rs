//! Sharing without a torrent: machines of a cluster that run the same command find each other through a
//! tracker or a list, and the origin sends each byte about once.
//!
//! Each node serves the units that it has verified over HTTP, and tells others what it holds and what it
//! will fetch from the origin (`log`). `ledger` decides who fetches what, with `vouches` and `pace`, without clock and sockets;
//! `content` leads its decisions to the planner: to it the origin and the other nodes are sources that
//! hold what they may be asked for. `token` has what keeps strangers out.

mod content;
mod flags;
mod follow;
pub mod ledger;
pub mod log;
mod node;
pub mod pace;
mod token;
pub mod units;
pub mod vouches;

pub use content::{ShareEvent, SharedContent, Version};
pub use node::{Node, NodeOptions, ShareError, Sharing};
pub use token::{ClusterToken, ContentId, Sameness};

/// Entry points for fuzzing; not part of the interface.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Reads `bytes` as the answer of a node.
    pub fn log(bytes: &[u8]) {
        if let Ok(part) = crate::log::Part::read(bytes) {
            assert_eq!(part.bytes(), bytes);
        }
    }
}
