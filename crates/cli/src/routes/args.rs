//! The command lines of `swath routes`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

use crate::args::Net;
use crate::config::{self, Relay, RouteWish};
use crate::relays::Which;
use crate::units;

/// `swath routes`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true, subcommand_value_name = "COMMAND", after_long_help = EXAMPLES)]
pub struct Routes {
    /// What else to do
    #[command(subcommand)]
    pub command: Option<Then>,
    /// Show the widest route from here: an address, or a site such as r1.example
    #[arg(value_name = "SRC", value_hint = ValueHint::Url)]
    pub from: Option<String>,
    /// Show the route to this site instead of to us
    #[arg(value_name = "DST", value_hint = ValueHint::Url)]
    pub to: Option<String>,
    /// Show all relays: also those of which no rate is known and nothing was heard for a week
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object a line, one for each edge, all of them
    #[arg(long)]
    pub json: bool,
    /// Draw the graph into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// A relay that --route may name (repeatable), in place of those of the configuration file
    #[arg(long, value_name = "URL", value_parser = config::relay, value_hint = ValueHint::Url)]
    pub relay: Vec<Relay>,
    /// Which routes to tell: 'auto', the widest and what several bring at once; 'widest'; 'multi', those several one by one; 'direct'; or relays as R1,R2 from here to the source [default: auto]
    #[arg(long, value_name = "ROUTE", value_parser = config::route, value_hint = ValueHint::Other)]
    pub route: Option<RouteWish>,
}

impl Routes {
    /// Relays and routes.
    pub fn which(&self) -> Which {
        Which { relay: self.relay.clone(), route: self.route.clone() }
    }
}

/// What else `swath routes` does.
#[derive(Debug, Subcommand)]
pub enum Then {
    /// Ask all relays and measure all distances now, and what routes bring: a transfer that follows knows its way from the first moment
    Probe(Box<Probe>),
    /// Forget what is remembered of the network, all of it or some sites
    Forget(Forget),
}

/// `swath routes probe`
#[derive(Args, Debug)]
#[command(after_long_help = PROBE_EXAMPLES)]
pub struct Probe {
    /// Files to fetch from; without any, rates are not measured
    #[arg(value_name = "SRC", value_hint = ValueHint::Url)]
    pub sources: Vec<String>,
    /// A relay to be asked (repeatable), in place of those of the configuration file
    #[arg(long, value_name = "URL", value_parser = config::relay, value_hint = ValueHint::Url)]
    pub relay: Vec<Relay>,
    /// Fetch at most so much, of all sources together; 0: only distances are measured
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = units::size, value_hint = ValueHint::Other)]
    pub bytes: u64,
    /// Fetch for at most so long, from all sources together
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = units::time, value_hint = ValueHint::Other)]
    pub lasts: Duration,
    /// Print one JSON object a line: for each edge, each that could not be reached, each source
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
    /// Sites such as r1.example or r1.example:443, or their addresses; without any, everything is forgotten
    #[arg(value_name = "SITE", value_hint = ValueHint::Url)]
    pub sites: Vec<String>,
}

/// Below the help of `swath routes`, and in its man page.
const EXAMPLES: &str = "\
Examples:
  swath routes
  swath routes https://data.example/run7.h5
  swath routes https://data.example/run7.h5 --route r1,r2
  swath routes --svg routes.svg
  swath routes probe https://data.example/run7.h5
  swath routes forget r1.example

Exit codes:
  0 shown                     5 the picture cannot be written
  1 internal error            6 nothing is known of a site, or what is remembered cannot be read
  2 wrong command line";

/// Below the help of `swath routes probe`.
const PROBE_EXAMPLES: &str = "\
Examples:
  swath routes probe
  swath routes probe https://data.example/run7.h5
  swath routes probe https://data.example/run7.h5 --bytes 500M --for 30s
  swath routes probe --relay https://r1.example:8471 --relay https://r2.example:8471

Exit codes:
  0 something came (without sources: a relay answered)     6 an input cannot be read
  1 internal error                                         7 nothing came, or no relay answered
  2 wrong command line                                   130 interrupted";

/// Below the help of `swath routes forget`.
const FORGET_CODES: &str = "\
Exit codes:
  0 forgotten, or nothing was remembered     2 wrong command line
  1 internal error                           5 it cannot be forgotten";
