//! What a destination lacks of a tree, and what it has beyond it.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::io;
use std::path::Path;

use swath_model::index::{Entry, Index, IndexError, Item, Kind};

use super::filter::Filter;
use super::partial::Unchanged;
use super::root::Root;
use super::walk::{WalkError, WalkOptions, walk_telling};
use crate::bits::Bits;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is to be copied: it is not there, or it is another one; bytes of the file.
    Copy {
        /// What it will take: the size of a file, nothing for what is no file or becomes a further
        /// name of one.
        bytes: u64,
        /// In the tree it is a further name of the file with this path.
        further_of: Option<Vec<u8>>,
    },
    /// It is there, and goes before what has its name in the tree can be there: it is of another
    /// kind.
    InTheWay,
    /// It is there and not in the tree.
    Surplus,
}

/// Tells how a folder differs from the tree of `index`, which is complete, in the order of an index.
/// What stays as it is `unchanged` says, and `links` whether further names of a file are to be such; a
/// folder that is not there is empty. What the tree lists as absent is no difference, and neither
/// is what `filter` leaves out or a copy that is not complete keeps, with the folders that hold such.
/// Blocks.
pub fn differences(
    index: &Index,
    folder: &Path,
    filter: &Filter,
    unchanged: &Unchanged,
    links: bool,
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
            if !sheltered.has(known.number) && !is_below(&known.path, &unknown) {
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
                let is_folder = *kind == Kind::Folder;
                let is_same = match &there {
                    Some(known) if is_folder => known.is_folder,
                    _ => unchanged.has(item.number),
                };
                if there.is_some_and(|known| known.is_folder != is_folder) {
                    take(Change::InTheWay, item.path);
                }
                if !is_same {
                    let (bytes, further_of) = match kind {
                        Kind::File { size_bytes, .. } => (*size_bytes, None),
                        Kind::HardLink(of) => further(index, *of, links),
                        _ => (0, None),
                    };
                    take(Change::Copy { bytes, further_of }, item.path);
                }
            }
        }
    }
}

/// What a further name of the file of this number will take, and the file's path.
fn further(index: &Index, of: u64, links: bool) -> (u64, Option<Vec<u8>>) {
    let mut cursor = index.cursor_from(of);
    let Some(file) = cursor.next() else { return (0, None) };
    let bytes = match file.entry.kind {
        // Without --preserve links it becomes a file of its own.
        Kind::File { size_bytes, .. } if !links => size_bytes,
        _ => 0,
    };
    (bytes, Some(file.path.to_vec()))
}

/// What of a folder's content takes part now, and the folders that hold something that does not.
fn listed(folder: &Path, filter: &Filter) -> io::Result<(Index, Sheltered)> {
    let mut index = Index::new();
    let root = match Root::open(folder) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((index, Sheltered::default()));
        }
        Err(error) => return Err(error),
    };
    let options =
        WalkOptions { hard_links: false, filter: filter.clone(), ..WalkOptions::default() };
    let sheltered = RefCell::new(Sheltered::default());
    let take = |entry: &Entry<'_>| {
        index.push(entry)?;
        sheltered.borrow_mut().enter(entry);
        Ok::<(), IndexError>(())
    };
    let left_out = |path: &[u8]| sheltered.borrow_mut().left_out(path);
    match walk_telling(&root, &options, take, left_out) {
        Ok(_) => Ok((index, sheltered.into_inner())),
        Err(WalkError::Root(error)) => Err(error),
        Err(WalkError::Stopped(error)) => Err(io::Error::other(error.to_string())),
    }
}

/// The folders of an index that hold something that takes no part. It is told of both in the order
/// of a walk, and keeps a bit for each entry and what is open, however deep that is.
#[derive(Debug, Default)]
struct Sheltered {
    /// By the entries' numbers.
    bits: Bits,
    /// Of the next entry.
    number: u64,
    /// Path of the innermost open folder.
    path: Vec<u8>,
    /// The open folders, innermost last: number, and where its path ends.
    open: Vec<(u64, usize)>,
    /// What was left out last. Folders that hold what takes part are told of when that is come to,
    /// which may be after what they hold besides: then it lies below them.
    last: Vec<u8>,
}

impl Sheltered {
    fn has(&self, number: u64) -> bool {
        self.bits.has(number)
    }

    /// The next entry of the index.
    fn enter(&mut self, entry: &Entry<'_>) {
        self.open.truncate(self.open.len() - entry.leaves.min(self.open.len()));
        self.path.truncate(self.open.last().map_or(0, |&(_, end)| end));
        if entry.kind == Kind::Folder {
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(entry.name);
            self.open.push((self.number, self.path.len()));
            if is_below(&self.last, &self.path) {
                self.bits.set(self.number);
            }
        }
        self.number += 1;
    }

    /// Something of this path takes no part.
    fn left_out(&mut self, path: &[u8]) {
        let shared = common(&self.path, path);
        let is_around = |end: usize| end <= shared && path.get(end) == Some(&b'/');
        let around = self.open.partition_point(|&(_, end)| is_around(end));
        // Whoever is known to hold something lies in folders that are known to.
        for &(number, _) in self.open[..around].iter().rev() {
            if !self.bits.set(number) {
                break;
            }
        }
        self.last.clear();
        self.last.extend_from_slice(path);
    }
}

/// Whether a path is that of something below a folder.
pub(super) fn is_below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"))
}

struct Known {
    number: u64,
    path: Vec<u8>,
    is_folder: bool,
}

impl Known {
    fn of(item: Item<'_>) -> Known {
        let is_folder = item.entry.kind == Kind::Folder;
        Known { number: item.number, path: item.path.to_vec(), is_folder }
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
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    let parts = a.chunks(STRIDE_BYTES).zip(b.chunks(STRIDE_BYTES));
    let start = STRIDE_BYTES * parts.take_while(|(a, b)| a == b && a.len() == STRIDE_BYTES).count();
    let rest = a[start..].iter().zip(&b[start..]);
    start + rest.take_while(|(a, b)| a == b).count()
}

/// Compared in one go.
const STRIDE_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use swath_model::index::Mtime;

    use super::*;

    #[test]
    fn folders_around_what_is_left_out_are_known_in_little_memory() {
        // Each folder's whole path was kept: 32,000 of them, one in the other, took two gigabytes.
        let mut sheltered = Sheltered::default();
        let (deep, names) = (20_000, 3);
        let folder = Entry {
            leaves: 0,
            name: b"dd",
            kind: Kind::Folder,
            mode: 0o755,
            mtime: Mtime::default(),
            xattrs: Default::default(),
        };
        let mut path = Vec::new();
        for _ in 0..deep {
            sheltered.enter(&folder);
            path.extend_from_slice(b"dd/");
        }
        for name in 0..names {
            sheltered.left_out(&[path.as_slice(), format!("x{name}").as_bytes()].concat());
        }
        let Sheltered { bits, path, open, last, .. } = &sheltered;
        let words = bits.capacity() + 2 * open.capacity();
        assert!(8 * words + path.capacity() + last.capacity() < 40 * deep, "{words} words");
        assert!((0..deep as u64).all(|number| sheltered.has(number)));
        assert!(!sheltered.has(deep as u64));
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
