//! Which ways through relays a transfer uses: pure decisions over a graph of measured throughput.
//!
//! A *site* is us, a relay, or the origin of a replica; an *edge* is directed, as the data flows; a
//! *route* is the relays between a source and us; a *way* is one replica reached by one route,
//! which to the [`crate::Planner`] is a source like any other. [`Graph`] holds what is known of the
//! edges and finds the widest route and the maximum flow. The algorithm is described in
//! `docs/routes.md`.

mod flow;
mod graph;
mod matrix;
mod name;

pub use graph::{Aging, Edge, Grade, Graph, Reading, Way};
pub use name::{ReplicaId, Route, SiteId, WayId};
