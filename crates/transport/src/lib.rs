//! Transports: byte streams to a peer, under client and server alike.
//!
//! [`Transport`] is what is asked of a connection, whatever carries it. [`kernel`] is what only the
//! kernel knows of a TCP connection.

pub mod kernel;
mod transport;

pub use kernel::Arrivals;
pub use transport::{Encryption, Incoming, PeerState, Transport, encrypted};
