//! The real program with what a machine may lack: servers and clients of others, namespaces, root; and
//! kills at random instants. `make test-all` runs it; a test whose needs are not met prints `skipped: `.

mod copy_instants;
mod copy_kills;
mod disk_alike;
mod disk_life;
#[path = "../program/disk_pair.rs"]
mod disk_pair;
mod disk_small;
mod foreign;
#[path = "../program/gate.rs"]
mod gate;
mod net_asleep;
mod relay_names;
mod serve_full_disk;
#[path = "../program/support/mod.rs"]
mod support;
mod swarm_breaks;
#[path = "../program/third_party_servers.rs"]
mod third_party_servers;
mod third_party_sites;
