//! Files, trees, caches and depots on a real disk: kills, faults, odd names.

mod bad_luck;
mod cache_kill;
mod common;
mod deep;
mod depot_kill;
mod kill;
mod no_workers;
mod partial;
mod partial_marks;
mod partial_names;
mod partial_unseen;
mod target;
mod walk;
mod walk_xattrs;
