//! The command line of `swath track`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use swath_serve::Network;
use swath_tracker::{Limits, ListFiles, TorrentList};

use crate::identity;
use crate::serve::args::{LogFormat, NetworkOrFile, address, network_or_file};
use crate::serve::lifetime::Reloadable;
use crate::units;

/// `swath track`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Track {
    /// Listen on this address, by TCP and UDP (repeatable); port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:6969", value_parser = address, value_hint = ValueHint::Other)]
    pub listen: Vec<SocketAddr>,
    /// Track only the torrents in this file, one per line: INFO-HASH or INFO-HASH NAME
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub whitelist: Option<PathBuf>,
    /// Track only the torrents in this folder: all its .torrent files
    #[arg(long, value_name = "DIR", conflicts_with = "whitelist", value_hint = ValueHint::DirPath)]
    pub catalogue: Option<PathBuf>,
    /// Allow only clients of these networks (comma separated, repeatable): 192.0.2.0/24, 10.1.2.3, or a file with one network per line
    #[arg(long, value_name = "CIDR|FILE", value_delimiter = ',', value_parser = network_or_file, value_hint = ValueHint::AnyPath)]
    pub allow: Vec<NetworkOrFile>,
    /// Allow only clients with a passkey in their announce address (/PASSKEY/announce); this file has one per line: PASSKEY or PASSKEY NAME
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub passkeys: Option<PathBuf>,
    /// Keep the peers in this file between runs [default: track/PORT.peers in the state folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub state: Option<PathBuf>,
    /// Tell clients to announce themselves this often; a peer that is silent for twice as long is dropped
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = interval, value_hint = ValueHint::Other)]
    pub interval: Duration,
    /// Refuse an address that sends more announces per second than this, averaged over a minute
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_announces: u32,
    /// Take the addresses of clients from the X-Forwarded-For header of HTTP proxies in this network (comma separated, repeatable)
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_hint = ValueHint::Other)]
    pub trusted_proxy: Vec<Network>,
    /// Show this name on the tracker's page [default: the host name]
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub name: Option<String>,
    /// Serve HTTPS instead of HTTP, with this certificate chain (PEM); clients check it
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    pub tls_cert: Option<PathBuf>,
    /// Use this private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// Serve at most this many HTTP connections at once; others wait
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Log every HTTP request to this file ('-' is standard output); UDP requests are only counted
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Choose the log format
    #[arg(long, value_name = "FORM", default_value = "common", requires = "log")]
    pub log_format: LogFormat,
}

impl Track {
    /// Returns the files and networks that say who may use the tracker.
    pub fn lists(&self) -> ListFiles {
        let mut lists = ListFiles {
            torrents: self.torrents(),
            passkeys: self.passkeys.clone(),
            ..ListFiles::default()
        };
        for allowed in &self.allow {
            match allowed {
                NetworkOrFile::Network(network) => lists.networks.push(*network),
                NetworkOrFile::File(path) => lists.network_files.push(path.clone()),
            }
        }
        lists
    }

    fn torrents(&self) -> Option<TorrentList> {
        let catalogue = || self.catalogue.clone().map(TorrentList::Catalogue);
        self.whitelist.clone().map(TorrentList::Whitelist).or_else(catalogue)
    }

    /// Whether anybody may use the tracker for any torrent.
    pub fn is_open(&self) -> bool {
        self.torrents().is_none() && self.allow.is_empty() && self.passkeys.is_none()
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        Limits { interval: self.interval, announces_per_s: self.max_announces, ..Limits::default() }
    }

    /// Returns the file that keeps the peers. By default each port has its own.
    pub fn state(&self) -> Option<PathBuf> {
        let port = self.listen.first().map_or(0, SocketAddr::port);
        self.state.clone().or_else(|| usual_state(port))
    }

    /// Returns the certificate and its key.
    pub fn certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.tls_cert.clone().zip(self.tls_key.clone())
    }

    /// Returns the files that SIGHUP reads again. The tracker looks after its lists itself.
    pub fn reloadable(&self) -> Reloadable {
        Reloadable {
            certificate: self.certificate(),
            log: self.log.clone(),
            watches: true,
            ..Reloadable::default()
        }
    }
}

/// Returns the file in which a tracker at this port keeps its peers, unless the user names another one.
pub fn usual_state(port: u16) -> Option<PathBuf> {
    Some(identity::state_folder()?.join("track").join(format!("{port}.peers")))
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = units::time(text)?;
    match INTERVALS_S.contains(&interval.as_secs()) {
        true => Ok(interval),
        false => Err("must be between 10 seconds and 7 days".to_owned()),
    }
}

/// Shorter ones are for tests; clients ignore longer ones.
const INTERVALS_S: std::ops::RangeInclusive<u64> = 10..=7 * 86_400;

const EXAMPLES: &str = "\
Examples:
  swath track --whitelist torrents --allow 192.0.2.0/24,2001:db8::/32
  swath track --catalogue /srv/torrents
  swath track --passkeys passkeys --interval 10m
  swath track --listen 127.0.0.1:6969 --trusted-proxy 127.0.0.1     behind nginx
  curl http://t.example:6969/stats.json                         torrents, seeders, leechers
  transmission-create -t http://t.example:6969/announce -t udp://t.example:6969/announce data/

Signals:
  HUP         reload certificate and key, and reopen the log
  INT, TERM   save the peers and stop

The whitelist, the catalogue, the files of --allow and the passkeys are read again when they change.

Exit codes:
  0 stopped by a signal      5 cannot listen, or cannot write the log or the state
  1 internal error           6 cannot read a list
  2 wrong command line       130 stopped by a second signal
  4 cannot use the certificate and key";
