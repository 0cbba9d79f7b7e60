//! The command line of `swath cp`.

use std::path::PathBuf;

use crate::failure::Failure;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum, ValueHint};
use swath_jobs::copy::CopyKind;
use swath_jobs::{CopySpec, Preserve};
use swath_transfer::{Filter, FilterError, IoMode, Pin};

use crate::args::{Net, Plan, Ssh, io_mode, pin};
use crate::relays::Relays;
use crate::units;

/// Places are text: an address or a name on another machine is.
fn place() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|place| {
        place.into_string().map_err(|place| {
            let shown = place.to_string_lossy().into_owned();
            format!("'{shown}' is no text: copy the folder that it lies in, with --include")
        })
    })
}

/// `swath cp`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, override_usage = "swath cp [OPTIONS] SRC... DST")]
pub struct Cp {
    /// Where from, and last where to: addresses, host:path, or folders (and files to send) here. With '/' at its end a source means what lies in the folder, and several such addresses are replicas of one tree; without, it is copied under its own name, and several are copied one after another
    #[arg(value_name = "PLACE", required = true, value_parser = place(), value_hint = ValueHint::AnyPath)]
    pub places: Vec<String>,
    /// The way there by ssh
    #[command(flatten)]
    pub ssh: Ssh,
    /// Folders are copied with all that lies below them, as is done anyway
    #[arg(short = 'r', long, hide = true)]
    pub recursive: bool,
    /// Names that users of rsync type
    #[command(flatten)]
    pub usual: crate::usual::OfCp,
    /// Start again instead of going on from what an earlier run left
    #[arg(long)]
    pub no_resume: bool,
    /// Go on from what an earlier run left, as is done anyway
    #[arg(long, hide = true, overrides_with = "no_resume")]
    pub resume: bool,
    /// How it is seen that a file of the destination need not be copied
    #[arg(long, value_name = "HOW", default_value = "size,mtime")]
    pub compare: Compare,
    /// The same as --compare checksum
    #[arg(long, conflicts_with = "compare")]
    pub checksum: bool,
    /// Copy only what matches (repeatable): a name anywhere, or with a '/' within it a path from the tree's top
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    pub include: Vec<String>,
    /// Leave out what matches, with all that lies below it; it is not removed either (repeatable)
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    pub exclude: Vec<String>,
    /// Tell what would be copied, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Keep the index and the values of all blocks in FILE, for 'swath verify --index' (fetching only)
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run", value_hint = ValueHint::FilePath)]
    pub keep_index: Option<PathBuf>,
    /// Remove from the destination what is not in the tree, once all of the tree is there
    #[arg(long, visible_alias = "delete-after")]
    pub delete: bool,
    /// With --delete: remove all also if there is no file in the tree
    #[arg(long, requires = "delete")]
    pub allow_empty: bool,
    /// What is taken over besides bytes (comma separated)
    #[arg(long, value_name = "WHAT", default_value = "mode,times", value_delimiter = ',')]
    pub preserve: Vec<Preserved>,
    /// Refuse single files of web servers of which no digest is known
    #[arg(long)]
    pub require_digest: bool,
    /// How the transfer is planned
    #[command(flatten)]
    pub plan: Plan,
    /// The network
    #[command(flatten)]
    pub net: Net,
    /// The ways that data may take
    #[command(flatten)]
    pub routes: Relays,
    /// Take (or send) no more than this per second, over all sources
    #[arg(long, value_name = "RATE", value_parser = units::rate_above_zero, value_hint = ValueHint::Other, help_heading = "Network")]
    pub limit_rate: Option<u64>,
    /// How the disk is written; and read, where a tree is sent: not past the page cache with 'buffered'
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = io_mode(), help_heading = "Disk")]
    pub io: IoMode,
    /// Memory for buffers
    #[arg(long, value_name = "SIZE", default_value = "96M", value_parser = units::size_above_zero, value_hint = ValueHint::Other, help_heading = "Disk")]
    pub memory: u64,
    /// Where it runs: 'auto' is near the disk on machines with several memory nodes; 'off'; or processors such as 0-3,8
    #[arg(long, value_name = "PIN", default_value = "auto", value_parser = pin, value_hint = ValueHint::Other, help_heading = "Disk")]
    pub pin: Pin,
    /// Print one JSON event a line on standard output
    #[arg(long, conflicts_with = "quiet", help_heading = "Output")]
    pub json: bool,
    /// Show more of how the transfer was made: requests, connections, what came in vain; twice (-vv): what happens inside, as it happens
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet", help_heading = "Output")]
    pub verbose: u8,
    /// Print warnings and errors only
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Leave a page with charts of the transfer
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub report: Option<PathBuf>,
}

/// How it is seen that a file is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compare {
    /// Size and time of the last change are the same
    #[value(name = "size,mtime")]
    SizeMtime,
    /// Size and content are the same: both sides read what they have
    Checksum,
    /// Every file is copied
    None,
}

/// What a copy may have of its original besides bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preserved {
    /// Permission bits
    Mode,
    /// Times of the last change
    Times,
    /// Several names of one file stay names of one file
    Links,
    /// Extended attributes whose names begin with 'user.'
    Xattr,
    /// Nothing
    None,
}

impl Cp {
    /// As a job has it.
    pub fn spec(&self, kind: CopyKind) -> CopySpec {
        let compare = if self.checksum { Compare::Checksum } else { self.compare };
        CopySpec {
            kind,
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            compare: match compare {
                Compare::SizeMtime => swath_jobs::Compare::SizeAndTime,
                Compare::Checksum => swath_jobs::Compare::Content,
                Compare::None => swath_jobs::Compare::Nothing,
            },
            preserve: self.preserve(),
            delete: self.delete,
            allow_empty: self.allow_empty,
            resume: self.resume || !self.no_resume,
            require_digest: self.require_digest,
            dry_run: self.dry_run,
            keep_index: self.keep_index.clone(),
            ssh: self.ssh.spec(),
        }
    }

    /// What takes part.
    pub fn filter(&self) -> Result<Filter, Failure> {
        let usage = |error: FilterError| Failure::usage(error.to_string());
        Filter::new(&self.include, &self.exclude).map_err(usage)
    }

    /// Whether nothing is to be taken over, and something is.
    pub fn preserves_none_and_more(&self) -> bool {
        self.preserve.contains(&Preserved::None)
            && self.preserve.iter().any(|it| *it != Preserved::None)
    }

    /// What is taken over besides bytes.
    pub fn preserve(&self) -> Preserve {
        Preserve {
            mode: self.preserve.contains(&Preserved::Mode),
            times: self.preserve.contains(&Preserved::Times),
            links: self.preserve.contains(&Preserved::Links),
            xattrs: self.preserve.contains(&Preserved::Xattr),
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  swath cp https://one.example/run7/ https://two.example/run7/ /scratch/run7/
  swath cp https://one.example/run7 https://two.example/run8 /scratch/    two trees
  swath cp data/ host:/scratch/data/            by ssh; nothing need run there
  swath cp run7.h5 https://one.example:8470/incoming/    a single file
  swath cp data/ /mnt/backup/data/              here
  swath cp host:/scratch/run7 .
  swath cp data/ host:/scratch/data/ --include '*.h5' --exclude /tmp/
  swath cp https://one.example:8470/ ./data/ --fingerprint sha-256:9f86… --bearer-file token

Exit codes:
  0 complete and verified       5 the destination cannot be written
  2 wrong command line          6 an input cannot be read
  3 incomplete, goes on later   7 no source could be used
                              130 interrupted, goes on later
  8 some files are not there, or not with the extended attributes that were wanted,
    or not removed by --delete: the source had them at first, or holds no file";
