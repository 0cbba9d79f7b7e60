//! Resolves the folder of a target beneath the folder that the user named.
//!
//! Metalinks and lists contain names such as `sub/f`. If `sub` is a link, such a name would lead
//! out of the user's folder. So the kernel resolves the path below that folder without following
//! links, and the folder found stays open: the target's files are reached through it, whatever
//! becomes of its name later. Links that lead to the user's folder itself are the user's own and
//! are followed.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::names::folder_of;
use crate::open::OpenError;
use crate::tree::{PlaceGrant, Root};

/// How a target is reached.
pub(crate) struct Reached {
    /// Its path for system calls; valid as long as `root` is held.
    pub(crate) path: PathBuf,
    /// The folder that contains it, if resolved beneath another one.
    pub(crate) root: Option<Root>,
}

impl Reached {
    /// Translates a path used for system calls into the user's path.
    fn shown(&self, used: PathBuf, target: &Path) -> PathBuf {
        match used.strip_prefix(folder_of(&self.path)) {
            Ok(rest) if rest.as_os_str().is_empty() => folder_of(target),
            Ok(rest) => folder_of(target).join(rest),
            Err(_) => used,
        }
    }

    /// Translates the paths of an error into the user's.
    pub(crate) fn explain(&self, error: OpenError, target: &Path) -> OpenError {
        if self.root.is_none() {
            return error;
        }
        let shown = |used| self.shown(used, target);
        match error {
            OpenError::NoName(path) => OpenError::NoName(shown(path)),
            OpenError::Exists(path) => OpenError::Exists(shown(path)),
            OpenError::Reserved(path) => OpenError::Reserved(shown(path)),
            OpenError::NotAFile { path, kind } => OpenError::NotAFile { path: shown(path), kind },
            OpenError::IsFolder(path) => OpenError::IsFolder(shown(path)),
            OpenError::Locked(path) => OpenError::Locked(shown(path)),
            OpenError::InTheWay(path) => OpenError::InTheWay(shown(path)),
            OpenError::NameTooLong(path) => OpenError::NameTooLong(shown(path)),
            OpenError::FolderNotWritable { folder, source } => {
                OpenError::FolderNotWritable { folder: shown(folder), source }
            }
            OpenError::NoSpace { path, needed_bytes, available_bytes } => {
                OpenError::NoSpace { path: shown(path), needed_bytes, available_bytes }
            }
            OpenError::Io { path, source } => OpenError::Io { path: shown(path), source },
            other => other,
        }
    }
}

/// Resolves the folder of `target` beneath `boundary`, if there is one. With `make`, missing
/// folders are made as far as it permits; without it, a target in a missing folder keeps its plain path.
///
/// # Errors
/// [`OpenError::LinkOnTheWay`], or that the folder cannot be made or opened.
pub(crate) fn reach(
    target: &Path,
    boundary: Option<&Path>,
    make: Option<&PlaceGrant>,
) -> Result<Reached, OpenError> {
    let plain = || Reached { path: target.to_owned(), root: None };
    let Some(boundary) = boundary else { return Ok(plain()) };
    let no_name = || OpenError::NoName(target.to_owned());
    let below = target.strip_prefix(boundary).map_err(|_| no_name())?;
    let (Some(below), Some(name)) = (below.parent(), below.file_name()) else {
        return Err(no_name());
    };
    let start = if boundary.as_os_str().is_empty() { Path::new(".") } else { boundary };
    let not_writable = |source| OpenError::FolderNotWritable { folder: folder_of(target), source };
    if let Some(grant) = make {
        grant.make_folders(start).map_err(not_writable)?;
    }
    let found = Root::open(start).and_then(|root| {
        let below = below.as_os_str().as_bytes();
        match make {
            Some(grant) => root.granted(grant.of(start)).made(below),
            None => root.below(below),
        }
    });
    let root = match found {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound && make.is_none() => {
            return Ok(plain());
        }
        Err(error) => {
            return Err(match first_link(start, below) {
                Some(link) => OpenError::LinkOnTheWay { link, boundary: start.to_owned() },
                None => not_writable(error),
            });
        }
    };
    let place = root.proc_path();
    // Without a mounted `/proc`, the plain path was at least found to be free of links.
    if place.metadata().is_err() {
        return Ok(plain());
    }
    Ok(Reached { path: place.join(name), root: Some(root) })
}

/// Returns the first link on a path, for the message.
pub(crate) fn first_link(start: &Path, below: &Path) -> Option<PathBuf> {
    let mut at = start.to_owned();
    below.components().find_map(|name| {
        at.push(name);
        at.is_symlink().then(|| at.strip_prefix(".").unwrap_or(&at).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A link that takes the folder's place after it was opened leads nowhere any more.
    #[test]
    fn a_folder_that_is_replaced_by_a_link_stays_the_one_that_was_found() {
        let home = tempfile::tempdir().unwrap();
        let (dir, outside) = (home.path().join("d"), home.path().join("outside"));
        std::fs::create_dir(&outside).unwrap();
        let all = PlaceGrant::everything();
        let reached = reach(&dir.join("sub/f"), Some(&dir), Some(&all)).unwrap();
        std::fs::rename(dir.join("sub"), dir.join("moved")).unwrap();
        symlink(&outside, dir.join("sub")).unwrap();
        std::fs::write(&reached.path, "x").unwrap();
        assert!(dir.join("moved/f").is_file() && !outside.join("f").exists());
        for make in [Some(&all), None] {
            match reach(&dir.join("sub/f"), Some(&dir), make) {
                Err(OpenError::LinkOnTheWay { link, .. }) => assert_eq!(link, dir.join("sub")),
                other => panic!("{:?}", other.map(|it| it.path)),
            }
        }
        assert!(reach(&dir.join("../outside/f"), Some(&dir), Some(&all)).is_err());
        assert!(!outside.join("f").exists());
    }
}
