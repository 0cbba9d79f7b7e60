//! Tests of the crate as others use it.

mod announce;
mod model;
mod simulation;
mod swarms;
mod utp;
