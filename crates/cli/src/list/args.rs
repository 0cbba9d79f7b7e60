//! The command lines of `swath ls` and `swath du`.

use clap::{Args, ValueHint};

use crate::args::Net;

/// `swath ls`
#[derive(Args, Debug)]
pub struct Ls {
    /// A folder of a swath server
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub folder: String,
    /// Show mode, size and time of the last change (UTC) too
    #[arg(short, long)]
    pub long: bool,
    /// Show all that lies below it
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// The network
    #[command(flatten)]
    pub net: Net,
}

/// `swath du`
#[derive(Args, Debug)]
pub struct Du {
    /// A folder of a swath server
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub folder: String,
    /// The network
    #[command(flatten)]
    pub net: Net,
}
