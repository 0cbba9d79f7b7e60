//! Kills at random instants, full disks and mounts. `make test-all` runs it.

#[path = "../suite/common/mod.rs"]
mod common;
mod kill;
mod mounts;
