//! The planner and the router against scripts, with a bench of their own and no network.

mod behind_a_loss;
mod crowd;
mod growing;
mod long_routes;
mod partial;
mod regressions;
mod routes_graph;
mod routes_router;
mod support;
