//! HTTP as a server speaks it.
//!
//! `head` and `target` understand requests, from bytes; `response` is what is answered, and `body`
//! its parts in memory; `connection` carries both over a `stream` by HTTP/1.1, `http2` by
//! HTTP/2; `slots` has places for connections; `records` keeps what is encrypted in step with young connections.

mod body;
mod connection;
mod head;
mod held;
mod http2;
mod moves;
mod names;
mod pace;
mod received;
mod records;
mod response;
mod slots;
mod stream;
mod target;

pub use connection::{Answer, Next, now_s, serve};
pub use head::{Body, Head, Method, Version};
pub(crate) use http2::serve_http2;
pub use names::Names;
pub use pace::Pace;
pub(crate) use records::Records;
pub use response::{Content, Find, Finding, FoundPart, Made, Make, Piece, Response, TakesOver};
pub use slots::Slot;
pub(crate) use slots::Slots;
pub use stream::{Stream, poll_input, send_file};
pub use target::Target;

#[cfg(feature = "fuzzing")]
pub(crate) use head::fuzz_requests;
