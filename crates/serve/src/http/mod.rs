//! HTTP/1.1 as a server speaks it.
//!
//! `head` and `target` understand requests, from bytes; `response` is what is answered;
//! `connection` carries both over a `stream`.

mod connection;
mod head;
mod response;
mod stream;
mod target;

pub(crate) use connection::{Answer, serve};
pub(crate) use head::{Head, Method};
pub(crate) use response::{Content, Made, Make, Piece, Response};
pub(crate) use stream::Stream;
pub(crate) use target::encode;

#[cfg(feature = "fuzzing")]
pub(crate) use head::fuzz_requests;
