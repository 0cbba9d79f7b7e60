//! Whether all names can be given.

use std::io;
use std::path::Path;

use swath_model::index::{Index, Kind};

use super::place::Place;
use super::{Conflict, Kept, Stage, StageError, conflicts};
use crate::tree::differ::{is_below, order};
use crate::tree::filter::Filter;
use crate::tree::rights;
use crate::tree::root::Root;
use crate::tree::trail::{Enter, Trail, split};

/// Look whether a tree can be received at `destination`: it is a folder or nothing that may be written
/// to or made, and nothing of another kind is in the way, or it may be replaced, which is all that does
/// not hold what this filter leaves out. The index must be complete. Blocks.
///
/// # Errors
/// [`StageError`].
pub fn check_way(
    index: &Index,
    destination: &Path,
    replaces: Option<&Filter>,
) -> Result<(), StageError> {
    let failed =
        |doing| move |source| StageError::Io { doing, path: destination.to_owned(), source };
    let place = Place::of(destination, None)?;
    place.check_rights().map_err(failed("write into"))?;
    match Root::open(destination) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(StageError::NoFolder(destination.to_owned()))
        }
        Err(error) => Err(failed("open")(error)),
        Ok(root) => {
            let found = conflicts(index, &root, replaces, &|| false);
            refuse(found.map_err(|(_, source)| failed("look at")(source))?, destination)
        }
    }
}

/// Look whether this user may give names in all folders of `destination` that get any, and open what
/// else of the tree is there. The index must be complete. Blocks.
///
/// # Errors
/// [`StageError::Closed`].
pub fn check_rights(index: &Index, destination: &Path, kept: &Kept) -> Result<(), StageError> {
    let Ok(root) = Root::open(destination) else { return Ok(()) };
    let folders = closed(index, &root, kept);
    match folders.is_empty() {
        true => Ok(()),
        false => Err(StageError::Closed { destination: destination.to_owned(), folders }),
    }
}

/// Paths of the folders that are closed to us, in the order of an index.
fn closed(index: &Index, root: &Root, kept: &Kept) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut trail = Trail::new(root, Enter::Look);
    let mut may = |path: &[u8], wanted| match trail.to(path) {
        Ok(Some(folder)) => Some(rights::check(folder, wanted).is_ok()),
        // It is made, or something is in its way.
        _ => None,
    };
    // Below this folder nothing is there, or nothing is known of it.
    let mut beyond: Option<Vec<u8>> = None;
    // What the last name given was given in.
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
            _ => kept.has(item.number),
        };
        let (above, _) = split(item.path);
        // The stage is made in the destination itself.
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

impl Stage {
    /// Look whether all names can be given: nothing of another kind is in the way, or it may be
    /// [replaced](Stage::replace). The index must be complete.
    ///
    /// # Errors
    /// [`StageError::InTheWay`].
    pub fn check_way(&self) -> Result<(), StageError> {
        if self.place.is_new {
            return Ok(());
        }
        let root = Root::open(&self.place.destination);
        self.check_way_in(&root.map_err(|source| self.failed("open", b"", source))?)
    }

    pub(super) fn check_way_in(&self, root: &Root) -> Result<(), StageError> {
        let found = conflicts(&self.index(), root, self.replaces.as_ref(), &*self.halt);
        let found = found.map_err(|(path, source)| match source.kind() {
            io::ErrorKind::Interrupted if (self.halt)() => StageError::Stopped,
            _ => self.failed("look at", &path, source),
        })?;
        refuse(found, &self.place.destination)
    }
}

fn refuse(conflicts: Vec<Conflict>, destination: &Path) -> Result<(), StageError> {
    match conflicts.is_empty() {
        true => Ok(()),
        false => Err(StageError::InTheWay { destination: destination.to_owned(), conflicts }),
    }
}
