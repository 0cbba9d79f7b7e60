//! What others defined, read and written: Metalink, Link and digest headers, input lists, netrc.
//!
//! Everything here parses bytes that strangers wrote. No parser panics, names what it refuses
//! with its position, and bounds its memory. Files, sockets and the clock are left to others:
//! input arrives as bytes or as a buffered reader, time as a number.

pub mod metalink;
pub mod mirror_url;
mod text;

pub use mirror_url::mirror_url;
