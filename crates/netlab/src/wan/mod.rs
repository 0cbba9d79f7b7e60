//! The WAN emulator: links of settable rate, delay, loss and queue between network namespaces.
//!
//! A link is a pair of TUN devices, one in each of two namespaces. The kernel's own TCP runs on
//! both sides; a user-space thread (the [`Engine`]) carries every packet from one device to the
//! other through a [`Pipe`] per direction, which decides when the packet arrives and whether it
//! arrives at all. Everything about a link can change while traffic runs, by hand or from a
//! [`Schedule`] whose clock starts when the measured program starts.
//!
//! Namespaces have no name in the file system and TUN devices live as long as their descriptor,
//! so a laboratory that dies in any way, `kill -9` included, leaves nothing behind.

mod engine;
mod error;
mod namespace;
mod pipe;
mod schedule;
mod tun;

pub use engine::{CoreLink, Engine, Link, LinkCounters, PipeCounters};
pub use error::LabError;
pub use namespace::{Namespace, OwnRoute};
pub use pipe::{Exit, Pipe, Queue, Shape};
pub use schedule::{
    Change, Direction, JUMP_RATES_MBIT_PER_S, Schedule, ScheduleError, Step, Target,
};
pub use tun::{MTU_BYTES, OnWire, READ_BYTES_MAX, Tun};
