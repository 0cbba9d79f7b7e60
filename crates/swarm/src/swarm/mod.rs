//! Taking part in the swarms of several torrents, with one port for all of them.
//!
//! [`Swarms`] listens and keeps what all torrents share: bans, limits, the upload rate. A torrent is
//! a task that connects to peers, gives upload slots, and reports; [`Swarm`] is its handle. What is
//! decided is decided in `slots` and `super_seeding`; the connections are those of `swath_source`.

mod addresses;
mod bans;
mod connected;
mod event;
mod listener;
mod peer_exchange;
mod places;
mod running;
mod serving;
mod shared;
mod swarms;
mod utp_listener;

pub use event::{SourceChange, SwarmEvent};
pub use swarms::{Counts, Participation, Swarm, Swarms, SwarmsError, SwarmsOptions};
