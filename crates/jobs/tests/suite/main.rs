//! Jobs through the library, against real servers.

mod control;
mod copy;
mod get;
mod reuse;
mod spec;
mod support;
