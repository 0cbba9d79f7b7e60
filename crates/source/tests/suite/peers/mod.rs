//! Peers of swarms, against each other and against the programs of others.

mod between_us;
mod hostile;
mod metadata;
mod support;
mod with_others;
