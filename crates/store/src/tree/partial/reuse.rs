//! Compares two versions of a tree to reuse the received bytes of unchanged files.

use std::cmp::Ordering;

use swath_model::index::{Index, Item, Kind};
use swath_model::{Range, RangeSet};

use crate::tree::differ::order;

/// The useful part of an earlier version.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reusable {
    /// Durable bytes of files that are the same (path, size, mode, time, extents), at their place
    /// in the new virtual file.
    pub durable: RangeSet,
    /// Paths that now have another kind or no entry. A folder's content comes after the folder.
    pub gone: Vec<Vec<u8>>,
    /// Whether it is another tree: there were entries, and none of them except folders has its path
    /// in the new version.
    pub is_other: bool,
}

/// Compares two versions. Both are in the same order, so one pass over both finds all.
pub(super) fn find(old: &Index, durable: &RangeSet, new: &Index) -> Reusable {
    let mut reusable = Reusable::default();
    let (mut olds, mut news) = (old.cursor(), new.cursor());
    let mut before = olds.next().map(Known::of);
    let mut has_common = false;
    while let Some(item) = news.next() {
        while let Some(known) =
            before.take_if(|known| order(&known.path, item.path) == Ordering::Less)
        {
            reusable.gone.push(known.path);
            before = olds.next().map(Known::of);
        }
        let Some(known) = before.take_if(|known| known.path == item.path) else { continue };
        before = olds.next().map(Known::of);
        has_common |= known.kind != Kind::Folder;
        if nature(&known.kind) != nature(&item.entry.kind) {
            reusable.gone.push(known.path);
        } else if known.is_same(&item) {
            for range in durable.within(known.range) {
                let from = item.start + (range.start - known.range.start);
                reusable.durable.insert(Range::of_len(from, range.len()));
            }
        }
    }
    while let Some(known) = before {
        reusable.gone.push(known.path);
        before = olds.next().map(Known::of);
    }
    reusable.is_other = !has_common && !durable.is_empty();
    reusable
}

/// Entries of the same class can replace each other without being removed first.
fn nature(kind: &Kind) -> u8 {
    match kind {
        Kind::File { .. } | Kind::HardLink(_) => 0,
        Kind::Folder => 1,
        Kind::Symlink(_) => 2,
        Kind::Absent(_) => 3,
    }
}

struct Known {
    path: Vec<u8>,
    range: Range,
    kind: Kind,
    mode: u32,
    mtime: swath_model::index::Mtime,
}

impl Known {
    fn of(item: Item<'_>) -> Known {
        Known {
            path: item.path.to_vec(),
            range: item.range(),
            kind: item.entry.kind.clone(),
            mode: item.entry.mode,
            mtime: item.entry.mtime,
        }
    }

    fn is_same(&self, item: &Item<'_>) -> bool {
        matches!(self.kind, Kind::File { .. })
            && self.kind == item.entry.kind
            && (self.mode, self.mtime) == (item.entry.mode, item.entry.mtime)
            && self.range.len() == item.range().len()
    }
}

#[cfg(test)]
mod tests {
    use swath_model::index::{Entry, Mtime, Xattrs};

    use super::*;

    fn index(files: &[(&str, u64, i64)]) -> Index {
        let mut index = Index::new();
        for &(name, size_bytes, seconds) in files {
            let kind = match size_bytes {
                0 => Kind::Folder,
                _ => Kind::File { size_bytes, extents: None },
            };
            let (leaves, name) = match name.strip_prefix("../") {
                Some(name) => (1, name),
                None => (0, name),
            };
            let mtime = Mtime { seconds, nanoseconds: 0 };
            let mode = if size_bytes == 0 { 0o755 } else { 0o644 };
            let (name, xattrs) = (name.as_bytes(), Xattrs::None);
            index.push(&Entry { leaves, name, kind, mode, mtime, xattrs }).unwrap();
        }
        index.complete();
        index
    }

    #[test]
    fn only_files_that_are_the_same_are_reused() {
        let old = index(&[("a", 100, 1), ("b", 0, 1), ("x", 50, 1), ("y", 60, 1), ("../c", 70, 1)]);
        // "a" changed, "ab" is new, "b/x" moved up by that, "b/y" went, "c" is newer.
        let new =
            index(&[("a", 100, 2), ("ab", 30, 1), ("b", 0, 9), ("x", 50, 1), ("../c", 70, 2)]);
        let all = RangeSet::full(280);
        let reusable: Vec<Range> = find(&old, &all, &new).durable.iter().collect();
        assert_eq!(reusable, [Range::new(130, 180)]);
        let some = RangeSet::from(Range::new(90, 110));
        let reusable: Vec<Range> = find(&old, &some, &new).durable.iter().collect();
        assert_eq!(reusable, [Range::new(130, 140)]);
        let same = find(&old, &all, &old);
        assert_eq!((same.durable.total_bytes(), same.gone.len()), (280, 0));
        assert_eq!(find(&index(&[]), &RangeSet::new(), &new), Reusable::default());
    }

    #[test]
    fn what_is_no_more_is_told_with_what_lies_in_it() {
        let old = index(&[("a", 100, 1), ("b", 0, 1), ("x", 50, 1), ("../c", 70, 1), ("d", 9, 1)]);
        // "a" is a folder now, and "b" is not there any more.
        let new = index(&[("a", 0, 1), ("y", 100, 1), ("../c", 70, 1)]);
        let gone = find(&old, &RangeSet::full(229), &new).gone;
        assert_eq!(gone, [&b"a"[..], b"b", b"b/x", b"d"]);
    }

    #[test]
    fn a_tree_of_which_no_file_is_there_any_more_is_another_one() {
        let old = index(&[("a", 100, 1), ("b", 0, 1), ("x", 50, 1)]);
        let is_other = |new: &[(&str, u64, i64)], durable: &RangeSet| {
            find(&old, durable, &index(new)).is_other
        };
        let all = RangeSet::full(150);
        assert!(is_other(&[], &all));
        // A folder of the name is what a disk leaves that is not there.
        assert!(is_other(&[("b", 0, 1)], &all));
        assert!(is_other(&[("c", 100, 1)], &all));
        assert!(!is_other(&[("a", 7, 2)], &all), "of another time and size it is the same tree");
        assert!(!is_other(&[("b", 0, 1), ("x", 50, 1)], &all));
        assert!(!is_other(&[], &RangeSet::new()), "nothing is lost");
    }

    #[test]
    fn the_order_is_that_of_an_index() {
        // By whole paths "a-b" would come before "a/x", since '-' is before '/'.
        assert_eq!(order(b"a/x", b"a-b"), Ordering::Less);
        assert_eq!(order(b"a", b"a/x"), Ordering::Less);
        assert_eq!(order(b"b", b"a/x"), Ordering::Greater);
    }
}
