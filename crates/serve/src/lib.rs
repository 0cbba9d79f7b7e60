//! The network outbound: a range server for files and whole datasets.
//!
//! Plans nothing: who asks for what is decided by those who ask.

mod http;

/// Entry points for fuzzing; not part of the interface.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Understand `bytes` as the requests of a client.
    pub fn requests(bytes: &[u8]) {
        crate::http::fuzz_requests(bytes);
    }
}
