//! Tests of the crate as others use it.

mod announce;
mod simulation;
mod swarms;
