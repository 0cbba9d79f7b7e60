//! The real planner and router in simulated networks and in virtual time, and the faulty servers.

mod afar;
mod crowds;
mod faulty;
mod routes_random;
mod routes_scripts;
mod serve;
mod sim;
mod sim_random;
mod sim_scripts;
mod sim_swarm;
mod swarm;

// As many as some seconds of one processor are enough for, in the build of tests; `tests/system` has more.
const RANDOM_TRANSFERS: u64 = 200;
const RANDOM_ROUTES: u64 = 24;
const RELAYS: usize = 100;
const SOURCES: usize = 200;
