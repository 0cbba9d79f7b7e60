//! The real planner and router in simulated networks and in virtual time, and the faulty servers.

mod afar;
mod faulty;
mod routes_random;
mod routes_scripts;
mod serve;
mod sim;
mod sim_random;
mod sim_scripts;
mod sim_swarm;
mod swarm;

/// As many as half a minute of one processor runs, in the build of tests.
const RANDOM_TRANSFERS: u64 = 200;
