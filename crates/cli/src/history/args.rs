//! The command lines of `swath history`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// `swath history`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true, subcommand_value_name = "COMMAND", after_long_help = EXAMPLES)]
pub struct History {
    /// Subcommand
    #[command(subcommand)]
    pub command: Option<HistoryCommand>,
    /// Show only transfers from or to this URL or site (such as data.example)
    #[arg(value_name = "SITE", value_hint = ValueHint::Url)]
    pub site: Option<String>,
    /// Show at most this many, the newest (default: 30 in the table, all with --json and --csv)
    #[arg(long, value_name = "N", value_hint = ValueHint::Other)]
    pub last: Option<usize>,
    /// Print them as JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// Print the complete ones as CSV, for 'swath history import'
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Draw them to FILE: how fast they were, and how far off their forecasts
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
}

/// Subcommands of `swath history`.
#[derive(Debug, Subcommand)]
pub enum HistoryCommand {
    /// Learn from the logs of other programs
    Import(Import),
    /// Forget all transfers, or those from and to some sites
    Forget(Forget),
}

/// `swath history import`
#[derive(Args, Debug)]
#[command(after_long_help = IMPORT_EXAMPLES)]
pub struct Import {
    /// Logs as CSV or JSON, also compressed with gzip (NAME.gz)
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
}

/// `swath history forget`
#[derive(Args, Debug)]
#[command(after_long_help = FORGET_CODES)]
pub struct Forget {
    /// Sites to forget: data.example, data.example:443 or a URL; without one, all transfers
    #[arg(value_name = "SITE", value_hint = ValueHint::Url)]
    pub sites: Vec<String>,
}

/// Shown below the help of `swath history` and in its man page.
const EXAMPLES: &str = "\
Examples:
  swath history
  swath history data.example --last 100
  swath history --csv > transfers.csv
  swath history data.example --svg history.svg
  swath history import old-transfers.csv.gz
  swath history forget data.example

Exit codes:
  0 shown                     5 cannot write the picture
  1 internal error            6 cannot read the history
  2 wrong command line";

/// Shown below the help of `swath history import`.
const IMPORT_EXAMPLES: &str = "\
JSON is read as 'globus task list --format json', FTS and 'swath history --json' print it. The first
line of a CSV file names its columns. Needed are the start, the duration or the end, and the size:
  begin      start, start_s, start_time, begin (seconds since 1970, or 2026-11-29T10:00:00Z), start_ms
  end        end, end_s, end_time, end_ms (as begin)
  duration   duration, duration_s, elapsed_s, took_s, elap, elapsed_ms, duration_ms
  size       bytes, size, size_bytes, fsz, size_mb
  others     files; from, source, src; to, destination, dst; kind

Examples:
  swath history import transfers.csv
  swath history import 2024.csv.gz 2025.csv.gz
  globus task list --limit 1000 --format json > tasks.json && swath history import tasks.json

Exit codes:
  0 imported, except lines that cannot be used     5 cannot change the history
  1 internal error                                 6 cannot read a log, or use any of it
  2 wrong command line";

/// Shown below the help of `swath history forget`.
const FORGET_CODES: &str = "\
Exit codes:
  0 forgotten, or nothing was remembered     2 wrong command line
  1 internal error                           5 cannot change the history";
