//! Writes a file as its bytes arrive: large files past the page cache.
//!
//! The index aligns files of a MiB and more to 4 KiB of the virtual file, and bytes arrive in
//! buffers cut and aligned to 4 KiB. So all of such a file but its last few bytes can be written
//! directly. Whole blocks are always written directly, the edges of a part never are: no block is
//! written in both ways, and no page of the cache holds more than its edge.
//!
//! An index records the holes of a sparse file in units of a MiB. Smaller holes arrive as zeros:
//! whole blocks of zeros are not written and stay holes.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use swath_model::pool::ALIGN_BYTES;

use super::Wanted;
use crate::sys;
use crate::target::is_zero;

/// Whether a partial folder writes directly, until the file system refuses it.
#[derive(Debug)]
pub(super) struct Directly(AtomicBool);

/// An open file.
#[derive(Debug)]
pub(super) struct Data {
    plain: File,
    direct: Option<File>,
    /// Its size, if it has holes.
    sparse_bytes: Option<u64>,
}

impl Directly {
    pub fn new(wanted: bool) -> Directly {
        Directly(AtomicBool::new(wanted))
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Data {
    /// Prepares the file `name` in `folder`, already open as `plain`; opens a second descriptor if
    /// it is large and the file system can write past the cache.
    pub fn new(
        plain: File,
        folder: impl AsFd,
        name: &[u8],
        wanted: &Wanted,
        directly: &Directly,
    ) -> Data {
        let sparse_bytes = wanted.is_sparse.then_some(wanted.size_bytes);
        if wanted.range.len() < DIRECT_FROM_BYTES || !directly.is_on() {
            return Data { plain, direct: None, sparse_bytes };
        }
        if !sys::can_be_direct(&plain) {
            directly.stop();
            return Data { plain, direct: None, sparse_bytes };
        }
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let direct = rustix::fs::openat(folder, name, flags, Mode::empty());
        let direct = direct.ok().map(File::from).filter(|direct| sys::is_same(&plain, direct));
        Data { plain, direct, sparse_bytes }
    }

    /// Returns the number of descriptors that it takes.
    pub fn descriptors(&self) -> usize {
        1 + usize::from(self.direct.is_some())
    }

    pub fn plain(&self) -> &File {
        &self.plain
    }

    /// Writes bytes at an offset. Zeros that belong to a hole stay a hole.
    pub fn write(&self, bytes: &[u8], offset: u64, directly: &Directly) -> io::Result<()> {
        let Some(size_bytes) = self.sparse_bytes else {
            return self.store(bytes, offset, directly);
        };
        for (at, part) in runs(bytes, offset, size_bytes) {
            let is_hole = is_zero(part) && sys::is_hole(&self.plain, at, at + part.len() as u64);
            match is_hole {
                true => {}
                // So few bytes are written faster through the page cache.
                false if part.len() < DIRECT_RUN_BYTES => self.plain.write_all_at(part, at)?,
                false => self.store(part, at, directly)?,
            }
        }
        Ok(())
    }

    fn store(&self, bytes: &[u8], offset: u64, directly: &Directly) -> io::Result<()> {
        let Some(direct) = self.direct.as_ref().filter(|_| directly.is_on()) else {
            return self.plain.write_all_at(bytes, offset);
        };
        let Some((head, body, tail)) = blocks(bytes, offset) else {
            return self.plain.write_all_at(bytes, offset);
        };
        self.plain.write_all_at(head, offset)?;
        let at = offset + head.len() as u64;
        match direct.write_all_at(body, at) {
            // Returned by file systems that accept such a descriptor but no such write.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                directly.stop();
                self.plain.write_all_at(body, at)?;
            }
            other => other?,
        }
        self.plain.write_all_at(tail, at + body.len() as u64)
    }
}

/// Returns the whole blocks within `bytes`, and what is before and behind them; `None` if there are
/// none, or if they are not aligned in memory as in the file.
fn blocks(bytes: &[u8], offset: u64) -> Option<(&[u8], &[u8], &[u8])> {
    let block = ALIGN_BYTES as u64;
    let head_bytes = (offset.next_multiple_of(block) - offset) as usize;
    let (head, rest) = bytes.split_at_checked(head_bytes)?;
    let (body, tail) = rest.split_at(rest.len() - rest.len() % ALIGN_BYTES);
    let fits = !body.is_empty() && (body.as_ptr() as usize).is_multiple_of(ALIGN_BYTES);
    fits.then_some((head, body, tail))
}

/// Splits bytes at `offset` of a file of this size where whole blocks of zeros begin and end; the
/// last block of a file counts as whole, too.
fn runs(bytes: &[u8], offset: u64, size_bytes: u64) -> impl Iterator<Item = (u64, &[u8])> {
    let block = ALIGN_BYTES as u64;
    let mut rest = (offset, bytes);
    std::iter::from_fn(move || {
        let (start, bytes) = rest;
        let next = |at: usize| {
            let to_edge = block - (start + at as u64) % block;
            bytes.len().min(at + usize::try_from(to_edge).unwrap_or(ALIGN_BYTES))
        };
        let is_hole = |at: usize, end: usize| {
            let (first, last) = (start + at as u64, start + end as u64);
            let is_whole = first % block == 0 && (last % block == 0 || last == size_bytes);
            is_whole && is_zero(&bytes[at..end])
        };
        if bytes.is_empty() {
            return None;
        }
        let mut end = next(0);
        let first = is_hole(0, end);
        while end < bytes.len() && is_hole(end, next(end)) == first {
            end = next(end);
        }
        let (run, after) = bytes.split_at(end);
        rest = (start + end as u64, after);
        Some((start, run))
    })
}

/// Smaller files are written through the page cache; from this size the index aligns them.
const DIRECT_FROM_BYTES: u64 = 1 << 20;

/// Shorter runs of a sparse file are written through the page cache.
const DIRECT_RUN_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use swath_model::index::Mtime;
    use swath_model::{Pool, Range};

    use super::*;

    #[test]
    fn whole_blocks_are_told_from_what_is_beside_them() {
        let pool = Pool::new(1, 8 * ALIGN_BYTES);
        let mut buffer = pool.try_take().unwrap();
        buffer.push(&vec![7; 8 * ALIGN_BYTES]);
        let bytes = &buffer[..];
        let lengths = |bytes: &[u8], offset| {
            blocks(bytes, offset).map(|(head, body, tail)| (head.len(), body.len(), tail.len()))
        };
        assert_eq!(lengths(bytes, 4096), Some((0, 8 * 4096, 0)));
        assert_eq!(lengths(&bytes[..10_000], 0), Some((0, 8192, 1808)));
        assert_eq!(lengths(&bytes[100..10_000], 100), Some((3996, 4096, 1808)));
        // Not as in memory, and no whole block.
        assert_eq!(lengths(bytes, 1), None);
        assert_eq!(lengths(&bytes[..4095], 0), None);
        assert_eq!(lengths(&bytes[4000..4100], 4000), None);
        assert_eq!(lengths(&[], 5), None);
    }

    #[test]
    fn blocks_of_zeros_are_told_from_others() {
        let lengths = |bytes: &[u8], offset, size_bytes| -> Vec<(u64, usize, bool)> {
            let runs = runs(bytes, offset, size_bytes);
            runs.map(|(at, run)| (at, run.len(), is_zero(run))).collect()
        };
        let mut bytes = vec![0; 5 * 4096];
        assert_eq!(lengths(&bytes, 8192, 1 << 20), [(8192, 5 * 4096, true)]);
        (bytes[4096], bytes[3 * 4096 - 1]) = (1, 1);
        assert_eq!(
            lengths(&bytes, 0, 1 << 20),
            [(0, 4096, true), (4096, 8192, false), (12_288, 8192, true)]
        );
        // Neither end is a whole block.
        assert_eq!(
            lengths(&bytes[100..4 * 4096 + 100], 100, 1 << 20),
            [(100, 12_188, false), (12_288, 4096, true), (16_384, 100, true)]
        );
        // The file ends there.
        assert_eq!(lengths(&bytes[..100], 4096, 4196), [(4096, 100, true)]);
        assert_eq!(lengths(&[], 4096, 4196), []);
    }

    /// A file of this size, open in `folder`.
    fn open(folder: &std::path::Path, size_bytes: u64, directly: &Directly) -> Data {
        let plain = File::create(folder.join("file")).unwrap();
        plain.set_len(size_bytes).unwrap();
        let wanted = Wanted {
            number: 0,
            path: b"file".to_vec(),
            range: Range::new(0, size_bytes),
            size_bytes,
            is_sparse: false,
            mode: 0o600,
            mtime: Mtime { seconds: 0, nanoseconds: 0 },
            parts: Vec::new(),
        };
        Data::new(plain, File::open(folder).unwrap(), b"file", &wanted, directly)
    }

    #[test]
    fn large_files_are_written_past_the_cache_and_are_right() {
        let folder = tempfile::tempdir().unwrap();
        let size_bytes: usize = (3 << 20) + 1234;
        let directly = Directly::new(true);
        let data = open(folder.path(), size_bytes as u64, &directly);
        if !directly.is_on() {
            println!("skipped: the folder for temporary files takes no direct writes");
        }
        assert_eq!(data.descriptors(), 1 + usize::from(directly.is_on()));
        let part_bytes = 256 << 10;
        let bytes: Vec<u8> = (0..size_bytes).map(|at| (at % 251) as u8).collect();
        let pool = Pool::new(4, part_bytes);
        let next = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    loop {
                        // Every third part first, as lanes bring them.
                        let parts = size_bytes.div_ceil(part_bytes);
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= parts {
                            return;
                        }
                        let number = (0..3).flat_map(|first| (first..parts).step_by(3)).nth(at);
                        let start = number.unwrap() * part_bytes;
                        let mut buffer = pool.try_take().unwrap();
                        buffer.push(&bytes[start..size_bytes.min(start + part_bytes)]);
                        data.write(&buffer[..], start as u64, &directly).unwrap();
                    }
                });
            }
        });
        assert!(std::fs::read(folder.path().join("file")).unwrap() == bytes);
    }

    #[test]
    fn small_files_and_those_of_whoever_wants_none_go_through_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(open(folder.path(), 1000, &Directly::new(true)).descriptors(), 1);
        assert_eq!(open(folder.path(), 4 << 20, &Directly::new(false)).descriptors(), 1);
    }
}
