//! `bench/routes`: transfers over emulated sites, with and without relays.
//!
//! - [`scenario`]: what is asked, on which map, and what is to be reached;
//! - [`client`]: who fetches, and with which memory of earlier transfers;
//! - [`relay`]: the relays at the sites, swath's or nginx's;
//! - [`timeline`]: what the links carried while somebody fetched, and what follows from it;
//! - [`told`]: what a client tells of its own routes;
//! - [`memory`]: the state database of a run: none, one that is right, one that is all wrong;
//! - [`run`]: one run of one client in a fresh mesh;
//! - [`proxy`]: one relay over loopback; [`cache`]: ten clients behind one relay.

pub mod cache;
pub mod client;
pub mod memory;
pub mod proxy;
pub mod relay;
pub mod run;
pub mod scenario;
pub mod timeline;
pub mod told;
