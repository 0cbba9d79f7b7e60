//! A folder that no path leads out of.
//!
//! The kernel resolves every name below it with the order not to leave it (`openat2` with
//! `RESOLVE_BENEATH`), so that neither `..` nor a link leads elsewhere, not even one that is
//! created meanwhile. Paths may be longer than a system call takes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Statx, StatxFlags,
    Timespec, Timestamps, flock, mkdirat, openat, openat2, statx, utimensat,
};
use rustix::io::Errno;
use swath_model::index::{Mtime, Top};

use super::grant::{Deed, Grant};
use super::removal::{Modes, remove_all};

/// An open folder and everything below it, with what may be done there. Clones share it.
#[derive(Clone, Debug)]
pub struct Root {
    folder: Arc<OwnedFd>,
    grant: Grant,
}

/// What to do about symbolic links on the way to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// They are an error.
    Refuse,
    /// They are followed, below the root.
    Follow,
}

impl Root {
    /// Opens a folder. Links that lead to it are followed. All may be done there.
    ///
    /// # Errors
    /// The system's error, such as `NotADirectory`.
    pub fn open(path: &Path) -> io::Result<Root> {
        Root::open_with(path, OFlags::empty())
    }

    /// Opens a folder like [`Root::open`], but not through a link in its place.
    ///
    /// # Errors
    /// The system's error; `NotADirectory` for a link.
    pub fn open_itself(path: &Path) -> io::Result<Root> {
        Root::open_with(path, OFlags::NOFOLLOW)
    }

    fn open_with(path: &Path, more: OFlags) -> io::Result<Root> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags | more, Mode::empty())?;
        Ok(Root { folder: Arc::new(folder), grant: Grant::everything() })
    }

    /// Returns the same folder, in which no more may be done than this permits.
    #[must_use]
    pub fn granted(&self, grant: Grant) -> Root {
        Root { folder: Arc::clone(&self.folder), grant }
    }

    /// Returns it with the descriptor of another root, which is of the same folder.
    #[must_use]
    pub fn sharing(&self, other: &Root) -> Root {
        Root { folder: Arc::clone(&other.folder), grant: self.grant.clone() }
    }

    /// Returns what may be done there.
    pub(super) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Returns the numbers of its device and inode, which tell it from all other open folders.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::fstat(&self.folder)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Returns whether both share one descriptor.
    pub fn is_shared_with(&self, other: &Root) -> bool {
        Arc::ptr_eq(&self.folder, &other.folder)
    }

    /// Opens a folder below it as a root of its own; the empty path is the root itself.
    ///
    /// # Errors
    /// The system's error; `FilesystemLoop` for a link on the way.
    pub fn below(&self, path: &[u8]) -> io::Result<Root> {
        let folder = Arc::new(self.folder(path, Links::Refuse)?);
        Ok(Root { folder, grant: self.grant.below(path) })
    }

    /// Opens a folder like [`Root::below`], and makes missing folders on the way.
    pub fn made(&self, path: &[u8]) -> io::Result<Root> {
        let mut root = self.clone();
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            root = match root.below(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    root.grant.check(Deed::MakeFolder, name)?;
                    // The usual permissions of this user's folders.
                    match mkdirat(&root.folder, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    root.below(name)?
                }
                below => below?,
            };
        }
        Ok(root)
    }

    /// Locks it for as long as it is open, unless another process or another opening of it has the lock.
    /// Returns whether it has the lock; some network file systems have none, where it is nobody's.
    ///
    /// # Errors
    /// The system's error.
    pub fn try_lock(&self) -> io::Result<bool> {
        match flock(&self.folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) | Err(Errno::NOTSUP | Errno::NOLCK) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a path to it, valid in this process as long as this value lives.
    pub fn proc_path(&self) -> std::path::PathBuf {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}", self.folder.as_raw_fd()).into()
    }

    /// Returns the attributes of the folder itself.
    pub fn top(&self) -> io::Result<Top> {
        let mask = StatxFlags::MODE | StatxFlags::MTIME;
        Ok(super::stat::top(&statx(&self.folder, c"", AtFlags::EMPTY_PATH, mask)?))
    }

    /// Returns whether it was removed after it was opened.
    pub fn is_removed(&self) -> bool {
        let found = statx(&self.folder, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK);
        found.is_ok_and(|found| found.stx_nlink == 0)
    }

    /// Returns whether it has an entry of this name.
    pub fn is_there(&self, name: &[u8]) -> bool {
        statx(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE).is_ok()
    }

    /// Returns whether it has a file of this name, not just a link to one.
    pub fn has_file(&self, name: &[u8]) -> io::Result<bool> {
        Ok(kind_of(self.folder.as_fd(), name)? == Some(FileType::RegularFile))
    }

    /// Opens a file below it for reading, by its path with `/` between components. No link is
    /// followed, and opening never blocks (as it would for a pipe without a writer).
    ///
    /// # Errors
    /// The system's error; `FilesystemLoop` for a link on the way.
    pub fn file(&self, path: &[u8]) -> io::Result<File> {
        Ok(File::from(self.reach(path, READ, Links::Refuse)?))
    }

    /// Opens a file like [`Root::file`], but follows links to something below the root that may be read.
    ///
    /// # Errors
    /// As for [`Root::file`]; `CrossesDevices` for a link that leads out, or to what may not be read.
    pub fn file_through_links(&self, path: &[u8]) -> io::Result<File> {
        Ok(File::from(self.reach(path, READ, Links::Follow)?))
    }

    /// Removes everything in it. A mount point or anything else that cannot be removed is an error.
    ///
    /// # Errors
    /// The system's error; `Interrupted` if `stop` says so first.
    pub(super) fn empty(&self, stop: &dyn Fn() -> bool) -> io::Result<()> {
        let folder = self.folder(b"", Links::Refuse)?;
        remove_all(folder.as_fd(), Modes::Change, stop)
    }

    /// Returns its names.
    pub(super) fn names(&self) -> io::Result<super::names::Names> {
        Ok(super::names::Names::read(self.folder(b"", Links::Refuse)?.as_fd())?)
    }

    /// Returns its descriptor.
    pub(super) fn fd(&self) -> &Arc<OwnedFd> {
        &self.folder
    }

    /// Opens a folder below it for listing; the empty path is the root.
    pub(super) fn folder(&self, path: &[u8], links: Links) -> rustix::io::Result<OwnedFd> {
        self.reach(path, OFlags::RDONLY | OFlags::DIRECTORY, links)
    }

    /// Looks at the target of a link below it, if that lies below it too.
    pub(super) fn look_through(&self, path: &[u8], mask: StatxFlags) -> rustix::io::Result<Statx> {
        let place = self.reach(path, OFlags::PATH, Links::Follow)?;
        statx(place, c"", AtFlags::EMPTY_PATH, mask)
    }

    fn reach(&self, path: &[u8], flags: OFlags, links: Links) -> rustix::io::Result<OwnedFd> {
        if links == Links::Follow && !self.grant.permits_all_reading() {
            // What is judged is what is opened: the path without links, which is opened without any.
            return self.reach(&self.without_links(path)?, flags, Links::Refuse);
        }
        let mut folder: Option<OwnedFd> = None;
        let mut rest = path;
        while rest.len() > STEP_BYTES {
            // Followed links may lead up again, which one call must resolve as a whole.
            if links == Links::Follow {
                return Err(Errno::NAMETOOLONG);
            }
            let slash = rest[..STEP_BYTES].iter().rposition(|&byte| byte == b'/');
            let (step, after) = rest.split_at(slash.ok_or(Errno::NAMETOOLONG)?);
            let from = folder.as_ref().map_or(self.folder.as_fd(), AsFd::as_fd);
            folder = Some(open_below(from, step, OFlags::PATH | OFlags::DIRECTORY, links)?);
            rest = &after[1..];
        }
        let from = folder.as_ref().map_or(self.folder.as_fd(), AsFd::as_fd);
        open_below(from, rest, flags, links)
    }

    /// Returns the path below it that `path` leads to, without links, if that may be read.
    fn without_links(&self, path: &[u8]) -> rustix::io::Result<Vec<u8>> {
        let mut left: Vec<Vec<u8>> =
            path.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec).collect();
        let (mut done, mut links) = (Vec::<Vec<u8>>::new(), 0);
        while let Some(name) = left.pop() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    done.pop().ok_or(Errno::XDEV)?;
                    continue;
                }
                _ => done.push(name),
            }
            let place = self.reach(&done.join(&b'/'), PLACE, Links::Refuse)?;
            let found = statx(&place, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
            if FileType::from_raw_mode(found.stx_mode.into()) != FileType::Symlink {
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP);
            }
            let target = rustix::fs::readlinkat(&place, c"", Vec::new())?.into_bytes();
            if target.first() == Some(&b'/') {
                return Err(Errno::XDEV);
            }
            done.pop();
            left.extend(target.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec));
        }
        let whole = done.join(&b'/');
        match links == 0 || self.grant.permits(Deed::Read, &whole) {
            true => Ok(whole),
            false => Err(Errno::XDEV),
        }
    }
}

/// Opens an entry below a folder; the empty path is the folder.
pub(super) fn open_below(
    folder: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    links: Links,
) -> rustix::io::Result<OwnedFd> {
    let path = if path.is_empty() { b".".as_slice() } else { path };
    let flags = flags | OFlags::CLOEXEC;
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if links == Links::Refuse {
        resolve |= ResolveFlags::NO_SYMLINKS;
    }
    for _ in 0..RACES_MAX {
        match openat2(folder, path, flags, Mode::empty(), resolve) {
            // Something was renamed meanwhile, and the kernel cannot be sure.
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS) => return step_by_step(folder, path, flags, links),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a file in a folder for reading without following links. Never blocks.
pub(super) fn file_in(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<File> {
    Ok(File::from(open_below(folder, name, READ, Links::Refuse)?))
}

/// Returns the size of a file in a folder; `None` if it is something else or missing.
pub(super) fn size_in(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<u64>> {
    let mask = StatxFlags::TYPE | StatxFlags::SIZE;
    match statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, mask) {
        Ok(found) => {
            let kind = FileType::from_raw_mode(found.stx_mode.into());
            Ok((kind == FileType::RegularFile).then_some(found.stx_size))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the kind of an entry in a folder without following links; `None` if it is missing.
pub(super) fn kind_of(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<FileType>> {
    match statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.stx_mode.into()))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sets the permission bits of an entry in a folder, if they differ.
pub(super) fn set_mode(folder: BorrowedFd<'_>, name: &[u8], mode: u32) -> io::Result<()> {
    let place = open_below(folder, name, OFlags::PATH, Links::Refuse)?;
    let found = statx(&place, c"", AtFlags::EMPTY_PATH, StatxFlags::MODE)?;
    if u32::from(found.stx_mode) & 0o7777 != mode {
        super::folder_cursor::set_mode_through(&place, mode)?;
    }
    Ok(())
}

/// Sets the modification time of an entry in a folder, if it differs.
pub(super) fn set_mtime(folder: BorrowedFd<'_>, name: &[u8], mtime: Mtime) -> io::Result<()> {
    let here = AtFlags::SYMLINK_NOFOLLOW;
    let found = statx(folder, name, here, StatxFlags::MTIME)?.stx_mtime;
    if (found.tv_sec, found.tv_nsec) != (mtime.seconds, mtime.nanoseconds) {
        utimensat(folder, name, &times(mtime), here)?;
    }
    Ok(())
}

/// Returns this modification time, also as the access time.
pub(super) fn times(mtime: Mtime) -> Timestamps {
    let time = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

/// Opens component by component, for kernels before 5.6; none may be a link.
fn step_by_step(
    folder: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    links: Links,
) -> rustix::io::Result<OwnedFd> {
    if links == Links::Follow {
        return Err(Errno::NOSYS);
    }
    let mut components = path.split(|&byte| byte == b'/').peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(component) = components.next() {
        if component.is_empty() || component == b".." {
            return Err(Errno::XDEV);
        }
        let is_last = components.peek().is_none();
        let flags =
            if is_last { flags } else { OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC };
        let from = at.as_ref().map_or(folder, AsFd::as_fd);
        at = Some(openat(from, component, flags | OFlags::NOFOLLOW, Mode::empty())?);
    }
    at.ok_or(Errno::NOENT)
}

/// Flags for files; opening never blocks, as it would for a pipe without a writer.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// Flags for looking at an entry, even if it is a link.
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);
/// Most links on the way to a name, as in the kernel.
const LINKS_MAX: u32 = 40;
/// Longest path for one call, which takes less than 4,096 bytes.
pub(super) const STEP_BYTES: usize = 4000;
/// Most retries in a row while others rename entries on the way.
const RACES_MAX: usize = 16;
