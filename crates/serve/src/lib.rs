//! The network outbound: a range server for files and whole datasets.
//!
//! Plans nothing: who asks for what is decided by those who ask. [`Server`] answers for a dataset, or
//! for any other [`Service`], which is written in the requests and answers of [`http`].

mod client;
mod dataset;
mod descriptors;
pub mod exposition;
mod file_version;
pub mod http;
mod issuer;
mod offer;
mod receive;
mod server;
mod site;
mod third_party;
mod tls;
mod tokens;

pub use client::Client;
pub use descriptors::limit as descriptor_limit;
pub use issuer::{FetchingKeys, Issuers, KeySet, KeysError, TrustedIssuer};
pub use offer::Offer;
pub use receive::{Destination, Lines, Order, Receive};
pub use server::{
    Later, Life, Listening, Renewal, ServeError, Server, ServerOptions, Service, Stop, Traffic,
};
pub use site::{
    Access, Folder, Log, LogLine, Mount, Only, PlainHttp, Rights, SiteError, SiteOptions, Who, page,
};
pub use swath_formats::{Network, NetworkError};
pub use swath_store::Reads;
pub use swath_store::tree::{Filter, Single};
pub use swath_transport::Congestion;
pub use third_party::{
    CopyOrder, CopyWay, Copying, FetchOrder, JobLines, OrderedJob, Refused, ThirdParty, Unfinished,
};
pub use tls::{GroupKey, Identity, Tls, TlsError, random};
pub use tokens::{Token, TokensError, new_token, read_tokens};

/// Entry points for fuzzing; not part of the interface.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Understands `bytes` as the requests of a client.
    pub fn requests(bytes: &[u8]) {
        crate::http::fuzz_requests(bytes);
    }

    /// Understands `text` as the rights that are kept with an order.
    pub fn kept_rights(text: &str) {
        crate::site::fuzz_kept_rights(text);
    }

    /// Understands `text` as a token of an issuer, as its claims, and as a set of keys.
    pub fn issued_token(text: &str) {
        crate::issuer::fuzz(text);
    }
}
