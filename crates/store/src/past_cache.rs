//! Reads large files past the page cache, so that sending them evicts nothing from it.
//!
//! Pages that the cache holds are read from there. The rest comes from the disk in large aligned
//! pieces, into buffers that all readers share. Nothing here fails: what cannot be read this way
//! (the file system refuses it, the disk cannot, the file ends early) is left to be read through
//! the cache, which reports the error. Everything blocks.
//!
//! A file that is soon requested again belongs in the cache: once as many bytes were read past it
//! as the file has, further readers use the cache, if the file fits.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use swath_model::pool::{ALIGN_BYTES, Buffer};
use swath_model::{Pool, Range};

use crate::disk::IoMode;
use crate::sys;

/// How files to be sent are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// Large ones past the page cache unless it holds them, all others through it.
    #[default]
    Auto,
    /// All but small ones past the page cache, even if it holds them.
    Direct,
    /// All through the page cache.
    Buffered,
}

impl From<IoMode> for Reads {
    /// Chooses the way to read from the way to write. The ways to write directly differ only in
    /// their system calls; for reading these are always the same.
    fn from(mode: IoMode) -> Reads {
        match mode {
            IoMode::Auto | IoMode::Uring | IoMode::Threads => Reads::Auto,
            IoMode::Buffered => Reads::Buffered,
        }
    }
}

/// Reads past the page cache, for all readers of a server; cheap to clone.
#[derive(Clone, Debug)]
pub struct PastCache {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    reads: Reads,
    pool: Pool,
    /// Files larger than this have no room in the cache.
    cache_bytes: u64,
    recent: Mutex<Vec<Recent>>,
}

/// A file recently read past the cache.
#[derive(Debug)]
struct Recent {
    id: Id,
    read_bytes: u64,
    at: Instant,
}

/// Identifies a file and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    device: u64,
    inode: u64,
    size_bytes: u64,
}

/// An open file that one reader reads past the cache.
#[derive(Debug)]
pub struct Direct {
    cache: PastCache,
    file: File,
    id: Id,
    piece: Option<Piece>,
    /// The range last decided to be read through the cache, and whether the cache holds it.
    through: (Range, Through),
    /// Whether the file system refused such reads.
    is_over: bool,
}

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// They were read past the cache.
    Past,
    /// The cache holds at least most of them: do not read ahead.
    Held,
    /// Read them normally.
    Cache,
}

/// Bytes of the file.
#[derive(Debug)]
struct Piece {
    start: u64,
    buffer: Buffer,
}

impl PastCache {
    /// Returns a reader for these settings.
    pub fn new(reads: Reads) -> PastCache {
        let slots = if reads == Reads::Buffered { 1 } else { PIECES };
        let pool = Pool::new(slots, PIECE_BYTES + 2 * ALIGN_BYTES);
        sys::prefer_huge_pages(&pool);
        let cache_bytes = sys::memory_bytes() / CACHE_SHARE;
        let recent = Mutex::default();
        PastCache { shared: Arc::new(Shared { reads, pool, cache_bytes, recent }) }
    }

    /// Prepares the open file `plain` of `size_bytes`, which `again` opens once more; `None` if it
    /// should be read through the cache only.
    pub fn open(
        &self,
        plain: &File,
        size_bytes: u64,
        again: impl FnOnce() -> io::Result<File>,
    ) -> Option<Direct> {
        let from_bytes = match self.shared.reads {
            Reads::Buffered => return None,
            Reads::Auto => AUTO_FROM_BYTES,
            Reads::Direct => DIRECT_FROM_BYTES,
        };
        if size_bytes < from_bytes || !sys::can_be_direct(plain) {
            return None;
        }
        let found = plain.metadata().ok()?;
        let id = Id { device: found.dev(), inode: found.ino(), size_bytes };
        let file = again().ok()?;
        if !sys::is_same(plain, &file) {
            return None;
        }
        fcntl_setfl(&file, fcntl_getfl(&file).ok()? | OFlags::DIRECT).ok()?;
        // What is read through the cache is there already; do not read further ahead.
        sys::expect_random_reads(plain);
        let through = (Range::new(0, 0), Through::Cache);
        let cache = self.clone();
        Some(Direct { cache, file, id, piece: None, through, is_over: false })
    }

    /// Returns whether so much of this file was read recently that it belongs in the cache.
    fn is_wanted_often(&self, id: Id) -> bool {
        if self.shared.reads == Reads::Direct || id.size_bytes > self.shared.cache_bytes {
            return false;
        }
        let recent = self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let file = recent.iter().find(|file| file.id == id);
        file.is_some_and(|file| file.read_bytes >= id.size_bytes && file.at.elapsed() < RECENT)
    }

    fn note(&self, id: Id, bytes: u64) {
        let mut recent = self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner);
        // The most recently read file is last.
        let mut file = match recent.iter().position(|file| file.id == id) {
            Some(at) => recent.remove(at),
            None => Recent { id, read_bytes: 0, at: Instant::now() },
        };
        if file.at.elapsed() >= RECENT {
            file.read_bytes = 0;
        }
        file.read_bytes += bytes;
        file.at = Instant::now();
        if recent.len() >= RECENT_MAX {
            recent.remove(0);
        }
        recent.push(file);
    }

    /// Returns a buffer as soon as a reader is done with one; no reader keeps one while it waits.
    fn buffer(&self) -> Option<Buffer> {
        self.shared.pool.try_take().or_else(|| {
            let runtime = tokio::runtime::Handle::try_current().ok()?;
            Some(runtime.block_on(self.shared.pool.take()))
        })
    }
}

impl Direct {
    /// Fills `out` with the file from `offset` on, unless it returns that this must be done through
    /// the cache. The `follows` bytes behind it will be requested next.
    pub fn read(&mut self, plain: &File, out: &mut [u8], offset: u64, follows: u64) -> Through {
        let wanted = Range::of_len(offset, out.len() as u64);
        if self.piece.as_ref().is_none_or(|piece| !piece.range().covers(wanted)) {
            self.rest();
            match self.judge(plain, wanted, follows) {
                Through::Past => {}
                other => return other,
            }
        }
        let Some(piece) = &self.piece else { return Through::Cache };
        let from = (offset - piece.start) as usize;
        match piece.buffer.get(from..from + out.len()) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => return Through::Cache,
        }
        Through::Past
    }

    /// Drops what may have been read ahead. Call it whenever nothing is read for a while.
    pub fn rest(&mut self) {
        self.piece = None;
    }

    /// Loads a piece with `wanted` in it, or returns the reason not to.
    fn judge(&mut self, plain: &File, wanted: Range, follows: u64) -> Through {
        if self.is_over || wanted.len() > PIECE_BYTES as u64 {
            return Through::Cache;
        }
        if self.through.0.covers(wanted) {
            return self.through.1;
        }
        let bytes = (wanted.len() + follows).min(PIECE_BYTES as u64);
        let reach = Range::of_len(wanted.start, bytes);
        let through = match self.cache.shared.reads {
            Reads::Auto if is_held(plain, reach) => Some(Through::Held),
            Reads::Auto if self.cache.is_wanted_often(self.id) => Some(Through::Cache),
            _ => None,
        };
        if let Some(through) = through {
            self.through = (reach, through);
            return through;
        }
        match self.load(reach) {
            Ok(true) => Through::Past,
            Ok(false) => Through::Cache,
            Err(error) => {
                tracing::debug!(%error, "a file is not read past the cache");
                self.is_over = true;
                Through::Cache
            }
        }
    }

    /// Reads a piece; returns false if there was no buffer.
    fn load(&mut self, reach: Range) -> io::Result<bool> {
        let Some(mut buffer) = self.cache.buffer() else { return Ok(false) };
        let start = reach.start - reach.start % ALIGN_BYTES as u64;
        let bytes = (reach.end - start).next_multiple_of(ALIGN_BYTES as u64) as usize;
        while buffer.filled() < bytes {
            let (at, left) = (start + buffer.filled() as u64, bytes - buffer.filled());
            let read = match self.file.read_at(&mut buffer.spare()[..left], at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            buffer.advance(read);
            // The end of the file.
            if read == 0 || !buffer.filled().is_multiple_of(ALIGN_BYTES) {
                break;
            }
        }
        self.cache.note(self.id, buffer.filled() as u64);
        self.piece = Some(Piece { start, buffer });
        Ok(true)
    }
}

impl Piece {
    fn range(&self) -> Range {
        Range::of_len(self.start, self.buffer.filled() as u64)
    }
}

/// Returns whether the page cache holds half of `range`; if unknown, its middle byte decides.
fn is_held(file: &File, range: Range) -> bool {
    match cached_bytes(file, range) {
        Some(bytes) => 2 * bytes >= range.len(),
        None => sys::is_at_hand(file, range.start + range.len() / 2),
    }
}

/// Returns how many bytes of `range` the page cache holds; `None` if the kernel does not tell
/// (before Linux 6.5, or for files of other users).
pub fn cached_bytes(file: &File, range: Range) -> Option<u64> {
    sys::cached_pages(file.as_raw_fd(), range.start, range.len()).map(|pages| {
        let page = ALIGN_BYTES as u64;
        (pages * page).min(range.len())
    })
}

/// Bytes read at a time: a part of a dataset's answer.
const PIECE_BYTES: usize = 1 << 20;
/// Readers that read at the same time; more wait. Enough for disks that want deep queues.
const PIECES: usize = 8;
/// Smaller files go through the cache by default: they evict little, and the next reader finds them
/// there.
const AUTO_FROM_BYTES: u64 = 64 << 20;
/// Smaller files are less than a piece.
const DIRECT_FROM_BYTES: u64 = 1 << 20;
/// A file fits if it is no more than this part of the memory.
const CACHE_SHARE: u64 = 4;
/// A file requested again only after this time is not requested often.
const RECENT: Duration = Duration::from_secs(600);
/// Most recently read files remembered.
const RECENT_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes as u32).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect()
    }

    /// Nothing of the file is in the page cache. `None` where that cannot be had or not be told.
    fn cold(file: &File) -> Option<()> {
        let bytes = file.metadata().unwrap().len();
        file.sync_all().unwrap();
        sys::write_back_and_drop(file, 0, bytes).unwrap();
        let is_cold = cached_bytes(file, Range::new(0, bytes)) == Some(0);
        if !is_cold || !sys::can_be_direct(file) {
            println!(
                "skipped: the folder for temporary files has no page cache that can be told of"
            );
            return None;
        }
        Some(())
    }

    fn open(reads: Reads, path: &std::path::Path) -> (File, Option<Direct>) {
        let plain = File::open(path).unwrap();
        let size_bytes = plain.metadata().unwrap().len();
        let direct = PastCache::new(reads).open(&plain, size_bytes, || File::open(path));
        (plain, direct)
    }

    #[test]
    fn what_is_read_past_the_cache_is_right_at_any_offset_and_leaves_nothing_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes = content((5 << 20) + 1234);
        std::fs::write(&path, &bytes).unwrap();
        let (plain, direct) = open(Reads::Direct, &path);
        let Some(()) = cold(&plain) else { return };
        let mut direct = direct.unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        let mut check = |offset: usize, length: usize, follows: u64| {
            let mut out = vec![0; length];
            let through = direct.read(&plain, &mut out, offset as u64, follows);
            assert_eq!(through, Through::Past, "{offset}+{length}");
            assert!(out == bytes[offset..offset + length], "{offset}+{length}, then {follows}");
        };
        for offset in (0..bytes.len()).step_by(256 << 10) {
            let left = bytes.len() - offset;
            check(offset, left.min(256 << 10), (left as u64).min(1 << 20));
        }
        for _ in 0..300 {
            let offset = random.usize(..bytes.len());
            let length = random.usize(1..=PIECE_BYTES.min(bytes.len() - offset));
            check(offset, length, random.u64(..2 << 20));
        }
        check(1, PIECE_BYTES, 0);
        assert_eq!(cached_bytes(&plain, Range::new(0, bytes.len() as u64)), Some(0));
    }

    #[test]
    fn a_file_that_ends_early_is_left_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, content(3 << 20)).unwrap();
        let (plain, direct) = open(Reads::Direct, &path);
        let Some(()) = cold(&plain) else { return };
        let mut direct = direct.unwrap();
        File::options().write(true).open(&path).unwrap().set_len((1 << 20) + 1000).unwrap();
        let mut out = vec![0; 2000];
        assert_eq!(direct.read(&plain, &mut out, 1 << 20, 5000), Through::Cache);
        assert_eq!(direct.read(&plain, &mut out, 2 << 20, 5000), Through::Cache);
        assert_eq!(direct.read(&plain, &mut out[..1000], 1 << 20, 5000), Through::Past);
    }

    #[test]
    fn what_the_cache_holds_and_what_is_read_again_comes_from_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        // Large enough, and nothing on the disk but an end.
        let file = File::create(&path).unwrap();
        file.write_all_at(b"end", AUTO_FROM_BYTES - 3).unwrap();
        let (plain, direct) = open(Reads::Auto, &path);
        let Some(()) = cold(&plain) else { return };
        let mut direct = direct.unwrap();
        let mut out = vec![1; PIECE_BYTES];
        let half = AUTO_FROM_BYTES / 2;
        plain.read_exact_at(&mut out, half).unwrap();
        assert_eq!(direct.read(&plain, &mut out, half, 0), Through::Held);
        let pieces = AUTO_FROM_BYTES / PIECE_BYTES as u64;
        for at in (0..pieces).map(|n| n * PIECE_BYTES as u64).filter(|&at| at != half) {
            assert_eq!(direct.read(&plain, &mut out, at, 0), Through::Past, "{at}");
        }
        // All but one piece have been read, which whoever reads again shall find.
        assert_eq!(direct.read(&plain, &mut out, 0, 0), Through::Past);
        let through = direct.read(&plain, &mut out, PIECE_BYTES as u64, 0);
        let fits = AUTO_FROM_BYTES <= sys::memory_bytes() / CACHE_SHARE;
        assert_eq!(through, if fits { Through::Cache } else { Through::Past });
    }

    #[test]
    fn small_files_and_those_of_whoever_wants_none_are_not_read_past_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, content(1 << 20)).unwrap();
        assert!(open(Reads::Auto, &path).1.is_none());
        assert!(open(Reads::Buffered, &path).1.is_none());
        std::fs::write(&path, content((1 << 20) - 1)).unwrap();
        assert!(open(Reads::Direct, &path).1.is_none());
    }

    #[test]
    fn where_the_kernel_does_not_tell_a_look_leaves_nothing_in_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, content(1 << 20)).unwrap();
        let plain = File::open(&path).unwrap();
        sys::expect_random_reads(&plain);
        let Some(()) = cold(&plain) else { return };
        assert!(!sys::is_at_hand(&plain, 600_000));
        // Whatever the kernel began to read because of it is the page at most.
        let left = cached_bytes(&plain, Range::new(0, 1 << 20)).unwrap();
        assert!(left <= 16 << 10, "{left}");
        plain.read_exact_at(&mut [0; 1000], 600_000).unwrap();
        assert!(sys::is_at_hand(&plain, 600_000));
    }
}
