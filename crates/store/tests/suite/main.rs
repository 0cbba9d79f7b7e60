//! Files, trees, caches and depots on a real disk: faults, odd names, what is left by a run that ended early.

mod bad_luck;
mod common;
mod deep;
mod granted;
mod partial;
mod partial_marks;
mod partial_names;
mod partial_unseen;
mod target;
mod walk;
mod walk_xattrs;
