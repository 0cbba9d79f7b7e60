//! What the destination has already: files of the same size and time are left as they are.

use std::collections::HashSet;

use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
use swath_model::index::{Index, Kind};
use swath_model::{Range, RangeSet};

use super::building::split;
use crate::tree::root::{Links, Root};

/// Files that are at the destination as the index says.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// A bit for each entry.
    bits: Vec<u64>,
    /// How many.
    pub files: u64,
    /// Their bytes in the virtual file, with what lies between them.
    pub ranges: RangeSet,
}

impl Kept {
    /// Compare all files with what is below `destination`, by size and time of the last change.
    pub fn find(index: &Index, destination: &Root) -> Kept {
        let mut kept = Kept::default();
        let linked = linked(index);
        let mut folder: Option<(Vec<u8>, Option<std::os::fd::OwnedFd>)> = None;
        let mut before = 0;
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            let Kind::File { size_bytes, .. } = item.entry.kind else { continue };
            let (above, name) = split(item.path);
            if folder.as_ref().is_none_or(|(path, _)| path != above) {
                let open = destination.folder(above, Links::Refuse).ok();
                folder = Some((above.to_vec(), open));
            }
            let here = before;
            before = item.end.max(before);
            let Some((_, Some(open))) = &folder else { continue };
            let mask = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::MTIME;
            let Ok(found) = statx(open, name, AtFlags::SYMLINK_NOFOLLOW, mask) else { continue };
            let mtime = item.entry.mtime;
            let is_same = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile
                && found.stx_size == size_bytes
                && (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec)
                    == (mtime.seconds, mtime.nanoseconds);
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
