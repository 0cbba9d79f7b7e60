//! The command line of `swath follow`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use crate::args::Transfer;
use crate::get::SwarmArgs;
use crate::units;

/// `swath follow`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
// Each transfer has its own end.
#[command(mut_arg("report", |it| it.hide(true)), mut_arg("no_resume", |it| it.hide(true)))]
#[command(mut_arg("keep_seeding", |it| it.hide(true)), mut_arg("ratio", |it| it.hide(true)))]
pub struct Follow {
    /// Feed that announces the versions (RSS or Atom)
    #[arg(value_name = "FEED", value_hint = ValueHint::Url)]
    pub feed: String,
    /// Keep the newest version of each dataset in this folder, as DIR/DATASET
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Follow only this dataset (repeatable) [default: all that the feed announces]
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub dataset: Vec<String>,
    /// Look at the feed this often; less often while its server fails
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = interval, value_hint = ValueHint::Other)]
    pub every: Duration,
    /// Look once, install what is new, and end
    #[arg(long)]
    pub once: bool,
    /// Install only versions that this minisign key has signed: its file, or the key itself; remembered for the feed
    #[arg(long, value_name = "PUBKEY", value_hint = ValueHint::FilePath)]
    pub trust: Option<String>,
    /// Install a version also if it is older than the one that was installed before
    #[arg(long)]
    pub allow_older: bool,
    /// Options of every transfer
    #[command(flatten)]
    pub transfer: Transfer,
    /// The swarms of torrents
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = units::time(text)?;
    match INTERVALS_S.contains(&interval.as_secs()) {
        true => Ok(interval),
        false => Err("must be between 1 second and 30 days".to_owned()),
    }
}

const INTERVALS_S: std::ops::RangeInclusive<u64> = 1..=30 * 86_400;

const EXAMPLES: &str = "\
Examples:
  swath follow https://t.example/pub/feed.rss -d /data
  swath follow https://t.example/pub/feed.rss -d /data --dataset run7 --every 1h
  swath follow https://t.example/pub/feed.rss -d /data --once         from cron
  swath follow https://t.example/pub/feed.rss -d /data --trust institute.pub

A new version is fetched into DIR/.swath-follow, with what has not changed copied from the old one.
When all of it is verified, it takes the name DIR/DATASET in one step, and the old version is removed.
An interrupted run resumes.

Exit codes:
  0 stopped by a signal, or with --once all is up to date
  others as of 'swath get'; 4 also if a signature does not match";
