//! A file of bytes with the group hashes of their groups, for the depot and the cache.
//!
//! The bytes come first (after the owner's head), then 32 bytes for each group of [`GROUP_BYTES`]:
//! its chaining value in the BLAKE3 tree. Both lie in one file, so one sync covers them. The owner
//! knows which bytes are there and which hashes count; nothing here is trusted by itself.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use blake3::hazmat::HasherExt;
use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::{Range, RangeSet};

use crate::sys;

/// The hash of a group, or of a piece of one.
pub(crate) type GroupHash = [u8; 32];

/// Bytes with their group hashes.
#[derive(Debug)]
pub(crate) struct HashedFile {
    file: File,
    layout: Layout,
    /// Number of decisions so far whether to check a group again.
    asked: AtomicU64,
}

/// Where things lie in such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Offset of the bytes, a multiple of a block.
    pub(crate) head_bytes: u64,
    /// Number of bytes.
    pub(crate) size_bytes: u64,
}

impl Layout {
    /// Returns the length of the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.group_hashes_start() + self.groups() * GROUP_HASH_BYTES
    }

    /// Returns the number of groups.
    pub(crate) fn groups(&self) -> u64 {
        self.size_bytes.div_ceil(GROUP_BYTES)
    }

    fn group_hashes_start(&self) -> u64 {
        self.head_bytes + blocks(self.size_bytes)
    }

    /// Returns the range of the group that contains `offset`.
    pub(crate) fn group_at(&self, offset: u64) -> Range {
        let start = offset - offset % GROUP_BYTES;
        Range::new(start, self.size_bytes.min(start + GROUP_BYTES))
    }

    /// Returns whether these are the bytes of whole groups.
    pub(crate) fn is_whole(&self, range: Range) -> bool {
        range.start.is_multiple_of(GROUP_BYTES)
            && range.end <= self.size_bytes
            && (range.end.is_multiple_of(GROUP_BYTES) || range.end == self.size_bytes)
    }

    /// Returns the disk blocks that have a byte of `range`.
    pub(crate) fn blocks_of(&self, range: Range) -> Range {
        let end = blocks(range.end).min(blocks(self.size_bytes));
        Range::new(range.start - range.start % BLOCK_BYTES, end)
    }

    /// Returns the bytes of the groups whose hashes share a disk block with that of the group at
    /// `offset`.
    pub(crate) fn sharing_hash_block(&self, offset: u64) -> Range {
        let start = offset - offset % HASH_BLOCK_COVERS_BYTES;
        Range::new(start, self.size_bytes.min(start.saturating_add(HASH_BLOCK_COVERS_BYTES)))
    }

    /// Returns the disk space of these groups (`groups` are all of their bytes), including the
    /// blocks of their hashes.
    pub(crate) fn taken_bytes(&self, groups: &RangeSet) -> u64 {
        let (mut bytes, mut counted_to) = (0, 0);
        for run in groups.iter() {
            bytes += self.blocks_of(run).len();
            let mut at = run.start.max(counted_to);
            while at < run.end {
                bytes += BLOCK_BYTES;
                counted_to = self.sharing_hash_block(at).end;
                at = counted_to;
            }
        }
        bytes
    }

    /// Returns the groups that have a byte in `range`.
    pub(crate) fn groups_of(&self, range: Range) -> impl Iterator<Item = Range> + use<> {
        let layout = *self;
        let first = range.start / GROUP_BYTES;
        let last = if range.is_empty() { first } else { range.end.div_ceil(GROUP_BYTES) };
        (first..last).map(move |group| layout.group_at(group * GROUP_BYTES))
    }
}

/// Returns the size of the disk blocks that hold `bytes` bytes.
pub(crate) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

impl HashedFile {
    pub(crate) fn new(file: File, layout: Layout) -> HashedFile {
        HashedFile { file, layout, asked: AtomicU64::new(0) }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the position in the file of the byte at `offset`.
    pub(crate) fn position_of(&self, offset: u64) -> u64 {
        self.layout.head_bytes + offset
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.position_of(offset))
    }

    /// Lets the kernel begin to write this back, so that a later sync is short.
    pub(crate) fn begin_write_back(&self, range: Range) {
        let (start, end) = (self.position_of(range.start), self.position_of(range.end));
        sys::begin_write_back(&self.file, start, end);
    }

    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, self.position_of(offset))
    }

    /// Writes the hash of the group that begins at `group`.
    pub(crate) fn write_group_hash(&self, group: u64, group_hash: &GroupHash) -> io::Result<()> {
        self.file.write_all_at(group_hash, self.group_hash_position(group))
    }

    /// Reads the hash of the group that begins at `group`; if unreadable, returns one that nothing
    /// fits.
    pub(crate) fn read_group_hash(&self, group: u64) -> io::Result<GroupHash> {
        let mut group_hash = [0; 32];
        match self.file.read_exact_at(&mut group_hash, self.group_hash_position(group)) {
            Err(error) if is_unreadable(&error) => Ok([0; 32]),
            read => read.map(|()| group_hash),
        }
    }

    fn group_hash_position(&self, group: u64) -> u64 {
        self.layout.group_hashes_start() + group / GROUP_BYTES * GROUP_HASH_BYTES
    }

    /// Returns whether to check a group again that fitted once: a random choice, because disks do
    /// not report decay.
    pub(crate) fn is_looked_at_again(&self, group: Range) -> bool {
        let count = self.asked.fetch_add(1, Ordering::Relaxed);
        // Mixed well (splitmix64), so that no group is always skipped.
        let mut mixed = (count + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ group.start;
        for multiplier in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(multiplier);
        }
        (mixed >> 32).is_multiple_of(LOOKED_AT_AGAIN)
    }

    /// Returns whether the bytes of `range`, in one group, fit `group_hash`. Unreadable and
    /// truncated bytes do not. On a mismatch, reads once more from the disk itself: the page cache
    /// can be wrong where the disk is right.
    pub(crate) fn fits(&self, range: Range, group_hash: &GroupHash) -> io::Result<bool> {
        let mut bytes = vec![0; range.len() as usize];
        for again in [false, true] {
            if again {
                sys::give_up_cached(&self.file, self.position_of(range.start), range.len());
            }
            match self.read(range.start, &mut bytes) {
                Err(error) if is_unreadable(&error) => return Ok(false),
                read => read?,
            }
            if group_hash_of(range.start, &bytes) == *group_hash {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Frees the space of these groups, if the file system can do that.
    pub(crate) fn make_hole(&self, groups: Range) {
        // Blocks that hold other bytes too keep their space.
        let blocks = self.layout.blocks_of(groups);
        let _ = sys::make_hole(
            &self.file,
            self.position_of(blocks.start),
            self.position_of(blocks.end),
        );
    }

    /// Frees the block that holds the hash of the group at `group`.
    pub(crate) fn make_group_hashes_hole(&self, group: u64) {
        let start = self.group_hash_position(self.layout.sharing_hash_block(group).start);
        let _ = sys::make_hole(&self.file, start, start + BLOCK_BYTES);
    }

    /// Returns the start and hash of each group whose hash is not zero.
    pub(crate) fn group_hashes(&self) -> io::Result<Vec<(u64, GroupHash)>> {
        let (mut found, end) = (Vec::new(), self.layout.file_bytes());
        let mut at = self.layout.group_hashes_start();
        let mut bytes = Vec::new();
        while at < end {
            // Most of a large file may be holes.
            let Some(data) = sys::first_data(&self.file, at) else { break };
            at = at.max(data - data % GROUP_HASH_BYTES);
            bytes.resize((end.saturating_sub(at)).min(READ_BYTES) as usize, 0);
            self.file.read_exact_at(&mut bytes, at)?;
            for (number, group_hash) in bytes.chunks_exact(GROUP_HASH_BYTES as usize).enumerate() {
                let group =
                    (at - self.layout.group_hashes_start()) / GROUP_HASH_BYTES + number as u64;
                if let Ok(group_hash) = GroupHash::try_from(group_hash)
                    && group_hash != [0; 32]
                {
                    found.push((group * GROUP_BYTES, group_hash));
                }
            }
            at += bytes.len() as u64;
        }
        Ok(found)
    }

    /// Frees all its space now, even if others have it open. Readers then find it short.
    pub(crate) fn empty(&self) {
        let _ = self.file.set_len(0);
    }
}

impl AsFd for HashedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Hashes consecutive bytes of one group. Bytes from the start of a group get its chaining value in
/// the tree, other pieces their own BLAKE3.
pub(crate) struct PieceHasher {
    start: u64,
    // Boxed: it holds 1.9 KiB of state.
    hasher: Box<blake3::Hasher>,
}

impl PieceHasher {
    /// Starts with the byte at `start`.
    pub(crate) fn new(start: u64) -> PieceHasher {
        let mut hasher = Box::new(blake3::Hasher::new());
        if start.is_multiple_of(GROUP_BYTES) {
            hasher.set_input_offset(start);
        }
        PieceHasher { start, hasher }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    pub(crate) fn finish(&self) -> GroupHash {
        if self.start.is_multiple_of(GROUP_BYTES) {
            self.hasher.finalize_non_root()
        } else {
            *self.hasher.finalize().as_bytes()
        }
    }
}

/// Returns the hash of `bytes`, which begin at `start` and lie in one group.
pub(crate) fn group_hash_of(start: u64, bytes: &[u8]) -> GroupHash {
    let mut hasher = PieceHasher::new(start);
    hasher.update(bytes);
    hasher.finish()
}

const GROUP_HASH_BYTES: u64 = 32;
/// Group hashes read at once, for 512 MiB.
const READ_BYTES: u64 = 64 << 10;
/// The block size of nearly all file systems.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Bytes of the groups whose hashes fill a block.
const HASH_BLOCK_COVERS_BYTES: u64 = BLOCK_BYTES / GROUP_HASH_BYTES * GROUP_BYTES;

/// Returns whether the bytes are lost, not just unavailable for now.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof || error.raw_os_error() == Some(libc::EIO)
}

/// One in this many groups is checked again: a hundredth of the cost of hashing all of them.
const LOOKED_AT_AGAIN: u64 = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use swath_model::digest::blake3_tree::group_value;

    #[test]
    fn a_whole_group_is_sealed_as_everywhere_in_the_house() {
        let bytes: Vec<u8> = (0..GROUP_BYTES).map(|at| (at % 251) as u8).collect();
        for group in [0, 1, 7] {
            let start = group * GROUP_BYTES;
            assert_eq!(group_hash_of(start, &bytes), group_value(group, &bytes));
            assert_eq!(group_hash_of(start, &bytes[..10]), group_value(group, &bytes[..10]));
        }
        assert_eq!(group_hash_of(5, &bytes), *blake3::hash(&bytes).as_bytes());
    }

    #[test]
    fn the_layout_keeps_bytes_and_seals_apart() {
        for size_bytes in [1, 4096, 4097, GROUP_BYTES, GROUP_BYTES + 1, 10 * GROUP_BYTES - 1] {
            let layout = Layout { head_bytes: 4096, size_bytes };
            let file = HashedFile::new(tempfile::tempfile().unwrap(), layout);
            let last = layout.groups() - 1;
            assert!(file.group_hash_position(0) >= file.position_of(size_bytes));
            assert_eq!(
                file.group_hash_position(last * GROUP_BYTES) + GROUP_HASH_BYTES,
                layout.file_bytes()
            );
            let groups: Vec<Range> = layout.groups_of(Range::new(0, size_bytes)).collect();
            assert_eq!(groups.len() as u64, layout.groups());
            assert_eq!(groups.iter().map(|group| group.len()).sum::<u64>(), size_bytes);
            assert!(groups.iter().all(|&group| layout.is_whole(group)));
            assert_eq!(layout.groups_of(Range::new(1, 1)).count(), 0);
        }
    }

    #[test]
    fn what_is_taken_is_blocks_of_bytes_and_of_seals() {
        const TOGETHER: u64 = 128 * GROUP_BYTES;
        let layout = Layout { head_bytes: 4096, size_bytes: 2 * TOGETHER + 5000 };
        let taken = |ranges: &[(u64, u64)]| {
            layout.taken_bytes(&ranges.iter().map(|&(from, to)| Range::new(from, to)).collect())
        };
        assert_eq!(taken(&[]), 0);
        assert_eq!(taken(&[(0, GROUP_BYTES)]), GROUP_BYTES + 4096);
        assert_eq!(taken(&[(0, TOGETHER)]), TOGETHER + 4096);
        let (one, two) = ((0, GROUP_BYTES), (TOGETHER - GROUP_BYTES, TOGETHER));
        assert_eq!(taken(&[one, two]), 2 * GROUP_BYTES + 4096);
        let across = (TOGETHER - GROUP_BYTES, TOGETHER + GROUP_BYTES);
        assert_eq!(taken(&[one, across]), 3 * GROUP_BYTES + 2 * 4096);
        assert_eq!(taken(&[(2 * TOGETHER, layout.size_bytes)]), 8192 + 4096);
        assert_eq!(taken(&[(0, layout.size_bytes)]), 2 * TOGETHER + 8192 + 3 * 4096);
        let last = layout.sharing_hash_block(layout.size_bytes - 1);
        assert_eq!(last, Range::new(2 * TOGETHER, layout.size_bytes));
    }
}
