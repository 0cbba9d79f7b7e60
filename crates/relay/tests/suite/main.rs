//! A whole relay on the loopback interface, within this process: what it admits, passes on, keeps, lends
//! and limits, asked with plain requests.

mod about;
mod admits;
mod cache;
mod cache_versions;
mod cached_for_whom;
mod depot_fetches;
mod depot_lends;
mod depot_reads;
mod encrypted;
mod forwards;
mod headers;
mod limits;
mod odd_servers;
mod routes;
mod sealed;
mod support;
mod tunnels;
mod upstreams;
