//! What a destination lacks of a tree, and what it has beyond it.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::io;
use std::path::Path;

use swath_model::index::{Entry, Index, IndexError, Item, Kind};

use super::alike::Spellings;
use super::filter::Filter;
use super::partial::Unchanged;
use super::root::Root;
use super::walk::{WalkError, WalkOptions, walk_telling};
use crate::bits::Bits;

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Copy it: it is missing or differs.
    Copy {
        /// Bytes it will take: the size of a file, or 0 for hard links and other entries.
        bytes: u64,
        /// Whether it is a folder.
        is_folder: bool,
        /// If it is another hard link to a file, the path of that file.
        further_of: Option<Vec<u8>>,
    },
    /// It exists with another kind than in the tree and must go first.
    InTheWay,
    /// It exists but is not in the tree.
    Surplus,
}

/// Reports how a folder differs from the tree of `index` (complete), in the order of an index.
/// `unchanged` says what stays as it is, `links` whether further names are hard links. A missing
/// folder counts as empty. Not reported: entries that the tree lists as absent, those that `filter`
/// leaves out, files of unfinished copies, and folders that hold such. Blocks.
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
    let mut spellings = Spellings::new(index, Root::open(folder).ok().as_ref());
    // It is unknown whether entries below an unreadable one are surplus.
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
            let is_left = sheltered.has(known.number) || is_below(&known.path, &unknown);
            if !is_left && !spellings.has(&known.path) {
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
                    take(Change::Copy { bytes, is_folder, further_of }, item.path);
                }
            }
        }
    }
}

/// Returns the bytes that a further name of this file will take, and the file's path.
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

/// Returns the selected entries of a folder, and its folders that hold any left out.
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

/// The folders of an index that hold an entry left out. Takes both kinds of entries in the order of
/// a walk. Keeps a bit for each entry, and the open folders.
#[derive(Debug, Default)]
struct Sheltered {
    /// A bit for each entry's number.
    bits: Bits,
    /// Number of the next entry.
    number: u64,
    /// Path of the innermost open folder.
    path: Vec<u8>,
    /// The open folders, innermost last: number, and where its path ends.
    open: Vec<(u64, usize)>,
    /// The last entry left out. A folder is entered with its first selected content, which may be
    /// after entries left out; these then lie below it.
    last: Vec<u8>,
}

impl Sheltered {
    fn has(&self, number: u64) -> bool {
        self.bits.has(number)
    }

    /// Adds the next entry of the index.
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

    /// Records an entry left out.
    fn left_out(&mut self, path: &[u8]) {
        let shared = common(&self.path, path);
        let is_around = |end: usize| end <= shared && path.get(end) == Some(&b'/');
        let around = self.open.partition_point(|&(_, end)| is_around(end));
        // A folder that is already marked lies in folders that are marked.
        for &(number, _) in self.open[..around].iter().rev() {
            if !self.bits.set(number) {
                break;
            }
        }
        self.last.clear();
        self.last.extend_from_slice(path);
    }
}

/// Returns whether a path lies below a folder.
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

/// Compares paths in the order of an index: component by component, by bytes.
pub(super) fn order(a: &[u8], b: &[u8]) -> Ordering {
    // Compare from the first component that differs.
    let shared = common(a, b);
    let start = a[..shared].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    a[start..].split(|&byte| byte == b'/').cmp(b[start..].split(|&byte| byte == b'/'))
}

/// Returns how many bytes two paths share at their beginnings.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    let parts = a.chunks(STRIDE_BYTES).zip(b.chunks(STRIDE_BYTES));
    let start = STRIDE_BYTES * parts.take_while(|(a, b)| a == b && a.len() == STRIDE_BYTES).count();
    let rest = a[start..].iter().zip(&b[start..]);
    start + rest.take_while(|(a, b)| a == b).count()
}

/// Bytes compared at once.
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
