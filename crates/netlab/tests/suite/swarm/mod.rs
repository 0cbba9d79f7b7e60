//! A swarm in virtual time: one origin and members that come, fetch from each other and leave.
//!
//! Each member has a real planner; what it has been brought whole is what others may ask it for.
//! Members hold more while they fetch, less when they drop something again, and nothing once they
//! leave. An uplink is shared equally by whoever is served; there is no loss and no slow start,
//! since what is looked at here is which ranges travel, not how. Equal scenarios run equally.

mod member;
mod world;

pub use world::{Outcome, Swarm};
