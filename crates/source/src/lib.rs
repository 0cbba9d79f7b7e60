//! The network inbound: lanes over HTTP, control requests, credentials.
//!
//! A [`Source`] is one replica of a file; [`open_lane`] opens a connection to it that carries
//! ranges into pool buffers and reports by events. [`Net`] is what they all share. This crate
//! touches no disk but for certificates and tokens, and plans nothing: who fetches what is
//! decided elsewhere.

mod control;
mod cookies;
mod error;
mod facts;
mod habits;
mod hosts;
mod http;
mod lane;
mod net;
mod redirect;
mod sealed;
mod sealing;
mod shown;
mod source;
mod target;
mod upstream;
mod versions;

/// Entry points for fuzzing; not part of the interface.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Understand `bytes` as answers of a server, in pieces whose sizes its first bytes choose.
    pub fn answers(bytes: &[u8]) {
        crate::http::fuzz::answers(bytes);
    }
}

pub use control::{
    AboutRelay, DepotError, DepotFetch, DepotLease, DepotStatus, DepotWish, Document, Download,
    Fetched, ProbeReport, Stored, Turned, Upload, fetch_part, fetch_small, head, probe,
};
pub use error::{Class, LaneError, Presented, Said, TlsFault};
pub use facts::{Facts, Oddity};
pub use habits::Quirks;
pub use lane::{AfterTrim, Lane, LaneEvent, LaneEventKind, Meter, open_lane};
pub use net::{
    Accepted, BadProxy, Bearer, BearerSearch, Come, Dialled, HostPattern, Net, NetError,
    NetOptions, PatternError, Proxies, ProxyChoice, ProxyError, Reach, RelayAccess, Sealable,
    Secret, ServerAccess, UnknownServer, UnknownServers, ZoneError, check_header, discover_bearer,
    without_zone,
};
pub use sealed::{
    SEAL_BYTES, Seal, SealedLength, UNIT_BYTES, plain_bytes, sealed_bytes, to_sealed,
};
pub use sealing::{LASTS_S as SEALED_LASTS_S, Opened, Pass, SealingError, SealingKey, seal};
pub use source::{Carriage, Expected, Source, Trust, display_name};
pub use upstream::{AnswerHead, Tunnel, Upstream};
