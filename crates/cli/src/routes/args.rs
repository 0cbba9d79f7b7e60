//! The command lines of `swath routes`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::relays::Which;

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
    /// Print one JSON object a line, one for each edge
    #[arg(long)]
    pub json: bool,
    /// Draw the graph into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Relays and routes
    #[command(flatten)]
    pub which: Which,
}

/// What else `swath routes` does.
#[derive(Debug, Subcommand)]
pub enum Then {
    /// Forget what is remembered of the network, all of it or some sites
    Forget(Forget),
}

/// `swath routes forget`
#[derive(Args, Debug)]
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
  swath routes forget r1.example";
