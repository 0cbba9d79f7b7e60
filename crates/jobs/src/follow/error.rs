//! Why a feed cannot be followed, or a version is not installed.

use std::io;
use std::path::PathBuf;

use swath_formats::minisign::VerifyError;
use swath_publish::CheckError;
use swath_source::LaneError;

use crate::error::JobError;

/// Why a feed cannot be followed, or a version cannot be installed. The installed version stays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// The feed, the torrent or the transfer failed.
    #[error(transparent)]
    Job(#[from] JobError),
    /// Another program follows into the folder.
    #[error("another swath follows into {}", .0.display())]
    Locked(PathBuf),
    /// The state cannot be read or written.
    #[error("cannot use {}: {error}", path.display())]
    State {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The state is damaged, or of a newer version.
    #[error("{} is damaged, or of a newer version of swath", .0.display())]
    BadState(PathBuf),
    /// The feed was followed with another key before.
    #[error("the feed was followed with the key {pinned} before, not with {given}")]
    OtherKey {
        /// The key that is remembered.
        pinned: String,
        /// The key that was given.
        given: String,
    },
    /// The name of a dataset cannot be the name of a file.
    #[error("a dataset cannot have this name")]
    Name,
    /// Something that was not installed by following has the name of the dataset.
    #[error("{} exists, and was not fetched by following", .0.display())]
    InTheWay(PathBuf),
    /// The dataset is followed by another feed.
    #[error("it is followed from another feed")]
    OtherFeed,
    /// The version has no torrent.
    #[error("version {0} has no torrent")]
    NoTorrent(String),
    /// The version has no signed index.
    #[error("version {0} is not signed")]
    Unsigned(String),
    /// The index or its signature cannot be fetched.
    #[error("cannot fetch the signed index: {0}")]
    Index(#[source] LaneError),
    /// The index or its signature is none.
    #[error("the signed index of version {0} is invalid")]
    BadIndex(String),
    /// The signature does not match.
    #[error("the signature of version {version} does not prove it: {error}")]
    Signature {
        /// The version.
        version: String,
        /// Why.
        #[source]
        error: VerifyError,
    },
    /// The signed index is that of something else.
    #[error("the signed index of version {0} is that of another dataset, version or torrent")]
    OtherIndex(String),
    /// The files of the version cannot be read.
    #[error("cannot check version {version}")]
    Check {
        /// The version.
        version: String,
        /// Why.
        #[source]
        error: CheckError,
    },
    /// The files of the version are not those of the signed index.
    #[error("{wrong} of the files of version {version} do not match the signed index")]
    Mismatch {
        /// The version.
        version: String,
        /// The number of wrong files.
        wrong: u64,
    },
    /// The version was signed before one that was installed here and is gone.
    #[error("version {version} was signed before version {accepted}, which was installed before")]
    Older {
        /// The version.
        version: String,
        /// The newest one that was installed.
        accepted: String,
    },
    /// The new version cannot get its name.
    #[error("cannot replace {}: {error}", path.display())]
    Swap {
        /// The name.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}
