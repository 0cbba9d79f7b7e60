//! Jobs through the library, against real servers.

mod control;
mod get;
mod spec;
mod support;
