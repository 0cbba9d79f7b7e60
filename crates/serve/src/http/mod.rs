//! The server side of HTTP.
//!
//! `head` and `target` parse requests; `response` is the answer, and `body` its parts in memory;
//! `connection` speaks HTTP/1.1 on a `stream`, `http2` HTTP/2; `slots` limits connections;
//! `records` keeps TLS records small on new connections.

mod activity;
mod body;
mod connection;
mod head;
mod http2;
mod names;
mod pace;
mod permits;
mod received;
mod records;
mod response;
mod slots;
mod stream;
mod target;

pub use ::http::{Method, Version};
pub use connection::{Answer, Next, now_s, serve};
pub use head::{Body, Head};
pub(crate) use http2::serve_http2;
pub use names::Names;
pub use pace::Pace;
pub(crate) use records::Records;
pub use response::{
    Content, Find, Finding, FoundPart, Made, Make, Piece, Response, TakesOver, reason,
};
pub use slots::Slot;
pub(crate) use slots::Slots;
pub use stream::{Stream, poll_input, send_file};
pub use target::Target;

#[cfg(feature = "fuzzing")]
pub(crate) use head::fuzz_requests;
