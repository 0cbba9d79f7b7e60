//! What a machine may lack (namespaces of its own, curl), and what takes minutes: a thousand random
//! transfers. `make test-all` runs it.

mod foreign;
mod mesh;
#[allow(dead_code, unused_imports)]
#[path = "../suite/sim/mod.rs"]
mod sim;
#[path = "../suite/sim_random.rs"]
mod sim_random;
mod wan;

const RANDOM_TRANSFERS: u64 = 1000;
