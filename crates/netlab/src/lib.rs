//! The network laboratory: seeded simulator, WAN emulator, faulty servers.

pub mod afar;
pub mod faulty;
pub mod sim;
pub mod star;
pub mod wan;
