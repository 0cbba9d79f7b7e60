//! The real program with programs of others. CI runs a failed test of these once more by itself, because
//! the fault may be theirs.

mod completions;
mod copy_ssh;
mod copy_ssh_shells;
mod copy_web;
mod net_limits;
mod publish_others;
mod relay_curl;
mod relay_ssh;
mod seed_clients;
mod segments_clients;
mod serve_clients;
mod serve_io;
mod serve_memory;
mod serve_put;
mod serve_swarm;
mod stage_clients;
mod swarm_clients;
mod swarm_utp;
mod third_party_between;
mod third_party_copy;
mod torrent_clients;
mod track_clients;
mod webdav;
