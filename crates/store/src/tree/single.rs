//! A single file as a tree of one entry, under any name.

use swath_model::index::{Absence, Entry, Kind, Xattrs};

use super::folder_cursor::split;
use super::root::{Links, Root};
use super::stat::{self, Found};
use super::walk::{Unnameable, WalkError, WalkOptions};

/// A file that is a tree of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Single {
    /// Its path below the root.
    pub path: Vec<u8>,
    /// Its name in the tree.
    pub name: Vec<u8>,
}

/// Walks a tree of one file. If it is not a file any more, it counts as vanished.
pub(super) fn walk<E>(
    root: &Root,
    options: &WalkOptions,
    single: &Single,
    mut take: impl FnMut(&Entry<'_>) -> Result<(), E>,
) -> Result<Unnameable, WalkError<E>> {
    let (above, name) = split(&single.path);
    let folder =
        root.folder(above, Links::Refuse).map_err(|error| WalkError::Root(error.into()))?;
    let found = stat::look(root, &folder, above, name, options);
    let xattrs = match options.xattrs {
        true => stat::xattrs_of(root, &folder, above, name, &found),
        false => Xattrs::None,
    };
    let Found { kind, mode, mtime, .. } = found;
    let kind = match kind {
        Kind::File { .. } | Kind::Absent(_) => kind,
        _ => Kind::Absent(Absence::Vanished),
    };
    let entry = Entry { leaves: 0, name: &single.name, kind, mode, mtime, xattrs };
    take(&entry).map_err(WalkError::Stopped)?;
    Ok(Unnameable::default())
}
