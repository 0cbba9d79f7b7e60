//! Faulty HTTP servers: real HTTP/1.1 over loopback, wrong in exactly the ways a test asks for.
//!
//! ```
//! use swath_netlab::faulty::{Behaviour, Content, Server};
//!
//! let server = Server::builder()
//!     .file("/data.bin", Content::random(7, 1 << 20))
//!     .behaviour(Behaviour::busy(503, 1).first(2))
//!     .start()?;
//! let url = server.url("/data.bin");
//! server.set(Behaviour::rate(20_000_000)); // while it runs
//! assert!(url.starts_with("http://127.0.0.1:") && server.log().is_empty());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Without behaviours a server is correct: kept connections, pipelining, HEAD, single ranges,
//! If-Range and other preconditions, validators. It listens on loopback only, computes its bytes
//! instead of storing them, writes down every request, and takes its thread and sockets with it
//! when dropped. Nothing here shares code with the product's own HTTP, so neither hides the
//! other's mistakes.

mod answer;
mod behaviour;
mod body;
pub mod cli;
mod connection;
mod content;
mod date;
mod gzip;
mod log;
mod metalink;
mod pace;
mod request;
mod server;
mod state;
mod tls;

pub use behaviour::{
    Behaviour, Death, DigestField, Fresh, Pipelining, RangeLie, Rule, Scope, When,
};
pub use content::{Algorithm, Content, hex};
pub use log::{Log, Record};
pub use metalink::{MetalinkFile, metalink};
pub use server::{Builder, Handle, Server};
pub use tls::{Certificate, ca_pem, self_signed_pem};
