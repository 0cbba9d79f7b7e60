//! Swaps a verified version in, and removes the old one.
//!
//! What is renamed keeps its inode. That tells, after a kill at any moment, whether the new version has
//! its name already: [`swap`] may be called again and goes on where it was.
//!
//! ```text
//! PLACE old, STAGE/content new   the new version is verified
//! PLACE new, STAGE/content old   exchanged by the kernel in one step
//! PLACE -,   STAGE/old old       without that: the old one aside first, then the new one
//! ```

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Gives the new version, `stage/content` with this inode, the name `place`. The old one, if there is
/// any, is in `stage` afterwards. Returns whether the new version has the name; it may have gone.
///
/// # Errors
/// The system's. Both versions are kept.
pub fn swap(stage: &Path, content: &str, inode: u64, place: &Path) -> io::Result<bool> {
    swap_by(stage, content, inode, place, exchange)
}

fn swap_by(
    stage: &Path,
    content: &str,
    inode: u64,
    place: &Path,
    exchange: impl Fn(&Path, &Path) -> Result<(), Errno>,
) -> io::Result<bool> {
    let new = stage.join(content);
    if inode_of(place)? == Some(inode) {
        return Ok(true);
    }
    if inode_of(&new)? != Some(inode) {
        return Ok(false);
    }
    if inode_of(place)?.is_some() {
        match exchange(&new, place) {
            Ok(()) => {
                synced(stage, place)?;
                return Ok(true);
            }
            // A file system or a kernel without it.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                fs::rename(place, stage.join(OLD))?;
                synced(stage, place)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    fs::rename(&new, place)?;
    synced(stage, place)?;
    Ok(true)
}

fn exchange(one: &Path, other: &Path) -> Result<(), Errno> {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
}

/// Returns the inode of what has this name; of a link, its own.
pub fn inode_of(path: &Path) -> io::Result<Option<u64>> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a folder with an old version: its `files`, paths below the dataset's folder, or its only file.
/// Links are not followed. Returns how many files of others are left, with their folders.
///
/// # Errors
/// The system's; it may be called again.
pub fn remove(stage: &Path, files: &HashSet<Vec<u8>>, is_single: bool) -> io::Result<u64> {
    let mut left = 0;
    for entry in listed(stage)? {
        let (path, kind) = (entry.path(), entry.file_type()?);
        match kind.is_dir() {
            true if !is_single => left += remove_below(&path, &mut Vec::new(), files)?,
            false if is_single || kind.is_symlink() => fs::remove_file(&path)?,
            _ => left += 1,
        }
    }
    if left == 0 {
        remove_empty(stage)?;
    }
    Ok(left)
}

fn remove_below(folder: &Path, at: &mut Vec<u8>, files: &HashSet<Vec<u8>>) -> io::Result<u64> {
    let mut left = 0;
    for entry in listed(folder)? {
        let above = at.len();
        if above > 0 {
            at.push(b'/');
        }
        at.extend_from_slice(entry.file_name().as_bytes());
        match entry.file_type()?.is_dir() {
            true => left += remove_below(&entry.path(), at, files)?,
            false if files.contains(at) => fs::remove_file(entry.path())?,
            false => left += 1,
        }
        at.truncate(above);
    }
    if left == 0 {
        remove_empty(folder)?;
    }
    Ok(left)
}

fn listed(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn remove_empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names in both folders survive a loss of power.
fn synced(stage: &Path, place: &Path) -> io::Result<()> {
    File::open(stage)?.sync_all()?;
    let folder = place.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The old version in the folder of the new one, without an exchange.
const OLD: &str = ".old";

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct Case {
        folder: tempfile::TempDir,
        inode: u64,
    }

    impl Case {
        fn new(has_old: bool) -> Case {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("stage/set")).unwrap();
            fs::write(folder.path().join("stage/set/a"), "new").unwrap();
            if has_old {
                fs::create_dir(folder.path().join("set")).unwrap();
                fs::write(folder.path().join("set/a"), "old").unwrap();
            }
            let inode = inode_of(&folder.path().join("stage/set")).unwrap().unwrap();
            Case { folder, inode }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn swap(&self, exchange: impl Fn(&Path, &Path) -> Result<(), Errno>) -> io::Result<bool> {
            swap_by(&self.path("stage"), "set", self.inode, &self.path("set"), exchange)
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.path(name)).unwrap()
        }
    }

    #[test]
    fn a_version_gets_its_name_with_and_without_an_old_one_and_again() {
        for has_old in [false, true] {
            let case = Case::new(has_old);
            assert!(case.swap(exchange).unwrap() && case.swap(exchange).unwrap());
            assert_eq!(case.text("set/a"), "new");
            assert_eq!(case.path("stage/set").exists(), has_old);
        }
    }

    #[test]
    fn without_an_exchange_a_kill_between_the_two_renames_loses_nothing() {
        let without = |_: &Path, _: &Path| Err(Errno::INVAL);
        let case = Case::new(true);
        assert!(case.swap(without).unwrap());
        assert_eq!((case.text("set/a"), case.text("stage/.old/a")), ("new".into(), "old".into()));
        let case = Case::new(true);
        fs::rename(case.path("set"), case.path("stage/.old")).unwrap();
        assert!(case.swap(without).unwrap() && case.swap(without).unwrap());
        assert_eq!((case.text("set/a"), case.text("stage/.old/a")), ("new".into(), "old".into()));
    }

    #[test]
    fn what_has_gone_or_fails_changes_nothing() {
        let case = Case::new(true);
        fs::remove_dir_all(case.path("stage/set")).unwrap();
        assert!(!case.swap(exchange).unwrap());
        assert_eq!(case.text("set/a"), "old");
        let case = Case::new(true);
        assert!(case.swap(|_, _| Err(Errno::ACCESS)).is_err());
        assert_eq!((case.text("set/a"), case.text("stage/set/a")), ("old".into(), "new".into()));
    }

    #[test]
    fn only_files_of_the_old_version_are_removed() {
        let case = Case::new(false);
        let files: HashSet<Vec<u8>> = [b"a".to_vec(), b"b/c".to_vec(), b"link/x".to_vec()].into();
        fs::create_dir_all(case.path("stage/set/b")).unwrap();
        fs::create_dir_all(case.path("other")).unwrap();
        fs::write(case.path("stage/set/b/c"), "").unwrap();
        fs::write(case.path("stage/set/b/own"), "mine").unwrap();
        fs::write(case.path("other/x"), "far").unwrap();
        std::os::unix::fs::symlink(case.path("other"), case.path("stage/set/link")).unwrap();
        let stage = case.path("stage");
        assert_eq!(remove(&stage, &files, false).unwrap(), 2);
        assert_eq!(
            (case.text("stage/set/b/own"), case.text("other/x")),
            ("mine".into(), "far".into())
        );
        assert!(!case.path("stage/set/a").exists() && !case.path("stage/set/b/c").exists());
        fs::remove_file(case.path("stage/set/b/own")).unwrap();
        fs::remove_file(case.path("stage/set/link")).unwrap();
        assert_eq!(remove(&stage, &files, false).unwrap(), 0);
        assert!(!stage.exists());
        assert_eq!(remove(&stage, &files, false).unwrap(), 0, "again");
    }
}
