//! HTTP as a server speaks it.
//!
//! `head` and `target` understand requests, from bytes; `response` is what is answered, and `body`
//! its parts in memory; `connection` carries both over a `stream` by HTTP/1.1, `two` by
//! HTTP/2; `seats` has places for connections; `records` keeps what is encrypted in step with young connections.

mod body;
mod connection;
mod head;
mod held;
mod moves;
mod names;
mod pace;
mod received;
mod records;
mod response;
mod seats;
mod stream;
mod target;
mod two;

pub use connection::{Answer, Next, now_s, serve};
pub use head::{Body, Head, Method, Version};
pub use names::Names;
pub use pace::Pace;
pub(crate) use records::Records;
pub use response::{Content, Find, Finding, FoundPart, Made, Make, Piece, Response, TakesOver};
pub use seats::Seat;
pub(crate) use seats::Seats;
pub use stream::{Stream, poll_input, send_file};
pub use target::Target;
pub(crate) use two::serve_two;

#[cfg(feature = "fuzzing")]
pub(crate) use head::fuzz_requests;
