//! Moves from folder to folder of a tree.
//!
//! The next folder of an index is a step or two away, at any depth. Few descriptors are used:
//! folders far up are closed and reopened through `..`, which counts only if it leads to the same
//! folder as on the way down.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, fchmod, mkdirat, openat, statx};
use rustix::io::Errno;

use super::grant::Deed;
use super::root::{Links, Root, STEP_BYTES, file_in, open_below};
use super::single::Single;
use super::stat::{self, FileId};

/// What to do about folders on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enter {
    /// Only pass through them.
    Look,
    /// Open our own folders for writing even if their modes forbid it; the caller sets the modes
    /// later.
    Open,
    /// The same, and make missing folders.
    Make,
}

/// Opens files below a root one after the other. In the order of an index, each takes a step or two
/// at any depth.
pub struct Files {
    root: Root,
    links: Links,
    /// The only file of the tree and its real path, if it is a single one.
    single: Option<Vec<u8>>,
    /// The folder of the last file.
    folder: Vec<u8>,
    /// For several files in a folder, and for paths too long for one call.
    folders: Option<FolderCursor>,
}

impl Files {
    /// Opens files below this root, on paths without links.
    pub fn new(root: &Root) -> Files {
        let (folder, links) = (Vec::new(), Links::Refuse);
        Files { root: root.clone(), links, single: None, folder, folders: None }
    }

    /// Opens only that one file, whatever the tree calls it.
    pub fn single(root: &Root, single: &Single) -> Files {
        Files { single: Some(single.path.clone()), ..Files::new(root) }
    }

    /// Opens files below this root, following links that stay below it.
    pub fn through_links(root: &Root) -> Files {
        Files { links: Links::Follow, ..Files::new(root) }
    }

    /// Opens a file.
    pub fn file(&mut self, path: &[u8]) -> io::Result<File> {
        if let Some(single) = &self.single {
            return self.root.file(single);
        }
        if self.links == Links::Follow {
            return self.root.file_through_links(path);
        }
        let (above, name) = split(path);
        let is_short = path.len() <= STEP_BYTES;
        if is_short && above != self.folder {
            self.folder = above.to_vec();
            return self.root.file(path);
        }
        let folders =
            self.folders.get_or_insert_with(|| FolderCursor::new(&self.root, Enter::Look));
        match folders.folder(above).and_then(|folder| file_in(folder, name)) {
            // Another folder may have taken its name meanwhile.
            Err(error) if is_short && error.kind() == io::ErrorKind::NotFound => {
                self.root.file(path)
            }
            other => other,
        }
    }
}

/// A path below a root, walked folder by folder.
pub(super) struct FolderCursor {
    root: Root,
    enter: Enter,
    /// The path of the current folder.
    path: Vec<u8>,
    /// Where each component of it ends.
    ends: Vec<usize>,
    chain: Chain,
}

impl FolderCursor {
    pub fn new(root: &Root, enter: Enter) -> FolderCursor {
        let (path, ends) = (Vec::new(), Vec::new());
        FolderCursor { root: root.clone(), enter, path, ends, chain: Chain::new(enter) }
    }

    /// Goes to the folder of this path; empty means the root. `None` if it does not exist.
    pub fn to(&mut self, path: &[u8]) -> io::Result<Option<BorrowedFd<'_>>> {
        if path != self.path {
            self.back_to(self.common(path));
            let done = self.path.len();
            let rest = path.get(done..).unwrap_or_default();
            for component in rest.split(|&byte| byte == b'/').filter(|it| !it.is_empty()) {
                let Some((folder, id)) = self.step(component)? else { return Ok(None) };
                self.chain.push(folder, id);
                if !self.path.is_empty() {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(component);
                self.ends.push(self.path.len());
            }
        }
        Ok(Some(self.here()))
    }

    /// Goes to a folder like [`FolderCursor::to`]; a missing one is an error.
    pub fn folder(&mut self, path: &[u8]) -> io::Result<BorrowedFd<'_>> {
        self.to(path)?.ok_or_else(|| Errno::NOENT.into())
    }

    /// Leaves a folder for good; returns it, so that its mode can be restricted.
    pub fn leave(&mut self, path: &[u8]) -> io::Result<OwnedFd> {
        self.folder(path)?;
        let folder = match self.chain.leave() {
            Some(left) => left?,
            None => self.root.folder(b"", Links::Refuse)?,
        };
        self.ends.pop();
        self.path.truncate(self.ends.last().copied().unwrap_or(0));
        Ok(folder)
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.chain.last().unwrap_or_else(|| self.root.fd().as_fd())
    }

    /// Returns how many components it shares with another path.
    fn common(&self, path: &[u8]) -> usize {
        // Usually it is a folder just below, or one above.
        let reaches = |one: &[u8], other: &[u8]| {
            one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        if self.path.is_empty() || reaches(path, &self.path) {
            return self.ends.len();
        }
        if path.is_empty() || reaches(&self.path, path) {
            return self.ends.partition_point(|&end| end <= path.len());
        }
        self.ends.partition_point(|&end| {
            let is_whole = path.get(end).is_none_or(|&byte| byte == b'/');
            is_whole && path.get(..end) == Some(&self.path[..end])
        })
    }

    fn back_to(&mut self, components: usize) {
        // If a folder on the way was moved, start at the root again.
        let components = match self.chain.back_to(components) {
            Ok(()) => components,
            Err(_) => {
                self.chain = Chain::new(self.enter);
                0
            }
        };
        self.ends.truncate(components);
        self.path.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Returns the path of an entry of the folder that it is at.
    fn path_of(&self, component: &[u8]) -> Vec<u8> {
        match self.path.as_slice() {
            b"" => component.to_vec(),
            path => [path, component].join(&b'/'),
        }
    }

    fn may_modify(&self, component: &[u8]) -> bool {
        let grant = self.root.grant();
        grant.permits_everything() || grant.permits(Deed::Modify, &self.path_of(component))
    }

    fn step(&self, component: &[u8]) -> io::Result<Option<(OwnedFd, FileId)>> {
        let here = self.here();
        let open = || match self.enter {
            Enter::Open | Enter::Make if self.may_modify(component) => {
                open_for_changes(here, component)
            }
            _ => {
                let flags = if self.enter == Enter::Look { PLACE } else { FOLDER };
                let folder = open_below(here, component, flags, Links::Refuse)?;
                let id = stat::id(&look(&folder)?);
                Ok((folder, id))
            }
        };
        match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map(Some),
        }
        if self.enter != Enter::Make {
            return Ok(None);
        }
        self.root.grant().check(Deed::MakeFolder, &self.path_of(component))?;
        match mkdirat(here, component, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        open().map(Some)
    }
}

/// Returns the folder and the name of a path.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Opens a folder, and allows its owner to write into it if that is us.
pub(super) fn open_for_changes(
    above: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<(OwnedFd, FileId)> {
    let folder = match open_below(above, name, FOLDER, Links::Refuse) {
        // Not even reading is allowed.
        Err(Errno::ACCESS) => {
            let place = open_below(above, name, PLACE, Links::Refuse)?;
            let found = look(&place)?;
            if is_closed(&found) {
                set_mode_through(&place, mode_of(&found) | OWNERS)?;
            }
            open_below(above, name, FOLDER, Links::Refuse)?
        }
        other => other?,
    };
    let found = look(&folder)?;
    if is_closed(&found) {
        fchmod(&folder, Mode::from_raw_mode(mode_of(&found) | OWNERS))?;
    }
    Ok((folder, stat::id(&found)))
}

pub(super) fn look(folder: &OwnedFd) -> rustix::io::Result<Statx> {
    statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
}

fn mode_of(found: &Statx) -> u32 {
    u32::from(found.stx_mode) & 0o7777
}

fn is_closed(found: &Statx) -> bool {
    mode_of(found) & OWNERS != OWNERS && found.stx_uid == rustix::process::geteuid().as_raw()
}

/// Sets the mode of an entry opened as `O_PATH`.
pub(super) fn set_mode_through(place: impl AsFd, mode: u32) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?)
}

/// Open folders, each inside the one before it.
pub(super) struct Chain {
    links: Vec<Link>,
    /// Flags to open them with.
    flags: OFlags,
}

struct Link {
    id: FileId,
    folder: Option<OwnedFd>,
}

impl Chain {
    pub fn new(enter: Enter) -> Chain {
        // Passing through does not need permission to list.
        let flags = if enter == Enter::Look { PLACE } else { FOLDER };
        Chain { links: Vec::new(), flags }
    }

    /// Returns the innermost folder, which is always open.
    pub fn last(&self) -> Option<BorrowedFd<'_>> {
        self.links.last().and_then(|link| link.folder.as_ref()).map(AsFd::as_fd)
    }

    pub fn push(&mut self, folder: OwnedFd, id: FileId) {
        self.links.push(Link { id, folder: Some(folder) });
        if let Some(far) = self.links.len().checked_sub(1 + OPEN_MAX) {
            self.links[far].folder = None;
        }
    }

    /// Goes up by one; returns the folder that was the innermost, if any.
    pub fn leave(&mut self) -> Option<io::Result<OwnedFd>> {
        let left = self.links.pop()?.folder?;
        if let Some(above) = self.links.last_mut()
            && above.folder.is_none()
        {
            match up(&left, above.id, self.flags) {
                Ok(folder) => above.folder = Some(folder),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(left))
    }

    /// Goes up until `count` folders are left.
    fn back_to(&mut self, count: usize) -> io::Result<()> {
        // Folders that are still open need no way up.
        let open =
            self.links.iter().skip(count.saturating_sub(1)).position(|it| it.folder.is_some());
        if let Some(open) = open {
            self.links.truncate(count.saturating_sub(1) + open + 1);
        }
        if count == 0 {
            self.links.clear();
        }
        while self.links.len() > count {
            self.leave().transpose()?;
        }
        Ok(())
    }
}

/// Returns the folder above, if it is the one with this id.
pub(super) fn up(folder: &OwnedFd, id: FileId, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let above = openat(folder, "..", flags, Mode::empty())?;
    match stat::id(&look(&above)?) == id {
        true => Ok(above),
        false => Err(io::Error::other("a folder was moved meanwhile")),
    }
}

pub(super) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
/// Permissions that an owner needs to change a folder's content.
const OWNERS: u32 = 0o700;
/// Most folders of one path open at once.
const OPEN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::super::removal::{Modes, remove_all};
    use super::*;

    fn open_here() -> usize {
        fs::read_dir("/proc/self/fd").unwrap().count()
    }

    /// The folder of a path, looked at in the plain way.
    fn number(folder: BorrowedFd<'_>) -> u64 {
        rustix::fs::fstat(folder).unwrap().st_ino
    }

    #[test]
    fn any_folder_is_reached_from_any_other() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut paths: Vec<String> = vec![String::new()];
        for depth in [1, 2, 40, 41, 100] {
            paths.push("d/".repeat(depth) + "end");
            paths.push(["d"; 300][..depth].join("/"));
        }
        paths.push("dd/d".to_owned());
        let mut folders = FolderCursor::new(&root, Enter::Make);
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let path = &paths[rng.usize(..paths.len())];
            let here = number(folders.folder(path.as_bytes()).unwrap());
            assert_eq!(here, fs::metadata(dir.path().join(path)).unwrap().ino(), "{path}");
            if !path.is_empty() && rng.bool() {
                assert_eq!(number(folders.leave(path.as_bytes()).unwrap().as_fd()), here);
            }
        }
        let mut looking = FolderCursor::new(&root, Enter::Look);
        assert!(looking.to(b"d/d/none/below").unwrap().is_none());
        assert!(looking.to(b"d/d").unwrap().is_some());
    }

    #[test]
    fn a_way_of_thousands_of_folders_needs_few_descriptors_and_little_time() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let depth = 20_000;
        let path = ["d"; 20_000].join("/").into_bytes();
        let before = open_here();
        let mut folders = FolderCursor::new(&root, Enter::Make);
        for components in (0..=depth).chain((0..depth).rev()) {
            let folder = &path[..(components * 2usize).saturating_sub(1)];
            folders.folder(folder).unwrap();
            assert!(components % 1000 != 0 || open_here() < before + depth / 4);
        }
        remove_all(root.fd().as_fd(), Modes::Change, &|| false).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        // Of the processor, which others do not use up; a way that is gone from its beginning each time
        // takes hours.
        let took = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        assert!(took.tv_sec < 60, "{took:?}");
    }

    #[test]
    fn what_was_moved_meanwhile_is_not_where_it_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut folders = FolderCursor::new(&root, Enter::Make);
        let deep = "a/".to_owned() + &["d"; 100].join("/");
        folders.folder(deep.as_bytes()).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let middle = dir.path().join("a/d/d/d/d");
        fs::rename(&middle, elsewhere.path().join("moved")).unwrap();
        // By `..` it would be the folder that it was moved to.
        let here = number(folders.folder(b"a/d/d/d").unwrap());
        assert_eq!(here, fs::metadata(dir.path().join("a/d/d/d")).unwrap().ino());
    }

    #[test]
    fn folders_closed_to_their_owner_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        fs::create_dir_all(dir.path().join("closed/below")).unwrap();
        fs::write(dir.path().join("closed/below/file"), "x").unwrap();
        for path in ["closed/below", "closed"] {
            let mode = fs::Permissions::from_mode(0o055);
            fs::set_permissions(dir.path().join(path), mode).unwrap();
        }
        FolderCursor::new(&root, Enter::Look).to(b"closed").map(drop).ok();
        let mode = |path: &str| dir.path().join(path).metadata().unwrap().mode() & 0o777;
        assert_eq!(mode("closed"), 0o055, "whoever only looks changes nothing");
        FolderCursor::new(&root, Enter::Open).folder(b"closed/below").unwrap();
        assert_eq!((mode("closed"), mode("closed/below")), (0o755, 0o755));
        fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(0o055)).unwrap();
        remove_all(root.fd().as_fd(), Modes::Change, &|| false).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
