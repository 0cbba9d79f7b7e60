//! The command lines of `swath routes`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

use crate::args::Net;
use crate::config::{self, Relay, RouteOption};
use crate::relays::RelayArgs;
use crate::units;

/// `swath routes`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true, subcommand_value_name = "COMMAND", after_long_help = EXAMPLES)]
pub struct Routes {
    /// Subcommand
    #[command(subcommand)]
    pub command: Option<RoutesCommand>,
    /// Show the widest route from this URL or site (such as r1.example)
    #[arg(value_name = "SRC", value_hint = ValueHint::Url)]
    pub from: Option<String>,
    /// Show the route to this site instead of this machine
    #[arg(value_name = "DST", value_hint = ValueHint::Url)]
    pub to: Option<String>,
    /// Also show relays without a measured rate that were silent for a week
    #[arg(long)]
    pub all: bool,
    /// Print all edges as JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// Draw the graph to this SVG file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Add a relay for --route (repeatable); replaces those of the configuration file
    #[arg(long, value_name = "URL", value_parser = config::relay, value_hint = ValueHint::Url)]
    pub relay: Vec<Relay>,
    /// Show these routes: 'auto', the widest and the total of several; 'widest'; 'multi', each of the several; 'direct'; or relays R1,R2 from here to the source [default: auto]
    #[arg(long, value_name = "ROUTE", value_parser = config::route, value_hint = ValueHint::Other)]
    pub route: Option<RouteOption>,
}

impl Routes {
    /// Returns relays and route.
    pub fn which(&self) -> RelayArgs {
        RelayArgs { relay: self.relay.clone(), route: self.route.clone() }
    }
}

/// Subcommands of `swath routes`.
#[derive(Debug, Subcommand)]
pub enum RoutesCommand {
    /// Query all relays, and measure round trips and rates now, for later transfers
    Probe(Box<Probe>),
    /// Forget the remembered network, or some of its sites
    Forget(Forget),
}

/// `swath routes probe`
#[derive(Args, Debug)]
#[command(after_long_help = PROBE_EXAMPLES)]
pub struct Probe {
    /// Files to fetch; without one, no rates are measured
    #[arg(value_name = "SRC", value_hint = ValueHint::Url)]
    pub sources: Vec<String>,
    /// Query this relay (repeatable); replaces those of the configuration file
    #[arg(long, value_name = "URL", value_parser = config::relay, value_hint = ValueHint::Url)]
    pub relay: Vec<Relay>,
    /// Fetch at most this much from all sources together; 0 measures only round trips
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = units::size, value_hint = ValueHint::Other)]
    pub bytes: u64,
    /// Fetch for at most this long from all sources together
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = units::time, value_hint = ValueHint::Other)]
    pub lasts: Duration,
    /// Print JSON, one object per line: edges, unreachable edges, sources
    #[arg(long)]
    pub json: bool,
    /// The network
    #[command(flatten)]
    pub net: Net,
}

/// `swath routes forget`
#[derive(Args, Debug)]
#[command(after_long_help = FORGET_CODES)]
pub struct Forget {
    /// Sites to forget: r1.example, r1.example:443 or a URL; without one, everything
    #[arg(value_name = "SITE", value_hint = ValueHint::Url)]
    pub sites: Vec<String>,
}

/// Shown below the help of `swath routes` and in its man page.
const EXAMPLES: &str = "\
Examples:
  swath routes
  swath routes https://data.example/run7.h5
  swath routes https://data.example/run7.h5 --route r1,r2
  swath routes --svg routes.svg
  swath routes probe https://data.example/run7.h5
  swath routes forget r1.example

Exit codes:
  0 shown                     5 cannot write the picture
  1 internal error            6 unknown site, or cannot read the remembered network
  2 wrong command line";

/// Shown below the help of `swath routes probe`.
const PROBE_EXAMPLES: &str = "\
Examples:
  swath routes probe
  swath routes probe https://data.example/run7.h5
  swath routes probe https://data.example/run7.h5 --bytes 500M --for 30s
  swath routes probe --relay https://r1.example:8471 --relay https://r2.example:8471

Exit codes:
  0 data arrived (without sources: a relay answered)     6 cannot read an input
  1 internal error                                       7 no data, or no relay answered
  2 wrong command line                                 130 interrupted";

/// Shown below the help of `swath routes forget`.
const FORGET_CODES: &str = "\
Exit codes:
  0 forgotten, or nothing was remembered     2 wrong command line
  1 internal error                           5 cannot change the remembered network";
