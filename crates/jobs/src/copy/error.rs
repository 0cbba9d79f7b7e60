//! Errors of copies.

use std::io;
use std::path::PathBuf;

use swath_formats::delegation::ShortToken;
use swath_serve::SiteError;
use swath_source::LaneError;
use swath_transfer::sending::Failed;
use swath_transfer::{FilterError, GetError, PutError, RemoteCopyError, Why};

use super::names::DisplayNames;
use crate::address::AddressError;
use crate::kept::KeptData;
use crate::ssh::SshError;

/// Why a source or a destination cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocationError {
    /// Fewer than two places.
    #[error("a source and a destination are needed")]
    NoPlaces,
    /// Several replicas, to a host reached by ssh.
    #[error(
        "several replicas of a tree go to a local folder or a URL: name one of them, or run swath cp on the other machine"
    )]
    ReplicasBySsh,
    /// Invalid address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Sources with and without '/' at the end.
    #[error(
        "either all sources end in '/' (replicas of one tree) or none does (copied one after another)"
    )]
    ReplicasAndOthers,
    /// A replica that is not on a server.
    #[error("{0}: only URLs can be replicas; to copy several folders, omit the final '/'")]
    NoReplica(String),
    /// Two URLs with the same name.
    #[error("two sources are called '{0}': if they are replicas of one tree, end each with '/'")]
    AddressesAlike(String),
    /// Two sources with the same name.
    #[error("{place}: an earlier source is also called '{name}'")]
    NameTwice {
        /// The second source.
        place: String,
        /// Their name.
        name: String,
    },
    /// It does not exist.
    #[error("{place}: {error}")]
    Missing {
        /// The place.
        place: String,
        /// The error of the system.
        error: io::Error,
    },
    /// It has no name.
    #[error("{0} has no name: end it with '/' to copy its contents")]
    NoName(String),
    /// Its name is not UTF-8.
    #[error("{0}: the name is not valid UTF-8: copy its folder (with '/' at the end)")]
    NoText(String),
    /// Its name is invalid.
    #[error("{0}: invalid file name")]
    BadName(String),
    /// Neither a file nor a folder.
    #[error("{} is a pipe, a socket or a device, which cannot be copied", .0.display())]
    Special(PathBuf),
    /// On a file system without file sizes.
    #[error(
        "{}: this file system does not report file sizes: use 'cat' to read its files",
        .0.display()
    )]
    NoSizes(PathBuf),
    /// Source and destination are the same file.
    #[error("{} is both source and destination", .0.display())]
    OntoItself(PathBuf),
    /// The destination is below the source.
    #[error("the destination {} is inside the source {}", to.display(), from.display())]
    IntoItself {
        /// The source.
        from: PathBuf,
        /// The destination.
        to: PathBuf,
    },
    /// The source is below the destination and would be removed.
    #[error("--delete would remove the source {}, which is inside the destination {}", from.display(), to.display())]
    WouldRemoveSource {
        /// The source.
        from: PathBuf,
        /// The destination.
        to: PathBuf,
    },
}

/// One of several sources that cannot be copied.
#[derive(Debug)]
pub struct MissingSource {
    /// The error.
    pub why: LocationError,
    /// The destination without secrets.
    pub to: String,
}

/// Options that do not fit every copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOption {
    /// `keep_index`.
    KeepIndex,
    /// `preserve.xattrs`.
    Xattrs,
    /// `include`, `exclude` and `delete`.
    Selection,
    /// `delete`.
    Delete,
    /// `compare` by content.
    Checksum,
    /// `dry_run`.
    DryRun,
    /// `cluster`.
    Cluster,
    /// `detach`.
    Detach,
    /// All options for folders.
    OfFolders,
}

/// Copies that an option does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// This machine sends.
    Sending,
    /// Another server fetches.
    ThirdParty,
    /// A server that ends with its ssh connection.
    Ssh,
    /// A single file.
    SingleFile,
    /// A server that only accepts single files by `PUT`.
    Put,
    /// A folder of a plain web server.
    WebFolder,
    /// The address is not a folder on a swath server.
    NoFolder,
}

/// Why a copy failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// Invalid source or destination.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// Invalid pattern.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// An option does not fit the copy.
    #[error("{option:?} cannot be used here: {unfit:?}")]
    Option {
        /// The option.
        option: CopyOption,
        /// The kind of copy.
        unfit: Unfit,
        /// The address of the source or destination, if it is known.
        address: Option<String>,
    },
    /// The ssh command is empty.
    #[error("the ssh command is empty")]
    NoSshCommand,
    /// A server could not be started by ssh.
    #[error(transparent)]
    Ssh(#[from] SshError),
    /// The source cannot be served.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// Fetching failed.
    #[error("{destination}: {error}")]
    Fetch {
        /// The destination.
        destination: String,
        /// The error.
        #[source]
        error: Box<GetError>,
        /// The kept data.
        kept: KeptData,
        /// The names that the user knows.
        names: DisplayNames,
    },
    /// The source of a single file does not answer.
    #[error("{destination}: no source could be used: {address}: {error}")]
    Unreachable {
        /// The destination.
        destination: String,
        /// The source.
        address: String,
        /// Its error.
        #[source]
        error: Box<LaneError>,
    },
    /// The receiver failed.
    #[error("{destination}: {}", .failed.error)]
    Receiver {
        /// The destination.
        destination: String,
        /// Its error.
        failed: Failed,
        /// It is a single file.
        is_single: bool,
    },
    /// The connection to the receiver broke.
    #[error("{destination}: {why}")]
    Broken {
        /// The destination.
        destination: String,
        /// The error.
        why: Box<Why>,
        /// The progress before.
        progress: SendProgress,
        /// The names that the user knows.
        names: DisplayNames,
    },
    /// Sending was cancelled.
    #[error("stopped")]
    SendStopped {
        /// The destination.
        destination: String,
        /// The receiver had received something.
        has_something: bool,
    },
    /// The user does not want to see more of a copy that a server carries out.
    #[error("stopped")]
    StoppedLooking {
        /// The server.
        destination: String,
    },
    /// A server refused a single file.
    #[error("{address}: {error}")]
    Put {
        /// Its address.
        address: String,
        /// The error.
        #[source]
        error: Box<PutError>,
    },
    /// The destination does not fetch from other servers.
    #[error("{address}: {error}")]
    NoThirdParty {
        /// The destination.
        address: String,
        /// Its error.
        #[source]
        error: Box<LaneError>,
    },
    /// A server did not copy a file from or to another one.
    #[error("{address}: {error}")]
    Remote {
        /// The destination.
        address: String,
        /// The error.
        #[source]
        error: Box<RemoteCopyError>,
    },
    /// A folder of a server of others cannot be listed.
    #[error("{address}: no listing of the folder: {why}")]
    NoListing {
        /// Its address.
        address: String,
        /// Why.
        why: Box<Why>,
    },
    /// A folder of a server of others cannot be sent through this machine.
    #[error("{address} is a folder of a plain web server")]
    WebFolderThrough {
        /// Its address.
        address: String,
    },
    /// What opens a source cannot be given to the destination.
    #[error("{address}: {why}")]
    NotDelegated {
        /// The source.
        address: String,
        /// Why.
        why: NotDelegated,
    },
    /// Writing is forbidden.
    #[error("{address}: {error}")]
    Forbidden {
        /// The address.
        address: String,
        /// The server's error.
        #[source]
        error: Box<LaneError>,
    },
    /// Some files of a web folder cannot be queried.
    #[error("some files cannot be queried")]
    PlanIncomplete {
        /// Whether the filter selects anything.
        matches: bool,
    },
}

/// Why what opens a source cannot be given to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotDelegated {
    /// The token is too short.
    #[error(transparent)]
    Short(#[from] ShortToken),
    /// Anybody on the way could read it.
    #[error("a token is not sent without encryption")]
    Plain,
    /// Only the user's own headers open it.
    #[error("headers of this machine open it, which another server must not have")]
    Headers,
    /// The source does not keep it, and could not check what is made of it.
    #[error("its token is that of an issuer, from which no right for another server can be made")]
    Issued,
    /// It would stay valid there.
    #[error("its token is the user's own, which no other server must have")]
    Lasting,
}

/// The progress of a copy whose connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendProgress {
    /// The receiver refused the destination.
    Refused,
    /// Nothing was sent.
    Nothing,
    /// Something was sent.
    Some,
}

/// Why a local source cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The place.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// It cannot be served.
    #[error(transparent)]
    Serve(#[from] SiteError),
    /// Its address is invalid.
    #[error(transparent)]
    Address(#[from] url::ParseError),
}
