//! Whether there is room for a tree.

use std::path::Path;

use swath_model::index::Index;

use super::further::copied_bytes;
use super::place::{Place, Room};
use super::{Kept, Stage, StageError, whole_groups};

/// Look whether there is room at `destination` for what of the tree (or the single file of this name)
/// does not stay there as it is, as far as that can be known before it comes: where an earlier run has
/// left something it is not. `transfer_bytes` says how many bytes are fetched for so many of the
/// virtual file. The index must be complete. Blocks.
///
/// # Errors
/// [`StageError::NoRoom`], [`StageError::NoEntries`], or what makes it no destination.
pub fn check_room(
    index: &Index,
    destination: &Path,
    single: Option<&str>,
    kept: &Kept,
    links: bool,
    transfer_bytes: impl Fn(u64) -> u64,
) -> Result<(), StageError> {
    let place = Place::of(destination, single)?;
    let Some(room) = place.room_ahead().filter(|_| !place.is_left()) else { return Ok(()) };
    let present = whole_groups(&kept.ranges, index).total_bytes();
    let bytes = transfer_bytes(index.size_bytes().saturating_sub(present));
    let needs = Needs { bytes, links, is_new: place.is_new };
    needs.check(index, kept, &room, destination)
}

impl Stage {
    /// Whether `bytes` more can be fetched and written, with all that is made beside them. The index
    /// must be complete.
    ///
    /// # Errors
    /// [`StageError::NoRoom`], [`StageError::NoEntries`].
    pub fn check_room(&self, bytes: u64) -> Result<(), StageError> {
        let Some(room) = self.place.room(&self.root) else { return Ok(()) };
        // Of what an earlier run left some is there already.
        let is_new = self.resumed.is_empty() && self.place.is_new;
        let needs = Needs { bytes, links: self.preserve.links, is_new };
        needs.check(&self.index(), &self.kept, &room, &self.place.destination)
    }
}

/// What is to be written.
struct Needs {
    /// So much is fetched.
    bytes: u64,
    /// Further names of files are that.
    links: bool,
    /// Nothing of it is there: all entries are certainly made.
    is_new: bool,
}

impl Needs {
    fn check(
        &self,
        index: &Index,
        kept: &Kept,
        room: &Room,
        destination: &Path,
    ) -> Result<(), StageError> {
        let (path, free_bytes) = (destination.to_owned(), room.free_bytes);
        let needed_bytes = self.bytes.saturating_add(copied_bytes(index, kept, self.links));
        if free_bytes < needed_bytes {
            return Err(StageError::NoRoom { path, needed_bytes, free_bytes });
        }
        let counts = index.counts();
        let further = if self.links { 0 } else { counts.hard_links };
        let needed = counts.files + counts.folders + counts.links + further;
        match room.free_entries {
            Some(free) if self.is_new && free < needed => {
                Err(StageError::NoEntries { path, needed, free })
            }
            _ => Ok(()),
        }
    }
}
