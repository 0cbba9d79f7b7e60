//! Swarms in emulated networks: what is measured, who takes part, and one run.

mod client;
mod row;
mod run;

pub use client::{Client, Origin, Place, torrent};
pub use row::{Case, Row, rows};
pub use run::{Places, SwarmRun, run_once};
