//! Against the programs of others.

mod nginx;
mod peers;
