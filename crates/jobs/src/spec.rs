//! Jobs as data.
//!
//! A specification has a stable JSON form: fields and variants are added, never renamed, and every
//! added field has a default, so that a stored queue survives upgrades. Unknown fields are errors.
//!
//! Addresses may contain secrets (a signature in a query, a password), so a file of specifications
//! must be readable only by its owner. Tokens and headers are [references](SecretRef).

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use swath_model::digest::Digest;
use swath_transfer::Overwrite;

use crate::address::Address;
use crate::copy::{CopyError, CopyKind, CopyOption, Unfit};
use crate::get::ServerNames;
use crate::options::{Disk, Network, Plan, Routes};
use crate::secret::SecretRef;
use crate::text;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// The task.
    pub work: Work,
    /// The network.
    #[serde(default)]
    pub network: Network,
    /// Relays and routes.
    #[serde(default)]
    pub routes: Routes,
    /// The disk and memory.
    #[serde(default)]
    pub disk: Disk,
    /// Planning.
    #[serde(default)]
    pub plan: Plan,
    /// When it should have ended, in seconds after its begin; a note tells if that is unlikely.
    #[serde(default)]
    pub deadline_s: Option<u64>,
}

impl JobSpec {
    /// Returns a job with the usual options.
    pub fn new(work: Work) -> JobSpec {
        JobSpec {
            work,
            network: Network::default(),
            routes: Routes::default(),
            disk: Disk::default(),
            plan: Plan::default(),
            deadline_s: None,
        }
    }

    /// Returns a job that fetches one file from its replicas into a folder.
    pub fn get<A: Into<String>>(
        replicas: impl IntoIterator<Item = A>,
        folder: impl Into<PathBuf>,
    ) -> JobSpec {
        let replicas = replicas.into_iter().map(|address| Address::new(address)).collect();
        let from = GetFrom::Replicas(replicas);
        JobSpec::new(Work::Get(GetSpec::new(from, GetTo::Folder(folder.into()))))
    }
}

/// The task of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Fetch files.
    Get(GetSpec),
    /// Copy folders and files.
    Copy(CopySpec),
}

/// Fetches one file from its replicas, or the files of a Metalink or a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetSpec {
    /// The source.
    pub from: GetFrom,
    /// The destination.
    pub to: GetTo,
    /// Digests of a single file.
    #[serde(default, with = "text::list")]
    pub digests: Vec<Digest>,
    /// The checksum file of a single file.
    #[serde(default)]
    pub checksums: Option<ChecksumsFrom>,
    /// Refuse files without a known digest.
    #[serde(default)]
    pub require_digest: bool,
    /// Replace existing files. Otherwise an existing file with other content is an error.
    #[serde(default)]
    pub overwrite: bool,
    /// Resume an earlier run.
    #[serde(default = "yes")]
    pub resume: bool,
    /// Write blocks of zeros as holes.
    #[serde(default)]
    pub sparse: bool,
    /// Use sources and Metalinks that servers advertise.
    #[serde(default = "yes")]
    pub discover: bool,
    /// Files of a list that are fetched at the same time; 16 by default.
    #[serde(default)]
    pub files_at_once: Option<u16>,
    /// When a server is asked for the name of a file that has none from the user.
    #[serde(default)]
    pub server_names: ServerNames,
    /// Paths that neither files nor their partial data may overwrite.
    #[serde(default)]
    pub reserved: Vec<PathBuf>,
    /// The swarm of a torrent.
    #[serde(default)]
    pub swarm: SwarmSpec,
    /// Fetch the file together with the other machines of a cluster that have this token, and pass it on
    /// to them. Of the swarm, trackers, peers, the address to listen at and the upload rate count.
    #[serde(default)]
    pub cluster_token: Option<SecretRef>,
    /// An older version of the content of a torrent, whose unchanged pieces are reused.
    #[serde(default)]
    pub old_version: Option<OldVersion>,
    /// Fetch only the files of a torrent that match one of these patterns, as in [`CopySpec::include`];
    /// all files without any.
    #[serde(default)]
    pub select: Vec<String>,
}

/// A version of a dataset on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OldVersion {
    /// Its metafile.
    pub torrent: PathBuf,
    /// Its folder, or its only file.
    pub place: PathBuf,
}

/// How a transfer takes part in the swarm of its torrent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwarmSpec {
    /// Use mirrors only.
    pub is_off: bool,
    /// Addresses of trackers besides those of the torrent.
    pub trackers: Vec<String>,
    /// Peers to connect to, as HOST:PORT; not for private torrents.
    pub peers: Vec<String>,
    /// Where peers can connect to us; any free port of all IPv4 addresses by default.
    pub listen: Option<SocketAddr>,
    /// Let peers in by uTP too.
    pub listens_for_utp: bool,
    /// Limit of the upload rate, in bytes per second.
    pub upload_bytes_per_s: Option<u64>,
    /// Seed once all is complete.
    pub keeps_seeding: bool,
    /// Seed until so many sizes of the content were sent; for ever without it.
    pub ratio: Option<f64>,
}

impl SwarmSpec {
    /// Returns whether it asks for what only torrents have, or for what only torrents and files that
    /// machines share have.
    pub(crate) fn needs_torrent(&self, is_shared: bool) -> bool {
        let for_both = self.keeps_seeding
            || self.upload_bytes_per_s.is_some()
            || self.listen.is_some()
            || !self.peers.is_empty()
            || !self.trackers.is_empty();
        self.listens_for_utp || for_both && !is_shared
    }
}

/// NaN is refused where a ratio is read.
impl Eq for SwarmSpec {}

impl GetSpec {
    /// Returns a `GetSpec` with the usual options.
    pub fn new(from: GetFrom, to: GetTo) -> GetSpec {
        GetSpec {
            from,
            to,
            digests: Vec::new(),
            checksums: None,
            require_digest: false,
            overwrite: false,
            resume: true,
            sparse: false,
            discover: true,
            files_at_once: None,
            server_names: ServerNames::default(),
            reserved: Vec::new(),
            swarm: SwarmSpec::default(),
            cluster_token: None,
            old_version: None,
            select: Vec::new(),
        }
    }
}

/// Sources of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GetFrom {
    /// Replicas of one file, or addresses of one Metalink.
    Replicas(Vec<Address>),
    /// A local Metalink.
    Metalink(PathBuf),
    /// The content of a torrent.
    Torrent {
        /// The torrent.
        torrent: TorrentAt,
        /// Further mirrors: of the file, or of the folder that contains it.
        #[serde(default)]
        mirrors: Vec<Address>,
    },
    /// The newest version of a dataset that a feed announces.
    Feed {
        /// The feed.
        feed: Address,
        /// The name of the dataset, if the feed announces several.
        #[serde(default)]
        dataset: Option<String>,
    },
    /// A local list: one file per line, mirrors separated by tabs.
    List(PathBuf),
    /// A list from a stream; see [`Streams`](crate::Streams).
    ListStream,
}

/// Where a torrent is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TorrentAt {
    /// A local metafile.
    File(PathBuf),
    /// A metafile on a server.
    Address(Address),
    /// A magnet link.
    Magnet(String),
}

/// Destinations of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GetTo {
    /// This folder; files keep their names.
    Folder(PathBuf),
    /// This path, for one file.
    File(PathBuf),
    /// A stream, for one file; see [`Streams`](crate::Streams).
    Stream,
}

/// Checksum files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChecksumsFrom {
    /// Next to the file, if there is one.
    Beside,
    /// At this address.
    Address(Address),
    /// A local file.
    File(PathBuf),
}

/// Copies a folder or a file from or to servers, by ssh or locally; only what differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopySpec {
    /// Source and destination.
    pub kind: CopyKind,
    /// Copy only entries that match one of these patterns.
    #[serde(default)]
    pub include: Vec<String>,
    /// Skip entries that match one of these patterns, and everything below them.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// How to detect files that need no copy.
    #[serde(default)]
    pub compare: Compare,
    /// Attributes to preserve.
    #[serde(default)]
    pub preserve: Preserve,
    /// Remove destination entries that the source does not have, after all else is copied.
    #[serde(default)]
    pub delete: bool,
    /// Remove them even if the source has no file.
    #[serde(default)]
    pub allow_empty: bool,
    /// Resume an earlier run.
    #[serde(default = "yes")]
    pub resume: bool,
    /// Refuse single files of web servers without a known digest.
    #[serde(default)]
    pub require_digest: bool,
    /// Report planned changes, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Write the index and all block hashes to this file.
    #[serde(default)]
    pub keep_index: Option<PathBuf>,
    /// How ssh is run.
    #[serde(default)]
    pub ssh: Ssh,
    /// Copy a tree of a swath server together with other machines.
    #[serde(default)]
    pub cluster: Option<ClusterSpec>,
    /// Send a single file by `PUT`, also to a swath server: it replaces what is there, or is refused as the
    /// headers ask.
    #[serde(default)]
    pub by_put: bool,
    /// A known digest of the single file that is sent.
    #[serde(default, with = "text::option")]
    pub digest: Option<Digest>,
    /// Let a copy between servers go on alone once it has begun.
    #[serde(default)]
    pub detach: bool,
    /// Let the data of a copy between servers go through this machine.
    #[serde(default)]
    pub through_here: bool,
    /// How long the destination of a copy between servers may read from the sources at a time, in seconds. This
    /// is renewed while this machine follows the copy.
    #[serde(default = "grant_s")]
    pub grant_s: u64,
}

/// The destination may have to wait its turn, and large datasets take days.
fn grant_s() -> u64 {
    7 * 86_400
}

/// The machines of a cluster that run the same job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSpec {
    /// What they have in common.
    pub token: SecretRef,
    /// How they find and serve each other: trackers, peers, the address to listen at, the upload rate, and
    /// what happens at the end count.
    #[serde(default)]
    pub swarm: SwarmSpec,
}

/// How files that need no copy are detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compare {
    /// Same size and modification time.
    #[default]
    SizeAndTime,
    /// Same size and content: both sides read their files.
    Content,
    /// No comparison: every file is copied.
    Nothing,
}

/// Attributes to preserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Modification times.
    pub times: bool,
    /// Hard links.
    pub links: bool,
    /// Extended attributes whose names begin with `user.`.
    pub xattrs: bool,
}

/// How ssh is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ssh {
    /// The command with its arguments before the host.
    pub command: Vec<String>,
    /// Copy this program to the remote host if swath is not installed there.
    pub bootstrap: bool,
}

impl CopySpec {
    /// Returns a copy with the usual options.
    pub fn new(kind: CopyKind) -> CopySpec {
        CopySpec {
            kind,
            include: Vec::new(),
            exclude: Vec::new(),
            compare: Compare::default(),
            preserve: Preserve::default(),
            delete: false,
            allow_empty: false,
            resume: true,
            require_digest: false,
            dry_run: false,
            keep_index: None,
            ssh: Ssh::default(),
            cluster: None,
            by_put: false,
            digest: None,
            detach: false,
            through_here: false,
            grant_s: grant_s(),
        }
    }

    /// Checks the options, as far as possible before the copy.
    ///
    /// # Errors
    /// [`CopyError::Option`] or [`CopyError::Location`].
    pub fn check(&self) -> Result<(), CopyError> {
        if self.ssh.command.is_empty() {
            return Err(CopyError::NoSshCommand);
        }
        let is_fetched = matches!(self.kind, CopyKind::Fetch { .. } | CopyKind::FetchNamed { .. });
        if self.cluster.is_some() && !is_fetched {
            let (option, unfit) = (CopyOption::Cluster, Unfit::NoFolder);
            return Err(CopyError::Option { option, unfit, address: None });
        }
        if self.kind.sends() && self.keep_index.is_some() {
            let (option, unfit) = (CopyOption::KeepIndex, Unfit::Sending);
            return Err(CopyError::Option { option, unfit, address: None });
        }
        let is_elsewhere = matches!(self.kind, CopyKind::ThirdParty { .. });
        if is_elsewhere && self.keep_index.is_some() {
            let (option, unfit) = (CopyOption::KeepIndex, Unfit::ThirdParty);
            return Err(CopyError::Option { option, unfit, address: None });
        }
        if self.kind.is_single() {
            self.check_single()?;
        }
        Ok(self.kind.check(self.delete)?)
    }

    /// Checks for options that do not fit a single file.
    pub(crate) fn check_single(&self) -> Result<(), CopyError> {
        match self.include.is_empty() && self.exclude.is_empty() && !self.delete {
            true => Ok(()),
            false => {
                let (option, unfit) = (CopyOption::Selection, Unfit::SingleFile);
                Err(CopyError::Option { option, unfit, address: None })
            }
        }
    }

    /// Returns an option that does not fit a single file of a plain server.
    pub(crate) fn option_of_folders(&self) -> Option<CopyOption> {
        if self.preserve.xattrs {
            return Some(CopyOption::Xattrs);
        }
        if self.cluster.is_some() {
            return Some(CopyOption::Cluster);
        }
        let selects = !self.include.is_empty() || !self.exclude.is_empty() || self.delete;
        (selects || self.keep_index.is_some() || self.dry_run).then_some(CopyOption::OfFolders)
    }

    /// Returns an option that does not fit an upload by `PUT`.
    pub(crate) fn option_of_trees(&self) -> Option<CopyOption> {
        let xattrs = self.preserve.xattrs.then_some(CopyOption::Xattrs);
        xattrs.or(self.dry_run.then_some(CopyOption::DryRun))
    }
}

impl Compare {
    pub(crate) fn overwrite(self) -> Overwrite {
        match self {
            Compare::Nothing => Overwrite::Always,
            Compare::SizeAndTime | Compare::Content => Overwrite::IfOther,
        }
    }
}

impl From<Compare> for swath_transfer::Compare {
    fn from(compare: Compare) -> swath_transfer::Compare {
        match compare {
            Compare::SizeAndTime => swath_transfer::Compare::SizeAndTime,
            Compare::Content => swath_transfer::Compare::Content,
            Compare::Nothing => swath_transfer::Compare::Nothing,
        }
    }
}

impl Default for Preserve {
    fn default() -> Preserve {
        Preserve { mode: true, times: true, links: false, xattrs: false }
    }
}

impl From<Preserve> for swath_transfer::Preserve {
    fn from(Preserve { mode, times, links, xattrs }: Preserve) -> swath_transfer::Preserve {
        swath_transfer::Preserve { mode, times, links, xattrs }
    }
}

impl Default for Ssh {
    fn default() -> Ssh {
        Ssh { command: vec!["ssh".to_owned()], bootstrap: false }
    }
}

fn yes() -> bool {
    true
}
