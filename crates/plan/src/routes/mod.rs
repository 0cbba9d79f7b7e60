//! Which routes through relays a transfer uses: pure decisions over a graph of measured throughput.
//!
//! A *site* is us, a relay, or the origin of a replica; an *edge* is directed, as the data flows; a
//! *route* is the relays between a source and us; a *routed source* is one replica reached by one route,
//! which to the [`crate::Planner`] is a source like any other. [`Graph`] holds what is known of the
//! edges and finds the widest route and the maximum flow. [`Router`] decides which routed sources are open:
//! [`Router::handle`] takes what happened, [`Router::poll`] answers what to do,
//! [`Router::poll_timeout`] says when to ask again. The algorithm is described in
//! `docs/route-choice.md`.

mod belief;
mod candidate;
mod config;
mod event;
mod flow;
mod graph;
mod look;
mod matrix;
mod name;
mod relay;
mod report;
mod routed_source;
mod routed_sources;
mod router;
mod trial;
mod verdict;
mod view;

pub use config::{Mode, RouterConfig};
pub use event::{Fault, HopReport, RouteAction, RouteEvent, RoutedNow};
pub use graph::{Aging, Edge, FlowPath, Grade, Graph, Reading};
pub use name::{ReplicaId, Route, RoutedId, SiteId};
pub use router::Router;
pub use view::{RoutedState, RoutedView, Why};
