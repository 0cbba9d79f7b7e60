//! Checks whether a folder has the bytes of a dataset's blocks.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use swath_model::digest::blake3_tree::{ChainingValue, GROUP_BYTES, group_value};
use swath_model::index::{Extent, Index, Kind, Part};
use swath_model::{Range, RangeSet};

use super::folder_cursor::{Enter, Files, FolderCursor, split};
use super::root::{Root, size_in};

/// The content of a folder as the virtual file of an index, which must be complete. Clones are for
/// other threads; all methods block.
pub struct Content {
    root: Root,
    files: Files,
    index: Arc<RwLock<Index>>,
    open: Option<Open>,
    bytes: Vec<u8>,
    /// For sparse files checked so far: whether they match the index, holes included.
    sparse: Known,
}

type Known = Arc<Mutex<HashMap<u64, bool>>>;

impl Clone for Content {
    fn clone(&self) -> Content {
        let (root, index) = (self.root.clone(), Arc::clone(&self.index));
        Content::below(root, index, Arc::clone(&self.sparse))
    }
}

/// The file that was last read.
struct Open {
    number: u64,
    /// `None` if it does not match the index.
    file: Option<Arc<File>>,
}

struct Wanted {
    number: u64,
    path: Vec<u8>,
    size_bytes: u64,
    extents: Option<Vec<Extent>>,
    parts: Vec<Part>,
}

impl Content {
    /// Opens a folder.
    pub fn open(folder: &Path, index: Arc<RwLock<Index>>) -> io::Result<Content> {
        Ok(Content::below(Root::open(folder)?, index, Arc::default()))
    }

    fn below(root: Root, index: Arc<RwLock<Index>>, sparse: Known) -> Content {
        let files = Files::new(&root);
        Content { root, files, index, open: None, bytes: Vec::new(), sparse }
    }

    /// Returns the numbers of the groups whose files all exist and have the right size.
    pub fn candidates(&self) -> RangeSet {
        let (mut all, mut lacking) = (RangeSet::new(), RangeSet::new());
        let mut way = FolderCursor::new(&self.root, Enter::Look);
        let index = self.index();
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            let Kind::File { size_bytes, .. } = item.entry.kind else { continue };
            if item.start == item.end {
                continue;
            }
            let groups = Range::new(item.start / GROUP_BYTES, item.end.div_ceil(GROUP_BYTES));
            let (above, name) = split(item.path);
            let is_there = way.to(above).is_ok_and(|above| {
                let size = above.map(|above| size_in(above, name));
                size.is_some_and(|size| size.is_ok_and(|size| size == Some(size_bytes)))
            });
            if is_there { &mut all } else { &mut lacking }.insert(groups);
        }
        all.subtract(&lacking);
        all
    }

    /// Returns the value that this group has here; `None` if a file of it is missing, has another
    /// size, or has data in a hole.
    pub fn value(&mut self, group: u64) -> Option<ChainingValue> {
        let range = self.range_of(group)?;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.resize(range.len() as usize, 0);
        let is_read = self.wanted(range).into_iter().all(|wanted| {
            let file = self.file(&wanted);
            file.is_some_and(|file| {
                wanted.parts.iter().all(|part| {
                    let at = (part.start - range.start) as usize;
                    let to = &mut bytes[at..at + part.bytes as usize];
                    file.read_exact_at(to, part.offset).is_ok()
                })
            })
        });
        let value = is_read.then(|| group_value(group, &bytes));
        self.bytes = bytes;
        value
    }

    /// Returns the first and last groups of large files that do not match although all groups of
    /// the file alone do, by these matching bytes of the virtual file. Other files in them probably
    /// differ.
    pub fn doubtful_ends(&self, same: &RangeSet) -> BTreeSet<u64> {
        let mut ends = BTreeSet::new();
        let index = self.index();
        let size_bytes = index.size_bytes();
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            let (first, end) = (item.start / GROUP_BYTES, item.end.div_ceil(GROUP_BYTES));
            let own_start = item.start.next_multiple_of(GROUP_BYTES);
            let own_end =
                if item.end == size_bytes { item.end } else { item.end - item.end % GROUP_BYTES };
            let has_own = matches!(item.entry.kind, Kind::File { .. }) && own_start < own_end;
            if !has_own || !same.covers(Range::new(own_start, own_end)) {
                continue;
            }
            for group in [first, end - 1] {
                let start = group * GROUP_BYTES;
                if !same.covers(Range::new(start, (start + GROUP_BYTES).min(size_bytes))) {
                    ends.insert(group);
                }
            }
        }
        ends
    }

    /// Returns the parts of files in this group that exist here with these expected bytes.
    pub fn same_in(&mut self, group: u64, bytes: &[u8]) -> Vec<Range> {
        let Some(range) = self.range_of(group) else { return Vec::new() };
        let mut same = Vec::new();
        for wanted in self.wanted(range) {
            let Some(file) = self.file(&wanted) else { continue };
            for part in &wanted.parts {
                let at = (part.start - range.start) as usize;
                let mut here = vec![0; part.bytes as usize];
                if file.read_exact_at(&mut here, part.offset).is_ok()
                    && bytes.get(at..at + here.len()) == Some(&here)
                {
                    same.push(Range::of_len(part.start, part.bytes));
                }
            }
        }
        same
    }

    /// Returns the paths of the files that have bytes in this group.
    pub fn files_of(&self, group: u64) -> Vec<Vec<u8>> {
        let range = self.range_of(group);
        let wanted = range.map(|range| self.wanted(range)).unwrap_or_default();
        wanted.into_iter().map(|wanted| wanted.path).collect()
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> u64 {
        self.index().size_bytes().div_ceil(GROUP_BYTES)
    }

    fn range_of(&self, group: u64) -> Option<Range> {
        let start = group.checked_mul(GROUP_BYTES)?;
        let end = start.checked_add(GROUP_BYTES)?.min(self.index().size_bytes());
        (start < end).then(|| Range::new(start, end))
    }

    fn file(&mut self, wanted: &Wanted) -> Option<Arc<File>> {
        if self.open.as_ref().is_none_or(|open| open.number != wanted.number) {
            let file = self.files.file(&wanted.path).ok().filter(|file| self.is_as(file, wanted));
            self.open = Some(Open { number: wanted.number, file: file.map(Arc::new) });
        }
        self.open.as_ref().and_then(|open| open.file.clone())
    }

    /// Returns whether a file has the right size, and zeros where the index has holes. Holes are
    /// checked at once, because they may be far larger than the rest.
    fn is_as(&self, file: &File, wanted: &Wanted) -> bool {
        let found = file.metadata();
        if !found.is_ok_and(|found| found.is_file() && found.len() == wanted.size_bytes) {
            return false;
        }
        let Some(extents) = &wanted.extents else { return true };
        let known = || self.sparse.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&is_as) = known().get(&wanted.number) {
            return is_as;
        }
        let is_as = has_holes(file, extents, wanted.size_bytes);
        known().insert(wanted.number, is_as);
        is_as
    }

    fn wanted(&self, range: Range) -> Vec<Wanted> {
        let index = self.index();
        let mut cursor = index.cursor_at(range.start);
        let mut all = Vec::new();
        while let Some(item) = cursor.next() {
            if item.start >= range.end {
                break;
            }
            let parts: Vec<Part> = item.parts(range).collect();
            if let Kind::File { size_bytes, extents } = &item.entry.kind
                && !parts.is_empty()
            {
                let (path, extents) = (item.path.to_vec(), extents.clone());
                let number = item.number;
                all.push(Wanted { number, path, size_bytes: *size_bytes, extents, parts });
            }
        }
        all
    }

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a file of this size has only zeros outside of these extents.
pub(super) fn has_holes(file: &File, extents: &[Extent], size_bytes: u64) -> bool {
    let mut at = 0;
    let end = Extent { offset: size_bytes, bytes: 0 };
    extents.iter().chain([&end]).all(|extent| {
        let hole = Range::new(at.min(extent.offset), extent.offset);
        at = extent.offset + extent.bytes;
        is_zero(file, hole).unwrap_or(false)
    })
}

/// Returns whether a part of a file has only zeros. Holes are not read.
fn is_zero(file: &File, range: Range) -> io::Result<bool> {
    let mut part = vec![0; ZERO_PART_BYTES as usize];
    let mut at = range.start;
    while at < range.end {
        match rustix::fs::seek(file.as_fd(), SeekFrom::Data(at)) {
            Ok(data) => at = data.max(at),
            // Only a hole is left.
            Err(Errno::NXIO) => return Ok(true),
            // This file system does not report holes.
            Err(_) => {}
        }
        if at >= range.end {
            break;
        }
        let length = (range.end - at).min(ZERO_PART_BYTES);
        let part = &mut part[..length as usize];
        file.read_exact_at(part, at)?;
        if part.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += length;
    }
    Ok(true)
}

/// Bytes read at once where a hole should be.
const ZERO_PART_BYTES: u64 = 64 << 10;
