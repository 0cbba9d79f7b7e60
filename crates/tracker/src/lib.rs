//! A BitTorrent tracker: it tells peers of one another, by HTTP and by UDP on the same port number.
//!
//! The core is pure: `core` decides, on `swarm`s of peers; `lists` says who may announce what,
//! `flood` how often; `connections` makes the ids of the UDP protocol without a table, `snapshot`
//! turns peers into bytes. Time and randomness are arguments. Around it, `server` starts `http` and
//! `udp`, which share a `tracker`; `mounted` does so on the HTTP server of somebody else. `watch` reads
//! changed lists, and `keeper` saves the peers.

mod connections;
mod core;
mod flood;
mod http;
mod keeper;
mod lists;
mod mounted;
mod page;
mod published;
mod route;
mod server;
mod snapshot;
mod swarm;
mod tracker;
mod udp;
mod watch;

pub use crate::core::{Core, Counters, Limits, Refusal, Requester, Summary};
pub use flood::BURST_S;
pub use keeper::KeepError;
pub use lists::{LineError, Lists, Passkeys, Torrents, read_networks};
pub use mounted::Mounted;
pub use server::{Background, Bound, Note, Notes, TrackerError, TrackerOptions, bind};
pub use snapshot::Damaged;
pub use watch::{ListError, ListFiles, ListProblem, TorrentList};
