//! Tests of publishing, in one executable.

mod hashing;
mod metafiles;
