//! Announces: tells trackers that we take part, and learns of other peers.
//!
//! [`Tiers`] decides which tracker is asked when, [`ask`] asks one, and [`Announcer`] keeps at it
//! until it is stopped.

mod announcer;
mod ask;
mod tiers;
mod udp;

pub use announcer::{Announced, Announcer, Announcing, Standing, TrackerList, tracker_name};
pub use ask::{AnnounceError, ask};
pub use tiers::{Next, Tiers, TrackerIndex};
