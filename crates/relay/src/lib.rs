//! A relay: passes bytes on from servers to whoever asks, for those who may, to where it may.
//!
//! A route is an address that holds another one (`swath_formats::relay`), so every HTTP client can
//! use it and every HTTP server can lie behind it. `allow` says whom it asks, `clients` for whom,
//! `pass` what of a request goes on and what of an answer comes back, `carry` moves the bytes by
//! `pipe` where the kernel can do that alone, and `gauge` measures the hop meanwhile. `tunnel`
//! carries what it cannot read. `cached` keeps what passes, where that is wanted, and `depot` leases
//! space to the same clients. It plans nothing: which way is taken is decided by who asks.

mod about;
mod allow;
mod back;
mod cached;
mod carry;
mod clients;
mod depot;
mod faults;
mod gauge;
mod leases;
mod metrics;
mod pace;
mod pass;
mod pipe;
mod relay;
mod server;
mod tunnel;

pub use allow::{Upstream, UpstreamError};
pub use cached::CacheOptions;
pub use clients::Clients;
use relay::{PSEUDONYM, Relay, form};
pub use server::{Bound, RelayError, RelayOptions, RelayServerOptions, bind};

/// Entry points for fuzzing; not part of the interface.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Understand `bytes` as what is asked of a depot.
    pub fn depot(bytes: &[u8]) {
        crate::depot::fuzz(bytes);
    }
}
