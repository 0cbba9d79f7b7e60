//! The emulated networks, the real planner and router in them and in virtual time, and the faulty servers.

mod afar;
mod faulty;
mod mesh;
mod routes_random;
mod routes_scripts;
mod serve;
mod sim;
mod sim_random;
mod sim_scripts;
mod sim_swarm;
mod swarm;
mod wan;
