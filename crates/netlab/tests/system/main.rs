//! What a machine may lack (namespaces of its own, curl), and what takes minutes: a thousand random
//! transfers, hundreds of relays. `make test-all` runs it.

#[path = "../suite/crowds.rs"]
mod crowds;
mod foreign;
mod mesh;
#[path = "../suite/routes_random.rs"]
mod routes_random;
#[allow(dead_code, unused_imports)]
#[path = "../suite/sim/mod.rs"]
mod sim;
#[path = "../suite/sim_random.rs"]
mod sim_random;
mod wan;

const RANDOM_TRANSFERS: u64 = 1000;
const RANDOM_ROUTES: u64 = 120;
const RELAYS: usize = 300;
const SOURCES: usize = 1000;
