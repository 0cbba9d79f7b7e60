//! The network laboratory: seeded simulator, maps of sites, WAN emulator, faulty servers.

pub mod afar;
pub mod events;
pub mod faulty;
pub mod map;
pub mod mesh;
pub mod routes;
pub mod sim;
pub mod star;
pub mod swarm;
pub mod wan;
