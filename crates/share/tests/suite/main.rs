//! Sharing within a cluster: the books of a node on a given clock, and nodes that meet on the loopback
//! interface.

mod blame;
mod books;
mod claims;
mod nodes;
mod support;
mod tokens;
mod units;
mod wire;
