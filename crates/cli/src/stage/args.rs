//! The command lines of `swath stage`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use swath_model::digest::Digest;

use crate::args::Net;
use crate::config::{self, Relay};
use crate::units;

/// `swath stage`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, disable_help_subcommand = true, subcommand_value_name = "COMMAND", after_long_help = EXAMPLES)]
pub struct Stage {
    /// What else to do
    #[command(subcommand)]
    pub command: Option<Then>,
    /// Replicas of one file; or one Metalink of one file (a .meta4 file or its URL)
    #[arg(value_name = "SRC", required = true, value_hint = ValueHint::Url)]
    pub sources: Vec<String>,
    /// A relay whose depot is to hold it (repeatable): faster ones take more
    #[arg(long, value_name = "URL", required = true, value_parser = config::relay, value_hint = ValueHint::Url)]
    pub at: Vec<Relay>,
    /// For how long, such as 48h or 7d
    #[arg(long = "for", value_name = "TIME", required = true, value_parser = units::time, value_hint = ValueHint::Other)]
    pub length: Option<Duration>,
    /// On how many of the depots each byte is to lie
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub replicas: u16,
    /// Write the Metalink of what is staged to this file [default: the file's name with .meta4]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// What the file must come to: ALGORITHM:HEX; whoever fetches it checks that
    #[arg(long, value_name = "DIGEST", value_hint = ValueHint::Other)]
    pub digest: Vec<Digest>,
    /// Replace a Metalink that is there already, and the keys beside it
    #[arg(long)]
    pub overwrite: bool,
    /// The network
    #[command(flatten)]
    pub net: Net,
    /// Print one JSON event a line on standard output
    #[arg(long, conflicts_with = "quiet", help_heading = "Output")]
    pub json: bool,
    /// Print warnings and errors only
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// What else `swath stage` does.
#[derive(Debug, Subcommand)]
pub enum Then {
    /// Tell what of a staged file lies in each depot, and for how long
    Status(Staged),
    /// Let the leases of a staged file run for longer
    Extend(Extend),
    /// Give up the space that a staged file takes in depots
    Release(Staged),
}

/// `swath stage status` and `release`
#[derive(Args, Debug)]
pub struct Staged {
    /// What 'swath stage' wrote, with the keys beside it
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// One of its relays, with what opens it as any:TOKEN@ before its host (repeatable), where the configuration file does not say that
    #[arg(long, value_name = "URL", value_parser = config::relay, value_hint = ValueHint::Url)]
    pub at: Vec<Relay>,
    /// Print one JSON object a line, one for each depot
    #[arg(long)]
    pub json: bool,
    /// The network
    #[command(flatten)]
    pub net: Net,
}

/// `swath stage extend`
#[derive(Args, Debug)]
pub struct Extend {
    /// For how long from now on, such as 48h or 7d
    #[arg(long = "for", value_name = "TIME", value_parser = units::time, value_hint = ValueHint::Other)]
    pub length: Duration,
    /// Which
    #[command(flatten)]
    pub staged: Staged,
}

/// Below the help of `swath stage`, and in its man page.
const EXAMPLES: &str = "\
Examples:
  swath stage https://data.example/run7.h5 --at https://r3.example:8471 --for 48h
  swath stage run7.meta4 --at https://r3:8471 --at https://r4:8471 --for 7d --replicas 2
  swath get staged.meta4
  swath stage status staged.meta4
  swath stage extend staged.meta4 --for 48h
  swath stage release staged.meta4

Exit codes:
  0 staged; all depots have answered     6 an input cannot be read
  2 wrong command line                   7 no source, or too few depots, could be used
  5 the Metalink cannot be written       8 some depots have not done it
                                       130 interrupted; what was leased is given up";
