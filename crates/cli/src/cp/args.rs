//! The command line of `swath cp`.

use std::path::PathBuf;
use std::time::Duration;

use crate::failure::Failure;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, FromArgMatches as _, ValueEnum, ValueHint};
use swath_jobs::copy::CopyKind;
use swath_jobs::{CopySpec, Preserve};
use swath_transfer::{Filter, FilterError};

use super::cluster::ClusterArgs;
use crate::args::{Ssh, Transfer};
use crate::units;

/// Sources and destinations are UTF-8, like URLs and names on other machines.
fn place() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|place| {
        place.into_string().map_err(|place| {
            let shown = place.to_string_lossy().into_owned();
            format!("'{shown}' is not valid UTF-8: copy its parent folder with --include")
        })
    })
}

/// `swath cp`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, override_usage = "swath cp [OPTIONS] SRC... DST")]
pub struct Cp {
    /// Sources, then the destination: URLs, host:path, or local folders and files. SRC/ copies the contents of a folder; several URLs that end in '/' are replicas of one tree. SRC without '/' keeps its name; several are copied one after another
    #[arg(value_name = "PLACE", required = true, value_parser = place(), value_hint = ValueHint::AnyPath)]
    pub places: Vec<String>,
    /// How ssh is run
    #[command(flatten)]
    pub ssh: Ssh,
    /// Copy folders recursively (always on)
    #[arg(short = 'r', long, hide = true)]
    pub recursive: bool,
    /// Options of rsync
    #[command(flatten)]
    pub compat: crate::compat::CpCompat,
    /// Choose how to detect files that need no copy
    #[arg(long, value_name = "HOW", default_value = "size,mtime")]
    pub compare: Compare,
    /// Same as --compare checksum
    #[arg(long, conflicts_with = "compare")]
    pub checksum: bool,
    /// Copy only matching entries (repeatable): a name at any level, or with '/' in it a path from the top of the tree
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    pub include: Vec<String>,
    /// Skip matching entries and everything below them; --delete does not remove them (repeatable)
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    pub exclude: Vec<String>,
    /// Print what would be copied, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Write the index and all block hashes to FILE, for 'swath verify --index' (fetching only)
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run", value_hint = ValueHint::FilePath)]
    pub keep_index: Option<PathBuf>,
    /// Remove destination entries that the source does not have, after all else is copied
    #[arg(long, visible_alias = "delete-after")]
    pub delete: bool,
    /// With --delete: remove everything even if the source has no file
    #[arg(long, requires = "delete")]
    pub allow_empty: bool,
    /// Preserve these attributes (comma separated)
    #[arg(long, value_name = "WHAT", default_value = "mode,times", value_delimiter = ',')]
    pub preserve: Vec<Preserved>,
    /// Refuse single files of web servers without a known digest
    #[arg(long)]
    pub require_digest: bool,
    /// Between servers: print the job's name once it has begun, and end; see 'swath attach'
    #[arg(long, conflicts_with = "dry_run")]
    pub detach: bool,
    /// Between servers: let the data go through this machine
    #[arg(long, conflicts_with = "detach")]
    pub through_here: bool,
    /// Between servers: how long the destination may read from the sources at a time; renewed while this
    /// command runs
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = units::time, value_hint = ValueHint::Other)]
    pub grant_for: Duration,
    /// Say so if it may not end within this time, and what would help
    #[arg(long, value_name = "TIME", value_parser = units::deadline, value_hint = ValueHint::Other)]
    pub deadline: Option<Duration>,
    /// Options of every transfer
    #[command(flatten)]
    pub transfer: Transfer,
    /// The machines of a cluster that copy the same
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// How a file is found to need no copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compare {
    /// Same size and modification time
    #[value(name = "size,mtime")]
    SizeMtime,
    /// Same size and content: both sides read their files
    Checksum,
    /// Copy every file
    None,
}

/// Attributes that a copy may preserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preserved {
    /// Permission bits
    Mode,
    /// Modification times
    Times,
    /// Hard links
    Links,
    /// Extended attributes whose names begin with 'user.'
    Xattr,
    /// Nothing
    None,
}

impl Cp {
    /// Returns a command without options of its own.
    pub fn bare(place: String, transfer: Transfer) -> Cp {
        let command = Cp::augment_args(clap::Command::new("cp"));
        let matches = command.get_matches_from(["cp", &place, "."]);
        let bare = Cp::from_arg_matches(&matches).expect("a command with its two places");
        Cp { places: vec![place], transfer, ..bare }
    }

    /// Returns the specification of a job.
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
            resume: self.transfer.resumes(),
            require_digest: self.require_digest,
            dry_run: self.dry_run,
            keep_index: self.keep_index.clone(),
            ssh: self.ssh.spec(),
            cluster: self.cluster.spec(),
            by_put: false,
            digest: None,
            detach: self.detach,
            through_here: self.through_here,
            grant_s: self.grant_for.as_secs().max(1),
        }
    }

    /// Returns the filter of `--include` and `--exclude`.
    pub fn filter(&self) -> Result<Filter, Failure> {
        let usage = |error: FilterError| Failure::usage(error.to_string());
        Filter::new(&self.include, &self.exclude).map_err(usage)
    }

    /// Whether `--preserve` combines `none` with something else.
    pub fn preserves_none_and_more(&self) -> bool {
        self.preserve.contains(&Preserved::None)
            && self.preserve.iter().any(|it| *it != Preserved::None)
    }

    /// Returns the attributes to preserve.
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
  swath cp https://one.example/run7/ https://two.example/run7/    from server to server
  swath cp data/ host:/scratch/data/            by ssh; no server needed
  swath cp run7.h5 https://one.example:8470/incoming/    a single file
  swath cp data/ /mnt/backup/data/              local copy
  swath cp host:/scratch/run7 .
  swath cp https://one.example/run7/ /scratch/run7/ --share --cluster-token @secret --peers node1,node2
  swath cp data/ host:/scratch/data/ --include '*.h5' --exclude /tmp/
  swath cp https://one.example:8470/ ./data/ --fingerprint sha-256:9f86… --bearer-file token

Exit codes:
  0 complete and verified       5 cannot write the destination
  2 wrong command line          6 cannot read an input
  3 incomplete, can resume      7 no usable source
                              130 interrupted, can resume
  8 some files or extended attributes were not copied, or --delete removed nothing
    because the source listed fewer files than before, or none";
