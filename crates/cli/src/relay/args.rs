//! The command line of `swath relay`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::failure::Failure;
use clap::{Args, ValueHint};
use swath_model::digest::Digest;
use swath_relay::{CacheOptions, Upstream};
use swath_serve::Network;
use swath_store::depot::DepotOptions;

use crate::args::fingerprint;
use crate::serve::args::{LogFormat, Tls, address};
use crate::serve::standing::Given;
use crate::units;

/// `swath relay`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Relay {
    /// Ask only these (comma separated, repeatable): data.example.org, *.example.org, r2.example.org:8471, 10.1.0.0/16. Names that lead to addresses that are not public need a block that has these
    #[arg(long, value_name = "HOST", value_delimiter = ',', required = true, value_hint = ValueHint::Other)]
    pub upstream: Vec<Upstream>,
    /// Be there for these only (comma separated, repeatable): networks as 192.0.2.0/24, or a file of tokens, one a line ('TOKEN [until=DATE]')
    #[arg(long, value_name = "TOKENFILE|CIDR", value_delimiter = ',', required = true, value_parser = client, value_hint = ValueHint::AnyPath)]
    pub clients: Vec<Client>,
    /// Listen here (repeatable); port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8471", value_parser = address, value_hint = ValueHint::Other)]
    pub listen: Vec<SocketAddr>,
    /// How the relay calls itself (otherwise as the machine)
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub name: Option<String>,
    /// Certificate and those that vouch for it, PEM (otherwise one is made once and kept, known by its fingerprint)
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// Encrypt, with a certificate of our own that is kept from start to start and known by its fingerprint
    #[arg(long, value_name = "KIND", default_value = "self-signed", conflicts_with_all = ["tls_cert", "plain"])]
    pub tls: Tls,
    /// Make a new certificate in place of the one that is kept from earlier starts
    #[arg(long, conflicts_with_all = ["plain", "tls_cert"])]
    pub new_identity: bool,
    /// Do not encrypt: bytes, tokens and all can be read on the way
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    pub plain: bool,
    /// Pass on no more than this a second, to all together: 50M, 2MiB
    #[arg(long, value_name = "RATE", value_parser = units::rate_above_zero, value_hint = ValueHint::Other)]
    pub max_rate: Option<u64>,
    /// More connections than this wait until others end, or are silent
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Keep what passes in this folder, for all who ask for it: each byte crosses the way here once. Only what is public, and has a strong validator
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache: Option<PathBuf>,
    /// Keep no more than this; what was asked for the longest ago goes first
    #[arg(long, value_name = "SIZE", default_value = "10G", requires = "cache", value_parser = units::size_above_zero, value_hint = ValueHint::Other)]
    pub cache_size: u64,
    /// Trust the certificate authorities in this file (PEM) too, in those that are asked
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ca: Vec<PathBuf>,
    /// Trust the server with this certificate (sha-256:HEX), among those that are asked
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint, value_hint = ValueHint::Other)]
    pub fingerprint: Vec<Digest>,
    /// Leave whoever is silent for so long while something is owed, on either side
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::time, value_hint = ValueHint::Other)]
    pub timeout: Duration,
    /// Lease space in this folder to the clients; what they stored outlives restarts
    #[arg(long, value_name = "DIR", requires = "depot_size", value_hint = ValueHint::DirPath)]
    pub depot: Option<PathBuf>,
    /// So much of it, to all together: 500G, 2TiB
    #[arg(long, value_name = "SIZE", requires = "depot", value_parser = units::size_above_zero, value_hint = ValueHint::Other)]
    pub depot_size: Option<u64>,
    /// Lease so much memory to the clients, with --depot or without; what they stored there ends with the relay
    #[arg(long, value_name = "SIZE", value_parser = units::size_above_zero, value_hint = ValueHint::Other)]
    pub depot_memory: Option<u64>,
    /// Lease nothing for longer than this: 12h, 7d [default: 7d]
    #[arg(long, value_name = "TIME", value_parser = units::time, value_hint = ValueHint::Other)]
    pub max_lease: Option<Duration>,
    /// Note every answer in this file ('-' is standard output)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// In which form
    #[arg(long, value_name = "FORM", default_value = "common", requires = "log")]
    pub log_format: LogFormat,
}

/// Who may use a relay.
#[derive(Clone, Debug)]
pub enum Client {
    /// Whoever comes from here.
    Network(Network),
    /// Whoever shows a token of this file.
    Tokens(PathBuf),
}

fn client(text: &str) -> Result<Client, String> {
    if text.is_empty() {
        return Err("a network or a file of tokens is wanted".to_owned());
    }
    // What looks like a network that it is not should not be taken for a file.
    let looks_like = text.contains('/')
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || b".:/".contains(&byte));
    match text.parse() {
        Ok(network) => Ok(Client::Network(network)),
        Err(error) if looks_like && !std::path::Path::new(text).exists() => Err(error.to_string()),
        Err(_) => Ok(Client::Tokens(text.into())),
    }
}

impl Relay {
    /// The file of tokens.
    pub fn token_file(&self) -> Result<Option<PathBuf>, Failure> {
        let mut files = self.clients.iter().filter_map(|client| match client {
            Client::Tokens(path) => Some(path),
            Client::Network(_) => None,
        });
        match (files.next(), files.next()) {
            (first, None) => Ok(first.cloned()),
            (_, Some(second)) => Err(Failure::usage(format!(
                "--clients names a second file of tokens, {}: all tokens belong into one",
                second.display()
            ))),
        }
    }

    /// What passing data is kept in.
    pub fn cache(&self) -> Option<CacheOptions> {
        let folder = self.cache.clone()?;
        Some(CacheOptions { folder, size_bytes: self.cache_size })
    }

    /// What is wrong with the options for what is kept here.
    pub fn check(&self) -> Result<(), Failure> {
        if self.max_lease.is_some() && self.depot().is_none() {
            let text = "--max-lease is for what a depot leases: --depot or --depot-memory";
            return Err(Failure::usage(text));
        }
        let whole = |path: &PathBuf| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let folders = [&self.cache, &self.depot].map(|path| path.as_ref().map(whole));
        if let [Some(cache), Some(depot)] = &folders
            && cache == depot
        {
            let shown = cache.display();
            return Err(Failure::usage(format!(
                "--cache and --depot name the same folder, {shown}: each needs its own"
            )));
        }
        Ok(())
    }

    /// The networks.
    pub fn networks(&self) -> Vec<Network> {
        let networks = self.clients.iter().filter_map(|client| match client {
            Client::Network(network) => Some(*network),
            Client::Tokens(_) => None,
        });
        networks.collect()
    }

    /// What is leased to others, if anything is.
    pub fn depot(&self) -> Option<DepotOptions> {
        let (disk, memory) = (self.depot_size, self.depot_memory);
        (disk.is_some() || memory.is_some()).then(|| DepotOptions {
            folder: self.depot.clone(),
            size_bytes: disk.unwrap_or(0),
            memory_bytes: memory.unwrap_or(0),
            length_max: self.max_lease.unwrap_or(LEASE_MAX),
            ..DepotOptions::default()
        })
    }

    /// What can be read again.
    pub fn given(&self, tokens: Option<PathBuf>) -> Given {
        Given {
            tokens,
            tokens_option: "a file of tokens",
            certificate: self.tls_cert.clone().zip(self.tls_key.clone()),
            log: self.log.clone(),
            ..Given::default()
        }
    }
}

/// Who forgets what was stored gets the space back after a week.
const LEASE_MAX: Duration = Duration::from_secs(7 * 86_400);

const EXAMPLES: &str = "\
Examples:
  swath relay --upstream data.example.org,r2.example.net:8471 --clients 192.0.2.0/24
  swath relay --upstream '*.example.org' --clients tokens --tls-cert fullchain.pem --tls-key privkey.pem
  swath relay --upstream data.example.org --clients 192.0.2.0/24 --cache /var/cache/swath --cache-size 500G
  curl http://r1.example.net:8471/relay/https://data.example.org/file       a relay that was started with --plain
  curl -x http://r1.example.net:8471 https://data.example.org/file          the same, carried without being read
  swath relay --upstream '*.example.org' --clients tokens --depot /srv/depot --depot-size 500G

Signals:
  HUP         reads tokens, certificate and key again, and opens the log again; what is under way goes on
  INT, TERM   what is under way has ten seconds to end; a second one ends it at once

Exit codes:
  0 ended by a signal        5 cannot listen, or the log or the depot cannot be used
  1 internal error           6 the file of tokens, one of authorities, or the cache cannot be read
  2 wrong command line       130 ended by a second signal
  4 certificate and key cannot be used";
