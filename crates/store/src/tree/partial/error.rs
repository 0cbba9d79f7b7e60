//! Why a tree cannot be received.

use std::io;
use std::path::PathBuf;

use swath_model::path::visible;

use crate::tree::alike::Pair;
use crate::tree::conflict::Conflict;

/// Why a tree cannot be received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartialError {
    /// The destination exists and is not a folder.
    #[error("{} is not a folder", .0.display())]
    NoFolder(PathBuf),
    /// The destination is a link that leads to nothing.
    #[error("{} is a link that leads to nothing", .0.display())]
    DeadLink(PathBuf),
    /// A folder of the path is a link, and that part of the path was not chosen by the user.
    #[error("{} is a symbolic link: links below {} are not followed", link.display(), boundary.display())]
    LinkOnTheWay {
        /// The link.
        link: PathBuf,
        /// The folder that the user named.
        boundary: PathBuf,
    },
    /// Something not left by a copy has the partial folder's name.
    #[error(
        "{} exists and was not created by swath: the copy needs that name until it is complete, so move it away",
        .0.display()
    )]
    Foreign(PathBuf),
    /// An unfinished copy's files lie there, but came from elsewhere with other files.
    #[error(
        "{} belongs to an unfinished copy into another place: it came with a copied or restored tree, or from an earlier version of swath; nothing of it was used; to continue, remove {}",
        mark.display(), listed(all)
    )]
    Elsewhere {
        /// The mark that shows it.
        mark: PathBuf,
        /// Everything that came with it; at least one path.
        all: Vec<PathBuf>,
    },
    /// Another process receives into the same place.
    #[error("another process is copying to {}", .0.display())]
    Locked(PathBuf),
    /// The files cannot lie in one folder.
    #[error("the files for {} cannot be listed: {source}", folder.display())]
    Files {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with their names.
        source: swath_model::index::IndexError,
    },
    /// The path cannot name a folder.
    #[error("{} is not a valid name for a folder", .0.display())]
    Name(PathBuf),
    /// There is not enough space.
    #[error(
        "{} needs {needed_bytes} bytes, but only {free_bytes} are free",
        path.display()
    )]
    NoRoom {
        /// The destination.
        path: PathBuf,
        /// Bytes still to be written.
        needed_bytes: u64,
        /// Bytes that the file system has for this user.
        free_bytes: u64,
    },
    /// The file system can hold fewer files than are needed.
    #[error("{} needs {needed} files and folders, but its file system has room for only {free}", path.display())]
    NoEntries {
        /// The destination.
        path: PathBuf,
        /// Files, folders and links still to be made.
        needed: u64,
        /// Entries that the file system has for this user.
        free: u64,
    },
    /// Entries at the destination have another kind than those that need their names.
    #[error("{} entries at {} are in the way", conflicts.len(), destination.display())]
    InTheWay {
        /// Where the tree goes.
        destination: PathBuf,
        /// The entries in the way; at least one.
        conflicts: Vec<Conflict>,
    },
    /// The file system takes different names of the tree for one.
    #[error("the file system of {} takes different names for one: {}", destination.display(), together(pairs))]
    Alike {
        /// Where the tree goes.
        destination: PathBuf,
        /// Paths that would be one there: at least one pair, and of many the first.
        pairs: Vec<Pair>,
    },
    /// This user may not write into some folders at the destination that get new entries.
    #[error("no permission to write into {} folders at {}", folders.len(), destination.display())]
    Closed {
        /// Where the tree goes.
        destination: PathBuf,
        /// Their paths below it; at least one.
        folders: Vec<Vec<u8>>,
    },
    /// The tree holds leftovers of an unfinished copy.
    #[error("{} belongs to an unfinished copy in that tree: finish that copy first, or remove it there", path.display())]
    OwnName {
        /// Where it would go.
        path: PathBuf,
    },
    /// The unfinished copy there is of another tree. It is kept: a source whose disk is missing
    /// must not cost everything received so far.
    #[error("{} is an unfinished copy of another tree: none of its files is in this one", folder.display())]
    OtherTree {
        /// The partial folder.
        folder: PathBuf,
    },
    /// [`Halt`](super::Halt) requested it; what is there is kept.
    #[error("stopped")]
    Stopped,
    /// The system refused an operation.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Formats pairs of paths for people.
fn together(pairs: &[Pair]) -> String {
    let text = |path: &[u8]| visible(&String::from_utf8_lossy(path));
    let pair = |(one, other): &Pair| format!("{} and {}", text(one), text(other));
    let mut named: Vec<String> = pairs.iter().take(PAIRS_NAMED).map(pair).collect();
    if pairs.len() > PAIRS_NAMED {
        named.push("and more".to_owned());
    }
    named.join(", ")
}

/// The most pairs that a message names.
const PAIRS_NAMED: usize = 5;

/// Formats paths as a list for people.
fn listed(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    match paths.split_last() {
        Some((last, [_, ..])) => format!("{} and {last}", paths[..paths.len() - 1].join(", ")),
        _ => paths.concat(),
    }
}
