//! A relay for allowed clients and upstream servers.
//!
//! A route is an address that holds another one (`swath_formats::relay`), so every HTTP client can
//! use a relay, and every HTTP server can be its upstream. `allow` lists the upstream servers,
//! `clients` who may use the relay. `headers` rewrites requests and answers, `forward` and `answers`
//! move the bytes (by `pipe`, where the kernel can do that alone), and `gauge` measures the hop.
//! `tunnel` passes connections through without reading them. `cached` is the optional cache, and
//! `depot` leases space to the same clients. A relay plans nothing: its clients choose routes.

mod about;
mod allow;
mod answers;
mod cached;
mod clients;
mod depot;
mod faults;
mod forward;
mod gauge;
mod headers;
mod leases;
mod metrics;
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
    /// Understands `bytes` as what is asked of a depot.
    pub fn depot(bytes: &[u8]) {
        crate::depot::fuzz(bytes);
    }
}
