//! Transports: byte streams to a peer, under client and server alike.
//!
//! [`Transport`] is what is asked of a connection, whatever carries it. [`kernel`] is what only the
//! kernel knows of a TCP connection, and [`Congestion`] how fast it sends. [`Utp`] carries byte streams in datagrams.

mod congestion;
pub mod kernel;
mod transport;
mod utp;

pub use congestion::Congestion;
pub use kernel::Arrivals;
pub use transport::{
    CERTIFICATES_FOR, CLIENT_CERTIFICATE, Encryption, Incoming, PeerState, Transport, encrypted,
};
pub use utp::{Utp, UtpAdmission, UtpStream};
