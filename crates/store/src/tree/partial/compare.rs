//! Finds what the destination already has: identical files stay as they are.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, StatxFlags, readlinkat, statx};
use swath_model::index::{Index, Item, Kind, Mtime};
use swath_model::{Range, RangeSet};

use crate::bits::Bits;
use crate::tree::check::same_bytes;
use crate::tree::content::has_holes;
use crate::tree::folder_cursor::{Enter, Files, FolderCursor, split};
use crate::tree::kept_time::KeptTimes;
use crate::tree::root::{Root, file_in};
use crate::tree::stat::{FileId, id};

/// Which files of a destination count as identical to those of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Same {
    /// None.
    Nothing,
    /// Files of equal size and modification time.
    SizeAndTime,
    /// Files of equal size whose bytes are all among these compared bytes of the virtual file.
    Bytes(RangeSet),
}

/// Files, further names and links that the destination has as in the index.
#[derive(Debug, Default)]
pub struct Unchanged {
    /// A bit for each entry's number.
    bits: Bits,
    /// Number of such entries …
    pub(super) entries: u64,
    /// … and of files among them.
    pub(super) files: u64,
    /// Their bytes in the virtual file, including the gaps between them.
    pub(super) ranges: RangeSet,
    /// Whether they were compared by content, so that their times may differ.
    pub(super) by_content: bool,
}

impl Unchanged {
    /// Compares all entries with `destination`, if it is a folder. `links` says whether further
    /// names of a file are hard links or separate files. The index must be complete. Blocks.
    pub fn at(index: &Index, destination: &Path, same: &Same, links: bool) -> Unchanged {
        let root = Root::open(destination);
        root.map_or_else(
            |_| Unchanged::default(),
            |root| Unchanged::find(index, &root, same, links),
        )
    }

    pub(super) fn find(index: &Index, destination: &Root, same: &Same, links: bool) -> Unchanged {
        let by_content = matches!(same, Same::Bytes(_));
        let mut unchanged = Unchanged { by_content, ..Unchanged::default() };
        if *same == Same::Nothing {
            return unchanged;
        }
        let mut names = Linked::of(index, destination, same, links);
        let times = names.times;
        let mut folders = FolderCursor::new(destination, Enter::Look);
        let mut before = 0;
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            if matches!(item.entry.kind, Kind::Folder | Kind::Absent(_)) {
                continue;
            }
            let (above, name) = split(item.path);
            let here = before;
            before = item.end.max(before);
            // A folder that cannot be entered is reported where it matters.
            let Ok(Some(open)) = folders.to(above) else { continue };
            let is_same = match &item.entry.kind {
                Kind::Symlink(target) => {
                    readlinkat(open, name, Vec::new()).is_ok_and(|it| it.as_bytes() == target)
                }
                Kind::HardLink(of) => names.is_further(*of, open, name),
                Kind::File { size_bytes, .. } => Found::look(open, name).is_some_and(|found| {
                    found.size_bytes == *size_bytes
                        && match same {
                            // It has no block that could have been compared.
                            Same::Bytes(_) if item.start == item.end => {
                                *size_bytes == 0 || names.is_one_hole(item.path, *size_bytes)
                            }
                            same => same.has(&item, found.mtime, times),
                        }
                        && names.is_first(&item, &found)
                }),
                Kind::Folder | Kind::Absent(_) => false,
            };
            if !is_same {
                continue;
            }
            unchanged.bits.set(item.number);
            unchanged.entries += 1;
            unchanged.files += u64::from(matches!(item.entry.kind, Kind::File { .. }));
            // The gap between two files belongs to neither.
            if item.start < item.end {
                unchanged.ranges.insert(Range::new(here.min(item.start), item.end));
            }
        }
        unchanged
    }

    /// Returns whether the entry of this number stays as it is.
    pub(in crate::tree) fn has(&self, number: u64) -> bool {
        self.bits.has(number)
    }
}

impl Same {
    /// Returns whether a file of the size of `item`, modified at `mtime`, is identical.
    fn has(&self, item: &Item<'_>, mtime: Mtime, times: KeptTimes) -> bool {
        match self {
            Same::Nothing => false,
            Same::SizeAndTime => times.are_same(mtime, item.entry.mtime),
            Same::Bytes(bytes) => bytes.covers(item.range()),
        }
    }
}

/// A regular file of the destination.
struct Found {
    size_bytes: u64,
    mtime: Mtime,
    id: FileId,
    has_names: bool,
}

impl Found {
    /// Returns the regular file of this name in a folder, if there is one.
    fn look(folder: BorrowedFd<'_>, name: &[u8]) -> Option<Found> {
        let mask = StatxFlags::BASIC_STATS;
        let found = statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, mask).ok()?;
        let is_file = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile;
        let (seconds, nanoseconds) = (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec);
        is_file.then(|| Found {
            size_bytes: found.stx_size,
            mtime: Mtime { seconds, nanoseconds },
            id: id(&found),
            has_names: found.stx_nlink > 1,
        })
    }
}

/// Files with several names, in the tree and at the destination.
struct Linked<'a> {
    index: &'a Index,
    same: &'a Same,
    times: KeptTimes,
    /// Whether further names are made as hard links.
    links: bool,
    /// Opens files whose bytes are compared.
    files: Files,
    /// Files of the tree that have further names, by number.
    firsts: HashMap<u64, First>,
    /// Files of the destination with several names; each stands for one file of the tree.
    taken: HashSet<FileId>,
}

/// A file of the tree that has further names.
#[derive(Default)]
struct First {
    size_bytes: u64,
    mtime: Mtime,
    /// The file of its name at the destination, if identical.
    unchanged: Option<FileId>,
}

impl<'a> Linked<'a> {
    fn of(index: &'a Index, destination: &Root, same: &'a Same, links: bool) -> Linked<'a> {
        let mut firsts = HashMap::new();
        if index.counts().hard_links > 0 {
            let mut cursor = index.cursor();
            while let Some(item) = cursor.next() {
                if let Kind::HardLink(of) = item.entry.kind {
                    firsts.insert(of, First::default());
                }
            }
            let mut cursor = index.cursor();
            while let Some(item) = cursor.next() {
                if let Kind::File { size_bytes, .. } = item.entry.kind
                    && let Some(first) = firsts.get_mut(&item.number)
                {
                    (first.size_bytes, first.mtime) = (size_bytes, item.entry.mtime);
                }
            }
        }
        let (files, times) = (Files::new(destination), KeptTimes::of(destination));
        Linked { index, same, times, links, files, firsts, taken: HashSet::new() }
    }

    /// Returns whether an identical file may stay: with hard links, two files of the tree must not
    /// be one file at the destination.
    fn is_first(&mut self, item: &Item<'_>, found: &Found) -> bool {
        if self.links && found.has_names && !self.taken.insert(found.id) {
            return false;
        }
        if let Some(first) = self.firsts.get_mut(&item.number) {
            first.unchanged = Some(found.id);
        }
        true
    }

    /// Returns whether a file of the destination contains only zeros.
    fn is_one_hole(&mut self, path: &[u8], size_bytes: u64) -> bool {
        self.files.file(path).is_ok_and(|file| has_holes(&file, &[], size_bytes))
    }

    /// Returns whether `name` in a folder is already right as a further name of file number `of`.
    fn is_further(&mut self, of: u64, folder: BorrowedFd<'_>, name: &[u8]) -> bool {
        let Some(first) = self.firsts.get(&of) else { return false };
        let Some(found) = Found::look(folder, name) else { return false };
        if self.links || first.unchanged == Some(found.id) {
            return first.unchanged == Some(found.id);
        }
        if found.size_bytes != first.size_bytes {
            return false;
        }
        match self.same {
            Same::Nothing => false,
            Same::SizeAndTime => self.times.are_same(found.mtime, first.mtime),
            // The first name has the right bytes; the source's blocks say nothing of this one.
            Same::Bytes(_) => {
                let is_known = first.unchanged.is_some();
                is_known && self.has_bytes_of(of, folder, name).unwrap_or(false)
            }
        }
    }

    fn has_bytes_of(&mut self, of: u64, folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
        let mut cursor = self.index.cursor_from(of);
        let Some(first) = cursor.next() else { return Ok(false) };
        same_bytes(self.files.file(first.path)?, file_in(folder, name)?)
    }
}

/// Removes from `durable` what the partial folder's files no longer hold: someone may have removed,
/// truncated or changed files since they were journaled. Complete files have their times, if
/// wanted; when the others were last written is unknown.
pub(super) fn still_there(index: &Index, folder: &Root, has_times: bool, durable: &mut RangeSet) {
    let mut folders = FolderCursor::new(folder, Enter::Look);
    let times = KeptTimes::of(folder);
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        let Kind::File { size_bytes, .. } = item.entry.kind else { continue };
        let durable_bytes = durable.bytes_within(item.range());
        if durable_bytes == 0 {
            continue;
        }
        let is_complete = durable_bytes == item.range().len();
        let (above, name) = split(item.path);
        let is_there = folders.to(above).ok().flatten().is_some_and(|folder| {
            let mask = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::MTIME;
            let found = statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, mask);
            found.is_ok_and(|found| {
                let kind = FileType::from_raw_mode(found.stx_mode.into());
                let kept =
                    Mtime { seconds: found.stx_mtime.tv_sec, nanoseconds: found.stx_mtime.tv_nsec };
                let off_seconds = kept.seconds.abs_diff(item.entry.mtime.seconds);
                let is_written_to = has_times
                    && is_complete
                    && off_seconds > COARSE_SECONDS
                    && !times.are_same(kept, item.entry.mtime);
                kind == FileType::RegularFile && found.stx_size == size_bytes && !is_written_to
            })
        });
        if !is_there {
            durable.remove(item.range());
        }
    }
}

/// Coarsest time stamps of file systems in use.
const COARSE_SECONDS: u64 = 2;
