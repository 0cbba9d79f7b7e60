//! Why a command failed: its exit code, the error and hints.

use std::fmt;
use std::path::Path;

use swath_jobs::{
    AddressError, ChecksumsError, EntryError, FeedError, FileError, JobError, MetalinkError,
    SecretError, SpecError, TorrentError,
};
use swath_source::{NetError, TokenError};
use swath_transfer::EngineError;

use crate::exit::{self, Exit, chain};
use crate::progress::units;
use crate::say::word;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The error.
    pub what: String,
    /// What the user can do, one line each.
    hints: Vec<String>,
}

impl Failure {
    /// Returns a failure without hints.
    pub fn new(exit: Exit, what: impl Into<String>) -> Failure {
        Failure { exit, what: what.into(), hints: Vec::new() }
    }

    /// Returns a failure of a wrong command line.
    pub fn usage(what: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, what)
    }

    /// Returns a failure of an unreadable input.
    pub fn input(what: impl Into<String>) -> Failure {
        Failure::new(Exit::Input, what)
    }

    /// Returns a failure of all sources.
    pub fn sources(what: impl Into<String>) -> Failure {
        Failure::new(Exit::Sources, what)
    }

    /// Says what it is about.
    pub fn of(self, name: &str) -> Failure {
        Failure { what: format!("{name}: {}", self.what), ..self }
    }

    /// Adds a hint.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        self.hints([hint])
    }

    /// Adds hints.
    pub fn hints<H: Into<String>>(mut self, hints: impl IntoIterator<Item = H>) -> Failure {
        self.hints.extend(hints.into_iter().map(Into::into));
        self
    }

    /// Prints the failure and returns the exit code.
    pub fn tell(&self) -> Exit {
        crate::exit::tell(self.exit, &self.to_string());
        crate::say::error(&self.what);
        self.hints.iter().for_each(|hint| crate::say::hint(hint));
        self.exit
    }
}

/// In one line, with the hints.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.hints.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Failure {
        match error {
            JobError::Stopped => Failure::new(Exit::Interrupted, error.to_string()),
            JobError::NothingToMeasure | JobError::NothingCame { .. } => {
                Failure::sources(error.to_string())
            }
            JobError::Spec(error) => error.into(),
            JobError::Address(error) => error.into(),
            JobError::Secret(error) => error.into(),
            JobError::Engine(error) => error.into(),
            JobError::Metalink(ref inner) => Failure::new(exit_of_metalink(inner), chain(&error)),
            JobError::Feed(FeedError::Fetch { .. }) => Failure::sources(chain(&error)),
            JobError::Feed(FeedError::Several { .. }) => {
                Failure::usage(chain(&error)).hint("name one: --latest NAME")
            }
            JobError::Feed(_) => Failure::input(chain(&error)),
            JobError::Torrent(TorrentError::NoPeers) => {
                Failure::input(chain(&error)).hint("name one: --tracker URL or --peer HOST:PORT")
            }
            JobError::Torrent(TorrentError::MagnetWithoutPeers) => Failure::usage(chain(&error))
                .hint("leave out --no-peers, or name the torrent file instead of the link"),
            JobError::Torrent(TorrentError::PeerPort(_)) => {
                Failure::usage(chain(&error)).hint("the peer of a torrent is HOST:PORT")
            }
            JobError::Torrent(TorrentError::NoSources) => Failure::usage(chain(&error)).hint(
                "name a mirror (swath get TORRENT URL), or a peer or tracker (--peer HOST:PORT, --tracker URL) without --no-peers",
            ),
            JobError::Torrent(TorrentError::Fetch { .. } | TorrentError::NoMetadata { .. }) => {
                Failure::sources(chain(&error))
            }
            JobError::Torrent(TorrentError::InSegments { ref folder, .. }) => {
                let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
                let address = url::Url::from_file_path(&folder).map(|url| url.to_string());
                let address = address.unwrap_or_else(|()| folder.display().to_string());
                Failure::new(Exit::Target, chain(&error)).hint(format!(
                    "nothing was changed; to join them, fetch into another folder and add the mirror {address}: segments that are right are copied"
                ))
            }
            JobError::Torrent(_) => Failure::input(chain(&error)),
            JobError::Checksums(ChecksumsError::Fetch { .. }) => Failure::sources(chain(&error)),
            JobError::List { .. } | JobError::Checksums(_) => Failure::input(chain(&error)),
            JobError::Copy(error) => crate::cp::failure(*error),
            JobError::Transfer { name, error, kept } => {
                let what = exit::about(&name, &exit::words_of_all(&error));
                Failure::new(exit::of(&error, kept.received_bytes), what)
            }
            error => Failure::new(Exit::Some, error.to_string()),
        }
    }
}

fn exit_of_metalink(error: &MetalinkError) -> Exit {
    match error {
        MetalinkError::Fetch { .. } | MetalinkError::Late { .. } => Exit::Sources,
        _ => Exit::Input,
    }
}

impl From<AddressError> for Failure {
    fn from(error: AddressError) -> Failure {
        Failure::usage(error.to_string())
    }
}

impl From<NetError> for Failure {
    fn from(error: NetError) -> Failure {
        Failure::input(error.to_string())
    }
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Failure {
        Failure::input(error.to_string())
    }
}

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Failure {
        Failure::input(error.to_string())
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        match error {
            EngineError::Memory { wanted_bytes, least_bytes, most_bytes } => {
                Failure::usage(format!(
                    "--memory: cannot use {}: at least {} is needed, and this machine has {} available",
                    units::bytes(wanted_bytes as u64),
                    units::bytes(least_bytes as u64),
                    units::bytes(most_bytes as u64)
                ))
            }
            EngineError::Thread(error) => crate::threads::failure(&error),
            error => Failure::input(chain(&error)),
        }
    }
}

/// Names the options that the specification was made from.
impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Failure {
        // Whoever names a folder wants it copied.
        let hint = match &error {
            SpecError::NoName { name, why: None } => copy_of(name),
            _ => None,
        };
        let failure = Failure::usage(match error {
            SpecError::SeveralToOne { name, count } => {
                format!("{name} lists {count} files: use -d DIR instead of -o")
            }
            SpecError::SelectedToOne { name, count } => format!(
                "{count} files of {name} are selected: use -d DIR instead of -o, or select one"
            ),
            SpecError::LinkToFile { file } => {
                format!("{file} is a link to another file of the torrent: use -d DIR instead of -o")
            }
            SpecError::SharedPieces { file } => format!(
                "the pieces of {file} also hold bytes of other files, as in v1 torrents: use -d DIR instead of -o"
            ),
            SpecError::DigestOfSeveral { name, count } => {
                format!("{name} lists {count} files: --digest is for a single file")
            }
            SpecError::ListToOne => {
                "a list may contain several files: use -d DIR instead of -o".to_owned()
            }
            SpecError::NoName { name, why } => {
                let why = why.map_or("does not name a file".to_owned(), |why| why.to_string());
                format!("{name} {why}; choose a name with -o FILE")
            }
            SpecError::Contradiction { one, other } => {
                format!("--digest: {one} and {other} contradict each other")
            }
            SpecError::ChecksumsOfMetalink => {
                "--checksums is for the URL of a file: a Metalink has its own digests".to_owned()
            }
            SpecError::SelectWithoutTorrent => {
                "--select is for the files of a torrent: give a torrent, or a feed that announces one"
                    .to_owned()
            }
            SpecError::Reserved { path, .. } => format!(
                "the report {} would overwrite the file or its partial data: choose another name for --report",
                path.display()
            ),
            error => error.to_string(),
        });
        failure.hints(hint)
    }
}

/// Returns the command that copies the folder at this address.
fn copy_of(address: &str) -> Option<String> {
    let (host, path) = address.split_once("://")?.1.split_once('/')?;
    let name = path.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let to = name.or(host.split(':').next()).filter(|name| name.chars().all(is_plain))?;
    Some(format!("'swath cp {} ./{to}/' copies the folder", word(Path::new(address))))
}

/// Returns the exit code and the error of a failed file of a list.
pub fn of_file(error: &FileError) -> (Exit, String) {
    match error {
        FileError::Entry(EntryError::List(error)) => (Exit::Input, chain(error)),
        FileError::Entry(_) | FileError::Headers(_) => (Exit::Input, error.to_string()),
        FileError::Transfer { error, kept } => {
            (exit::of(error, kept.received_bytes), exit::words_of_all(error))
        }
        error => (Exit::Internal, error.to_string()),
    }
}
