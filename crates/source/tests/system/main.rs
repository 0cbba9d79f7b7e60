//! Lanes and peers against the programs of others, and against many random servers. `make test-all` runs
//! it; what is not installed is skipped.

mod foreign;
#[path = "../suite/storm.rs"]
mod storm;
#[path = "../suite/support/mod.rs"]
mod support;
#[path = "../suite/peers/support.rs"]
mod torrents;

/// Random servers.
const STORMS: u64 = 24;
