//! The swath program.
fn main() {}
