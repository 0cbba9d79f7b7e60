//! The command line of `swath tune`.

use clap::{Args, ValueHint};

use crate::args::Net;
use crate::units;

/// `swath tune`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Tune {
    /// A file at the source [default: nothing is fetched; shows with how many connections transfers begin]
    #[arg(value_name = "SRC", value_hint = ValueHint::Url)]
    pub source: Option<String>,
    /// Fetch at most this much
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = budget, value_hint = ValueHint::Other)]
    pub budget: u64,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// The network
    #[command(flatten)]
    pub net: Net,
}

/// Reads a budget: less shows nothing.
fn budget(text: &str) -> Result<u64, String> {
    match units::size(text)? {
        bytes @ BUDGET_MIN.. => Ok(bytes),
        _ => Err("too little to measure with: at least 1M".to_owned()),
    }
}

const BUDGET_MIN: u64 = 1_000_000;

/// Shown below the help of `swath tune`.
const EXAMPLES: &str = "\
Normally unnecessary: transfers of a few seconds find out by themselves how many connections
pay, and the next ones from the same source begin with as many. 'swath tune SRC' finds out before
the first one: it fetches parts of the file with 1, 2, 4 and 8 connections, each for at most
5 seconds, and throws them away.

Examples:
  swath tune
  swath tune https://data.example/run7.h5
  swath tune https://data.example/run7.h5 --budget 500M

Exit codes:
  0 measured, or shown        6 cannot read the history
  1 internal error            7 the source could not be used
  2 wrong command line        130 interrupted";
