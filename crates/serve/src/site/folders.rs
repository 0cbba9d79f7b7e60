//! Finds the served folder that a path lies in.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use swath_store::tree::{Listed, Root};

use super::SiteError;
use super::rights::Rights;

/// A folder that is to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// Its address; otherwise a single one is the root itself, and of several each has its own name.
    pub name: Option<OsString>,
}

impl From<PathBuf> for Folder {
    fn from(path: PathBuf) -> Folder {
        Folder { path, name: None }
    }
}

/// The folders that are served.
pub(super) struct Folders {
    /// Name (empty if it is the root) and folder.
    all: Vec<(Vec<u8>, Root)>,
}

/// Where a path leads.
pub(super) enum Resolved<'a> {
    /// The list of several folders.
    Top,
    /// Something below one of them, in which no more may be done than the rights permit.
    Below { root: Root, path: &'a [u8] },
}

impl Folders {
    pub fn open(folders: &[Folder]) -> Result<Folders, SiteError> {
        let mut all: Vec<(Vec<u8>, Root)> = Vec::new();
        for Folder { path, name } in folders {
            let failed = |source| SiteError::Folder { path: path.clone(), source };
            let root = Root::open(path).map_err(failed)?;
            let name = match name {
                Some(name) => name.as_bytes().to_vec(),
                None if folders.len() == 1 => Vec::new(),
                None => name_of(path).map_err(failed)?,
            };
            if all.iter().any(|(other, _)| *other == name) {
                let name = String::from_utf8_lossy(&name).into_owned();
                return Err(SiteError::Twice { name });
            }
            all.push((name, root));
        }
        Ok(Folders { all })
    }

    /// Where `path`, without slashes at its ends, leads somebody with these rights; `None` if there is no
    /// such folder. Nothing else leads to the folders.
    pub fn resolve<'a>(&self, path: &'a [u8], rights: &Rights) -> Option<Resolved<'a>> {
        if let [(name, root)] = self.all.as_slice()
            && name.is_empty()
        {
            return Some(Resolved::Below { root: root.granted(rights.grant()), path });
        }
        if path.is_empty() {
            return Some(Resolved::Top);
        }
        let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
        let (name, root) = self.all.iter().find(|(name, _)| name == &path[..end])?;
        let root = root.granted(rights.grant().below(name));
        Some(Resolved::Below { root, path: path.get(end + 1..).unwrap_or_default() })
    }

    /// Several folders as entries of the page above them.
    pub fn listed(&self) -> impl Iterator<Item = Listed> {
        self.all.iter().map(|(name, root)| root.listed(name))
    }
}

/// The last component of a folder's path, whatever way it was written.
fn name_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let whole = path.canonicalize()?;
    Ok(whole.file_name().map_or_else(|| b"root".to_vec(), |name| name.as_bytes().to_vec()))
}
