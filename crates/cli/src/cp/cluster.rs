//! The options of `swath cp` for the machines of a cluster that copy the same.

use std::net::SocketAddr;

use clap::{Args, ValueHint};
use swath_jobs::{ClusterSpec, Environment, SwarmSpec};
use url::Url;

use crate::args::{TokenFrom, TokenParser};
use crate::cluster::{self, machine};
use crate::failure::Failure;
use crate::get::tracker;
use crate::serve::args::address;
use crate::units;

/// The machines of a cluster.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sharing within a cluster")]
pub struct ClusterArgs {
    /// Copy from a swath server together with the other machines that run the same command, so that the server sends about one copy: they find each other with --tracker, or with --peers HOST,HOST,…
    #[arg(long, requires = "cluster_token")]
    pub share: bool,
    /// Let only machines take part that have the same token: any secret word; '@FILE' reads it from a file, hidden from other users of this machine
    #[arg(long, value_name = "TOKEN|@FILE", requires = "share", allow_hyphen_values = true, value_parser = TokenParser, value_hint = ValueHint::Other)]
    pub cluster_token: Option<TokenFrom>,
    /// Share with these machines (comma separated, repeatable)
    #[arg(long, value_name = "HOST[:PORT]", value_parser = machine, value_delimiter = ',', requires = "share", value_hint = ValueHint::Other)]
    pub peers: Vec<String>,
    /// Find the other machines with this tracker (repeatable): http://HOST:PORT/announce or udp://HOST:PORT
    #[arg(long, value_name = "URL", value_parser = tracker, requires = "share", value_hint = ValueHint::Url)]
    pub tracker: Vec<Url>,
    /// Listen on this address for the other machines [default: a free port; 8475 with --peers]
    #[arg(long, value_name = "ADDRESS", value_parser = address, requires = "share", value_hint = ValueHint::Other)]
    pub listen: Option<SocketAddr>,
    /// Limit the upload rate to the other machines, in bytes per second: 50M, 2MiB
    #[arg(long, value_name = "RATE", value_parser = units::rate_above_zero, requires = "share", value_hint = ValueHint::Other)]
    pub max_upload: Option<u64>,
    /// Go on passing it on once all is complete, until Ctrl-C
    #[arg(long, requires = "share")]
    pub keep_seeding: bool,
}

impl ClusterArgs {
    /// Returns the options of a job.
    pub fn spec(&self) -> Option<ClusterSpec> {
        let token = cluster::token(self.cluster_token.as_ref()?);
        let swarm = SwarmSpec {
            trackers: self.tracker.iter().map(ToString::to_string).collect(),
            peers: self.peers.clone(),
            listen: self.listen,
            upload_bytes_per_s: self.max_upload,
            keeps_seeding: self.keep_seeding,
            ..SwarmSpec::default()
        };
        Some(ClusterSpec { token, swarm })
    }

    /// Puts the token into the environment of the job.
    pub fn provide(&self, environment: &mut Environment) {
        if let Some(token) = &self.cluster_token {
            cluster::provide(token, environment);
        }
    }

    /// Checks that the machines can find each other.
    pub fn check(&self) -> Result<(), Failure> {
        cluster::check(!self.share || !self.peers.is_empty() || !self.tracker.is_empty())
    }
}
