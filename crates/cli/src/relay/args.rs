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
use crate::serve::args::{NetworkOrFile, ServerArgs, address, network_or_file};
use crate::serve::lifetime::Reloadable;
use crate::units;

/// `swath relay`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Relay {
    /// Connect only to these servers (comma separated, repeatable): data.example.org, *.example.org, r2.example.org:8471, 10.1.0.0/16. Names with private addresses also need a network that contains them
    #[arg(long, value_name = "HOST", value_delimiter = ',', required = true, value_hint = ValueHint::Other)]
    pub upstream: Vec<Upstream>,
    /// Serve only these clients (comma separated, repeatable): networks such as 192.0.2.0/24, or a token file with one 'TOKEN [until=DATE]' per line
    #[arg(long, value_name = "TOKENFILE|CIDR", value_delimiter = ',', required = true, value_parser = client, value_hint = ValueHint::AnyPath)]
    pub clients: Vec<Client>,
    /// Listen on this address (repeatable); port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8471", value_parser = address, value_hint = ValueHint::Other)]
    pub listen: Vec<SocketAddr>,
    /// Set the relay's name [default: the host name]
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub name: Option<String>,
    /// Encryption, connections and log
    #[command(flatten)]
    pub server: ServerArgs,
    /// Limit the total rate to all clients, in bytes per second: 50M, 2MiB
    #[arg(long, value_name = "RATE", value_parser = units::rate_above_zero, value_hint = ValueHint::Other)]
    pub max_rate: Option<u64>,
    /// Cache forwarded data in this folder, so that each byte is fetched once for all clients. Only public data with a strong validator is cached
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache: Option<PathBuf>,
    /// Limit the cache to this size; the least recently used data is dropped first
    #[arg(long, value_name = "SIZE", default_value = "10G", requires = "cache", value_parser = units::size_above_zero, value_hint = ValueHint::Other)]
    pub cache_size: u64,
    /// Also trust the certificate authorities in this file (PEM) for upstream servers
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ca: Vec<PathBuf>,
    /// Trust upstream servers with this certificate fingerprint (sha-256:HEX)
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint, value_hint = ValueHint::Other)]
    pub fingerprint: Vec<Digest>,
    /// Close connections that are silent for this long while data is due, on either side
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::time, value_hint = ValueHint::Other)]
    pub timeout: Duration,
    /// Lease space in this folder to clients; stored data survives restarts
    #[arg(long, value_name = "DIR", requires = "depot_size", value_hint = ValueHint::DirPath)]
    pub depot: Option<PathBuf>,
    /// Lease at most this much disk space in total: 500G, 2TiB
    #[arg(long, value_name = "SIZE", requires = "depot", value_parser = units::size_above_zero, value_hint = ValueHint::Other)]
    pub depot_size: Option<u64>,
    /// Lease this much memory to clients, with or without --depot; data stored there is lost when the relay stops
    #[arg(long, value_name = "SIZE", value_parser = units::size_above_zero, value_hint = ValueHint::Other)]
    pub depot_memory: Option<u64>,
    /// Limit leases to this time: 12h, 7d [default: 7d]
    #[arg(long, value_name = "TIME", value_parser = units::time, value_hint = ValueHint::Other)]
    pub max_lease: Option<Duration>,
}

/// Who may use a relay.
#[derive(Clone, Debug)]
pub enum Client {
    /// Clients of this network.
    Network(Network),
    /// Clients with a token of this file.
    Tokens(PathBuf),
}

fn client(text: &str) -> Result<Client, String> {
    if text.is_empty() {
        return Err("must be a network or a token file".to_owned());
    }
    Ok(match network_or_file(text)? {
        NetworkOrFile::Network(network) => Client::Network(network),
        NetworkOrFile::File(path) => Client::Tokens(path),
    })
}

impl Relay {
    /// Returns the token file.
    pub fn token_file(&self) -> Result<Option<PathBuf>, Failure> {
        let mut files = self.clients.iter().filter_map(|client| match client {
            Client::Tokens(path) => Some(path),
            Client::Network(_) => None,
        });
        match (files.next(), files.next()) {
            (first, None) => Ok(first.cloned()),
            (_, Some(second)) => Err(Failure::usage(format!(
                "--clients names a second token file, {}: put all tokens into one file",
                second.display()
            ))),
        }
    }

    /// Returns the options of the cache.
    pub fn cache(&self) -> Option<CacheOptions> {
        let folder = self.cache.clone()?;
        Some(CacheOptions { folder, size_bytes: self.cache_size })
    }

    /// Checks the options of cache and depot.
    pub fn check(&self) -> Result<(), Failure> {
        if self.max_lease.is_some() && self.depot().is_none() {
            let text = "--max-lease needs --depot or --depot-memory";
            return Err(Failure::usage(text));
        }
        let whole = |path: &PathBuf| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let folders = [&self.cache, &self.depot].map(|path| path.as_ref().map(whole));
        if let [Some(cache), Some(depot)] = &folders
            && cache == depot
        {
            let shown = cache.display();
            return Err(Failure::usage(format!(
                "--cache and --depot both name {shown}: each needs its own folder"
            )));
        }
        Ok(())
    }

    /// Returns the networks of `--clients`.
    pub fn networks(&self) -> Vec<Network> {
        let networks = self.clients.iter().filter_map(|client| match client {
            Client::Network(network) => Some(*network),
            Client::Tokens(_) => None,
        });
        networks.collect()
    }

    /// Returns the options of the depot, if there is one.
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

    /// Returns the files that SIGHUP reads again.
    pub fn reloadable(&self, tokens: Option<PathBuf>) -> Reloadable {
        Reloadable {
            tokens,
            tokens_option: "a token file",
            certificate: self.server.certificate(),
            log: self.server.log.clone(),
            ..Reloadable::default()
        }
    }
}

/// Forgotten data is removed after a week.
const LEASE_MAX: Duration = Duration::from_secs(7 * 86_400);

const EXAMPLES: &str = "\
Examples:
  swath relay --upstream data.example.org,r2.example.net:8471 --clients 192.0.2.0/24
  swath relay --upstream '*.example.org' --clients tokens --tls-cert fullchain.pem --tls-key privkey.pem
  swath relay --upstream data.example.org --clients 192.0.2.0/24 --cache /var/cache/swath --cache-size 500G
  curl http://r1.example.net:8471/relay/https://data.example.org/file       for a relay with --plain
  curl -x http://r1.example.net:8471 https://data.example.org/file          the same, tunnelled without being read
  swath relay --upstream '*.example.org' --clients tokens --depot /srv/depot --depot-size 500G

Signals:
  HUP         reload tokens, certificate and key, and reopen the log; transfers continue
  INT, TERM   stop; transfers have ten seconds to finish; a second signal stops at once

Exit codes:
  0 stopped by a signal      5 cannot listen, or cannot use the log or the depot
  1 internal error           6 cannot read the token file, a CA file or the cache
  2 wrong command line       130 stopped by a second signal
  4 cannot use the certificate and key";
