//! Reading entries back from an index.

use super::entry::{Entry, Extent, Kind};
use super::growing::{Checkpoint, Index};
use super::wire::{self, Context, Read};
use crate::range::Range;

/// Reads entries one after the other.
pub struct Cursor<'i> {
    index: &'i Index,
    chunk: usize,
    at: usize,
    context: Context,
}

/// An entry with its place.
#[derive(Debug)]
pub struct Item<'c> {
    /// Its number in the index, from zero.
    pub number: u64,
    /// Its path below the root of the dataset, with `/` between components. May not be text.
    pub path: &'c [u8],
    /// Where its bytes begin in the virtual file.
    pub start: u64,
    /// Where they end.
    pub end: u64,
    /// The entry as it was written.
    pub entry: Entry<'c>,
}

/// A part of the virtual file within one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins in the virtual file.
    pub start: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl<'i> Cursor<'i> {
    pub(super) fn new(index: &'i Index, checkpoint: Option<&Checkpoint>) -> Cursor<'i> {
        match checkpoint {
            Some(Checkpoint { chunk, at, context }) => {
                let context = context.clone();
                Cursor { index, chunk: *chunk, at: *at, context }
            }
            // There is nothing behind the last entry.
            None => Cursor { index, chunk: usize::MAX, at: 0, context: Context::new() },
        }
    }

    /// Returns the next entry; `None` behind the last one that is there now.
    #[expect(clippy::should_implement_trait, reason = "what it gives lives in the cursor")]
    pub fn next(&mut self) -> Option<Item<'_>> {
        let mut bytes = self.index.chunk(self.chunk).get(self.at..).unwrap_or_default();
        if bytes.is_empty() && self.chunk != usize::MAX {
            bytes = self.index.chunk(self.chunk + 1);
            if bytes.is_empty() {
                return None;
            }
            (self.chunk, self.at) = (self.chunk + 1, 0);
        }
        let number = self.context.number;
        // An index was checked when it was read.
        let read = wire::read(bytes, &mut self.context, &|_| true);
        let Ok(Read::Entry { mut entry, start, length, told }) = read else { return None };
        entry.xattrs = self.index.xattrs(told);
        self.at += length;
        let end = self.context.end.max(start);
        Some(Item { number, path: &self.context.path, start, end, entry })
    }

    /// Skips entries as long as `leave_out` says so.
    pub(super) fn skip_while(&mut self, mut leave_out: impl FnMut(&Item<'_>) -> bool) {
        // Counting first is cheaper than saving the position each time: paths may be long.
        let (chunk, at, context) = (self.chunk, self.at, self.context.clone());
        let mut ahead = Cursor { index: self.index, chunk, at, context };
        let mut count = 0u64;
        while ahead.next().is_some_and(|item| leave_out(&item)) {
            count += 1;
        }
        for _ in 0..count {
            self.next();
        }
    }
}

impl Item<'_> {
    /// Returns its bytes in the virtual file.
    pub fn range(&self) -> Range {
        Range::new(self.start, self.end)
    }

    /// Returns its parts within `range` of the virtual file, ascending, none of them empty.
    pub fn parts(&self, range: Range) -> impl Iterator<Item = Part> + '_ {
        let whole = Extent { offset: 0, bytes: self.end - self.start };
        let extents = match &self.entry.kind {
            Kind::File { extents: Some(extents), .. } => extents.as_slice(),
            _ => &[],
        };
        let all = extents.iter().copied().chain(extents.is_empty().then_some(whole));
        let mut start = self.start;
        all.filter_map(move |extent| {
            let here = Range::of_len(start, extent.bytes);
            start = here.end;
            let common = here.intersect(range)?;
            let offset = extent.offset + (common.start - here.start);
            Some(Part { start: common.start, offset, bytes: common.len() })
        })
    }
}
