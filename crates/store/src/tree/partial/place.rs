//! Where a tree goes, and what may be done there.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::PartialError;
use crate::beneath::first_link;
use crate::tree::grant::Grant;
use crate::tree::root::Root;

/// Where a tree goes.
#[derive(Clone, Debug, Default)]
pub struct TreePlace {
    /// The folder for its content.
    pub destination: PathBuf,
    /// The name of the file, if the tree is a single file: it has partial data and a partial folder of
    /// its own, and nothing else there is changed.
    pub single: Option<String>,
    /// The folder at or above the destination that the user named, if the rest of the path came from
    /// elsewhere: no link below it is followed.
    pub beneath: Option<PathBuf>,
    /// What may be done at the destination.
    pub grant: Grant,
}

impl TreePlace {
    /// Returns the place of a whole tree, all of whose path the user named.
    pub fn at(destination: &Path) -> TreePlace {
        TreePlace { destination: destination.to_owned(), ..TreePlace::default() }
    }

    /// Checks that no link is on the way that must not be followed. Blocks.
    ///
    /// # Errors
    /// [`PartialError::LinkOnTheWay`]; [`PartialError::Name`] if it does not lie beneath that folder.
    pub fn check_links(&self) -> Result<(), PartialError> {
        let Some((boundary, below)) = self.below()? else { return Ok(()) };
        match first_link(boundary, below) {
            None => Ok(()),
            Some(link) => Err(PartialError::LinkOnTheWay { link, boundary: boundary.to_owned() }),
        }
    }

    /// Opens the destination.
    pub(in crate::tree) fn open(&self) -> io::Result<Root> {
        let root = match self.below().map_err(|_| io::ErrorKind::InvalidInput)? {
            None => Root::open(&self.destination)?,
            Some((boundary, below)) => {
                Root::open(boundary)?.below(OsStr::as_bytes(below.as_os_str()))?
            }
        };
        Ok(root.granted(self.grant.clone()))
    }

    /// Returns the folder that the user named, and the rest of the path.
    fn below(&self) -> Result<Option<(&Path, &Path)>, PartialError> {
        let Some(boundary) = self.beneath.as_deref() else { return Ok(None) };
        let below = self.destination.strip_prefix(boundary);
        let below = below.map_err(|_| PartialError::Name(self.destination.clone()))?;
        let start = if boundary.as_os_str().is_empty() { Path::new(".") } else { boundary };
        Ok(Some((start, below)))
    }
}
