//! What can be checked before a copy begins: names, permissions and free space.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use swath_model::index::{Index, Kind};

use super::further::copied_bytes;
use super::paths::{FreeSpace, Paths};
use super::{Conflict, PartialError, PartialTree, Unchanged, conflicts, lock, whole_groups};
use crate::tree::alike::{Names, Place};
use crate::tree::differ::{is_below, order};
use crate::tree::filter::Filter;
use crate::tree::folder_cursor::{Enter, FolderCursor, split};
use crate::tree::rights;
use crate::tree::root::Root;

/// Checks whether a tree can be received at `destination`: it is missing or a folder, may be made
/// or written to, and no entry of another kind is in the way. Entries may be replaced unless they
/// hold what this filter leaves out. The index must be complete. Blocks.
pub fn check_destination(
    index: &Index,
    destination: &Path,
    replaces: Option<&Filter>,
) -> Result<(), PartialError> {
    let failed =
        |doing| move |source| PartialError::Io { doing, path: destination.to_owned(), source };
    let paths = Paths::of(destination, None)?;
    paths.check_rights().map_err(failed("write into"))?;
    match Root::open(destination) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(PartialError::NoFolder(destination.to_owned()))
        }
        Err(error) => Err(failed("open")(error)),
        Ok(root) => {
            let found = conflicts(index, &root, replaces, &|| false);
            refuse(found.map_err(|(_, source)| failed("look at")(source))?, destination)
        }
    }
}

/// Checks whether this user may create names in all folders of `destination` that get any, and open
/// what else of the tree exists. The index must be complete. Blocks.
///
/// # Errors
/// [`PartialError::Closed`].
pub fn check_rights(
    index: &Index,
    destination: &Path,
    unchanged: &Unchanged,
) -> Result<(), PartialError> {
    let Ok(root) = Root::open(destination) else { return Ok(()) };
    let folders = closed(index, &root, unchanged);
    match folders.is_empty() {
        true => Ok(()),
        false => Err(PartialError::Closed { destination: destination.to_owned(), folders }),
    }
}

/// Checks whether `destination` has room for the part of the tree (or the single file of this name)
/// that does not stay as it is. Not known, and so not checked, if an earlier run left something.
/// `transfer_bytes` maps bytes of the virtual file to bytes fetched. The index must be complete.
/// Blocks.
///
/// # Errors
/// [`PartialError::NoRoom`], [`PartialError::NoEntries`], or that it is no valid destination.
pub fn check_space(
    index: &Index,
    destination: &Path,
    single: Option<&str>,
    unchanged: &Unchanged,
    links: bool,
    transfer_bytes: impl Fn(u64) -> u64,
) -> Result<(), PartialError> {
    let paths = Paths::of(destination, single)?;
    let Some(room) = paths.free_space_ahead().filter(|_| !paths.is_left()) else { return Ok(()) };
    let present = whole_groups(&unchanged.ranges, index).total_bytes();
    let bytes = transfer_bytes(index.size_bytes().saturating_sub(present));
    let needs = Needs { bytes, links, is_new: paths.is_new };
    needs.check(index, unchanged, &room, destination)
}

impl PartialTree {
    /// Checks whether all names can be given: each is a name of its own there, and no entry of another
    /// kind is in the way, or it may be [replaced](PartialTree::replace). The index must be complete.
    ///
    /// # Errors
    /// [`PartialError::Alike`], [`PartialError::InTheWay`].
    pub fn check_conflicts(&self) -> Result<(), PartialError> {
        self.check_names(self.index().entries())?;
        if self.paths.is_new {
            return Ok(());
        }
        let root = self.place.open();
        self.check_conflicts_in(&root.map_err(|source| self.failed("open", b"", source))?)
    }

    /// Checks whether the file system tells the names of the entries before this number apart.
    pub(super) fn check_names(&self, end: u64) -> Result<(), PartialError> {
        let mut names = lock(&self.names);
        if names.are_compared(end) {
            return Ok(());
        }
        let destination = (!self.paths.is_new).then(|| self.place.open().ok()).flatten();
        let mut place = Place::new(self.root.fd().as_fd(), destination.as_ref());
        let pairs = names.compare(&self.index(), end, &mut place);
        match pairs.is_empty() {
            true => Ok(()),
            false => {
                // The next call compares all names again, and fails again.
                *names = Names::default();
                Err(PartialError::Alike { destination: self.paths.destination.clone(), pairs })
            }
        }
    }

    pub(super) fn check_conflicts_in(&self, root: &Root) -> Result<(), PartialError> {
        let found = conflicts(&self.index(), root, self.replaces.as_ref(), &*self.halt);
        let found = found.map_err(|(path, source)| match source.kind() {
            io::ErrorKind::Interrupted if (self.halt)() => PartialError::Stopped,
            _ => self.failed("look at", &path, source),
        })?;
        refuse(found, &self.paths.destination)
    }

    /// Checks whether `bytes` more can be fetched and written, with all entries that are made. The
    /// index must be complete.
    ///
    /// # Errors
    /// [`PartialError::NoRoom`], [`PartialError::NoEntries`].
    pub fn check_space(&self, bytes: u64) -> Result<(), PartialError> {
        let Some(room) = self.paths.free_space(&self.root) else { return Ok(()) };
        // Part of an earlier run's entries exists already.
        let is_new = self.had.is_empty() && self.paths.is_new;
        let needs = Needs { bytes, links: self.preserve.links, is_new };
        needs.check(&self.index(), &self.unchanged, &room, &self.paths.destination)
    }
}

/// Returns the paths of folders that are closed to us, in the order of an index.
fn closed(index: &Index, root: &Root, unchanged: &Unchanged) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut folders = FolderCursor::new(root, Enter::Look);
    let mut may = |path: &[u8], wanted| match folders.to(path) {
        Ok(Some(folder)) => Some(rights::check(folder, wanted).is_ok()),
        // It will be made, or something is in its way.
        _ => None,
    };
    // Nothing exists below this folder, or nothing is known of it.
    let mut beyond: Option<Vec<u8>> = None;
    // The folder of the last created name.
    let mut last: Option<Vec<u8>> = None;
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        if beyond.as_ref().is_some_and(|folder| is_below(item.path, folder)) {
            continue;
        }
        let is_kept = match item.entry.kind {
            Kind::Absent(_) => true,
            Kind::Folder => match may(item.path, rights::PASS) {
                Some(true) => true,
                Some(false) => {
                    all.push(item.path.to_vec());
                    beyond = Some(item.path.to_vec());
                    true
                }
                None => {
                    beyond = Some(item.path.to_vec());
                    false
                }
            },
            _ => unchanged.has(item.number),
        };
        let (above, _) = split(item.path);
        // The partial folder is made in the destination itself.
        if is_kept || above.is_empty() || last.as_deref() == Some(above) {
            continue;
        }
        if may(above, rights::CHANGE) == Some(false) && !all.iter().any(|it| it == above) {
            all.push(above.to_vec());
        }
        last = Some(above.to_vec());
    }
    all.sort_unstable_by(|one, other| order(one, other));
    all
}

fn refuse(conflicts: Vec<Conflict>, destination: &Path) -> Result<(), PartialError> {
    match conflicts.is_empty() {
        true => Ok(()),
        false => Err(PartialError::InTheWay { destination: destination.to_owned(), conflicts }),
    }
}

/// What a copy will write.
struct Needs {
    /// Bytes that are fetched.
    bytes: u64,
    /// Whether further names are hard links.
    links: bool,
    /// Whether nothing of it exists: all entries are certainly made.
    is_new: bool,
}

impl Needs {
    fn check(
        &self,
        index: &Index,
        unchanged: &Unchanged,
        room: &FreeSpace,
        destination: &Path,
    ) -> Result<(), PartialError> {
        let (path, free_bytes) = (destination.to_owned(), room.free_bytes);
        let needed_bytes = self.bytes.saturating_add(copied_bytes(index, unchanged, self.links));
        if free_bytes < needed_bytes {
            return Err(PartialError::NoRoom { path, needed_bytes, free_bytes });
        }
        let counts = index.counts();
        let further = if self.links { 0 } else { counts.hard_links };
        let needed = counts.files + counts.folders + counts.links + further;
        match room.free_entries {
            Some(free) if self.is_new && free < needed => {
                Err(PartialError::NoEntries { path, needed, free })
            }
            _ => Ok(()),
        }
    }
}
