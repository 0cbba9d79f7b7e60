//! Finds entries at the destination that have another kind than in the tree, so that a rename
//! cannot replace them.

use std::io;

use crate::file_kind::FileKind;
use rustix::fs::FileType;
use swath_model::index::{Index, Kind};

use super::filter::Filter;
use super::folder_cursor::{Enter, FolderCursor, split};
use super::root::{Root, kind_of};
use super::walk::{WalkError, WalkOptions, walk_telling};

/// An entry in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its path below the destination.
    pub path: Vec<u8>,
    /// The kind of the existing entry.
    pub there: FileKind,
    /// The kind of the new entry.
    pub here: FileKind,
    /// Whether it is, or holds, something that the filter leaves out or an unfinished copy keeps.
    pub is_sheltered: bool,
}

/// Finds these, in the order of the index, which must be complete. If entries may be replaced,
/// returns only those that hold something this filter leaves out or another copy keeps. Blocks.
///
/// # Errors
/// The system's error and its path; `Interrupted` if `stop` says so first.
pub(super) fn conflicts(
    index: &Index,
    root: &Root,
    replaces: Option<&Filter>,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Conflict>, (Vec<u8>, io::Error)> {
    let mut all: Vec<Conflict> = Vec::new();
    let mut folders = FolderCursor::new(root, Enter::Look);
    // Not a folder as it should be, so no entry of the tree exists below it.
    let mut closed: Option<Vec<u8>> = None;
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        if stop() {
            return Err((Vec::new(), io::ErrorKind::Interrupted.into()));
        }
        if closed.as_ref().is_some_and(|folder| is_at_or_below(item.path, folder)) {
            continue;
        }
        let (above, name) = split(item.path);
        let mut look = || match folders.to(above)? {
            Some(folder) => kind_of(folder, name),
            // Nothing can be in the way in a missing folder.
            None => Ok(None),
        };
        let found = look().map_err(|error| (item.path.to_vec(), error))?;
        let wants_folder = item.entry.kind == Kind::Folder;
        let (there, here) = match (found, &item.entry.kind) {
            (None, _) | (_, Kind::Absent(_)) => continue,
            (Some(FileType::Directory), Kind::Folder) => continue,
            // These replace each other.
            (Some(FileType::RegularFile | FileType::Symlink), _) if !wants_folder => continue,
            (Some(there), kind) => (FileKind::from(there), FileKind::from(kind)),
        };
        if wants_folder {
            closed = Some(item.path.to_vec());
        }
        all.push(Conflict { path: item.path.to_vec(), there, here, is_sheltered: false });
    }
    if let Some(filter) = replaces {
        if !all.is_empty() {
            shelter(&mut all, root, filter).map_err(|error| (Vec::new(), error))?;
        }
        all.retain(|conflict| conflict.is_sheltered);
    }
    Ok(all)
}

/// Marks conflicts that are, or hold, entries left out.
fn shelter(all: &mut [Conflict], root: &Root, filter: &Filter) -> io::Result<()> {
    let options =
        WalkOptions { hard_links: false, filter: filter.clone(), ..WalkOptions::default() };
    let left_out = |path: &[u8]| {
        for conflict in all.iter_mut() {
            conflict.is_sheltered |= is_at_or_below(path, &conflict.path);
        }
    };
    match walk_telling(root, &options, |_| Ok::<(), io::Error>(()), left_out) {
        Ok(_) => Ok(()),
        Err(WalkError::Root(error) | WalkError::Stopped(error)) => Err(error),
    }
}

fn is_at_or_below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
