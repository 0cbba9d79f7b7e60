//! Transfers through the library, without the program around it.

mod crowd;
mod library;
mod limited_mirror;
mod patience;
mod remote_copy;
mod simulation;
mod support;
mod vouched;

/// Random scenarios of a whole transfer.
const SIMULATIONS: u64 = 100;
