//! HTTP/1.1 as a server speaks it: requests are read here.
//!
//! Nothing here reads a socket: bytes come in, requests come out.

mod head;
mod target;

#[cfg(feature = "fuzzing")]
pub(crate) use head::fuzz_requests;
