//! Finds out what a name in a folder refers to.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags, SeekFrom, Statx, StatxFlags, readlinkat, seek, statx};
use rustix::io::Errno;
use swath_model::index::{Absence, EXTENTS_MAX, Extent, Kind, Mtime, Top, Xattrs};

use super::root::{Links, Root, open_below};
use super::walk::WalkOptions;
use super::xattrs;

/// An entry as found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Never a hard link: the walk decides which name is first.
    pub kind: Kind,
    pub mode: u32,
    pub mtime: Mtime,
    /// Identifies the file.
    pub id: FileId,
    /// Whether it has other names.
    pub has_names: bool,
    /// Whether it was reached through a link.
    pub through_link: bool,
    /// Extended attributes of a file; `None` if it has none, as most, or they are not wanted.
    pub xattrs: Option<Box<Xattrs<'static>>>,
    /// Whether its attributes must be read when it is reported.
    pub xattrs_later: bool,
}

/// Identifies a file among all mounted file systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub device: (u32, u32),
    pub inode: u64,
}

impl Found {
    pub fn absent(absence: Absence) -> Found {
        Found {
            kind: Kind::Absent(absence),
            mode: 0,
            mtime: Mtime::default(),
            id: FileId::default(),
            has_names: false,
            through_link: false,
            xattrs: None,
            xattrs_later: false,
        }
    }
}

/// Returns why an entry counts as absent if the system refuses it with `error`.
pub(super) fn absence(error: Errno) -> Absence {
    match error {
        Errno::ACCESS | Errno::PERM => Absence::Forbidden,
        Errno::NOENT | Errno::NOTDIR => Absence::Vanished,
        _ => Absence::Unreadable,
    }
}

/// Looks at `name` in `folder`, whose path below the root is `path`.
pub(super) fn look(
    root: &Root,
    folder: impl AsFd,
    path: &[u8],
    name: &[u8],
    options: &WalkOptions,
) -> Found {
    let folder = folder.as_fd();
    let found = match statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, MASK) {
        Ok(found) => found,
        Err(error) => return Found::absent(absence(error)),
    };
    let kind = match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::RegularFile => {
            let extents = extents(&found, || open_below(folder, name, READ, Links::Refuse));
            Kind::File { size_bytes: found.stx_size, extents }
        }
        FileType::Directory => Kind::Folder,
        FileType::Symlink => {
            if options.follow_links
                && let Some(found) = follow(root, path, name)
            {
                return found;
            }
            match readlinkat(folder, name, Vec::new()) {
                Ok(target) => Kind::Symlink(target.into_bytes()),
                Err(error) => return Found::absent(absence(error)),
            }
        }
        _ => return Found::absent(Absence::Special),
    };
    describe(&found, kind, false)
}

/// Returns the target of a link if it is a file or a folder below the root.
fn follow(root: &Root, path: &[u8], name: &[u8]) -> Option<Found> {
    let path = [path, name].join(&b"/"[..if path.is_empty() { 0 } else { 1 }]);
    let found = root.look_through(&path, MASK).ok()?;
    let kind = match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::RegularFile => Kind::File { size_bytes: found.stx_size, extents: None },
        FileType::Directory => Kind::Folder,
        _ => return None,
    };
    Some(describe(&found, kind, true))
}

/// Returns the attributes of a folder as the top of a tree.
pub(super) fn top(found: &Statx) -> Top {
    Top { mode: mode(found), mtime: mtime(found) }
}

fn mode(found: &Statx) -> u32 {
    u32::from(found.stx_mode) & 0o7777
}

fn mtime(found: &Statx) -> Mtime {
    Mtime { seconds: found.stx_mtime.tv_sec, nanoseconds: found.stx_mtime.tv_nsec.min(999_999_999) }
}

fn describe(found: &Statx, kind: Kind, through_link: bool) -> Found {
    Found {
        has_names: matches!(kind, Kind::File { .. }) && found.stx_nlink > 1,
        kind,
        mode: mode(found),
        mtime: mtime(found),
        id: id(found),
        through_link,
        xattrs: None,
        xattrs_later: false,
    }
}

/// Returns the extended attributes of a file that was found.
pub(super) fn xattrs_of(
    root: &Root,
    folder: impl AsFd,
    path: &[u8],
    name: &[u8],
    found: &Found,
) -> Xattrs<'static> {
    let folder = folder.as_fd();
    let opened = match found.through_link {
        true => {
            let path = [path, name].join(&b"/"[..if path.is_empty() { 0 } else { 1 }]);
            return match root.file_through_links(&path) {
                Ok(file) => xattrs::read(file),
                Err(_) => Xattrs::Unknown,
            };
        }
        false => open_below(folder, name, READ, Links::Refuse),
    };
    match opened {
        Ok(file) => xattrs::read(file),
        Err(Errno::ACCESS) => match open_below(folder, name, OFlags::PATH, Links::Refuse) {
            Ok(place) => xattrs::at_place(&place),
            Err(_) => Xattrs::Unknown,
        },
        Err(_) => Xattrs::Unknown,
    }
}

pub(super) fn id(found: &Statx) -> FileId {
    FileId { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino }
}

/// Returns the parts of a sparse file that are not holes; `None` if it has no holes worth
/// reporting. Only large holes are reported, in whole units: copies made in other ways often have
/// different small ones. If it has only small holes, there is a single part.
fn extents(
    found: &Statx,
    open: impl FnOnce() -> rustix::io::Result<OwnedFd>,
) -> Option<Vec<Extent>> {
    let size_bytes = found.stx_size;
    if found.stx_blocks.saturating_mul(512) >= size_bytes || size_bytes < SPARSE_FROM_BYTES {
        return None;
    }
    let file = open().ok()?;
    let all = || Some(vec![Extent { offset: 0, bytes: size_bytes }]);
    let mut extents: Vec<Extent> = Vec::new();
    let mut at = 0;
    let mut has_holes = false;
    while at < size_bytes {
        let data = match seek(&file, SeekFrom::Data(at)) {
            Ok(data) if data < size_bytes => data,
            // Only a hole is left.
            Ok(_) | Err(Errno::NXIO) => {
                has_holes = true;
                break;
            }
            Err(_) => return None,
        };
        has_holes |= data > at;
        // The end of the file counts as a hole.
        let hole = seek(&file, SeekFrom::Hole(data)).ok().filter(|&hole| hole > data)?;
        let start = data - data % HOLE_BYTES;
        let end = hole.checked_next_multiple_of(HOLE_BYTES)?.min(size_bytes);
        match extents.last_mut() {
            Some(last) if last.offset + last.bytes >= start => last.bytes = end - last.offset,
            _ => extents.push(Extent { offset: start, bytes: end - start }),
        }
        if extents.len() > EXTENTS_MAX {
            return all();
        }
        at = hole;
    }
    let data_bytes: u64 = extents.iter().map(|extent| extent.bytes).sum();
    match data_bytes < size_bytes && size_bytes >= HOLE_BYTES {
        true => Some(extents),
        false if has_holes => all(),
        false => None,
    }
}

const MASK: StatxFlags = StatxFlags::BASIC_STATS;
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// Unit in which holes are reported.
const HOLE_BYTES: u64 = 1 << 20;
/// Smaller files are not opened to find holes: little could be saved, and on compressed file
/// systems all of them take less than their size.
const SPARSE_FROM_BYTES: u64 = 64 << 10;
