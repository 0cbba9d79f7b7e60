//! Tests of publishing, in one executable.

mod checking;
mod hashing;
mod metafiles;
mod segments;
