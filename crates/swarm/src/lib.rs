//! Taking part in swarms: trackers, peers, whom to serve, and the content that is served.
//!
//! [`Announcer`] tells trackers of us and learns of peers. [`Slots`] and [`SuperSeeding`] decide, without
//! clock and sockets, who is served what. [`Swarms`] connects to peers and serves them from
//! [`TorrentFiles`], which [`check`] has verified.

mod announce;
mod content;
mod random;
mod slots;
mod super_seeding;
mod swarm;

pub use announce::{
    AnnounceError, Announced, Announcer, Announcing, Next, Standing, Tiers, TrackerIndex,
    TrackerList, ask, tracker_name,
};
pub use content::{
    Checked, ContentError, Fault, FileUploads, Lost, OpenFiles, TorrentFiles, check,
};
pub use slots::{CHOOSE_EVERY, Candidate, Need, PeerKey, Slots, slot_count};
pub use super_seeding::SuperSeeding;
pub use swarm::{
    Counts, Participation, SourceChange, Swarm, SwarmEvent, Swarms, SwarmsError, SwarmsOptions,
};
