//! Whether all names can be given.

use std::io;
use std::path::Path;

use swath_model::index::Index;

use super::place::Place;
use super::{Conflict, Stage, StageError, conflicts};
use crate::tree::filter::Filter;
use crate::tree::root::Root;

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
