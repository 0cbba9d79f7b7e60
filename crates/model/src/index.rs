//! The table of a dataset: its entries laid end to end as one virtual file.
//!
//! Always true of an `Index`: paths are safe and unique; nothing lies below a file or a symbolic
//! link; links point inside the dataset; only files have bytes; entry starts are the running sum
//! of sizes, and the sum fits in 64 bits. Entry order is the order of the virtual file.

use std::fmt;

use crate::digest::Digest;
use crate::path::SafePath;
use crate::range::Range;

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder, listed where it is empty or has a mode or time of its own.
    Folder,
    /// A symbolic link with its target as written.
    Symlink(Box<str>),
}

/// Seconds and nanoseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it lies below the dataset's root.
    pub path: SafePath,
    /// File, folder or link.
    pub kind: Kind,
    /// Its bytes; 0 for folders and links.
    pub size_bytes: u64,
    /// Permission bits, where known.
    pub mode: Option<u32>,
    /// Time of last change, where known.
    pub mtime: Option<Mtime>,
    /// Offset of its first byte in the virtual file; [`Index::new`] sets it.
    pub start: u64,
    /// Digests of the whole entry, where known.
    pub digests: Vec<Digest>,
}

impl Entry {
    /// A file of which only name and size are known.
    pub fn file(path: SafePath, size_bytes: u64) -> Entry {
        Entry {
            path,
            kind: Kind::File,
            size_bytes,
            mode: None,
            mtime: None,
            start: 0,
            digests: Vec::new(),
        }
    }

    /// Its bytes in the virtual file.
    pub fn range(&self) -> Range {
        Range::new(self.start, self.start + self.size_bytes)
    }

    /// The strongest digest known.
    pub fn strongest_digest(&self) -> Option<Digest> {
        self.digests.iter().copied().max_by_key(Digest::algorithm)
    }
}

/// A dataset's entries in the order of the virtual file.
#[derive(Clone, PartialEq, Eq)]
pub struct Index {
    entries: Vec<Entry>,
    /// Entry numbers ordered by path, folders directly before what lies in them.
    by_path: Vec<u32>,
    size_bytes: u64,
}

impl Index {
    /// Lays `entries` end to end and checks what the module promises.
    ///
    /// # Errors
    /// [`IndexError`] names the entry and what is wrong with it.
    pub fn new(mut entries: Vec<Entry>) -> Result<Index, IndexError> {
        let count = u32::try_from(entries.len()).map_err(|_| IndexError::TooMany)?;
        let mut size_bytes = 0u64;
        for entry in &mut entries {
            if entry.kind != Kind::File && entry.size_bytes != 0 {
                return Err(IndexError::NotAFile { path: entry.path.clone() });
            }
            if let Kind::Symlink(target) = &entry.kind {
                check_target(&entry.path, target)?;
            }
            entry.start = size_bytes;
            size_bytes = size_bytes
                .checked_add(entry.size_bytes)
                .ok_or_else(|| IndexError::TooLarge { path: entry.path.clone() })?;
        }
        let mut by_path: Vec<u32> = (0..count).collect();
        by_path.sort_unstable_by(|a, b| {
            path_order(&entries[*a as usize].path, &entries[*b as usize].path)
        });
        for pair in by_path.windows(2) {
            let (above, below) = (&entries[pair[0] as usize], &entries[pair[1] as usize]);
            if above.path == below.path {
                return Err(IndexError::Twice { path: below.path.clone() });
            }
            // What lies below an entry follows it directly in this order.
            let rest = below.path.as_str().strip_prefix(above.path.as_str());
            if above.kind != Kind::Folder && rest.is_some_and(|rest| rest.starts_with('/')) {
                let (path, above) = (below.path.clone(), above.path.clone());
                return Err(IndexError::BelowFile { path, above });
            }
        }
        Ok(Index { entries, by_path, size_bytes })
    }

    /// The dataset that is one file.
    pub fn of_file(path: SafePath, size_bytes: u64) -> Index {
        let entries = vec![Entry::file(path, size_bytes)];
        Index { entries, by_path: vec![0], size_bytes }
    }

    /// All entries, in the order of the virtual file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The length of the virtual file.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Number of the file that holds the byte at `offset`, `None` past the end.
    pub fn entry_at(&self, offset: u64) -> Option<usize> {
        if offset >= self.size_bytes {
            return None;
        }
        // Of entries with the same start only the last has bytes.
        self.entries.partition_point(|entry| entry.start <= offset).checked_sub(1)
    }

    /// The files that `range` touches, each with the part of the file, counted from the file's
    /// own first byte. Empty entries never appear.
    pub fn parts(&self, range: Range) -> impl Iterator<Item = (usize, Range)> + '_ {
        let first = self.entry_at(range.start).unwrap_or(self.entries.len());
        self.entries[first..]
            .iter()
            .enumerate()
            .take_while(move |(_, entry)| entry.start < range.end)
            .filter_map(move |(number, entry)| {
                let part = entry.range().intersect(range)?;
                let part = Range::new(part.start - entry.start, part.end - entry.start);
                Some((first + number, part))
            })
    }

    /// The number of the entry at `path`.
    pub fn find(&self, path: &SafePath) -> Option<usize> {
        let found = self
            .by_path
            .binary_search_by(|number| path_order(&self.entries[*number as usize].path, path));
        Some(self.by_path[found.ok()?] as usize)
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index({} entries, {} bytes)", self.entries.len(), self.size_bytes)
    }
}

/// Why entries are no dataset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The same path again.
    #[error("'{path}' is listed twice")]
    Twice {
        /// The path.
        path: SafePath,
    },
    /// It would have to lie inside a file or behind a link.
    #[error("'{path}' lies below '{above}', which is not a folder")]
    BelowFile {
        /// The entry.
        path: SafePath,
        /// The file or link.
        above: SafePath,
    },
    /// A folder or link with bytes.
    #[error("'{path}' is a folder or a link, but has a size")]
    NotAFile {
        /// The entry.
        path: SafePath,
    },
    /// A link that leaves the dataset.
    #[error("the link '{path}' points to {target:?}, outside the dataset")]
    LinkLeaves {
        /// The link.
        path: SafePath,
        /// Its target.
        target: String,
    },
    /// The sum of sizes does not fit.
    #[error("with '{path}' the dataset is larger than 2^64 bytes")]
    TooLarge {
        /// The entry that was one too many.
        path: SafePath,
    },
    /// Too many entries to number.
    #[error("the dataset has more than 2^32 entries")]
    TooMany,
}

/// Component by component, so that a folder's content follows it directly: no character of a
/// safe path sorts before the separator when that counts as zero.
fn path_order(a: &SafePath, b: &SafePath) -> std::cmp::Ordering {
    let key = |byte: u8| if byte == b'/' { 0 } else { byte };
    a.as_str().bytes().map(key).cmp(b.as_str().bytes().map(key))
}

/// Only leading `..` are taken: after a name that is itself a link, `..` would mean the parent of
/// that link's target, and two harmless-looking links could lead outside together.
fn check_target(path: &SafePath, target: &str) -> Result<(), IndexError> {
    let leaves = || IndexError::LinkLeaves { path: path.clone(), target: target.to_owned() };
    if target.is_empty() || target.starts_with('/') || target.contains('\0') {
        return Err(leaves());
    }
    let mut climbs_left = path.as_str().split('/').count() - 1;
    for component in target.split('/') {
        match component {
            "" | "." => {}
            ".." => climbs_left = climbs_left.checked_sub(1).ok_or_else(leaves)?,
            _ => climbs_left = 0,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(name: &str) -> SafePath {
        SafePath::new(name).unwrap()
    }

    fn file(name: &str, size_bytes: u64) -> Entry {
        Entry::file(path(name), size_bytes)
    }

    fn other(name: &str, kind: Kind) -> Entry {
        Entry { kind, ..file(name, 0) }
    }

    #[test]
    fn an_index_is_checked() {
        let refused = |entries| Index::new(entries).unwrap_err().to_string();
        assert_eq!(refused(vec![file("a", 1), file("b", 1), file("a", 1)]), "'a' is listed twice");
        assert_eq!(
            refused(vec![file("a/b/c", 1), file("a!", 1), file("a", 1)]),
            "'a/b/c' lies below 'a', which is not a folder"
        );
        assert!(refused(vec![file("a", u64::MAX), file("b", 1)]).contains("2^64"));
        let mut folder = other("f", Kind::Folder);
        folder.size_bytes = 1;
        assert!(refused(vec![folder]).contains("has a size"));
        for target in ["/etc/passwd", "../x", "a/../x", "a/../../x", ""] {
            let link = other("l", Kind::Symlink(target.into()));
            assert!(refused(vec![link]).contains("outside the dataset"), "{target}");
        }
        let link = other("a/l", Kind::Symlink("../b/./c".into()));
        assert!(refused(vec![link.clone(), file("a/l/x", 1)]).contains("below 'a/l'"));
        let index = Index::new(vec![link, other("a", Kind::Folder), file("b/c", 9)]).unwrap();
        assert_eq!(index.find(&path("b/c")), Some(2));
        assert_eq!(index.find(&path("b")), None);
    }

    #[test]
    fn empty_datasets_have_no_bytes() {
        let index = Index::new(vec![]).unwrap();
        assert_eq!((index.size_bytes(), index.entry_at(0)), (0, None));
        let index = Index::new(vec![file("a", 0), file("b", 0)]).unwrap();
        assert_eq!(index.entry_at(0), None);
        assert_eq!(index.parts(Range::new(0, 10)).count(), 0);
    }

    proptest! {
        #[test]
        fn look_up_agrees_with_a_walk(
            sizes in prop::collection::vec(0..5u64, 0..20), start in 0..60u64, len in 0..60u64,
        ) {
            let entries = sizes.iter().enumerate().map(|(i, size)| file(&format!("f{i}"), *size));
            let index = Index::new(entries.collect()).unwrap();
            let owners: Vec<(usize, u64)> = (sizes.iter().enumerate())
                .flat_map(|(i, size)| (0..*size).map(move |at| (i, at)))
                .collect();
            prop_assert_eq!(index.size_bytes(), owners.len() as u64);
            for offset in 0..70 {
                let owner = owners.get(offset as usize).map(|(i, _)| *i);
                prop_assert_eq!(index.entry_at(offset), owner);
            }
            let walked: Vec<(usize, u64)> = index
                .parts(Range::new(start, start + len))
                .flat_map(|(i, part)| (part.start..part.end).map(move |at| (i, at)))
                .collect();
            let end = owners.len().min((start + len) as usize);
            prop_assert_eq!(&walked[..], owners.get(start as usize..end).unwrap_or(&[]));
        }

        #[test]
        fn every_path_is_found(names in prop::collection::btree_set("[ab.!]{1,3}(/[ab]{1,2}){0,2}", 0..30)) {
            let names: Vec<SafePath> = names.iter().filter_map(|name| SafePath::new(name).ok()).collect();
            let naive_conflict = names.iter().any(|a| {
                names.iter().any(|b| b.as_str().starts_with(&format!("{a}/")))
            });
            let entries = names.iter().rev().map(|name| Entry::file(name.clone(), 1)).collect();
            let index = Index::new(entries);
            prop_assert_eq!(index.is_err(), naive_conflict);
            if let Ok(index) = index {
                for name in &names {
                    let found = index.find(name).unwrap();
                    prop_assert_eq!(&index.entries()[found].path, name);
                }
            }
        }
    }
}
