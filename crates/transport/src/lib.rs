//! Transports: byte streams to a peer, under client and server alike.
//!
//! [`Transport`] is what is asked of a connection, whatever carries it. [`kernel`] is what only the
//! kernel knows of a TCP connection. [`Utp`] carries byte streams in datagrams.

pub mod kernel;
mod transport;
mod utp;

pub use kernel::Arrivals;
pub use transport::{
    CERTIFICATES_FOR, CLIENT_CERTIFICATE, Encryption, Incoming, PeerState, Transport, encrypted,
};
pub use utp::{Utp, UtpStream};
