//! The command lines of `swath ls` and `swath du`.

use clap::{ArgAction, Args, ValueHint};

use crate::args::{Net, Ssh};

/// `swath ls`
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Ls {
    /// A folder or a file of a swath server, or host:path, a place where ssh leads to
    #[arg(value_name = "PLACE", value_hint = ValueHint::Url)]
    pub place: String,
    /// Show mode, size and time of the last change (UTC) too
    #[arg(short, long)]
    pub long: bool,
    /// Print sizes for people, as is done anyway
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
    /// Show all that lies below it
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// The way there by ssh
    #[command(flatten)]
    pub ssh: Ssh,
    /// The network
    #[command(flatten)]
    pub net: Net,
}

/// `swath du`
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Du {
    /// A folder or a file of a swath server, or host:path, a place where ssh leads to
    #[arg(value_name = "PLACE", value_hint = ValueHint::Url)]
    pub place: String,
    /// Print sizes for people, as is done anyway
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
    /// The way there by ssh
    #[command(flatten)]
    pub ssh: Ssh,
    /// The network
    #[command(flatten)]
    pub net: Net,
}
