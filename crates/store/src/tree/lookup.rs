//! Looks up what an index lists, in the order of an index: before swath removes what one index does
//! not list, it checks another one here.

use std::cmp::Ordering;
use std::path::Path;

use crate::file_kind::FileKind;
use swath_model::index::{Cursor, Index, Kind};

use super::differ::order;
use super::partial::{PartialError, check_destination};

/// Looks up paths in an index. Ask for paths in ascending order.
pub struct Lookup<'a> {
    cursor: Cursor<'a>,
    /// The next entry.
    next: Option<Known>,
    /// A path whose content could not be read.
    unknown: Option<Vec<u8>>,
}

struct Known {
    path: Vec<u8>,
    is_folder: bool,
    is_absent: bool,
}

/// What an index says about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// It does not exist.
    No,
    /// It is a folder.
    Folder,
    /// It is a file or a link.
    Other,
    /// It, or a folder it lies in, could not be read.
    Unknown,
}

impl<'a> Lookup<'a> {
    /// Returns a lookup in this index, which must be complete.
    pub fn new(index: &'a Index) -> Lookup<'a> {
        let mut lookup = Lookup { cursor: index.cursor(), next: None, unknown: None };
        lookup.step();
        lookup
    }

    /// Looks up this path, which must come behind all earlier ones.
    pub fn find(&mut self, path: &[u8]) -> Listing {
        while let Some(known) = &self.next
            && order(&known.path, path) == Ordering::Less
        {
            if known.is_absent {
                self.unknown = Some(known.path.clone());
            }
            self.step();
        }
        let below = self.unknown.as_ref().and_then(|above| path.strip_prefix(above.as_slice()));
        match &self.next {
            _ if below.is_some_and(|rest| rest.starts_with(b"/")) => Listing::Unknown,
            Some(known) if known.path != path => Listing::No,
            Some(known) if known.is_absent => Listing::Unknown,
            Some(known) if known.is_folder => Listing::Folder,
            Some(_) => Listing::Other,
            None => Listing::No,
        }
    }

    fn step(&mut self) {
        self.next = self.cursor.next().map(|item| Known {
            path: item.path.to_vec(),
            is_folder: item.entry.kind == Kind::Folder,
            is_absent: matches!(item.entry.kind, Kind::Absent(_)),
        });
    }
}

/// Returns the first entry at `destination` that must go because `now` gives it another kind
/// although `first` lists it as it is there, as far as known. Both must be complete. Blocks.
///
/// # Errors
/// As for [`check_destination`], except for entries in the way.
pub fn turned(
    first: &Index,
    now: &Index,
    destination: &Path,
) -> Result<Option<Vec<u8>>, PartialError> {
    let conflicts = match check_destination(now, destination, None) {
        Err(PartialError::InTheWay { conflicts, .. }) => conflicts,
        other => return other.map(|()| None),
    };
    let mut before = Lookup::new(first);
    let mut is_as_listed = |path: &[u8], is_folder: bool| match before.find(path) {
        Listing::No => false,
        Listing::Folder => is_folder,
        Listing::Other => !is_folder,
        Listing::Unknown => true,
    };
    let found =
        conflicts.into_iter().find(|it| is_as_listed(&it.path, it.there == FileKind::Folder));
    Ok(found.map(|conflict| conflict.path))
}

#[cfg(test)]
mod tests {
    use swath_model::index::{Absence, Entry, Mtime, Xattrs};

    use super::*;

    fn index(entries: &[(usize, &str, Kind)]) -> Index {
        let mut index = Index::new();
        for (leaves, name, kind) in entries {
            let (name, kind) = (name.as_bytes(), kind.clone());
            let mode = if matches!(kind, Kind::Absent(_)) { 0 } else { 0o644 };
            let (mtime, xattrs) = (Mtime::default(), Xattrs::None);
            let entry = Entry { leaves: *leaves, name, kind, mode, mtime, xattrs };
            index.push(&entry).unwrap();
        }
        index.complete();
        index
    }

    #[test]
    fn all_that_is_listed_is_found_and_nothing_else() {
        let file = || Kind::File { size_bytes: 1, extents: None };
        let index = index(&[
            (0, "a", Kind::Folder),
            (0, "a", file()),
            (0, "b", Kind::Absent(Absence::Forbidden)),
            (1, "a.b", file()),
            (0, "c", Kind::Symlink(b"a".to_vec())),
        ]);
        let asked = [
            ("a", Listing::Folder),
            ("a/0", Listing::No),
            ("a/a", Listing::Other),
            ("a/a/b", Listing::No),
            ("a/b", Listing::Unknown),
            ("a/b/c/d", Listing::Unknown),
            ("a/ba", Listing::No),
            ("a.b", Listing::Other),
            ("b", Listing::No),
            ("c", Listing::Other),
            ("d", Listing::No),
        ];
        let mut lookup = Lookup::new(&index);
        for (path, listing) in asked {
            assert_eq!(lookup.find(path.as_bytes()), listing, "{path}");
        }
        for (path, listing) in asked {
            assert_eq!(Lookup::new(&index).find(path.as_bytes()), listing, "{path}, alone");
        }
        assert_eq!(Lookup::new(&Index::new()).find(b"a"), Listing::No);
    }
}
