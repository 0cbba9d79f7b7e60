//! The options of `swath get` for the swarm of a torrent.

use std::net::SocketAddr;

use clap::{Args, ValueHint};
use swath_formats::torrent::tracker_url;
use swath_jobs::SwarmSpec;
use url::Url;

use crate::cluster::machine;
use crate::serve::args::address;
use crate::units;

/// Options for the swarm of a torrent.
#[derive(Args, Debug)]
#[command(next_help_heading = "Torrents")]
pub struct SwarmArgs {
    /// Use the mirrors of the torrent, and no peers
    #[arg(long)]
    pub no_peers: bool,
    /// Connect to this peer (comma separated, repeatable); not for private torrents
    #[arg(long, visible_alias = "peers", value_name = "HOST:PORT", value_parser = machine, value_delimiter = ',', value_hint = ValueHint::Other, conflicts_with = "no_peers")]
    pub peer: Vec<String>,
    /// Announce to this tracker too (repeatable): http://HOST:PORT/announce or udp://HOST:PORT
    #[arg(long, value_name = "URL", value_parser = tracker, value_hint = ValueHint::Url, conflicts_with = "no_peers")]
    pub tracker: Vec<Url>,
    /// Listen on this address for peers [default: a free port; 8475 with --share --peers]
    #[arg(long, value_name = "ADDRESS", value_parser = address, value_hint = ValueHint::Other, conflicts_with = "no_peers")]
    pub listen: Option<SocketAddr>,
    /// Let peers in by uTP (over UDP) too
    #[arg(long, conflicts_with = "no_peers")]
    pub utp: bool,
    /// Limit the upload rate to peers, in bytes per second: 50M, 2MiB
    #[arg(long, value_name = "RATE", value_parser = units::rate_above_zero, value_hint = ValueHint::Other, conflicts_with = "no_peers")]
    pub max_upload: Option<u64>,
    /// Go on seeding once all is complete, until Ctrl-C or --ratio ends it
    #[arg(long, conflicts_with = "no_peers")]
    pub keep_seeding: bool,
    /// Seed until so many times the size was sent; implies --keep-seeding
    #[arg(long, value_name = "N", value_parser = ratio, value_hint = ValueHint::Other, conflicts_with = "no_peers")]
    pub ratio: Option<f64>,
}

impl SwarmArgs {
    /// Returns the options of a job.
    pub fn spec(&self) -> SwarmSpec {
        SwarmSpec {
            is_off: self.no_peers,
            trackers: self.tracker.iter().map(ToString::to_string).collect(),
            peers: self.peer.clone(),
            listen: self.listen,
            listens_for_utp: self.utp,
            upload_bytes_per_s: self.max_upload,
            keeps_seeding: self.keep_seeding || self.ratio.is_some(),
            ratio: self.ratio,
        }
    }
}

/// Reads the address of a tracker.
pub fn tracker(text: &str) -> Result<Url, String> {
    tracker_url(text).ok_or_else(|| {
        format!("'{text}' is not the address of a tracker (examples: http://t.example:6969/announce, udp://t.example:6969)")
    })
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio >= 0.0);
    ratio.ok_or_else(|| format!("'{text}' is not a number such as 1 or 2.5"))
}
