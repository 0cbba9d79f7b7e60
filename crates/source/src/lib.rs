//! The network inbound: lanes over HTTP, control requests, credentials.
//!
//! A [`Source`] is one replica of a file, of whatever kind; a [`Lane`] of it carries ranges into pool
//! buffers and reports by events. [`open`] knows the kinds by the schemes of their addresses. [`Net`] is
//! what those on a network share. This crate touches no disk but for certificates, tokens and files that
//! the user names as sources, and plans nothing: who fetches what is decided elsewhere.

pub mod conformance;
mod control;
mod cookies;
mod error;
mod facts;
mod file_source;
mod host_table;
mod hpke;
mod http;
mod http_source;
mod joined_source;
mod lane;
mod local_source;
mod memory_source;
mod net;
pub mod peer;
mod quirks;
mod redirect;
mod registry;
mod sealed;
mod shown;
mod source;
mod target;
mod upstream;
mod versions;
mod wrapper;

/// Entry points for fuzzing; not part of the interface.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Understands `bytes` as answers of a server, in pieces whose sizes its first bytes choose.
    pub fn answers(bytes: &[u8]) {
        crate::http::fuzz::answers(bytes);
    }
}

pub use control::{
    AboutRelay, CopyRequest, CopyTold, CopyWay, DepotError, DepotFetch, DepotLease, DepotStatus,
    DepotWish, Depth, Document, DocumentVersion, Download, Fetched, Forward, ForwardedFile,
    Forwarding, ProbeReport, RemoteCopy, Stored, Upload, fetch_part, fetch_small,
    fetch_small_if_changed, given_name, head, head_without_digests, make_folder, post, probe,
    properties,
};
pub use error::{Class, LaneError, Presented, Refusal, RefusalContext, Said, TlsFault};
pub use facts::{Facts, Oddity};
pub use file_source::{FileSource, LocalFile};
pub use hpke::{HpkeError, HpkeKey, LASTS_S as SEALED_LASTS_S, Opened, Pass, seal};
pub use http_source::HttpSource;
pub use joined_source::{FilePart, JoinedSource};
pub use lane::{AfterTrim, LaneEvent, LaneEventKind, Meter};
pub use local_source::{LocalSource, ReadAt};
pub use memory_source::{Memory, MemorySource};
pub use net::{
    AccessTo, BadProxy, Bearer, BearerSearch, CanEncrypt, ClientCertificate, Dialled, HostPattern,
    IncomingSender, Net, NetError, NetOptions, PatternError, Proxies, ProxyChoice, ProxyError,
    Reach, RelayAccess, Secret, Seen, ServerAccess, Token, TokenError, Tunnel, UnknownServer,
    UnknownServers, ZoneError, check_header, discover_bearer, is_token, without_zone,
};
pub use quirks::Quirks;
pub use registry::{Opening, is_known, open};
pub use sealed::{
    GroupHash, SEAL_BYTES, SealedLength, UNIT_BYTES, plain_bytes, sealed_bytes, to_sealed,
};
pub use shown::display_name;
pub use source::{Expected, Lane, Limits, Pending, RelayMode, Relaying, Source, Trust};
pub use upstream::{AnswerHead, Upstream};
pub use wrapper::{Fault, FaultPeriod, Faults, Holdings, Limit, Narrowed, Wrapped, Wrapper};
