//! Why a copy ended before its end.

use std::io;
use std::path::PathBuf;

use swath_serve::SiteError;
use swath_source::LaneError;
use swath_transfer::sending::Failed;
use swath_transfer::{FilterError, GetError, PutError, Why};

use super::names::Names;
use crate::address::AddressError;
use crate::kept::Leftover;
use crate::ssh::SshError;

/// Why places cannot be copied from or to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// There are fewer than two.
    #[error("say where from and where to")]
    NoPlaces,
    /// None of them is on this machine.
    #[error(
        "both places are on other machines, and one of the two places must be here: run swath cp on one of those machines, or copy to a folder here first and from there"
    )]
    BothElsewhere,
    /// An address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Some sources are replicas of a folder, others are not.
    #[error(
        "with '/' at their ends sources are replicas of one tree, without they are copied one after another: not both at once"
    )]
    ReplicasAndOthers,
    /// Only servers can have replicas.
    #[error(
        "{place}: only addresses of servers can be replicas; without '/' at their ends folders are copied one after another"
    )]
    NoReplica {
        /// What is none.
        place: String,
    },
    /// Two addresses have one name.
    #[error(
        "two of the sources are called '{name}': if they are replicas of one tree, put '/' at the end of each"
    )]
    AddressesAlike {
        /// Their name.
        name: String,
    },
    /// Two sources have one name.
    #[error("{place}: another one before it is called '{name}' too")]
    NameTwice {
        /// The second one.
        place: String,
        /// Their name.
        name: String,
    },
    /// It is not there.
    #[error("{place}: {error}")]
    Missing {
        /// The place.
        place: String,
        /// What the system says.
        error: io::Error,
    },
    /// It has no name of its own.
    #[error("{place} has no name: put '/' behind it to copy what lies in it")]
    NoName {
        /// The place.
        place: String,
    },
    /// Its name is no text.
    #[error("{place}: its name is no text: copy the folder in which it lies ('/' at the end)")]
    NoText {
        /// The place.
        place: String,
    },
    /// No file can have its name.
    #[error("{place}: no file can have that name here")]
    BadName {
        /// The place.
        place: String,
    },
    /// It is neither a file nor a folder.
    #[error("{} is a pipe, a socket or a device: these are not copied", path.display())]
    Special {
        /// The place.
        path: PathBuf,
    },
    /// It lies where files have no size.
    #[error(
        "{}: files there do not say how long they are, so they cannot be copied: 'cat' reads them",
        path.display()
    )]
    NoSizes {
        /// The place.
        path: PathBuf,
    },
    /// It is its own destination.
    #[error("{} would be copied onto itself", path.display())]
    OntoItself {
        /// The place.
        path: PathBuf,
    },
    /// The destination lies in it.
    #[error("{} lies in {}, which would never end", to.display(), from.display())]
    IntoItself {
        /// The source.
        from: PathBuf,
        /// The destination.
        to: PathBuf,
    },
    /// It lies in the destination, in which it would be removed.
    #[error("--delete: {} lies in {}, and would be removed", from.display(), to.display())]
    WouldRemoveSource {
        /// The source.
        from: PathBuf,
        /// The destination.
        to: PathBuf,
    },
}

/// One of several sources that cannot be copied, while the others are.
#[derive(Debug)]
pub struct Missing {
    /// What is the matter with it.
    pub why: PlaceError,
    /// Where it was to go, as it may be shown.
    pub to: String,
}

/// An option that makes no sense with what is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOption {
    /// Keeping the index.
    KeepIndex,
    /// Extended attributes.
    Xattrs,
    /// Patterns, and removing.
    Selection,
    /// Removing.
    Delete,
    /// Comparing contents.
    Checksum,
    /// Telling what would be done.
    DryRun,
    /// Whatever is for folders.
    OfFolders,
}

/// What an option makes no sense with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// This machine only sends.
    Sending,
    /// A single file.
    SingleFile,
    /// A server that takes single files by `PUT` alone.
    Put,
    /// A folder of a plain web server.
    WebFolder,
    /// What has this address is no folder of a swath server.
    NoFolder,
}

/// Why a copy ended before its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// Its places make no sense.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A pattern is none.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// An option makes no sense with it.
    #[error("{option:?} makes no sense here: {unfit:?}")]
    Option {
        /// The option.
        option: CopyOption,
        /// What it makes no sense with.
        unfit: Unfit,
        /// The address that showed that, if one did.
        address: Option<String>,
    },
    /// ssh cannot be called without a command.
    #[error("no command for ssh")]
    NoSshCommand,
    /// A server could not be started by ssh.
    #[error(transparent)]
    Ssh(#[from] SshError),
    /// What is here cannot be offered to whoever asks for it.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// Fetching failed.
    #[error("{destination}: {error}")]
    Fetch {
        /// Where it was to go.
        destination: String,
        /// What happened.
        #[source]
        error: Box<GetError>,
        /// What is kept of it.
        kept: Leftover,
        /// Places by the names that their user knows.
        names: Names,
    },
    /// No source of a single file answers.
    #[error("{destination}: no source could be used: {address}: {error}")]
    Unreachable {
        /// Where it was to go.
        destination: String,
        /// The source.
        address: String,
        /// What it says.
        #[source]
        error: Box<LaneError>,
    },
    /// The receiver says why it ended.
    #[error("{destination}: {}", .failed.error)]
    Receiver {
        /// Where it was to go.
        destination: String,
        /// What it says.
        failed: Failed,
        /// It is a single file.
        is_single: bool,
    },
    /// The connection to the receiver ended.
    #[error("{destination}: {why}")]
    Broken {
        /// Where it was to go.
        destination: String,
        /// Why.
        why: Box<Why>,
        /// How far it had come.
        progress: SendProgress,
        /// Places by the names that their user knows.
        names: Names,
    },
    /// Sending was cancelled.
    #[error("stopped")]
    SendStopped {
        /// Where it was to go.
        destination: String,
        /// The receiver had something by then.
        has_something: bool,
    },
    /// A server that takes single files did not take this one.
    #[error("{address}: {error}")]
    Put {
        /// Its address.
        address: String,
        /// What happened.
        #[source]
        error: Box<PutError>,
    },
    /// Nobody may write there.
    #[error("{address}: {error}")]
    Forbidden {
        /// The address.
        address: String,
        /// What the server says.
        #[source]
        error: Box<LaneError>,
    },
    /// Some files of a web folder cannot be looked at.
    #[error("some files cannot be looked at")]
    PlanIncomplete {
        /// Whether anything takes part.
        matches: bool,
    },
}

/// How far a copy had come when the connection to its receiver ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendProgress {
    /// The receiver refuses the place.
    Refused,
    /// Nothing was sent.
    Nothing,
    /// Something was.
    Some,
}

/// Why what is here cannot be offered to whoever asks for it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The place.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It cannot be served.
    #[error(transparent)]
    Serve(#[from] SiteError),
    /// It cannot be reached from within this process.
    #[error(transparent)]
    Address(#[from] url::ParseError),
}
