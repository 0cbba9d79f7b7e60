//! Why a tree cannot be received.

use std::io;
use std::path::PathBuf;

use crate::tree::conflict::Conflict;

/// Why a tree cannot be received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartialError {
    /// The destination is there and is no folder.
    #[error("{} is no folder", .0.display())]
    NoFolder(PathBuf),
    /// The destination is a link that leads to nothing.
    #[error("{} is a link that leads to nothing", .0.display())]
    DeadLink(PathBuf),
    /// The partial folder's name is taken by something that no copy has left.
    #[error(
        "{} exists and was not created by swath: the copy needs that name until it is complete, so move it away",
        .0.display()
    )]
    Foreign(PathBuf),
    /// What lies there of an unfinished copy was left elsewhere, and came with other files.
    #[error(
        "{} tells of an unfinished copy, but not of one into this place: it came here with a tree that was copied or restored, or an earlier version of swath has left it; nothing is taken from it, and to go on {} {} to be removed",
        mark.display(), listed(all), if all.len() == 1 { "has" } else { "have" }
    )]
    Elsewhere {
        /// What says so.
        mark: PathBuf,
        /// All that came with it; at least one.
        all: Vec<PathBuf>,
    },
    /// Another process receives into the same place.
    #[error("another process is copying to {}", .0.display())]
    Locked(PathBuf),
    /// A path names nothing that could be a folder.
    #[error("{} is not a valid name for a folder", .0.display())]
    Name(PathBuf),
    /// There is less room than is needed.
    #[error(
        "{} needs {needed_bytes} bytes, but only {free_bytes} are free",
        path.display()
    )]
    NoRoom {
        /// The destination.
        path: PathBuf,
        /// What is still to be written.
        needed_bytes: u64,
        /// What the file system has for this user.
        free_bytes: u64,
    },
    /// The file system can hold fewer files than are needed.
    #[error("{} needs {needed} files and folders, but its file system has room for only {free}", path.display())]
    NoEntries {
        /// The destination.
        path: PathBuf,
        /// Files, folders and links that are still to be made.
        needed: u64,
        /// What the file system has for this user.
        free: u64,
    },
    /// Something at the destination is of another kind than what is to have its name.
    #[error("{} entries at {} are in the way", conflicts.len(), destination.display())]
    InTheWay {
        /// Where the tree goes.
        destination: PathBuf,
        /// What is there; at least one.
        conflicts: Vec<Conflict>,
    },
    /// Some folders at the destination get something new, and this user may not write into them.
    #[error("no permission to write into {} folders at {}", folders.len(), destination.display())]
    Closed {
        /// Where the tree goes.
        destination: PathBuf,
        /// Their paths below it; at least one.
        folders: Vec<Vec<u8>>,
    },
    /// The tree has what an unfinished copy left.
    #[error("{} belongs to an unfinished copy in that tree: finish that copy first, or remove it there", path.display())]
    OwnName {
        /// Where it would go.
        path: PathBuf,
    },
    /// What lies there of an unfinished copy is of another tree: a source whose disk is not there
    /// must not cost all that had come of it.
    #[error("{} is an unfinished copy of another tree: none of its files is in this one", folder.display())]
    OtherTree {
        /// Where it lies.
        folder: PathBuf,
    },
    /// [`Halt`](super::Halt) said so; what is there is kept.
    #[error("stopped")]
    Stopped,
    /// The system refuses something.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
}

/// Paths in a row, for people.
fn listed(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    match paths.split_last() {
        Some((last, [_, ..])) => format!("{} and {last}", paths[..paths.len() - 1].join(", ")),
        _ => paths.concat(),
    }
}
