//! Tests of the crate as others use it.

mod announce;
mod checks;
mod model;
mod simulation;
mod swarms;
mod utp;
