//! The command line of `swath seed`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use swath_source::ServerAccess;
use url::Url;

use crate::args::OwnCertificate;
use crate::cluster::machine;
use crate::get::tracker;
use crate::serve::args::{NetworkOrFile, address, network_or_file};
use crate::units;

/// `swath seed`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Seed {
    /// Torrent files, or folders whose .torrent files are all seeded
    #[arg(value_name = "TORRENT|OUTDIR", required = true, value_hint = ValueHint::AnyPath)]
    pub torrents: Vec<PathBuf>,
    /// Read the data from this folder (repeatable), which holds NAME of each torrent [default: the folder of the torrent]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub data: Vec<PathBuf>,
    /// Listen on this address for peers; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:6881", value_parser = address, value_hint = ValueHint::Other)]
    pub listen: SocketAddr,
    /// Limit the total upload rate, in bytes per second: 50M, 2MiB
    #[arg(long, value_name = "RATE", value_parser = units::rate_above_zero, value_hint = ValueHint::Other)]
    pub max_upload: Option<u64>,
    /// Serve only peers of these networks (comma separated, repeatable): 192.0.2.0/24, 10.1.2.3, or a file with one network per line
    #[arg(long, value_name = "CIDR|FILE", value_delimiter = ',', value_parser = network_or_file, value_hint = ValueHint::AnyPath)]
    pub allow: Vec<NetworkOrFile>,
    /// Announce to this tracker too (repeatable): http://HOST:PORT/announce or udp://HOST:PORT
    #[arg(long, value_name = "URL", value_parser = tracker, value_hint = ValueHint::Url)]
    pub tracker: Vec<Url>,
    /// Connect to this peer (repeatable); not for private torrents
    #[arg(long, value_name = "HOST:PORT", value_parser = machine, value_hint = ValueHint::Other)]
    pub peer: Vec<String>,
    /// Connect to at most this many peers of each torrent
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_peers: u32,
    /// Encrypt all connections to peers, and refuse peers that do not
    #[arg(long)]
    pub require_encryption: bool,
    /// Let peers in by uTP (over UDP) too
    #[arg(long)]
    pub utp: bool,
    /// Offer all pieces to all peers at once, even while this is the only seeder
    #[arg(long)]
    pub no_super_seed: bool,
    /// Do not check the data before offering it
    #[arg(long)]
    pub no_verify: bool,
    /// Also trust the certificate authorities in this file (PEM), for trackers
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ca: Vec<PathBuf>,
    /// A certificate of yours
    #[command(flatten)]
    pub own: OwnCertificate,
    /// Print only warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Access to single servers, from the configuration file
    #[arg(skip)]
    pub servers: Vec<ServerAccess>,
}

const EXAMPLES: &str = "\
Examples:
  swath seed run-7.torrent --data /data
  swath seed /srv/torrents --data /data --max-upload 50M
  swath seed run-7.torrent --allow institutes.txt --listen 192.0.2.10:6881
  swath seed run-7.torrent --tracker http://t.example:6969/announce --peer peer.example:6881

Signals:
  INT, TERM   tell the trackers, close all connections, and stop

Exit codes:
  0 stopped by a signal      5 cannot listen
  1 internal error           6 cannot read a torrent, its data or a list
  2 wrong command line       130 stopped by a second signal
  4 no piece of the data is right";
