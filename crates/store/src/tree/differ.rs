//! What a destination lacks of a tree, and what it has beyond it.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, Timespec, Timestamps, unlinkat};
use rustix::io::Errno;
use swath_model::index::{Index, Item, Kind, Mtime};

use super::filter::Filter;
use super::root::{Links, Root};
use super::stage::Same;
use super::walk::{WalkError, WalkOptions, walk_telling};

/// One difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is to be copied: it is not there, or it is another one; bytes of the file.
    Copy {
        /// Its size.
        bytes: u64,
    },
    /// It is there and not in the tree.
    Surplus,
}

/// Tell how a folder differs from the tree of `index`, which is complete, in the order of an index.
/// Which files are the same `same` says; a folder that is not there is empty. What the tree lists as absent is no difference, and neither is what `filter` leaves out,
/// with the folders that hold such. Blocks.
///
/// # Errors
/// What the system says when the folder is listed.
pub fn differences(
    index: &Index,
    folder: &Path,
    filter: &Filter,
    same: &Same,
    mut take: impl FnMut(Change, &[u8]),
) -> io::Result<()> {
    let (there, sheltered) = listed(folder, filter)?;
    let (mut ours, mut theirs) = (index.cursor(), there.cursor());
    let mut other = theirs.next().map(Known::of);
    // What lies below something that could not be read is not known to be surplus.
    let mut unknown: Option<Vec<u8>> = None;
    let is_below = |path: &[u8], folder: &Option<Vec<u8>>| {
        let rest = folder.as_ref().and_then(|folder| path.strip_prefix(folder.as_slice()));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    loop {
        let item = ours.next();
        let before = |known: &mut Known| match &item {
            Some(item) => order(&known.path, item.path) == Ordering::Less,
            None => true,
        };
        while let Some(known) = other.take_if(before) {
            let is_free = !is_own(&known.path) && !sheltered.contains(&known.path);
            if is_free && !is_below(&known.path, &unknown) {
                take(Change::Surplus, &known.path);
            }
            other = theirs.next().map(Known::of);
        }
        let Some(item) = item else { return Ok(()) };
        let there = other.take_if(|known| known.path == item.path);
        if there.is_some() {
            other = theirs.next().map(Known::of);
        }
        match &item.entry.kind {
            Kind::Absent(_) => unknown = Some(item.path.to_vec()),
            kind => {
                if !there.is_some_and(|known| known.is_same(&item, same)) {
                    let bytes = match kind {
                        Kind::File { size_bytes, .. } => *size_bytes,
                        _ => 0,
                    };
                    take(Change::Copy { bytes }, item.path);
                }
            }
        }
    }
}

/// Remove from a folder what is surplus, by paths in the order of [`differences`]. Links are removed
/// and not followed. Answers how many went.
///
/// # Errors
/// What the system says, `Interrupted` if `stop` says so first; what went by then is gone.
pub fn remove(folder: &Path, surplus: &[Vec<u8>], stop: &dyn Fn() -> bool) -> io::Result<u64> {
    let root = Root::open(folder)?;
    let mut removed = 0;
    // What lies in a folder comes behind it.
    for path in surplus.iter().rev() {
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (above, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path.as_slice()),
        };
        let above = root.folder(above, Links::Refuse)?;
        // The folder is as its tree has it; what goes now is no change of that.
        let found = rustix::fs::fstat(&above)?;
        let gone = match unlinkat(&above, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => unlinkat(&above, name, AtFlags::REMOVEDIR),
            other => other,
        };
        match gone {
            Ok(()) => removed += 1,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let time = Timespec { tv_sec: found.st_mtime as _, tv_nsec: found.st_mtime_nsec as _ };
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let times = Timestamps { last_access: now, last_modification: time };
        rustix::fs::futimens(&above, &times)?;
    }
    Ok(removed)
}

/// What of a folder's content takes part now, and the folders that hold something that does not.
fn listed(folder: &Path, filter: &Filter) -> io::Result<(Index, HashSet<Vec<u8>>)> {
    let mut index = Index::new();
    let mut sheltered = HashSet::new();
    let root = match Root::open(folder) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((index, sheltered)),
        Err(error) => return Err(error),
    };
    let options =
        WalkOptions { hard_links: false, filter: filter.clone(), ..WalkOptions::default() };
    let left_out = |path: &[u8]| {
        let mut rest = path;
        while let Some(slash) = rest.iter().rposition(|&byte| byte == b'/') {
            rest = &rest[..slash];
            if !sheltered.insert(rest.to_vec()) {
                break;
            }
        }
    };
    let walked = walk_telling(&root, &options, |entry| index.push(entry).map(drop), left_out);
    match walked {
        Ok(_) => Ok((index, sheltered)),
        Err(WalkError::Root(error)) => Err(error),
        Err(WalkError::Stopped(error)) => Err(io::Error::other(error.to_string())),
    }
}

/// What an earlier copy left that did not come to its end.
fn is_own(path: &[u8]) -> bool {
    super::stage::is_own_name(path)
}

struct Known {
    path: Vec<u8>,
    kind: Kind,
    mtime: Mtime,
}

impl Known {
    fn of(item: Item<'_>) -> Known {
        let (path, kind) = (item.path.to_vec(), item.entry.kind.clone());
        Known { path, kind, mtime: item.entry.mtime }
    }

    fn is_same(&self, item: &Item<'_>, same: &Same) -> bool {
        match (&self.kind, &item.entry.kind) {
            (Kind::File { size_bytes: here, .. }, Kind::File { size_bytes: there, .. }) => {
                here == there && same.has(item, self.mtime)
            }
            // A further name is a file like others to whoever did not ask for more.
            (Kind::File { .. }, Kind::HardLink(_)) => true,
            (one, other) => one == other,
        }
    }
}

/// The order of an index: component by component, by their bytes.
pub(super) fn order(a: &[u8], b: &[u8]) -> Ordering {
    a.split(|&byte| byte == b'/').cmp(b.split(|&byte| byte == b'/'))
}
