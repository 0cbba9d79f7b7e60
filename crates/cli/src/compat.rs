//! Accepts options of curl, wget, aria2, rsync and scp that swath does anyway or calls differently.

use clap::{Args, ValueHint};

use crate::exit::warn;

/// Of `swath get`.
#[derive(Args, Debug, Default)]
pub struct GetCompat {
    /// Keep the server's file name (always on; curl)
    #[arg(short = 'O', long = "remote-name", hide = true)]
    remote_name: bool,
    /// Take the server's name for the file (curl)
    #[arg(short = 'J', long = "remote-header-name", hide = true)]
    remote_header_name: bool,
    /// Take the server's name for the file (wget)
    #[arg(long, hide = true)]
    content_disposition: bool,
    /// Resume (always on; curl)
    #[arg(short = 'C', long = "continue-at", value_name = "-", hide = true, allow_hyphen_values = true, value_parser = ["-"])]
    continue_at: Option<String>,
    /// Resume (always on; wget, aria2)
    #[arg(short = 'c', long = "continue", hide = true)]
    continues: bool,
    /// Open this many connections in total (aria2)
    #[arg(short = 's', long = "split", value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..=256), value_hint = ValueHint::Other)]
    pub split: Option<u32>,
    /// Follow redirects (always on; curl)
    #[arg(short = 'L', long = "location", hide = true)]
    location: bool,
    /// Show progress (always on in a terminal)
    #[arg(long, hide = true)]
    progress: bool,
    /// No effect (rsync)
    #[arg(short = 'z', long = "compress", hide = true)]
    compress: bool,
}

/// Of `swath cp`.
#[derive(Args, Debug, Default)]
pub struct CpCompat {
    /// Preserve permissions, times and links (always on; rsync)
    #[arg(short = 'a', long = "archive", hide = true)]
    archive: bool,
    /// Show progress and resume (always on; rsync)
    #[arg(short = 'P', long, hide = true)]
    progress: bool,
    /// No effect (rsync, scp)
    #[arg(short = 'z', long = "compress", hide = true)]
    compress: bool,
}

impl GetCompat {
    /// Whether the server's name for the file is wanted.
    pub fn takes_servers_name(&self) -> bool {
        self.remote_header_name || self.content_disposition
    }

    /// Says what an option does not do.
    pub fn explain(&self) {
        explain_compression(self.compress);
    }
}

impl CpCompat {
    /// Says what an option does not do.
    pub fn explain(&self) {
        explain_compression(self.compress);
    }
}

fn explain_compression(is_wanted: bool) {
    if is_wanted {
        warn(
            "-z has no effect: swath does not compress, because for most data compression is slower than the network",
        );
    }
}
