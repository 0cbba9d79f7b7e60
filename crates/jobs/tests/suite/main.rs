//! Jobs through the library, against real servers.

mod control;
mod copy;
mod get;
mod spec;
mod support;
