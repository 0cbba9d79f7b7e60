//! Tests of publishing, in one executable.

mod checking;
mod common;
mod hashing;
mod metafiles;
mod publications;
mod segments;
