//! What a job is to do, as data.
//!
//! A specification has a stable JSON form: fields and variants are added, never renamed, and every
//! field that is added has a default, so that a queue on disk outlives an upgrade. A field that is
//! not known is refused: it would be a wish that nobody follows.
//!
//! Addresses may hold what opens them (a signature in a query, a password), so a file of
//! specifications belongs to its owner alone. Tokens and headers are [references](SecretRef).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use swath_model::digest::Digest;
use swath_transfer::Overwrite;

use crate::address::Address;
use crate::copy::{CopyError, CopyKind, CopyOption, Unfit};
use crate::options::{Disk, Network, Plan, Routes};
use crate::text;

#[cfg(doc)]
use crate::SecretRef;

/// A job: what is to be done, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// What is to be done.
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

/// What is to be done.
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
    /// Where from.
    pub from: GetFrom,
    /// Where to.
    pub to: GetTo,
    /// What a single file must come to.
    #[serde(default, with = "text::list")]
    pub digests: Vec<Digest>,
    /// Where more digests of a single file are.
    #[serde(default)]
    pub checksums: Option<ChecksumsFrom>,
    /// Refuse files of which no digest is known.
    #[serde(default)]
    pub require_digest: bool,
    /// Replace files that are there already. Otherwise a file that is there and is another one is
    /// an error.
    #[serde(default)]
    pub overwrite: bool,
    /// Go on from what an earlier run left.
    #[serde(default = "yes")]
    pub resume: bool,
    /// Leave blocks of zeros out of files as holes.
    #[serde(default)]
    pub sparse: bool,
    /// Use sources and Metalinks that servers name.
    #[serde(default = "yes")]
    pub discover: bool,
    /// Files of a list that are fetched at the same time; without, the usual 16.
    #[serde(default)]
    pub files_at_once: Option<u16>,
    /// Paths that no file may be written over; neither may what swath keeps beside a file.
    #[serde(default)]
    pub reserved: Vec<PathBuf>,
}

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
            reserved: Vec::new(),
        }
    }
}

/// Where files come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GetFrom {
    /// Replicas of one file; or one Metalink, by one or more addresses.
    Replicas(Vec<Address>),
    /// A Metalink on the disk.
    Metalink(PathBuf),
    /// A list on the disk: one file a line, its mirrors separated by tabs.
    List(PathBuf),
    /// A list that whoever starts the job hands over; see [`Streams`](crate::Streams).
    ListStream,
}

/// Where files go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GetTo {
    /// Into this folder, under their own names.
    Folder(PathBuf),
    /// One file, under this name.
    File(PathBuf),
    /// One file, in order, to what whoever starts the job hands over; see
    /// [`Streams`](crate::Streams).
    Stream,
}

/// Where digests of a file are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChecksumsFrom {
    /// In a checksum file beside the file, if there is one.
    Beside,
    /// In a checksum file at this address.
    Address(Address),
    /// In a checksum file on the disk.
    File(PathBuf),
}

/// Copies a folder or a file: from servers, to a server, by ssh, or within this machine; only what
/// differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopySpec {
    /// What is copied, and where to.
    pub kind: CopyKind,
    /// Copy only what matches one of these patterns.
    #[serde(default)]
    pub include: Vec<String>,
    /// Leave out what matches one of these patterns, with all that lies below it.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// How it is seen that a file need not be copied.
    #[serde(default)]
    pub compare: Compare,
    /// What is taken over besides bytes.
    #[serde(default)]
    pub preserve: Preserve,
    /// Remove from the destination what is not in the source, once all of that is there.
    #[serde(default)]
    pub delete: bool,
    /// Do so also if there is no file in the source.
    #[serde(default)]
    pub allow_empty: bool,
    /// Go on from what an earlier run left.
    #[serde(default = "yes")]
    pub resume: bool,
    /// Refuse single files of web servers of which no digest is known.
    #[serde(default)]
    pub require_digest: bool,
    /// Tell what would be done, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Keep the index and the values of all blocks in this file.
    #[serde(default)]
    pub keep_index: Option<PathBuf>,
    /// How ssh is called.
    #[serde(default)]
    pub ssh: Ssh,
}

/// How it is seen that a file is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compare {
    /// Size and time of the last change are the same.
    #[default]
    SizeAndTime,
    /// Size and content are the same: both sides read what they have.
    Content,
    /// It is not looked at: every file is copied.
    Nothing,
}

/// What a copy has of its original besides bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Times of the last change.
    pub times: bool,
    /// Several names of one file stay names of one file.
    pub links: bool,
    /// Extended attributes whose names begin with `user.`.
    pub xattrs: bool,
}

/// How ssh is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ssh {
    /// The command, and what it is given before the host.
    pub command: Vec<String>,
    /// Put this program on the other side if there is none.
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
        }
    }

    /// Looks whether the options fit what is copied, as far as that can be seen beforehand.
    ///
    /// # Errors
    /// [`CopyError::Option`] or [`CopyError::Place`].
    pub fn check(&self) -> Result<(), CopyError> {
        if self.ssh.command.is_empty() {
            return Err(CopyError::NoSshCommand);
        }
        if self.kind.sends() && self.keep_index.is_some() {
            let (option, unfit) = (CopyOption::KeepIndex, Unfit::Sending);
            return Err(CopyError::Option { option, unfit, address: None });
        }
        if self.kind.is_single() {
            self.check_single()?;
        }
        Ok(self.kind.check(self.delete)?)
    }

    /// Looks for what makes no sense with a single file, however it is copied.
    pub(crate) fn check_single(&self) -> Result<(), CopyError> {
        match self.include.is_empty() && self.exclude.is_empty() && !self.delete {
            true => Ok(()),
            false => {
                let (option, unfit) = (CopyOption::Selection, Unfit::SingleFile);
                Err(CopyError::Option { option, unfit, address: None })
            }
        }
    }

    /// What makes no sense with a single file of a plain server.
    pub(crate) fn option_of_folders(&self) -> Option<CopyOption> {
        if self.preserve.xattrs {
            return Some(CopyOption::Xattrs);
        }
        let selects = !self.include.is_empty() || !self.exclude.is_empty() || self.delete;
        (selects || self.keep_index.is_some() || self.dry_run).then_some(CopyOption::OfFolders)
    }

    /// What makes no sense with a server that takes single files by `PUT` alone.
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
