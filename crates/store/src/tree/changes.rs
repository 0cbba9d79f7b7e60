//! Changes below a folder that a client asks for: a new folder, a new name, removal.
//!
//! No change leads out of the folder: links on the way are refused, and a link itself is removed but
//! never followed. The folder itself stays. What an unfinished copy has is left alone, and so is
//! every folder that holds some of it. A change that was made is durable. Each change asks the root's
//! grant, with the path that it changes.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{
    AtFlags, FileType, Mode, RenameFlags, Statx, StatxFlags, fsync, linkat, mkdirat, renameat,
    renameat_with, statx, unlinkat,
};
use rustix::io::Errno;

use super::Root;
use super::folder_cursor::{FOLDER, split};
use super::grant::{Deed, NotPermitted};
use super::incoming::may_be_received;
use super::removal::{Modes, any_below, remove_all};
use super::root::{Links, open_below};

impl Root {
    /// Makes a folder in an existing one.
    ///
    /// # Errors
    /// The system's error: `AlreadyExists`, `NotFound` without the folder above, `FilesystemLoop` for
    /// a link on the way, `InvalidInput` for a path that names nothing or that swath reserves;
    /// [`NotPermitted`].
    pub fn make_folder(&self, path: &[u8]) -> io::Result<()> {
        let (above, name) = changeable(path)?;
        self.grant().check(Deed::MakeFolder, path)?;
        let folder = self.folder(above, Links::Refuse)?;
        mkdirat(&folder, name, Mode::RWXU | Mode::RWXG | Mode::RWXO)?;
        Ok(fsync(&folder)?)
    }

    /// Removes a file, a link, or a folder with all that is in it. Permissions of folders count, also
    /// of our own.
    ///
    /// # Errors
    /// The system's error: `NotFound`; `FilesystemLoop` for a link on the way; `InvalidInput` for a
    /// path that names nothing or that swath reserves; `ResourceBusy` for a folder that holds
    /// something of an unfinished copy, of which nothing is removed then. `Interrupted` if `stop` says
    /// so first, and any error within a folder: what was removed by then is gone. [`NotPermitted`].
    pub fn remove(&self, path: &[u8], stop: &dyn Fn() -> bool) -> io::Result<()> {
        let (above, name) = changeable(path)?;
        self.grant().check(Deed::Modify, path)?;
        let folder = self.folder(above, Links::Refuse)?;
        match unlinkat(&folder, name, AtFlags::empty()) {
            // POSIX has another error for folders than Linux.
            Err(Errno::ISDIR | Errno::PERM) => {}
            gone => {
                gone?;
                return Ok(fsync(&folder)?);
            }
        }
        // What was read through a descriptor is not read again.
        let open = || open_below(folder.as_fd(), name, FOLDER, Links::Refuse);
        if any_below(open()?.as_fd(), &|name| !may_be_received(name), stop)? {
            return Err(Errno::BUSY.into());
        }
        remove_all(open()?.as_fd(), Modes::Count, stop)?;
        unlinkat(&folder, name, AtFlags::REMOVEDIR)?;
        Ok(fsync(&folder)?)
    }

    /// Gives a file or a folder another path, below this root or another one of the same file system,
    /// in one step. Unless `only_new`, or where nothing may be replaced, a file replaces a file, and a
    /// folder an empty folder. Returns whether something was replaced.
    ///
    /// # Errors
    /// The system's error: `NotFound` without the source; `AlreadyExists` with `only_new`, or if what
    /// is there has another kind; `DirectoryNotEmpty`; `NotADirectory` without the folder above the
    /// new path; `CrossesDevices` for another file system; `InvalidInput` for a path that names
    /// nothing or that swath reserves, both being the same, or a folder that would lie in itself;
    /// `FilesystemLoop` for a link, on the way or as the source; `ResourceBusy` for a folder that holds
    /// something of an unfinished copy; `Interrupted` if `stop` says so first; [`NotPermitted`]. Nothing
    /// has changed then.
    pub fn rename(
        &self,
        path: &[u8],
        to: &Root,
        to_path: &[u8],
        only_new: bool,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        let ((above, name), (to_above, to_name)) = (changeable(path)?, changeable(to_path)?);
        self.grant().check(Deed::Modify, path)?;
        to.grant().check(Deed::Create, to_path)?;
        let may_replace = to.grant().permits(Deed::Modify, to_path);
        let folder = self.folder(above, Links::Refuse)?;
        let from = look(&folder, name)?.ok_or(Errno::NOENT)?;
        let kind = kind_of(&from);
        match kind {
            FileType::RegularFile | FileType::Directory => {}
            FileType::Symlink => return Err(Errno::LOOP.into()),
            _ => return Err(Errno::NOENT.into()),
        }
        if kind == FileType::Directory {
            // A running copy would go on at its new place, and be told of at the old one.
            let opened = open_below(folder.as_fd(), name, FOLDER, Links::Refuse)?;
            if any_below(opened.as_fd(), &|name| !may_be_received(name), stop)? {
                return Err(Errno::BUSY.into());
            }
        }
        let to_folder = match to.folder(to_above, Links::Refuse) {
            Err(Errno::NOENT) => return Err(Errno::NOTDIR.into()),
            opened => opened?,
        };
        let present = look(&to_folder, to_name)?;
        if let Some(present) = &present {
            let is_same = super::stat::id(present) == super::stat::id(&from);
            if is_same && from.stx_nlink < 2 && !name.eq_ignore_ascii_case(to_name)
                || is_same && kind == FileType::Directory
                || is_same && name == to_name && same_folder(&folder, &to_folder)?
            {
                return Err(Errno::INVAL.into());
            }
            if only_new || kind_of(present) != kind {
                return Err(Errno::EXIST.into());
            }
            if !may_replace {
                return Err(NotPermitted(Deed::Modify).into());
            }
            if is_same && !name.eq_ignore_ascii_case(to_name) {
                // Two names of one file: a rename would leave both.
                unlinkat(&folder, name, AtFlags::empty())?;
                fsync(&folder)?;
                return Ok(true);
            }
        }
        match only_new || !may_replace {
            true => rename_new((&folder, name), (&to_folder, to_name))?,
            false => renameat(&folder, name, &to_folder, to_name)?,
        }
        fsync(&to_folder)?;
        fsync(&folder)?;
        Ok(present.is_some())
    }

    /// Returns the bytes that can be written to its disk, and those of the whole disk.
    pub fn room_bytes(&self) -> io::Result<(u64, u64)> {
        let found = rustix::fs::fstatvfs(self.fd())?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok((bytes(found.f_bavail), bytes(found.f_blocks)))
    }
}

/// Gives an entry a name that nothing has.
///
/// # Errors
/// `EXIST` if something has it.
pub(super) fn rename_new(
    (folder, name): (impl AsFd, &[u8]),
    (to_folder, to_name): (impl AsFd, &[u8]),
) -> rustix::io::Result<()> {
    let (folder, to_folder) = (folder.as_fd(), to_folder.as_fd());
    match renameat_with(folder, name, to_folder, to_name, RenameFlags::NOREPLACE) {
        // This file system cannot.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        renamed => return renamed,
    }
    // Nor does a further name replace anything.
    match linkat(folder, name, to_folder, to_name, AtFlags::empty()) {
        Ok(()) => return unlinkat(folder, name, AtFlags::empty()),
        Err(error @ Errno::EXIST) => return Err(error),
        Err(_) => {}
    }
    // A folder, which replaces nothing but an empty one, or a file system without further names.
    match look(to_folder, to_name)? {
        Some(_) => Err(Errno::EXIST),
        None => renameat(folder, name, to_folder, to_name),
    }
}

/// Returns folder and name of a path that a client may change.
fn changeable(path: &[u8]) -> io::Result<(&[u8], &[u8])> {
    if !may_be_received(path) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(split(path))
}

fn look(folder: impl AsFd, name: &[u8]) -> rustix::io::Result<Option<Statx>> {
    match statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn kind_of(found: &Statx) -> FileType {
    FileType::from_raw_mode(found.stx_mode.into())
}

fn same_folder(one: impl AsFd, other: impl AsFd) -> rustix::io::Result<bool> {
    let look = |folder| statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let (one, other) = (look(one.as_fd())?, look(other.as_fd())?);
    Ok(super::stat::id(&one) == super::stat::id(&other))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::Path;

    use super::*;

    const GO_ON: &dyn Fn() -> bool = &|| false;

    /// A root with `sub/file`, `other`, and links that lead out of it.
    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("root/sub")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        for file in ["root/sub/file", "root/other", "outside/kept"] {
            fs::write(dir.path().join(file), file).unwrap();
        }
        symlink("../outside", dir.path().join("root/out")).unwrap();
        symlink("../../outside", dir.path().join("root/sub/out")).unwrap();
        let root = Root::open(&dir.path().join("root")).unwrap();
        (dir, root)
    }

    fn text(dir: &Path, path: &str) -> String {
        fs::read_to_string(dir.join("root").join(path)).unwrap_or_default()
    }

    #[test]
    fn folders_are_made_in_existing_ones() {
        let (dir, root) = tree();
        root.make_folder(b"sub/new").unwrap();
        assert!(dir.path().join("root/sub/new").is_dir());
        for (path, kind) in [
            ("sub", io::ErrorKind::AlreadyExists),
            ("other", io::ErrorKind::AlreadyExists),
            ("out", io::ErrorKind::AlreadyExists),
            ("none/new", io::ErrorKind::NotFound),
            ("other/new", io::ErrorKind::NotADirectory),
            ("", io::ErrorKind::InvalidInput),
            ("..", io::ErrorKind::InvalidInput),
            ("a.swath.part", io::ErrorKind::InvalidInput),
            (".swath-stage.swath.part/new", io::ErrorKind::InvalidInput),
        ] {
            assert_eq!(root.make_folder(path.as_bytes()).unwrap_err().kind(), kind, "{path}");
        }
        for path in ["out/new", "../outside/new"] {
            assert!(root.make_folder(path.as_bytes()).is_err(), "{path}");
        }
        assert_eq!(fs::read_dir(dir.path().join("outside")).unwrap().count(), 1);
    }

    #[test]
    fn what_is_removed_is_below_and_nothing_else() {
        let (dir, root) = tree();
        for path in ["out/kept", "sub/out/kept", "../outside/kept", "", ".", "sub/..", "none"] {
            assert!(root.remove(path.as_bytes(), GO_ON).is_err(), "{path}");
        }
        root.remove(b"other", GO_ON).unwrap();
        root.remove(b"out", GO_ON).unwrap();
        fs::create_dir_all(dir.path().join("root").join("sub/deep/".repeat(50))).unwrap();
        root.remove(b"sub", GO_ON).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("root")).unwrap().count(), 0);
        assert!(dir.path().join("outside/kept").is_file(), "links are not followed");
        let stopped = root.make_folder(b"a").and_then(|()| root.remove(b"a", &|| true));
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_folder_that_holds_an_unfinished_copy_stays_whole() {
        let (dir, root) = tree();
        for stage in [".swath-stage.swath.part", "deep/a.swath.part", "x.h5.swath"] {
            let stage = dir.path().join("root/sub").join(stage);
            fs::create_dir_all(stage.parent().unwrap()).unwrap();
            fs::write(&stage, "").unwrap();
            let error = root.remove(b"sub", GO_ON).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{stage:?}");
            let error = root.rename(b"sub", &root, b"new", true, GO_ON).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{stage:?}");
            assert_eq!(text(dir.path(), "sub/file"), "root/sub/file");
            fs::remove_file(stage).unwrap();
        }
        fs::write(dir.path().join("root/a.swath.part"), "").unwrap();
        for change in [
            root.remove(b"a.swath.part", GO_ON),
            root.rename(b"a.swath.part", &root, b"b", false, GO_ON).map(drop),
            root.rename(b"other", &root, b"a.swath.part", false, GO_ON).map(drop),
            root.rename(b"other", &root, b".swath-stage.swath.part/b", false, GO_ON).map(drop),
        ] {
            assert_eq!(change.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        root.remove(b"sub", GO_ON).unwrap();
    }

    #[test]
    fn files_and_folders_get_other_names() {
        let (dir, root) = tree();
        assert!(!root.rename(b"sub/file", &root, b"new", true, GO_ON).unwrap());
        assert!(root.rename(b"new", &root, b"other", false, GO_ON).unwrap());
        assert_eq!(text(dir.path(), "other"), "root/sub/file");
        root.make_folder(b"empty").unwrap();
        assert!(root.rename(b"sub", &root, b"empty", false, GO_ON).unwrap());
        assert!(dir.path().join("root/empty/out").is_symlink());
        fs::hard_link(dir.path().join("root/other"), dir.path().join("root/twin")).unwrap();
        assert!(root.rename(b"twin", &root, b"other", false, GO_ON).unwrap());
        assert!(!dir.path().join("root/twin").exists());
        assert_eq!(dir.path().join("root/other").metadata().unwrap().nlink(), 1);
        let second = tempfile::tempdir_in(dir.path()).unwrap();
        let second = Root::open(second.path()).unwrap();
        assert!(!root.rename(b"other", &second, b"other", true, GO_ON).unwrap());
    }

    #[test]
    fn a_new_name_that_cannot_be_changes_nothing() {
        let (dir, root) = tree();
        fs::create_dir(dir.path().join("root/full")).unwrap();
        fs::write(dir.path().join("root/full/file"), "full").unwrap();
        for (from, to, only_new, kind) in [
            ("none", "a", false, io::ErrorKind::NotFound),
            ("other", "sub/file", true, io::ErrorKind::AlreadyExists),
            ("other", "sub", false, io::ErrorKind::AlreadyExists),
            ("other", "out", false, io::ErrorKind::AlreadyExists),
            ("sub", "other", false, io::ErrorKind::AlreadyExists),
            ("sub", "full", false, io::ErrorKind::DirectoryNotEmpty),
            ("sub", "sub/in", false, io::ErrorKind::InvalidInput),
            ("sub", "sub", false, io::ErrorKind::InvalidInput),
            ("other", "other", false, io::ErrorKind::InvalidInput),
            ("other", "none/a", false, io::ErrorKind::NotADirectory),
            ("", "a", false, io::ErrorKind::InvalidInput),
            ("other", "", false, io::ErrorKind::InvalidInput),
            ("other", "..", false, io::ErrorKind::InvalidInput),
        ] {
            let renamed = root.rename(from.as_bytes(), &root, to.as_bytes(), only_new, GO_ON);
            assert_eq!(renamed.unwrap_err().kind(), kind, "{from} {to}");
        }
        for (from, to) in
            [("out", "a"), ("out/kept", "a"), ("other", "out/a"), ("other", "../outside/a")]
        {
            assert!(
                root.rename(from.as_bytes(), &root, to.as_bytes(), false, GO_ON).is_err(),
                "{from}"
            );
        }
        assert_eq!(text(dir.path(), "other"), "root/other");
        assert_eq!(fs::read_dir(dir.path().join("outside")).unwrap().count(), 1);
    }
}
