//! Kills at random instants, full disks, mounts, and limits that only root can set. `make test-all` runs
//! it.

mod cache_kill;
#[path = "../suite/common/mod.rs"]
mod common;
mod depot_kill;
mod kill;
mod mounts;
mod no_workers;
