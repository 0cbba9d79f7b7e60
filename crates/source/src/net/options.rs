//! What the user may choose about the network.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swath_formats::{Netrc, Network};
use swath_model::digest::Digest;
use url::{Host, Url};

use super::certificate::ClientCertificate;
use super::credentials::Bearer;
use super::proxy::Proxies;
use super::servers::ServerAccess;
use super::token::Token;
use crate::http::request::is_field_safe;

/// Options for everything that goes over the network.
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// Headers that the user adds to requests to their own sources.
    pub headers: Vec<(String, String)>,
    /// A bearer token for the user's own sources.
    pub bearer: Option<Bearer>,
    /// Logins by host.
    pub netrc: Option<Netrc>,
    /// Proxies, usually [`Proxies::from_env`]; none by default.
    pub proxies: Proxies,
    /// Use the library for everything, as for servers that our own lanes cannot speak with.
    pub fallback_only: bool,
    /// Files with further certificate authorities (PEM).
    pub ca_files: Vec<PathBuf>,
    /// SHA-256 of servers' certificates that are trusted, whoever signed them and for whatever name.
    pub fingerprints: Vec<Digest>,
    /// No authority vouches for a server: its certificate is one of those in `fingerprints`.
    pub fingerprints_alone: bool,
    /// Accept any certificate, except from servers whose fingerprint is given.
    pub insecure: bool,
    /// A certificate by which servers know us, shown where one asks for it: one of our own kind to any server
    /// of swath, one of the user to the servers that the user has named.
    pub certificate: Option<ClientCertificate>,
    /// Upper bound for the first byte of an answer, for silence in a body, and for control
    /// requests as a whole. Connecting gets as long, but at most 30 s.
    pub timeout: Duration,
    /// Most connections to one host that serve files; `None`: as many as are asked for. Relays and
    /// servers of datasets are not limited.
    pub connections_per_host: Option<u32>,
    /// How we name ourselves.
    pub user_agent: String,
    /// Limit of all lanes together, in bytes per second.
    pub limit_bytes_per_s: Option<u64>,
    /// Ask the first time for a Metalink too (`Accept: application/metalink4+xml`).
    pub metalinks: bool,
    /// Ask for a BLAKE3 digest first: it is computed of the parts of a file in any order.
    pub wants_blake3_first: bool,
    /// Of addresses that are not public contact only those in these blocks, whoever named them and
    /// whatever name they were found by; `None` where the user alone says what is contacted.
    pub reach: Option<Vec<Reach>>,
    /// What opens the user's relays.
    pub relays: Vec<RelayAccess>,
    /// What is said of single servers; what is said first counts.
    pub servers: Vec<ServerAccess>,
    /// Collects the servers whose certificates nobody vouches for.
    pub unknown: UnknownServers,
    /// Collects the addresses that connections were made to.
    pub remotes: Seen<SocketAddr>,
}

/// Where connections may lead beside what is public: a block of addresses, on one port or all, for
/// every name or for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The addresses.
    pub network: Network,
    /// `None`: every port of theirs.
    pub port: Option<u16>,
    /// The one name that may lead there, in lower case; `None`: every name, and the address itself.
    pub name: Option<String>,
}

impl Reach {
    /// Whether this address may be contacted on this port for who asks for this host; a port that is
    /// not known is none of those that are named.
    pub fn has(&self, host: &Host<String>, address: IpAddr, port: Option<u16>) -> bool {
        let is_for = self.name.as_deref().is_none_or(|own| {
            matches!(host, Host::Domain(name) if name.trim_end_matches('.').eq_ignore_ascii_case(own))
        });
        is_for && self.network.contains(address) && (self.port.is_none() || self.port == port)
    }
}

/// What opens one relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayAccess {
    /// Its address; a user and a password in it open it too.
    pub url: Url,
    /// A token.
    pub token: Option<Token>,
    /// SHA-256 of a certificate that is trusted of this relay, and of nobody else: a relay that carries
    /// connections could otherwise pass for the origin at their end.
    pub fingerprint: Option<Digest>,
}

/// What was seen, in the order of its first time. Clones share one list.
#[derive(Debug)]
pub struct Seen<T>(Arc<Mutex<Vec<T>>>);

/// Servers that showed a certificate which no authority has signed and whose fingerprint was not
/// given. Whoever talks to the user may offer to trust them.
pub type UnknownServers = Seen<UnknownServer>;

/// One of these servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownServer {
    /// The host, as it was asked for.
    pub host: String,
    /// SHA-256 of the certificate that it showed.
    pub fingerprint: Digest,
}

impl<T> Default for Seen<T> {
    fn default() -> Seen<T> {
        Seen(Arc::default())
    }
}

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Seen<T> {
        Seen(Arc::clone(&self.0))
    }
}

impl<T: Clone + PartialEq> Seen<T> {
    /// Returns what was seen so far.
    pub fn all(&self) -> Vec<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn add(&self, one: T) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < SEEN_MAX && !all.contains(&one) {
            all.push(one);
        }
    }
}

/// Nobody answers more questions than this, or reads more addresses.
const SEEN_MAX: usize = 64;

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            bearer: None,
            netrc: None,
            proxies: Proxies::default(),
            fallback_only: false,
            ca_files: Vec::new(),
            fingerprints: Vec::new(),
            fingerprints_alone: false,
            insecure: false,
            certificate: None,
            timeout: Duration::from_secs(30),
            connections_per_host: None,
            user_agent: concat!("swath/", env!("CARGO_PKG_VERSION")).to_owned(),
            limit_bytes_per_s: None,
            metalinks: false,
            wants_blake3_first: false,
            reach: None,
            relays: Vec::new(),
            servers: Vec::new(),
            unknown: UnknownServers::default(),
            remotes: Seen::default(),
        }
    }
}

/// Why the options cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// A file with certificates cannot be read.
    #[error("cannot read the certificates in {path}: {reason}")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A client certificate, or its key, cannot be used.
    #[error("cannot use the client certificate: {path}: {reason}", path = .path.display())]
    ClientCertificate {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A header that cannot be sent.
    #[error("the header {name:?} holds characters that cannot be sent")]
    Header {
        /// Its name.
        name: String,
    },
    /// A header that follows from the request itself.
    #[error("the header {name} cannot be set: {why}")]
    OwnHeader {
        /// Its name.
        name: String,
        /// Whose business it is.
        why: &'static str,
    },
    /// The TLS library refuses its configuration.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

impl NetOptions {
    /// Every token there is.
    pub(super) fn tokens(&self) -> impl Iterator<Item = &Token> {
        let of_servers = self.servers.iter().filter_map(|it| it.token.as_ref());
        let of_relays = self.relays.iter().filter_map(|it| it.token.as_ref());
        self.bearer.iter().map(|it| &it.token).chain(of_servers).chain(of_relays)
    }

    pub(super) fn check(&self) -> Result<(), NetError> {
        let agent = [("User-Agent", self.user_agent.as_str())];
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.chain(agent) {
            check_header(name, value)?;
        }
        Ok(())
    }
}

/// Whether a header of the user's own can be sent. `User-Agent`, `Accept` and `Authorization`
/// replace ours; what the requests themselves depend on cannot be replaced.
///
/// # Errors
/// [`NetError::Header`] or [`NetError::OwnHeader`].
pub fn check_header(name: &str, value: &str) -> Result<(), NetError> {
    if !is_field_safe(name, value) {
        return Err(NetError::Header { name: name.to_owned() });
    }
    let why = match name.to_ascii_lowercase().as_str() {
        "host" => "it follows from the address",
        "range" | "if-range" => "swath asks for ranges of its own",
        "accept-encoding" => "the file is wanted as it is",
        "connection" | "keep-alive" | "proxy-connection" | "upgrade" | "te" => {
            "swath keeps its connections itself"
        }
        "content-length" | "transfer-encoding" | "trailer" | "expect" => {
            "what swath asks has no body"
        }
        _ => return Ok(()),
    };
    Err(NetError::OwnHeader { name: name.to_owned(), why })
}
