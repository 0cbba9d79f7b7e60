//! What is remembered between transfers: by several processes, and on files that are damaged, locked or others'.

mod bad_luck;
mod common;
mod remembers;
