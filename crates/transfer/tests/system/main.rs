//! What takes minutes: hundreds of random scenarios of a whole transfer. `make test-all` runs it.

#[path = "../suite/simulation/mod.rs"]
mod simulation;

const SIMULATIONS: u64 = 400;
