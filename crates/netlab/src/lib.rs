//! The network laboratory: seeded simulator, WAN emulator, faulty servers.
