//! The emulated networks, and the real planner and router in them and in virtual time.

mod afar;
mod mesh;
mod routes_random;
mod routes_scripts;
mod serve;
mod sim_random;
mod sim_scripts;
mod sim_swarm;
mod wan;
