//! The command lines of `swath ls` and `swath du`.

use clap::{ArgAction, Args, ValueHint};

use crate::args::{Net, Ssh};

/// `swath ls`
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Ls {
    /// Folder or file on a server (URL), or host:path for ssh
    #[arg(value_name = "PLACE", value_hint = ValueHint::Url)]
    pub place: String,
    /// Also show mode, size and modification time (UTC)
    #[arg(short, long)]
    pub long: bool,
    /// Print readable sizes (always on)
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
    /// List all levels below it
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// How ssh is run
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
    /// Folder or file on a server (URL), or host:path for ssh
    #[arg(value_name = "PLACE", value_hint = ValueHint::Url)]
    pub place: String,
    /// Print readable sizes (always on)
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
    /// Print JSON, one object per line; the last one has the sums
    #[arg(long)]
    pub json: bool,
    /// How ssh is run
    #[command(flatten)]
    pub ssh: Ssh,
    /// The network
    #[command(flatten)]
    pub net: Net,
}
