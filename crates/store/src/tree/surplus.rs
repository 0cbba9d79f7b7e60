//! Entries of a destination that its tree lacks, and their removal.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Stat, Timespec, Timestamps, unlinkat, utimensat};
use rustix::io::Errno;

use super::differ::{common, is_below};
use super::folder_cursor::{Enter, FolderCursor, set_mode_through, split};
use super::grant::Deed;
use super::partial::TreePlace;
use super::rights;
use super::root::Root;

/// Paths of surplus entries, in the order of an index. Of each, only the part that the next one
/// does not share is kept, so that a deep tree takes little memory.
#[derive(Debug, Default)]
pub struct Surplus {
    last: Vec<u8>,
    /// For each earlier path: length shared with the next one, and where the rest begins.
    before: Vec<(usize, usize)>,
    rests: Vec<u8>,
    count: usize,
}

impl Surplus {
    /// Adds a path that comes behind all others.
    pub fn push(&mut self, path: &[u8]) {
        if self.count > 0 {
            let shared = common(&self.last, path);
            self.before.push((shared, self.rests.len()));
            self.rests.extend_from_slice(&self.last[shared..]);
            self.last.truncate(shared);
        }
        self.last.extend_from_slice(&path[self.last.len()..]);
        self.count += 1;
    }

    /// Removes the last path.
    fn pop(&mut self) {
        let (shared, start) = self.before.pop().unwrap_or_default();
        self.last.truncate(shared);
        self.last.extend(self.rests.drain(start..));
        self.count -= 1;
    }
}

/// The outcome of removing entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Number of entries removed.
    pub gone: u64,
    /// Entries that remain.
    pub stays: Stays,
}

/// Entries that could not be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stays {
    /// Their number.
    pub count: u64,
    /// The first ones by path, each with the system's error; without folders that remain only
    /// because of their content.
    pub first: VecDeque<(Vec<u8>, String)>,
    /// The last of all.
    last: Vec<u8>,
}

impl Stays {
    /// Adds an entry that comes before all others.
    fn push(&mut self, path: &[u8], error: &io::Error) {
        let is_around = is_below(&self.last, path);
        self.count += 1;
        self.last = path.to_vec();
        if !is_around {
            self.first.push_front((path.to_vec(), error.to_string()));
            self.first.truncate(NAMED_MAX);
        }
    }
}

/// Removes surplus entries from a place. Links are removed, not followed. Entries that cannot or may not
/// be removed stay, and all others go. Where a tree is a single file, nothing is surplus.
///
/// # Errors
/// The system's error for the folder itself; `Interrupted` if `stop` says so first; entries removed
/// by then are gone.
pub fn remove(
    place: &TreePlace,
    mut surplus: Surplus,
    stop: &dyn Fn() -> bool,
) -> io::Result<Removed> {
    let mut removed = Removed::default();
    if place.single.is_some() {
        return Ok(removed);
    }
    let mut folders = FolderCursor::new(&place.open()?, Enter::Look);
    // A folder's content comes behind it.
    while surplus.count > 0 {
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (above, name) = split(&surplus.last);
        let one = match place.grant.check(Deed::Modify, &surplus.last) {
            Err(error) => Err(error),
            Ok(()) => match folders.to(above) {
                Ok(Some(above)) => remove_one(above, name),
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            },
        };
        match one {
            Ok(was_there) => removed.gone += u64::from(was_there),
            Err(error) => removed.stays.push(&surplus.last, &error),
        }
        surplus.pop();
    }
    Ok(removed)
}

/// Returns which of them this user may not remove, as far as permissions tell.
pub fn removable(folder: &Path, mut surplus: Surplus) -> io::Result<Stays> {
    let mut folders = FolderCursor::new(&Root::open(folder)?, Enter::Look);
    let mut stays = Stays::default();
    let mut known: Option<(Vec<u8>, Result<(), Errno>)> = None;
    while surplus.count > 0 {
        let (above, _) = split(&surplus.last);
        if known.as_ref().is_none_or(|(path, _)| path != above) {
            let may = match folders.to(above) {
                Ok(Some(folder)) => rights::check(folder, rights::CHANGE),
                // It does not exist, or that is unknown.
                _ => Ok(()),
            };
            known = Some((above.to_vec(), may));
        }
        if let Some((_, Err(error))) = &known {
            stays.push(&surplus.last, &(*error).into());
        } else if is_below(&stays.last, &surplus.last) {
            stays.push(&surplus.last, &Errno::NOTEMPTY.into());
        }
        surplus.pop();
    }
    Ok(stays)
}

/// Removes an entry; returns whether it existed. Keeps the time of the folder, which is that of its
/// tree.
fn remove_one(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    let found = rustix::fs::fstat(folder)?;
    match unlink(folder, name, &found) {
        // Nobody may write into it, but it is ours: allow it for the moment.
        Err(Errno::ACCESS) if rights::is_own(found.st_uid) => {
            set_mode_through(folder, found.st_mode & 0o7777 | 0o700)?;
            let gone = unlink(folder, name, &found);
            set_mode_through(folder, found.st_mode & 0o7777)?;
            Ok(gone?)
        }
        gone => Ok(gone?),
    }
}

fn unlink(folder: BorrowedFd<'_>, name: &[u8], found: &Stat) -> Result<bool, Errno> {
    let gone = match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => unlinkat(folder, name, AtFlags::REMOVEDIR),
        other => other,
    };
    match gone {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error),
    }
    let time = Timespec { tv_sec: found.st_mtime as _, tv_nsec: found.st_mtime_nsec as _ };
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = Timestamps { last_access: now, last_modification: time };
    match utimensat(folder, c".", &times, AtFlags::SYMLINK_NOFOLLOW) {
        // It belongs to another user.
        Err(Errno::PERM) => Ok(true),
        set => set.map(|()| true),
    }
}

/// Most remaining entries that are listed.
const NAMED_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_comes_back_from_its_end() {
        let deep = vec![b'd'; 1000];
        let mut deeper = deep.clone();
        deeper.extend_from_slice(b"/x");
        let paths: [&[u8]; 8] = [b"a", b"a/b", b"a/b/c", b"a/bc", b"b", &deep, &deeper, b"e"];
        let mut surplus = Surplus::default();
        paths.iter().for_each(|path| surplus.push(path));
        for path in paths.iter().rev() {
            assert_eq!(surplus.last, *path);
            surplus.pop();
        }
        assert!(surplus.count == 0 && surplus.rests.is_empty() && surplus.before.is_empty());
    }
}
