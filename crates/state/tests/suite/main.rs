//! What is remembered between transfers: by several processes, after kills, on bad disks.

mod bad_luck;
mod common;
mod kill;
mod remembers;
