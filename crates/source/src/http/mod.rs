//! HTTP/1.1 as a pure state machine: bytes in, decisions out; no socket, no clock.
//!
//! [`head`] parses response heads, [`body`] tells which of the following bytes are payload,
//! [`answer`] judges a head against the range that was asked for, [`request`] writes requests.
//! Everything here has a limit and none of it can panic, whatever a server sends.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod head;
pub(crate) mod request;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
