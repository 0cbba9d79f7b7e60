//! The planner: decides every swath of a transfer, without I/O and without a clock of its own.
//!
//! [`Planner::handle`] takes what happened, [`Planner::poll`] answers what to do next,
//! [`Planner::poll_timeout`] says when to ask again. Given the same events at the same times it
//! always decides the same, so a simulator can replay whole transfers from a seed. The algorithm
//! is described in `docs/planner.md`.

mod audit;
mod backoff;
mod config;
mod connections;
mod coverage;
mod event;
mod failure;
mod feeder;
pub mod forecast;
mod hedge;
mod holds;
mod lane;
mod lane_table;
mod ledger;
mod outlook;
mod paced;
mod picker;
mod planner;
pub mod policy;
mod rate;
mod rebalance;
pub mod routes;
mod silence;
mod source;
mod source_table;
mod tuner;
mod view;

pub use audit::Books;
pub use config::{Config, Lanes, PickerKind, PolicyKind, UnknownPolicy};
pub use event::{Action, Event, Loss};
pub use planner::Planner;
pub use rate::RateWindow;
pub use view::{SourceStatus, SourceView, WholeView};
