//! Options that users of curl, wget, aria2, rsync and scp type from habit, where swath does the same
//! anyway or has another name for it.

use clap::{Args, ValueHint};

use crate::exit::warn;

/// Of `swath get`.
#[derive(Args, Debug, Default)]
pub struct OfGet {
    /// The file gets the name that it has at the server, as is done anyway (curl)
    #[arg(short = 'O', long = "remote-name", hide = true)]
    remote_name: bool,
    /// Goes on from what is there, as is done anyway (curl)
    #[arg(short = 'C', long = "continue-at", value_name = "-", hide = true, allow_hyphen_values = true, value_parser = ["-"])]
    continue_at: Option<String>,
    /// Goes on from what is there, as is done anyway (wget, aria2)
    #[arg(short = 'c', long = "continue", hide = true)]
    continues: bool,
    /// Connections in all (aria2)
    #[arg(short = 's', long = "split", value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..=256), value_hint = ValueHint::Other)]
    pub split: Option<u32>,
    /// Follows redirects, as is done anyway (curl)
    #[arg(short = 'L', long = "location", hide = true)]
    location: bool,
    /// Shows progress, as is done anyway on a terminal
    #[arg(long, hide = true)]
    progress: bool,
    /// Compresses nothing (rsync)
    #[arg(short = 'z', long = "compress", hide = true)]
    compress: bool,
}

/// Of `swath cp`.
#[derive(Args, Debug, Default)]
pub struct OfCp {
    /// Keeps permissions, times and links, as is done anyway (rsync)
    #[arg(short = 'a', long = "archive", hide = true)]
    archive: bool,
    /// Shows progress and goes on from what is there, as is done anyway (rsync)
    #[arg(short = 'P', long, hide = true)]
    progress: bool,
    /// Compresses nothing (rsync, scp)
    #[arg(short = 'z', long = "compress", hide = true)]
    compress: bool,
}

impl OfGet {
    /// Says what an option does not do.
    pub fn explain(&self) {
        explain_compression(self.compress);
    }
}

impl OfCp {
    /// Says what an option does not do.
    pub fn explain(&self) {
        explain_compression(self.compress);
    }
}

fn explain_compression(is_wanted: bool) {
    if is_wanted {
        warn(
            "-z is not needed: swath sends bytes as they are, since compression is slower than the network for most data",
        );
    }
}
