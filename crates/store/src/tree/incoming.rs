//! A file being received into a folder, which it cannot leave.
//!
//! Until it is complete it has no name at all (`O_TMPFILE`), or, on file systems without that, a
//! temporary one. Then it gets its final name in one step.

use std::borrow::Borrow;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, fallocate, fchmod, flock, fstat,
    fsync, linkat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::Root;
use super::folder_cursor::split;
use super::grant::{Deed, Grant, NotPermitted};
use super::root::Links;

/// A file without a final name yet. Dropping it earlier leaves nothing.
#[derive(Debug)]
pub struct Incoming {
    folder: OwnedFd,
    name: Vec<u8>,
    file: File,
    /// What may be done with it; its path there is the empty one.
    grant: Grant,
    /// Only its owner may read it, whatever the permissions of what it replaces.
    is_private: bool,
    /// Its temporary name, if it needs one.
    own_name: Option<Vec<u8>>,
}

impl Root {
    /// Begins to receive a file that will have this path, in an existing folder.
    ///
    /// # Errors
    /// The system's error: `NotFound` without the folder, `FilesystemLoop` for a link on the way,
    /// `InvalidInput` for a path that names no file or has a name reserved for swath; [`NotPermitted`].
    pub fn receive(&self, path: &[u8]) -> io::Result<Incoming> {
        let (above, name) = split(path);
        if !may_be_received(path) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let grant = self.grant().below(path);
        grant.check(Deed::Create, b"")?;
        let folder = self.folder(above, Links::Refuse)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let (file, own_name) = match openat(&folder, c".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => (File::from(file), None),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let create = |own: &[u8]| openat(&folder, own, flags, mode).map(File::from);
                let (file, own_name) = with_own_name(&folder, create)?;
                (file, Some(own_name))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Incoming { folder, name: name.to_vec(), file, grant, is_private: false, own_name })
    }
}

/// Returns whether a client's file may have this path below a root: it names a file, and no name
/// that swath reserves.
pub fn may_be_received(path: &[u8]) -> bool {
    let (_, name) = split(path);
    let as_path =
        std::path::Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name));
    !(matches!(name, b"" | b"." | b"..")
        || crate::names::is_reserved(as_path)
        || name.starts_with(OWN_NAME.as_bytes())
        || leads_into_a_copy(path))
}

/// Returns whether a path below a root leads to or into a partial folder or a copy's other files,
/// where only the copy writes.
pub fn leads_into_a_copy(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(is_of_a_copy)
}

/// Returns whether a name is that of a partial folder or of a copy's other files.
fn is_of_a_copy(name: &[u8]) -> bool {
    let ends = [".swath.part", ".swath.index", ".swath.index.new", ".swath.mark", ".swath.moving"];
    super::unfinished::is_own_name(name)
        || ends.iter().any(|end| {
            let from = name.len().saturating_sub(end.len());
            name[from..].eq_ignore_ascii_case(end.as_bytes())
        })
}

impl Incoming {
    /// Returns it as a file that only its owner may read and write.
    ///
    /// # Errors
    /// The system's error.
    pub fn private(mut self) -> io::Result<Incoming> {
        fchmod(&self.file, Mode::RUSR | Mode::WUSR)?;
        self.is_private = true;
        Ok(self)
    }

    /// Checks whether this many bytes fit, without reserving them.
    ///
    /// # Errors
    /// `StorageFull` if not.
    pub fn fits(&self, bytes: u64) -> io::Result<()> {
        match crate::sys::free_bytes(&self.file) {
            Ok(free_bytes) if bytes > free_bytes => Err(Errno::NOSPC.into()),
            _ => Ok(()),
        }
    }

    /// Reserves this many bytes, if the file system can do that.
    ///
    /// # Errors
    /// `StorageFull`, `QuotaExceeded` or `FileTooLarge` if they do not fit.
    pub fn reserve(&self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // A reservation that does not fit would take all free space until it fails, and others
        // would find the disk full meanwhile.
        self.fits(bytes)?;
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Checks whether a file of unknown length may grow further: it must leave others some room,
    /// the least of a gibibyte and a twentieth of the disk.
    ///
    /// # Errors
    /// `StorageFull` if not.
    pub fn leaves_room(&self) -> io::Result<()> {
        match crate::sys::free_and_all_bytes(&self.file) {
            Ok((free, all)) if free < LEFT_TO_OTHERS.min(all / 20) => Err(Errno::NOSPC.into()),
            _ => Ok(()),
        }
    }

    /// Returns the file, for writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns what has the name now, without following links; `None` if nothing has.
    pub fn present(&self) -> io::Result<Option<Metadata>> {
        // `O_PATH` opens only the place, which has no effect on a device or pipe.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.folder, self.name.as_slice(), flags, Mode::empty()) {
            Ok(place) => Ok(Some(File::from(place).metadata()?)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Completes the file: it replaces any file of its name, durably and at once, and keeps that
    /// file's permissions. With `only_new`, and where nothing may be replaced, the name must be free.
    ///
    /// # Errors
    /// The system's error; `AlreadyExists` with `only_new`; [`NotPermitted`]. Nothing has changed then.
    pub fn finish(self, only_new: bool) -> io::Result<Metadata> {
        self.grant.check(Deed::Create, b"")?;
        let may_replace = self.grant.permits(Deed::Modify, b"");
        match self.give_name(only_new || !may_replace) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !only_new => {
                Err(NotPermitted(Deed::Modify).into())
            }
            given => given,
        }
    }

    fn give_name(mut self, only_new: bool) -> io::Result<Metadata> {
        if let Some(old) = self.present()?.filter(|old| old.is_file() && !self.is_private) {
            use std::os::unix::fs::MetadataExt;
            fchmod(&self.file, Mode::from_raw_mode(old.mode() & 0o777))?;
        }
        self.file.sync_all()?;
        // A file without a name is reached by its descriptor.
        let own_place = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        if only_new {
            let (folder, name) = (&self.folder, self.name.as_slice());
            match &self.own_name {
                Some(own) => linkat(folder, own.as_slice(), folder, name, AtFlags::empty())?,
                None => linkat(CWD, own_place, folder, name, AtFlags::SYMLINK_FOLLOW)?,
            }
        } else {
            if self.own_name.is_none() {
                let link = |own: &[u8]| {
                    linkat(CWD, &own_place, &self.folder, own, AtFlags::SYMLINK_FOLLOW)?;
                    Ok(&self.file)
                };
                self.own_name = Some(with_own_name(&self.folder, link)?.1);
            }
            if let Some(own) = &self.own_name {
                if !has_name(&self.folder, own, &self.file)? {
                    return Err(io::Error::other(
                        "its temporary name was taken by another program",
                    ));
                }
                renameat(&self.folder, own.as_slice(), &self.folder, self.name.as_slice())?;
            }
            self.own_name = None;
        }
        fsync(&self.folder)?;
        self.file.metadata()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(own) = &self.own_name {
            let _ = unlinkat(&self.folder, own.as_slice(), AtFlags::empty());
        }
    }
}

/// Makes a file under a temporary name that nobody uses.
///
/// The process that uses a name holds a lock on its file. A file that a killed process left has no lock: it
/// is removed, and its name is used again. Each machine has names of its own, because locks often hold on
/// one machine only.
fn with_own_name<F: Borrow<File>>(
    folder: &OwnedFd,
    mut make: impl FnMut(&[u8]) -> rustix::io::Result<F>,
) -> io::Result<(F, Vec<u8>)> {
    let mut machine = DefaultHasher::new();
    machine.write(rustix::system::uname().nodename().to_bytes());
    let machine = machine.finish();
    for count in 0..NAMES_MAX {
        let own = format!("{OWN_NAME}-{machine:016x}-{count}").into_bytes();
        let mut made = make(&own);
        if matches!(made, Err(Errno::EXIST)) && remove_abandoned(folder, &own)? {
            made = make(&own);
        }
        match made {
            // Another one has it, or took it for abandoned before it was locked.
            Err(Errno::EXIST) => {}
            Ok(made)
                if lock(made.borrow()) == Lock::Others
                    || !has_name(folder, &own, made.borrow())? => {}
            Ok(made) => return Ok((made, own)),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes what has a temporary name, unless it is in use.
fn remove_abandoned(folder: &OwnedFd, own: &[u8]) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let left = match openat(folder, own, flags, Mode::empty()) {
        Ok(left) => File::from(left),
        Err(Errno::NOENT) => return Ok(true),
        Err(_) => return Ok(false),
    };
    // Only the holder of the lock renames or removes it.
    let is_ours = lock(&left) == Lock::Ours && has_name(folder, own, &left)?;
    Ok(is_ours && unlinkat(folder, own, AtFlags::empty()).is_ok())
}

#[derive(PartialEq, Eq)]
enum Lock {
    Ours,
    Others,
    /// The file system has no locks.
    None,
}

fn lock(file: &File) -> Lock {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Lock::Ours,
        Err(Errno::WOULDBLOCK | Errno::INTR) => Lock::Others,
        Err(_) => Lock::None,
    }
}

fn has_name(folder: &OwnedFd, own: &[u8], file: &File) -> io::Result<bool> {
    let here = fstat(file)?;
    let there = statat(folder, own, AtFlags::SYMLINK_NOFOLLOW);
    Ok(there.is_ok_and(|it| (it.st_dev, it.st_ino) == (here.st_dev, here.st_ino)))
}

/// How temporary names begin; copies of the folder leave such names out.
const OWN_NAME: &str = ".swath-stage.swath.put";
/// How many files of one folder may have temporary names at once.
const NAMES_MAX: usize = 10_000;
/// Longest name that file systems take.
const NAME_BYTES_MAX: usize = 255;

/// Bytes of the disk that a file of unknown length must leave free.
const LEFT_TO_OTHERS: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn names(folder: &std::path::Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_its_name_when_all_is_there_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        for (content, only_new) in [("first", true), ("second", false)] {
            let incoming = root.receive(b"sub/file").unwrap();
            incoming.reserve(content.len() as u64).unwrap();
            incoming.file().write_all(content.as_bytes()).unwrap();
            assert_eq!(incoming.present().unwrap().is_some(), !only_new);
            let meta = incoming.finish(only_new).unwrap();
            assert_eq!(meta.len(), content.len() as u64);
            assert_eq!(std::fs::read_to_string(dir.path().join("sub/file")).unwrap(), content);
            let mode = std::fs::Permissions::from_mode(0o640);
            std::fs::set_permissions(dir.path().join("sub/file"), mode).unwrap();
        }
        let incoming = root.receive(b"sub/file").unwrap();
        incoming.file().write_all(b"third").unwrap();
        let error = incoming.finish(true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        drop(root.receive(b"sub/other").unwrap());
        assert_eq!(std::fs::read_to_string(dir.path().join("sub/file")).unwrap(), "second");
        // The mode stays that of what was replaced.
        root.receive(b"sub/file").unwrap().finish(false).unwrap();
        let mode = dir.path().join("sub/file").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        assert_eq!(names(&dir.path().join("sub")), ["file"]);
    }

    #[test]
    fn a_file_system_without_nameless_files_will_do() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        for (name, only_new) in [("new", true), ("replaced", false)] {
            let mut incoming = root.receive(name.as_bytes()).unwrap();
            let link = |own: &[u8]| {
                File::create_new(dir.path().join(std::str::from_utf8(own).unwrap()))
                    .map_err(|_| Errno::EXIST)
            };
            let folder = &incoming.folder;
            let (file, own_name) = with_own_name(folder, link).unwrap();
            (incoming.file, incoming.own_name) = (file, Some(own_name));
            incoming.file().write_all(b"bytes").unwrap();
            incoming.finish(only_new).unwrap();
            assert_eq!(std::fs::read_to_string(dir.path().join(name)).unwrap(), "bytes");
        }
        assert_eq!(names(dir.path()), ["new", "replaced"]);
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_what_others_use_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let folder = root.folder(b"", Links::Refuse).unwrap();
        let create = |own: &[u8]| {
            let path = dir.path().join(std::str::from_utf8(own).unwrap());
            File::create_new(path).map_err(|_| Errno::EXIST)
        };
        // One that is in use, one that was left behind, and a link, which is neither.
        let (used, first) = with_own_name(&folder, create).unwrap();
        let (left, second) = with_own_name(&folder, create).unwrap();
        let third = [&second[..second.len() - 1], b"2"].concat();
        symlink("/etc/passwd", dir.path().join(std::str::from_utf8(&third).unwrap())).unwrap();
        drop(left);
        let (again, name) = with_own_name(&folder, create).unwrap();
        assert!(name == second && has_name(&folder, &second, &again).unwrap());
        assert!(has_name(&folder, &first, &used).unwrap());
        let (_more, name) = with_own_name(&folder, create).unwrap();
        assert!(name.ends_with(b"-3"));
        // A file that replaces another takes the name that is free by then, and leaves none.
        std::fs::write(dir.path().join("file"), "old").unwrap();
        drop(again);
        root.receive(b"file").unwrap().finish(false).unwrap();
        assert!(!names(dir.path()).contains(&String::from_utf8(second).unwrap()));
        assert_eq!(dir.path().join("file").metadata().unwrap().len(), 0);
    }

    #[test]
    fn no_way_leads_out_and_no_name_is_taken_for_another() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/sub")).unwrap();
        std::fs::create_dir(dir.path().join("outside")).unwrap();
        symlink("../outside", dir.path().join("root/out")).unwrap();
        symlink("../outside/file", dir.path().join("root/link")).unwrap();
        let root = Root::open(&dir.path().join("root")).unwrap();
        for path in
            ["out/file", "../outside/file", "none/file", "", "sub/..", "a.swath.part", "file/"]
        {
            assert!(root.receive(path.as_bytes()).is_err(), "{path}");
        }
        // What a copy has not finished is there, and is nobody else's.
        let stages = ["sub/a.swath.part", "b.SWATH.part/deep", ".swath-stage.swath.part"];
        for stage in stages {
            std::fs::create_dir_all(dir.path().join("root").join(stage)).unwrap();
            let error = root.receive(format!("{stage}/file").as_bytes()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{stage}");
        }
        for beside in ["a.swath.index", "a.swath.mark", "sub/a.swath.moving", "a.Swath", "a.swath"]
        {
            let error = root.receive(beside.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{beside}");
        }
        drop(root.receive(b"a.swath.parts").unwrap());
        // A link is replaced, not followed.
        root.receive(b"link").unwrap().finish(false).unwrap();
        assert!(dir.path().join("root/link").symlink_metadata().unwrap().is_file());
        assert!(names(&dir.path().join("outside")).is_empty());
    }
}
