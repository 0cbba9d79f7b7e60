//! A seeded simulator in virtual time that drives the real router of routes.
//!
//! A fluid network: edges with rates that change by script and swing by themselves, shared fairly
//! (max-min) among the flows that cross them, with limits on what a site sends and receives; each
//! hop of a way opens its window as slow start does. Relays report their hops as they do on the
//! wire; they may die, refuse, lie or corrupt. Any number of transfers runs side by side, each with
//! a router of its own. What the planner does is left out: all ways of a transfer take from one
//! pile of bytes.
//!
//! [`RouteScript`] tells a scenario in readable steps, [`random_routes`] draws one from a seed;
//! equal scripts give equal runs.

mod fair;
mod net;
mod outcome;
mod random;
mod script;
mod transfer;
mod world;

pub use outcome::{RouteOutcome, TransferOutcome};
pub use random::random_routes;
pub use script::RouteScript;
