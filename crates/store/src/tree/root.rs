//! A folder that nothing leads out of.
//!
//! Every name below it is resolved by the kernel with the order not to leave it (`openat2` with
//! `RESOLVE_BENEATH`), so that neither `..` nor a link, not even one that is put there in between,
//! leads elsewhere. Paths may be longer than any system call takes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, Timespec, Timestamps,
    mkdirat, openat, openat2, statx, unlinkat,
};
use rustix::io::Errno;
use swath_model::index::Mtime;

use super::names::Names;

/// An open folder, and all that lies below it. Clones are the same folder.
#[derive(Clone, Debug)]
pub struct Root {
    folder: Arc<OwnedFd>,
}

/// What becomes of symbolic links on the way to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// The name is not reached.
    Refuse,
    /// They are followed, below the root.
    Follow,
}

impl Root {
    /// Open a folder. Links that lead to it are followed.
    ///
    /// # Errors
    /// What the system says, `NotADirectory` among it.
    pub fn open(path: &Path) -> io::Result<Root> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty())?;
        Ok(Root { folder: Arc::new(folder) })
    }

    /// A folder below it, as a root of its own; the empty path is the root itself.
    ///
    /// # Errors
    /// What the system says; `FilesystemLoop` for a link on the way.
    pub fn below(&self, path: &[u8]) -> io::Result<Root> {
        Ok(Root { folder: Arc::new(self.folder(path, Links::Refuse)?) })
    }

    /// A path to it that leads there as long as this value lives, and only in this process.
    pub fn place(&self) -> std::path::PathBuf {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}", self.folder.as_raw_fd()).into()
    }

    /// What is at a path below it, links not followed; `None` if nothing is.
    pub(super) fn kind(&self, path: &[u8]) -> io::Result<Option<FileType>> {
        let (above, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        let look = || {
            let above = self.reach(above, OFlags::PATH | OFlags::DIRECTORY, Links::Refuse)?;
            statx(above, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)
        };
        match look() {
            Ok(found) => Ok(Some(FileType::from_raw_mode(found.stx_mode.into()))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The size of a file below it; `None` if something else or nothing is there.
    pub(super) fn size(&self, path: &[u8]) -> io::Result<Option<u64>> {
        let place = match self.reach(path, OFlags::PATH, Links::Refuse) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            other => other?,
        };
        let mask = StatxFlags::TYPE | StatxFlags::SIZE;
        let found = statx(&place, c"", AtFlags::EMPTY_PATH, mask)?;
        let kind = FileType::from_raw_mode(found.stx_mode.into());
        Ok((kind == FileType::RegularFile).then_some(found.stx_size))
    }

    /// Set the time of the last change of a file below it, if it is another one.
    pub(super) fn set_mtime(&self, path: &[u8], mtime: Mtime) -> io::Result<()> {
        let place = self.reach(path, OFlags::PATH, Links::Refuse)?;
        let found = statx(&place, c"", AtFlags::EMPTY_PATH, StatxFlags::MTIME)?.stx_mtime;
        if (found.tv_sec, found.tv_nsec) != (mtime.seconds, mtime.nanoseconds) {
            let file = self.reach(path, OFlags::RDONLY | OFlags::NONBLOCK, Links::Refuse)?;
            let time = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.into() };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::futimens(file, &times)?;
        }
        Ok(())
    }

    /// Set the permission bits of a file below it, if they are others.
    pub(super) fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let place = self.reach(path, OFlags::PATH, Links::Refuse)?;
        let found = statx(&place, c"", AtFlags::EMPTY_PATH, StatxFlags::MODE)?;
        if u32::from(found.stx_mode) & 0o7777 != mode {
            let file = self.reach(path, OFlags::RDONLY | OFlags::NONBLOCK, Links::Refuse)?;
            rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }

    /// Whether there is anything of this name in it.
    pub fn is_there(&self, name: &[u8]) -> bool {
        statx(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE).is_ok()
    }

    /// Open a file below it for reading, by its path with `/` between components. No link is
    /// followed, and opening never waits (as it would for a pipe without a writer).
    ///
    /// # Errors
    /// What the system says; `FilesystemLoop` for a link on the way.
    pub fn file(&self, path: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(File::from(self.reach(path, flags, Links::Refuse)?))
    }

    /// As [`Root::file`], and links that lead to something below the root are followed.
    ///
    /// # Errors
    /// As [`Root::file`]; `CrossesDevices` for a link that leads out.
    pub fn file_through_links(&self, path: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(File::from(self.reach(path, flags, Links::Follow)?))
    }

    /// A folder below it, made with all those on the way if need be; the empty path is the root.
    ///
    /// # Errors
    /// What the system says; `NotADirectory` or `FilesystemLoop` where something else is in the way.
    pub(super) fn make_folder(&self, path: &[u8]) -> io::Result<OwnedFd> {
        match self.reach(path, OFlags::PATH | OFlags::DIRECTORY, Links::Refuse) {
            Err(Errno::NOENT) => {}
            // Its attributes are set through it, which a mere place does not allow.
            Ok(_) => return Ok(self.folder(path, Links::Refuse)?),
            Err(error) => return Err(error.into()),
        }
        let mut folder = self.folder(b"", Links::Refuse)?;
        for component in path.split(|&byte| byte == b'/') {
            match mkdirat(&folder, component, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            folder = open_below(
                folder.as_fd(),
                component,
                OFlags::RDONLY | OFlags::DIRECTORY,
                Links::Refuse,
            )?;
        }
        Ok(folder)
    }

    /// Remove all that lies in it. What is mounted there, or whatever else will not go, is an error.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn empty(&self) -> io::Result<()> {
        remove_all(&self.folder(b"", Links::Refuse)?)
    }

    /// The folder itself.
    pub(super) fn fd(&self) -> &Arc<OwnedFd> {
        &self.folder
    }

    /// Open a folder below it for listing; the empty path is the root.
    pub(super) fn folder(&self, path: &[u8], links: Links) -> rustix::io::Result<OwnedFd> {
        self.reach(path, OFlags::RDONLY | OFlags::DIRECTORY, links)
    }

    /// What a link below it leads to, as long as that lies below it too.
    pub(super) fn look_through(&self, path: &[u8], mask: StatxFlags) -> rustix::io::Result<Statx> {
        let place = self.reach(path, OFlags::PATH, Links::Follow)?;
        statx(place, c"", AtFlags::EMPTY_PATH, mask)
    }

    fn reach(&self, path: &[u8], flags: OFlags, links: Links) -> rustix::io::Result<OwnedFd> {
        let mut folder: Option<OwnedFd> = None;
        let mut rest = path;
        while rest.len() > STEP_BYTES {
            // Followed links may lead up again, which has to stay within one call.
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
}

/// Open what lies below a folder; the empty path is the folder.
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

fn remove_all(folder: &OwnedFd) -> io::Result<()> {
    let names = Names::read(folder.as_fd())?;
    for at in 0..names.len() {
        let name = names.name(at);
        match unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        remove_all(&open_below(folder.as_fd(), name, flags, Links::Refuse)?)?;
        unlinkat(folder, name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// For kernels before 5.6: component by component, none of which may be a link.
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

/// One call takes paths of less than 4,096 bytes.
const STEP_BYTES: usize = 4000;
/// So many times in a row a name is looked for again while others rename on the way to it.
const RACES_MAX: usize = 16;
