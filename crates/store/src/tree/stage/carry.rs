//! From one version of a tree to the next: what is here already of files that have not changed.

use std::cmp::Ordering;

use swath_model::index::{Index, Item, Kind};
use swath_model::{Range, RangeSet};

/// Of `durable`, ranges of the virtual file of `old`, what belongs to files that are the same in
/// `new` (path, size, time, extents): the ranges there. Both lists are in the same order, so one
/// pass over both finds all.
pub(super) fn over(old: &Index, durable: &RangeSet, new: &Index) -> RangeSet {
    let mut carried = RangeSet::new();
    let (mut olds, mut news) = (old.cursor(), new.cursor());
    let mut before = olds.next().map(Known::of);
    while let Some(item) = news.next() {
        while before.as_ref().is_some_and(|known| order(&known.path, item.path) == Ordering::Less) {
            before = olds.next().map(Known::of);
        }
        let Some(known) = &before else { break };
        if known.path != item.path || !known.is_same(&item) {
            continue;
        }
        for range in durable.within(known.range) {
            let from = item.start + (range.start - known.range.start);
            carried.insert(Range::of_len(from, range.len()));
        }
    }
    carried
}

struct Known {
    path: Vec<u8>,
    range: Range,
    kind: Kind,
    mtime: swath_model::index::Mtime,
}

impl Known {
    fn of(item: Item<'_>) -> Known {
        Known {
            path: item.path.to_vec(),
            range: item.range(),
            kind: item.entry.kind.clone(),
            mtime: item.entry.mtime,
        }
    }

    fn is_same(&self, item: &Item<'_>) -> bool {
        matches!(self.kind, Kind::File { .. })
            && self.kind == item.entry.kind
            && self.mtime == item.entry.mtime
            && self.range.len() == item.range().len()
    }
}

/// The order of an index: component by component, by their bytes.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    a.split(|&byte| byte == b'/').cmp(b.split(|&byte| byte == b'/'))
}

#[cfg(test)]
mod tests {
    use swath_model::index::{Entry, Mtime};

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
            index.push(&Entry { leaves, name: name.as_bytes(), kind, mode, mtime }).unwrap();
        }
        index.complete();
        index
    }

    #[test]
    fn only_files_that_are_the_same_are_carried_over() {
        let old = index(&[("a", 100, 1), ("b", 0, 1), ("x", 50, 1), ("y", 60, 1), ("../c", 70, 1)]);
        // "a" changed, "ab" is new, "b/x" moved up by that, "b/y" went, "c" is newer.
        let new =
            index(&[("a", 100, 2), ("ab", 30, 1), ("b", 0, 9), ("x", 50, 1), ("../c", 70, 2)]);
        let all = RangeSet::full(280);
        let carried: Vec<Range> = over(&old, &all, &new).iter().collect();
        assert_eq!(carried, [Range::new(130, 180)]);
        let some = RangeSet::from(Range::new(90, 110));
        let carried: Vec<Range> = over(&old, &some, &new).iter().collect();
        assert_eq!(carried, [Range::new(130, 140)]);
        assert_eq!(over(&old, &all, &old).total_bytes(), 280);
        assert!(over(&index(&[]), &all, &new).is_empty());
    }

    #[test]
    fn the_order_is_that_of_an_index() {
        // By whole paths "a-b" would come before "a/x", since '-' is before '/'.
        assert_eq!(order(b"a/x", b"a-b"), Ordering::Less);
        assert_eq!(order(b"a", b"a/x"), Ordering::Less);
        assert_eq!(order(b"b", b"a/x"), Ordering::Greater);
    }
}
