//! What all lanes and control requests of a process share: options, TLS, resolved names, idle
//! connections, credentials, the rate limit.

mod address;
mod ahead;
mod awake;
mod carried;
mod certificate;
mod clients;
mod conn;
mod connect;
mod credentials;
mod datagram;
mod dialled;
mod happy;
mod http1;
mod idle;
mod library;
mod options;
mod permitted;
mod proxy;
mod relays;
mod resolve;
mod servers;
mod tls;
mod token;
mod tunnel;
mod zone;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swath_formats::depot;
use swath_formats::digest_header;
use swath_model::Limiter;
use swath_model::digest::Digest;
use tokio::time::Instant;
use url::Url;

pub(crate) use address::Surroundings;
pub use certificate::ClientCertificate;
pub use conn::Tunnel;
pub(crate) use conn::{Conn, Via};
pub(crate) use connect::broke;
pub(crate) use credentials::{Authorization, Credentials, has};
pub use credentials::{Bearer, BearerSearch, Secret, discover_bearer};
pub use dialled::{Dialled, IncomingSender};
pub(crate) use http1::Http1Conn;
pub use options::{
    NetError, NetOptions, Reach, RelayAccess, Seen, UnknownServer, UnknownServers, check_header,
};
pub(crate) use permitted::Permitted;
pub use proxy::{BadProxy, Proxies, ProxyError};
pub use relays::CanEncrypt;
pub(crate) use relays::{Encrypted, Keys};
pub use servers::{HostPattern, PatternError, ProxyChoice, ServerAccess};
pub use token::{Token, TokenError, is_token};
pub use zone::{ZoneError, without_zone};

use crate::host_table::HostTable;
use crate::http::request::Lines;
use crate::target::Origin;

/// Everything shared about the network; cheap to clone, all clones are one.
#[derive(Clone)]
pub struct Net {
    shared: Arc<Shared>,
    /// Headers that only what goes through this handle sends.
    headers: Arc<[(String, String)]>,
    /// Our address, from which connections begin; `None`: the one that the system chooses.
    from: Option<IpAddr>,
}

struct Shared {
    options: NetOptions,
    tls: tls::Connectors,
    names: resolve::Names,
    idle: idle::IdleConnections,
    limiter: Arc<Limiter>,
    clients: clients::Clients,
    digest_wishes: Lines,
    /// Origins of sources that the user named.
    named: Mutex<HashSet<Origin>>,
    surroundings: Surroundings,
    dialling: dialled::Dialling,
    ahead: ahead::Ahead,
    awake: awake::Awake,
    relay_keys: relays::RelayKeys,
    hosts: Arc<HostTable>,
}

impl Net {
    /// Reads certificates and checks the options.
    ///
    /// # Errors
    /// [`NetError`] if a CA file cannot be read or a header cannot be sent.
    pub fn new(options: NetOptions) -> Result<Net, NetError> {
        let limiter = Arc::new(Limiter::new(options.limit_bytes_per_s));
        Net::with_limiter(options, limiter)
    }

    fn with_limiter(options: NetOptions, limiter: Arc<Limiter>) -> Result<Net, NetError> {
        options.check()?;
        let tls = tls::Connectors::new(&options)?;
        let wanted = match options.wants_blake3_first {
            true => digest_header::WANT_BLAKE3_FIRST,
            false => digest_header::WANT_REPR_DIGEST,
        };
        let digest_wishes = Lines::default()
            .with("Want-Repr-Digest", wanted)
            .with("Want-Digest", digest_header::WANT_DIGEST);
        Ok(Net {
            headers: Arc::default(),
            from: None,
            shared: Arc::new(Shared {
                tls,
                names: resolve::Names::default(),
                idle: idle::IdleConnections::default(),
                limiter,
                digest_wishes,
                clients: clients::Clients::default(),
                named: Mutex::default(),
                surroundings: Surroundings::default(),
                dialling: dialled::Dialling::default(),
                ahead: ahead::Ahead::default(),
                awake: awake::Awake::new(),
                relay_keys: relays::RelayKeys::default(),
                hosts: Arc::default(),
                options,
            }),
        })
    }

    /// Returns the same network, with further headers for the user's own sources. They take the place of
    /// those of the same name.
    ///
    /// # Errors
    /// [`NetError::Header`] if one of them cannot be sent.
    pub fn with_headers(&self, headers: &[(String, String)]) -> Result<Net, NetError> {
        headers.iter().try_for_each(|(name, value)| check_header(name, value))?;
        let kept = self.headers.iter().filter(|(name, _)| !is_among(name, headers));
        let headers = kept.chain(headers).cloned().collect();
        Ok(Net { headers, ..self.clone() })
    }

    /// Returns the same network, whose connections begin at this address of ours. An idle connection may
    /// have begun at another one.
    #[must_use]
    pub fn from_address(&self, from: IpAddr) -> Net {
        Net { from: Some(from), ..self.clone() }
    }

    /// Returns a network for hosts that are no sources of the user's: it keeps the limit of the rate, and
    /// has no credentials, headers and proxies. A silence of `timeout` is too long for it.
    ///
    /// # Errors
    /// As [`Net::new`].
    pub fn without_credentials(&self, timeout: Duration) -> Result<Net, NetError> {
        let options = NetOptions {
            timeout,
            user_agent: self.shared.options.user_agent.clone(),
            reach: self.shared.options.reach.clone(),
            ..NetOptions::default()
        };
        let limiter = Arc::clone(&self.shared.limiter);
        Net::with_limiter(options, limiter)
    }

    /// Returns the same network for servers that show this certificate, and to which it is shown. Both prove
    /// that they have its key. No authority vouches for another one.
    ///
    /// # Errors
    /// As [`Net::new`].
    pub fn of_group(&self, certificate: ClientCertificate) -> Result<Net, NetError> {
        let options = NetOptions {
            fingerprints: vec![certificate.fingerprint()],
            fingerprints_alone: true,
            certificate: Some(certificate),
            insecure: false,
            ..self.shared.options.clone()
        };
        Net::with_limiter(options, Arc::clone(&self.shared.limiter))
    }

    /// Changes the rate limit of all lanes together; `None` lifts it.
    pub fn set_limit(&self, bytes_per_s: Option<u64>) {
        self.shared.limiter.set(bytes_per_s);
    }

    /// Returns how many connections wait for their next use.
    pub fn idle_connections(&self) -> usize {
        self.shared.idle.len()
    }

    pub(crate) fn user_agent(&self) -> &str {
        &self.shared.options.user_agent
    }

    /// Returns the longest silence of a server that is waited for.
    pub fn timeout(&self) -> Duration {
        self.shared.options.timeout
    }

    /// Since when this process has been awake: what was not heard while it was stopped is no silence of
    /// anybody. Whoever judges silence asks several times a second, for that is how it is known.
    pub fn awake_since(&self) -> Instant {
        self.shared.awake.since()
    }

    /// Most connections to this host, where that is limited.
    pub(crate) fn connections_to(&self, origin: &Origin) -> Option<u32> {
        self.shared.options.connections_to(origin)
    }

    /// Returns whether the host of this address was not reached when it was last tried.
    pub fn is_down(&self, url: &Url) -> bool {
        Origin::of(url).is_some_and(|origin| self.shared.hosts.is_down(&origin))
    }

    /// Returns what was learnt of hosts.
    pub(crate) fn hosts(&self) -> &Arc<HostTable> {
        &self.shared.hosts
    }

    pub(crate) fn awake(&self) -> &awake::Awake {
        &self.shared.awake
    }

    /// Returns the limit of all lanes together, for whoever receives beside them.
    pub fn limiter(&self) -> &Arc<Limiter> {
        &self.shared.limiter
    }

    /// Header lines of the first request to a source: which digests we would like to have.
    pub(crate) fn digest_wishes(&self) -> &Lines {
        &self.shared.digest_wishes
    }

    /// Returns whether the first request to a source asks for a Metalink too.
    pub(crate) fn asks_for_metalinks(&self) -> bool {
        self.shared.options.metalinks
    }

    /// The user named this address: its origin may get credentials, its network is allowed.
    pub(crate) fn note_named(&self, url: &Url) {
        if let Some(origin) = Origin::of(url) {
            self.shared.surroundings.allow_host(&origin.host);
            self.shared.named.lock().unwrap_or_else(PoisonError::into_inner).insert(origin);
        }
    }

    /// The user named this relay: its network is allowed. What is meant for sources it gets no more for
    /// that than anybody, for whatever it names could be a source at its own origin.
    pub(crate) fn note_relay(&self, url: &Url) {
        if let Some(origin) = Origin::of(url) {
            self.shared.surroundings.allow_host(&origin.host);
        }
    }

    /// What TLS with the server at `origin` has and with others has not.
    fn own_tls(&self, origin: &Origin) -> Option<servers::OwnTls> {
        self.shared.options.own_tls(origin, self.is_named(origin))
    }

    fn is_named(&self, origin: &Origin) -> bool {
        self.shared.named.lock().unwrap_or_else(PoisonError::into_inner).contains(origin)
    }

    /// Returns what may be sent to `url` on behalf of the source given as `source_url`.
    pub(crate) fn credentials_for(
        &self,
        source_url: &Url,
        url: &Url,
        trust: crate::Trust,
    ) -> Credentials {
        let (Some(own), Some(origin)) = (Origin::of(source_url), Origin::of(url)) else {
            return Credentials::default();
        };
        if own == origin && self.is_in_own_depot(url) {
            // Whoever has such an address may use it, but its relay must let them in.
            return self.credentials_for_relay(&origin);
        }
        if own != origin {
            return Credentials::default();
        }
        let entitled = trust == crate::Trust::Named || self.is_named(&origin);
        if !entitled {
            // Only what was given for this server alone, whoever named its address.
            return credentials::own_only(&self.shared.options, &origin);
        }
        let mut credentials = credentials::of(&self.shared.options, source_url, &origin);
        credentials.headers.retain(|(name, _)| !is_among(name, &self.headers));
        credentials.headers.extend(self.headers.iter().cloned());
        if is_among("authorization", &self.headers) {
            credentials.authorization = None;
        }
        credentials
    }

    /// Returns how often tokens were renewed in their files so far.
    pub(crate) fn token_renewals(&self) -> u64 {
        self.shared.options.tokens().map(Token::renewals).sum()
    }

    /// Whether another token is in one of the files than when there were so many renewals: a request that was
    /// refused for want of a good one may have shown the last one.
    pub(crate) fn has_renewed_tokens(&self, renewals: u64) -> bool {
        self.shared.options.tokens().for_each(|token| drop(token.now()));
        self.token_renewals() > renewals
    }

    /// Returns what opens the server of a source that the user named, and how it is known: what somebody
    /// else needs who is to act for the user there.
    pub fn access_to(&self, url: &Url) -> AccessTo {
        let Some(origin) = Origin::of(url) else { return AccessTo::default() };
        let credentials = self.credentials_for(url, url, crate::Trust::Named);
        let token = credentials.authorization.as_ref().and_then(Authorization::token);
        let options = &self.shared.options;
        let mut fingerprints = options.fingerprints.clone();
        fingerprints.extend(self.own_tls(&origin).into_iter().flat_map(|own| own.fingerprints));
        let has_other = !credentials.headers.is_empty()
            || credentials.authorization.is_some() && token.is_none();
        AccessTo { token, has_other, fingerprints }
    }

    /// Returns whether `url` leads into the depot of one of the user's relays, and not by way of others.
    pub(super) fn is_in_own_depot(&self, url: &Url) -> bool {
        let relays = &self.shared.options.relays;
        depot::is_path(url.path()) && relays.iter().any(|relay| relay.url.origin() == url.origin())
    }

    /// What opens the relay at `origin`: what the user gave for it, and nothing that is meant for
    /// sources.
    pub(crate) fn credentials_for_relay(&self, origin: &Origin) -> Credentials {
        credentials::of_relay(&self.shared.options, origin)
    }

    /// Returns a connection that served before, still open and clean.
    pub(crate) fn take_idle(&self, origin: &Origin, via: &Via) -> Option<Conn> {
        self.shared.idle.take(origin, via)
    }

    /// Keeps a clean connection for the next lane.
    pub(crate) fn keep_idle(&self, conn: Conn) {
        self.shared.idle.put(conn);
    }
}

/// What opens a server, and how it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessTo {
    /// The token or the password.
    pub token: Option<Secret>,
    /// There is something else that opens it, such as a header of the user's own.
    pub has_other: bool,
    /// SHA-256 of certificates that are trusted of it.
    pub fingerprints: Vec<Digest>,
}

fn is_among(name: &str, headers: &[(String, String)]) -> bool {
    headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Net({} idle connections)", self.idle_connections())
    }
}
