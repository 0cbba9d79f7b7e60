//! Chooses the relay routes of a transfer: pure decisions over a graph of measured throughput.
//!
//! A *site* is this machine ("us"), a relay, or the origin of a replica. An *edge* is directed, as
//! the data flows. A *route* is the relays between a source and us. A *routed source* is one
//! replica reached by one route; the [`crate::Planner`] treats it like any other source. [`Graph`]
//! holds what is known of the edges and finds the widest route and the maximum flow. [`Router`]
//! decides which routed sources are open: [`Router::handle`] takes events, [`Router::poll`] returns
//! actions, [`Router::poll_timeout`] says when to poll again. `docs/route-choice.md` describes the
//! algorithm.

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
