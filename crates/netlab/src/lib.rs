//! The network laboratory: simulated routes, maps of sites, WAN emulator, faulty servers. The simulators of
//! the planner and of swarms stand beside their scenarios in `tests/suite`.

pub mod access;
pub mod afar;
pub mod cluster;
pub mod events;
pub mod faulty;
pub mod map;
pub mod mesh;
mod ports;
pub mod routes;
pub mod star;
pub mod wan;

pub use ports::{is_reserved, reserve_port};
