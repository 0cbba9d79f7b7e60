//! Peers of swarms, against each other and against those that break the rules.

mod between_us;
mod hostile;
mod metadata;
mod support;
