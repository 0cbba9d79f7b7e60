//! Lists one folder.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use swath_model::index::{Absence, Kind, Mtime};

use super::folder_cursor::split;
use super::names::Names;
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

impl Listed {
    /// Returns the memory that it takes in a list, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let target = if let Kind::Symlink(target) = &self.kind { target.len() } else { 0 };
        size_of::<Listed>() + self.name.capacity() + target
    }
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
        Ok(self.entries(path, follow_links)?.collect())
    }

    /// Lists a folder like [`Root::list`], but looks at each entry only when it is its turn.
    ///
    /// # Errors
    /// As for [`Root::list`].
    pub fn entries(&self, path: &[u8], follow_links: bool) -> io::Result<Entries> {
        let folder = self.folder(path, links(follow_links))?;
        let names = names_of_others(folder.as_fd())?;
        Ok(Entries { root: self.clone(), folder, path: path.to_vec(), names, at: 0, follow_links })
    }

    /// Looks at what has a path below it (the empty path is the root), without opening it.
    ///
    /// # Errors
    /// The system's error; `FilesystemLoop` for a link on the way that may not be followed.
    pub fn entry(&self, path: &[u8], follow_links: bool) -> io::Result<Listed> {
        if path.is_empty() {
            return Ok(self.listed(b""));
        }
        let (above, name) = split(path);
        let folder = self.folder(above, links(follow_links))?;
        let options = WalkOptions { follow_links, ..WalkOptions::default() };
        let found = stat::look(self, &folder, above, name, &options);
        match found.kind {
            Kind::Absent(Absence::Forbidden) => Err(io::ErrorKind::PermissionDenied.into()),
            Kind::Absent(_) => Err(io::ErrorKind::NotFound.into()),
            kind => Ok(Listed { name: name.to_vec(), kind, mode: found.mode, mtime: found.mtime }),
        }
    }
}

impl Entries {
    /// Returns the memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.names.memory_bytes()
    }
}

/// The entries of a folder. Only their names are in memory.
#[derive(Debug)]
pub struct Entries {
    root: Root,
    folder: OwnedFd,
    /// The path of the folder.
    path: Vec<u8>,
    names: Names,
    at: usize,
    follow_links: bool,
}

impl Iterator for Entries {
    type Item = Listed;

    fn next(&mut self) -> Option<Listed> {
        if self.at == self.names.len() {
            return None;
        }
        let name = self.names.name(self.at);
        self.at += 1;
        let options = WalkOptions { follow_links: self.follow_links, ..WalkOptions::default() };
        let found = stat::look(&self.root, &self.folder, &self.path, name, &options);
        let (kind, mode, mtime) = (found.kind, found.mode, found.mtime);
        Some(Listed { name: name.to_vec(), kind, mode, mtime })
    }
}

fn links(follow_links: bool) -> Links {
    if follow_links { Links::Follow } else { Links::Refuse }
}
