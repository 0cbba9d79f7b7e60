//! Lists one folder.

use std::io;
use std::os::fd::AsFd;

use swath_model::index::{Kind, Mtime};

use super::root::{Links, Root};
use super::stat;
use super::unfinished::names_of_others;
use super::walk::WalkOptions;

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name, which may not be text.
    pub name: Vec<u8>,
    /// Its kind; never a hard link.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Modification time.
    pub mtime: Mtime,
}

impl Root {
    /// Returns the folder itself as an entry of this name in a folder above.
    pub fn listed(&self, name: &[u8]) -> Listed {
        // An open folder can be queried even after it was removed.
        let found = stat::look(self, self.fd(), b"", b".", &WalkOptions::default());
        Listed { name: name.to_vec(), kind: found.kind, mode: found.mode, mtime: found.mtime }
    }

    /// Lists a folder below it (the empty path is the root), ordered by the bytes of names, without
    /// files of unfinished copies.
    ///
    /// # Errors
    /// The system's error; `FilesystemLoop` for a link on the way that may not be followed.
    pub fn list(&self, path: &[u8], follow_links: bool) -> io::Result<Vec<Listed>> {
        let links = if follow_links { Links::Follow } else { Links::Refuse };
        let folder = self.folder(path, links)?;
        let names = names_of_others(folder.as_fd())?;
        let options = WalkOptions { follow_links, ..WalkOptions::default() };
        let look = |at| {
            let name = names.name(at);
            let found = stat::look(self, &folder, path, name, &options);
            Listed { name: name.to_vec(), kind: found.kind, mode: found.mode, mtime: found.mtime }
        };
        Ok((0..names.len()).map(look).collect())
    }
}
