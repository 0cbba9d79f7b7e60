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
    /// Subcommand
    #[command(subcommand)]
    pub command: Option<StageCommand>,
    /// Replicas of one file, or one Metalink of one file (a .meta4 file or its URL)
    #[arg(value_name = "SRC", required = true, value_hint = ValueHint::Url)]
    pub sources: Vec<String>,
    /// Store the file in the depot of this relay (repeatable); faster relays store more
    #[arg(long, value_name = "URL", required = true, value_parser = config::relay, value_hint = ValueHint::Url)]
    pub at: Vec<Relay>,
    /// Lease the space for this long: 48h, 7d
    #[arg(long = "for", value_name = "TIME", required = true, value_parser = units::time, value_hint = ValueHint::Other)]
    pub length: Option<Duration>,
    /// Store each byte in this many depots
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub replicas: u16,
    /// Write the Metalink of the staged file to this file [default: the file's name with .meta4]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Put this digest into the Metalink: ALGORITHM:HEX; clients check it
    #[arg(long, value_name = "DIGEST", value_hint = ValueHint::Other)]
    pub digest: Vec<Digest>,
    /// Replace an existing Metalink and its keys
    #[arg(long)]
    pub overwrite: bool,
    /// The network
    #[command(flatten)]
    pub net: Net,
    /// Print events as JSON on standard output, one per line
    #[arg(long, conflicts_with = "quiet", help_heading = "Output")]
    pub json: bool,
    /// Print only warnings and errors
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// Subcommands of `swath stage`.
#[derive(Debug, Subcommand)]
pub enum StageCommand {
    /// Show how much of a staged file each depot holds, and for how long
    Status(Staged),
    /// Extend the leases of a staged file
    Extend(Extend),
    /// Remove a staged file from the depots
    Release(Staged),
}

/// `swath stage status` and `release`
#[derive(Args, Debug)]
pub struct Staged {
    /// Metalink that 'swath stage' wrote, with the keys next to it
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Give the token of one of its relays: https://any:TOKEN@HOST (repeatable) [default: from the configuration file]
    #[arg(long, value_name = "URL", value_parser = config::relay, value_hint = ValueHint::Url)]
    pub at: Vec<Relay>,
    /// Print JSON, one object per line and depot
    #[arg(long)]
    pub json: bool,
    /// The network
    #[command(flatten)]
    pub net: Net,
}

/// `swath stage extend`
#[derive(Args, Debug)]
pub struct Extend {
    /// Lease the space for this long from now: 48h, 7d
    #[arg(long = "for", value_name = "TIME", value_parser = units::time, value_hint = ValueHint::Other)]
    pub length: Duration,
    /// The staged file
    #[command(flatten)]
    pub staged: Staged,
}

/// Shown below the help of `swath stage` and in its man page.
const EXAMPLES: &str = "\
Examples:
  swath stage https://data.example/run7.h5 --at https://r3.example:8471 --for 48h
  swath stage run7.meta4 --at https://r3:8471 --at https://r4:8471 --for 7d --replicas 2
  swath get staged.meta4
  swath stage status staged.meta4
  swath stage extend staged.meta4 --for 48h
  swath stage release staged.meta4

Exit codes:
  0 staged; all depots answered          6 cannot read an input
  2 wrong command line                   7 no usable source, or too few usable depots
  5 cannot write the Metalink            8 some depots failed
                                       130 interrupted; the leases are released";
