//! Options of all jobs: network, routes, disk and plan.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swath_model::digest::Digest;
use swath_source::{ClientCertificate, NetError, RelayMode};
use swath_transfer::{IoMode, Lanes, PlanConfig, PolicyKind};

use crate::address::Address;
use crate::secret::SecretRef;
use crate::text;

/// The network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// Headers for the named sources.
    pub headers: Vec<Header>,
    /// A bearer token for them; otherwise that of the environment.
    pub token: Option<SecretRef>,
    /// Files with additional certificate authorities (PEM).
    pub ca_files: Vec<PathBuf>,
    /// SHA-256 of trusted certificates.
    #[serde(with = "text::list")]
    pub fingerprints: Vec<Digest>,
    /// Accept any certificate.
    pub insecure: bool,
    /// The certificate that is shown to named sources if they ask for one.
    pub certificate: Option<CertificateFiles>,
    /// The longest silence of all sources, in milliseconds.
    pub timeout_ms: u64,
    /// The rate limit of all sources.
    pub limit_bytes_per_s: Option<u64>,
}

/// Where a client certificate and its key are (PEM).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateFiles {
    /// The certificate; those of authorities may follow it.
    pub certificate: PathBuf,
    /// The key; without it both are in one file.
    #[serde(default)]
    pub key: Option<PathBuf>,
}

impl CertificateFiles {
    /// Reads them.
    ///
    /// # Errors
    /// [`NetError::ClientCertificate`].
    pub fn read(&self) -> Result<ClientCertificate, NetError> {
        ClientCertificate::in_files(&self.certificate, self.key.as_deref())
    }
}

/// A header of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value, which may be secret.
    pub value: SecretRef,
}

impl Network {
    /// Returns the longest silence of all sources.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    pub(crate) fn stall_s(&self) -> f64 {
        self.timeout().as_secs_f64()
    }
}

impl Default for Network {
    fn default() -> Network {
        Network {
            headers: Vec::new(),
            token: None,
            ca_files: Vec::new(),
            fingerprints: Vec::new(),
            insecure: false,
            certificate: None,
            timeout_ms: 60_000,
            limit_bytes_per_s: None,
        }
    }
}

/// Relays and routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Routes {
    /// The relays.
    pub relays: Vec<Relay>,
    /// The choice of routes.
    pub choice: RouteChoice,
    /// Tunnel connections to the origin through relays, which cannot read or change `https` data.
    pub end_to_end: bool,
}

/// A relay with its credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// Its address.
    pub url: Address,
    /// Its token.
    #[serde(default)]
    pub token: Option<SecretRef>,
    /// SHA-256 of its certificate.
    #[serde(default, with = "text::option")]
    pub fingerprint: Option<Digest>,
}

/// The choice of routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteChoice {
    /// Direct, and over relays where that is faster.
    #[default]
    Auto,
    /// Without relays.
    Direct,
    /// The widest route, one at a time.
    Widest,
    /// As many routes as are useful.
    Multi,
    /// Over these relays, the nearest first, by their positions in the list of relays.
    Over(Vec<usize>),
}

impl Routes {
    pub(crate) fn choice(&self) -> swath_transfer::RouteChoice {
        match &self.choice {
            RouteChoice::Auto => swath_transfer::RouteChoice::Auto,
            RouteChoice::Direct => swath_transfer::RouteChoice::Direct,
            RouteChoice::Widest => swath_transfer::RouteChoice::Widest,
            RouteChoice::Multi => swath_transfer::RouteChoice::Multi,
            RouteChoice::Over(relays) => swath_transfer::RouteChoice::Fixed(relays.clone()),
        }
    }

    pub(crate) fn relay_mode(&self) -> RelayMode {
        if self.end_to_end { RelayMode::Tunnel } else { RelayMode::Forward }
    }
}

/// The disk, and memory for buffers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Disk {
    /// How it is written.
    #[serde(with = "text")]
    pub io: IoMode,
    /// Memory for buffers.
    pub memory_bytes: u64,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk { io: IoMode::Auto, memory_bytes: 96_000_000 }
    }
}

/// How transfers are planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// swath's own policy, or a published one for comparison.
    #[serde(with = "text")]
    pub policy: PolicyKind,
    /// Connections per source; `None` adds connections while they increase the rate.
    pub connections: Option<u32>,
    /// Total connections to all sources of a file, shared evenly.
    pub connections_in_all: Option<u32>,
    /// Most sources used at once; the others are spares.
    pub max_sources: u16,
    /// Size of each source's first chunk (`mdtp`).
    pub initial_chunk_bytes: u64,
    /// Chunk size of the fastest source (`mdtp`).
    pub large_chunk_bytes: u64,
    /// Chunk size (`fixed`).
    pub chunk_bytes: u64,
    /// Connections that a source which is alone begins with; from the history.
    #[serde(skip)]
    pub first_connections: Option<u32>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            policy: PolicyKind::Swath,
            connections: None,
            connections_in_all: None,
            max_sources: 64,
            initial_chunk_bytes: 4_000_000,
            large_chunk_bytes: 40_000_000,
            chunk_bytes: 16_000_000,
            first_connections: None,
        }
    }
}

impl Plan {
    /// Returns the planner's configuration, with at most `lanes_max` lanes per source.
    pub fn config(&self, lanes_max: u32) -> PlanConfig {
        let lanes = match self.connections {
            None => Lanes::Auto { max: AUTO_LANES_MAX.min(lanes_max) },
            Some(count) => Lanes::Fixed(count.min(lanes_max)),
        };
        PlanConfig {
            policy: self.policy,
            lanes,
            first_lanes: self.first_connections,
            max_sources: usize::from(self.max_sources),
            initial_chunk_bytes: self.initial_chunk_bytes,
            large_chunk_bytes: self.large_chunk_bytes,
            chunk_bytes: self.chunk_bytes,
            ..PlanConfig::default()
        }
    }
}

/// Most lanes per source that are found by trial: what a server's owner may find acceptable.
const AUTO_LANES_MAX: u32 = 16;
