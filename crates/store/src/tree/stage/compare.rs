//! What the destination has already: files that are the same are left as they are.

use std::collections::HashSet;

use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
use swath_model::index::{Index, Item, Kind, Mtime};
use swath_model::{Range, RangeSet};

use super::building::split;
use crate::tree::root::Root;
use crate::tree::trail::{Enter, Trail};

/// What of a destination is the same as in the tree that it is to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Same {
    /// Nothing is taken for it.
    Nothing,
    /// Files of the same size and time of the last change.
    SizeAndTime,
    /// Files of the same size all of whose bytes are among these of the virtual file, which were
    /// compared.
    Bytes(RangeSet),
}

/// Files that are at the destination as the index says.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// A bit for each entry.
    bits: Vec<u64>,
    /// How many.
    pub files: u64,
    /// Their bytes in the virtual file, with what lies between them.
    pub ranges: RangeSet,
    /// They may have another time.
    pub by_content: bool,
}

impl Kept {
    /// Compare all files with what is below `destination`.
    pub fn find(index: &Index, destination: &Root, same: &Same) -> Kept {
        let by_content = matches!(same, Same::Bytes(_));
        let mut kept = Kept { by_content, ..Kept::default() };
        let linked = linked(index);
        let mut trail = Trail::new(destination, Enter::Look);
        let mut before = 0;
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            let Kind::File { size_bytes, .. } = item.entry.kind else { continue };
            let (above, name) = split(item.path);
            let here = before;
            before = item.end.max(before);
            // A folder that cannot be entered is told of where it matters.
            let Ok(Some(open)) = trail.to(above) else { continue };
            let mask = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::MTIME;
            let Ok(found) = statx(open, name, AtFlags::SYMLINK_NOFOLLOW, mask) else { continue };
            let seconds = found.stx_mtime.tv_sec;
            let mtime = Mtime { seconds, nanoseconds: found.stx_mtime.tv_nsec };
            let is_same = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile
                && found.stx_size == size_bytes
                && same.has(&item, mtime);
            // Further names are made of the file that comes, so it has to come.
            if is_same && !linked.contains(&item.number) {
                kept.keep(item.number);
                // What lies between two files belongs to nobody.
                if item.start < item.end {
                    kept.ranges.insert(Range::new(here.min(item.start), item.end));
                }
            }
        }
        kept
    }

    /// Whether the file of this number stays as it is.
    pub fn has(&self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok().and_then(|at| self.bits.get(at));
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn keep(&mut self, number: u64) {
        let at = usize::try_from(number / 64).unwrap_or(usize::MAX);
        if self.bits.len() <= at {
            self.bits.resize(at + 1, 0);
        }
        self.bits[at] |= 1 << (number % 64);
        self.files += 1;
    }
}

impl Same {
    /// Whether a file that has the size of `item` and was changed at `mtime` is the same.
    pub(in crate::tree) fn has(&self, item: &Item<'_>, mtime: Mtime) -> bool {
        match self {
            Same::Nothing => false,
            Same::SizeAndTime => mtime == item.entry.mtime,
            // Of a file that is one hole nothing was compared.
            Same::Bytes(_) if item.start == item.end => {
                matches!(item.entry.kind, Kind::File { size_bytes: 0, .. })
            }
            Same::Bytes(bytes) => bytes.covers(item.range()),
        }
    }
}

/// Take out of `durable` what no file of the stage holds any more: somebody may have removed or cut
/// files there since the journal vouched for them.
pub(super) fn still_there(index: &Index, stage: &Root, durable: &mut RangeSet) {
    let mut trail = Trail::new(stage, Enter::Look);
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        let Kind::File { size_bytes, .. } = item.entry.kind else { continue };
        if durable.bytes_within(item.range()) == 0 {
            continue;
        }
        let (above, name) = split(item.path);
        let is_there = trail.to(above).ok().flatten().is_some_and(|folder| {
            let mask = StatxFlags::TYPE | StatxFlags::SIZE;
            let found = statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, mask);
            found.is_ok_and(|found| {
                let kind = FileType::from_raw_mode(found.stx_mode.into());
                kind == FileType::RegularFile && found.stx_size == size_bytes
            })
        });
        if !is_there {
            durable.remove(item.range());
        }
    }
}

/// Files that have further names in the tree.
fn linked(index: &Index) -> HashSet<u64> {
    let mut all = HashSet::new();
    if index.counts().hard_links > 0 {
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            if let Kind::HardLink(of) = item.entry.kind {
                all.insert(of);
            }
        }
    }
    all
}
