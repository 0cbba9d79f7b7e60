//! What a destination lacks of a tree, and what it has beyond it.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Timespec, Timestamps, unlinkat, utimensat};
use rustix::io::Errno;
use swath_model::index::{Index, Item, Kind, Mtime};

use super::filter::Filter;
use super::root::Root;
use super::stage::Same;
use super::trail::{Enter, Trail, split};
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

/// Paths of what is surplus, in the order of an index. Of each only what the next one does not
/// begin with is kept, so that a deep tree takes little memory.
#[derive(Debug, Default)]
pub struct Surplus {
    last: Vec<u8>,
    /// Of those before: how much of it the next one begins with, and where the rest begins.
    before: Vec<(usize, usize)>,
    rests: Vec<u8>,
    count: usize,
}

impl Surplus {
    /// Add one that comes behind all others.
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

    /// Take the last one away.
    fn pop(&mut self) {
        let (shared, start) = self.before.pop().unwrap_or_default();
        self.last.truncate(shared);
        self.last.extend(self.rests.drain(start..));
        self.count -= 1;
    }
}

/// Remove from a folder what is surplus. Links are removed and not followed. Answers how many went.
///
/// # Errors
/// What the system says, `Interrupted` if `stop` says so first; what went by then is gone.
pub fn remove(folder: &Path, mut surplus: Surplus, stop: &dyn Fn() -> bool) -> io::Result<u64> {
    let mut trail = Trail::new(&Root::open(folder)?, Enter::Look);
    let mut removed = 0;
    // What lies in a folder comes behind it.
    while surplus.count > 0 {
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (above, name) = split(&surplus.last);
        if let Some(above) = trail.to(above)? {
            removed += u64::from(remove_one(above, name)?);
        }
        surplus.pop();
    }
    Ok(removed)
}

/// Whether there was anything of this name. The folder is as its tree has it; what goes is no
/// change of that.
fn remove_one(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    let found = rustix::fs::fstat(folder)?;
    let gone = match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => unlinkat(folder, name, AtFlags::REMOVEDIR),
        other => other,
    };
    match gone {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let time = Timespec { tv_sec: found.st_mtime as _, tv_nsec: found.st_mtime_nsec as _ };
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = Timestamps { last_access: now, last_modification: time };
    utimensat(folder, c".", &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(true)
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
    // From the component on in which they differ first.
    let shared = common(a, b);
    let start = a[..shared].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    a[start..].split(|&byte| byte == b'/').cmp(b[start..].split(|&byte| byte == b'/'))
}

/// How many bytes two paths have in common at their beginnings.
fn common(a: &[u8], b: &[u8]) -> usize {
    let parts = a.chunks(STRIDE_BYTES).zip(b.chunks(STRIDE_BYTES));
    let start = STRIDE_BYTES * parts.take_while(|(a, b)| a == b && a.len() == STRIDE_BYTES).count();
    let rest = a[start..].iter().zip(&b[start..]);
    start + rest.take_while(|(a, b)| a == b).count()
}

/// Compared in one go.
const STRIDE_BYTES: usize = 256;

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

    #[test]
    fn the_order_is_that_of_components() {
        let naive =
            |a: &[u8], b: &[u8]| a.split(|&byte| byte == b'/').cmp(b.split(|&byte| byte == b'/'));
        let mut rng = fastrand::Rng::with_seed(3);
        let long = "d/".repeat(200);
        let mut any = || {
            let start = rng.usize(..long.len());
            let rest: String = (0..rng.usize(..5))
                .map(|_| rng.choice(['a', '/', '-', '\u{1}']).unwrap())
                .collect();
            (long[start..].to_owned() + &rest).into_bytes()
        };
        for _ in 0..5000 {
            let (a, b) = (any(), any());
            assert_eq!(order(&a, &b), naive(&a, &b));
            assert_eq!(order(&a, &a), Ordering::Equal);
        }
    }
}
