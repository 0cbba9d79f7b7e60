//! System calls that the standard library lacks, with their odd cases handled.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, FlockOperation, RenameFlags, SeekFrom, StatVfsMountFlags,
    StatxFlags, fadvise, fallocate, flock, renameat_with, seek, statx,
};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use swath_model::Pool;
use swath_model::pool::{ALIGN_BYTES, HUGE_BYTES};

/// Returns options to open a file of ours, which is never reached through a link.
pub(crate) fn no_follow() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NOFOLLOW);
    options
}

/// Returns whether the error means that the device or a quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// Returns whether the error means that the kernel or file system lacks the call.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM)
    )
}

/// Puts a pool's memory into huge pages before it is used; leaves too small pools alone. Copying,
/// hashing and direct I/O touch every page again and again: with small pages, a file from loopback
/// to a disk took a third longer, and as much more processor time.
pub fn prefer_huge_pages(pool: &Pool) {
    let (start, bytes) = pool.region();
    if bytes >= HUGE_BYTES {
        // SAFETY: the memory belongs to the pool, begins at a page, and keeps its content. If the
        // advice is ignored, pages stay small.
        unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
    }
}

/// Locks an open file for this open file alone, without waiting. `Ok(false)` if another one holds
/// the lock. File systems without locks count as unlocked: `Ok(true)`.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) | Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Releases the lock of an open file, even if others have this open file too.
pub(crate) fn unlock(file: &File) {
    let _ = retry_on_intr(|| flock(file, FlockOperation::Unlock));
}

/// Opens or makes a lock file and locks it; `None` if another process holds the lock.
pub(crate) fn lock_file(path: &Path) -> io::Result<Option<File>> {
    let lock = no_follow().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    Ok(try_lock(&lock)?.then_some(lock))
}

/// Renames without ever replacing a file: `EEXIST` if `to` is taken.
pub(crate) fn rename_if_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).map_err(io::Error::from) {
        Err(error) if is_unsupported(&error) => {}
        renamed => return renamed,
    }
    // A hard link never replaces a file either, on every file system with hard links.
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => {
            // The file system supports neither. Another program could still create the name between
            // this check and the rename, but only on such file systems.
            if to.symlink_metadata().is_ok() {
                return Err(Errno::EXIST.into());
            }
            std::fs::rename(from, to)
        }
    }
}

/// Sets the time of last modification.
pub(crate) fn set_mtime(file: &File, mtime: SystemTime) -> io::Result<()> {
    file.set_times(std::fs::FileTimes::new().set_modified(mtime))
}

/// Properties of a file system.
pub(crate) struct FileSystem {
    /// Bytes that an ordinary user may still write.
    pub(crate) available_bytes: u64,
    /// Mounted read-only.
    pub(crate) read_only: bool,
    /// Longest file name in bytes.
    pub(crate) name_bytes_max: usize,
}

/// Asks the file system behind `folder`.
pub(crate) fn file_system(folder: &Path) -> io::Result<FileSystem> {
    let answer = retry_on_intr(|| rustix::fs::statvfs(folder))?;
    let unit_bytes = if answer.f_frsize == 0 { answer.f_bsize } else { answer.f_frsize };
    Ok(FileSystem {
        available_bytes: answer.f_bavail.saturating_mul(unit_bytes),
        read_only: answer.f_flag.contains(StatVfsMountFlags::RDONLY),
        name_bytes_max: (answer.f_namemax as usize).clamp(32, 4096),
    })
}

/// Returns the disk space of a file or folder.
pub(crate) fn taken_bytes(found: &std::fs::Metadata) -> u64 {
    // Always in units of 512 bytes, whatever the file system's own are.
    found.blocks().saturating_mul(512)
}

/// Returns the bytes that this process may still write where `file` lies.
pub(crate) fn free_bytes(file: &File) -> io::Result<u64> {
    free_and_all_bytes(file).map(|(free_bytes, _)| free_bytes)
}

/// Returns the same, and the total size.
pub(crate) fn free_and_all_bytes(file: &File) -> io::Result<(u64, u64)> {
    let found = rustix::fs::fstatvfs(file)?;
    let is_root = rustix::process::geteuid().is_root();
    let blocks = if is_root { found.f_bfree } else { found.f_bavail };
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok((bytes(blocks), bytes(found.f_blocks)))
}

/// Reserves the bytes `[start, end)` on the device without changing the file's size.
pub(crate) fn reserve(file: &File, start: u64, end: u64) -> io::Result<()> {
    allocate(file, FallocateFlags::KEEP_SIZE, start, end)
}

/// Frees the bytes `[start, end)` in the file system: they read as zeros from then on.
pub(crate) fn make_hole(file: &File, start: u64, end: u64) -> io::Result<()> {
    allocate(file, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE, start, end)
}

fn allocate(file: &File, flags: FallocateFlags, start: u64, end: u64) -> io::Result<()> {
    if i64::try_from(end).is_err() {
        return Err(Errno::FBIG.into());
    }
    Ok(retry_on_intr(|| fallocate(file, flags, start, end - start))?)
}

/// Returns the magic number of the file system of `file`, 0 if unknown.
pub(crate) fn file_system_kind(file: &File) -> i64 {
    rustix::fs::fstatfs(file).map_or(0, |found| found.f_type as _)
}

/// Returns whether `path` is on a file system that reports no file sizes, such as `/proc`, so that
/// every file seems empty; false if unknown.
pub fn tells_no_sizes(path: &std::path::Path) -> bool {
    // From <linux/magic.h>: proc, sysfs, cgroup, cgroup2, debugfs, tracefs.
    const KINDS: [i64; 6] = [0x9fa0, 0x6265_6572, 0x27_e0eb, 0x6367_7270, 0x6462_6720, 0x7472_6163];
    rustix::fs::statfs(path).is_ok_and(|found| KINDS.iter().any(|&kind| found.f_type == kind as _))
}

/// Lets the kernel begin to read `bytes` bytes of a file from `offset` on. A hint: it neither waits
/// nor fails.
pub fn read_ahead(file: &File, offset: u64, bytes: u64) {
    let _ = fadvise(file, offset, NonZeroU64::new(bytes), Advice::WillNeed);
}

/// Returns how many pages of a file the page cache holds from `offset` on; `None` if the kernel
/// does not tell.
pub(crate) fn cached_pages(file: RawFd, offset: u64, bytes: u64) -> Option<u64> {
    #[repr(C)]
    struct Wanted {
        offset: u64,
        bytes: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Found {
        cached: u64,
        _dirty: u64,
        _writeback: u64,
        _evicted: u64,
        _recently_evicted: u64,
    }
    let (wanted, mut found) = (Wanted { offset, bytes }, Found::default());
    // SAFETY: both structures have the layout that `cachestat` requires and live through the call.
    // Called by number because the C libraries have no wrapper.
    let answer =
        unsafe { libc::syscall(SYS_CACHESTAT, file, &raw const wanted, &raw mut found, 0u32) };
    (answer == 0).then_some(found.cached)
}

/// The same number on every processor type that we support; elsewhere no call has it.
const SYS_CACHESTAT: libc::c_long = 451;

/// Returns whether the byte at `offset` is available without waiting. Leaves nothing new in the
/// page cache: pages that the kernel reads because of it are dropped again.
pub(crate) fn is_at_hand(file: &File, offset: u64) -> bool {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    if rustix::io::preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT) == Ok(1) {
        return true;
    }
    give_up_cached(file, offset - offset % PAGE_BYTES, PAGE_BYTES);
    false
}

/// Size of pages in the page cache, nearly everywhere.
const PAGE_BYTES: u64 = 4096;

/// Returns the machine's memory in bytes, 0 if unknown.
pub(crate) fn memory_bytes() -> u64 {
    let found = rustix::system::sysinfo();
    let bytes = u128::from(found.totalram) * u128::from(found.mem_unit);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Returns whether two descriptors belong to one file.
pub(crate) fn is_same(one: &File, other: &File) -> bool {
    let place = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).ok();
    place(one).is_some_and(|here| place(other) == Some(here))
}

/// Returns how often this thread has slept voluntarily so far: waiting for a disk, if it only read
/// and computed meanwhile.
pub fn sleeps() -> u64 {
    // SAFETY: plain integers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local value that the kernel fills.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    if answer == 0 { u64::try_from(usage.ru_nvcsw).unwrap_or(0) } else { 0 }
}

/// Returns whether the file lies in memory, where direct I/O is accepted but has no effect.
pub(crate) fn is_in_memory(file: &File) -> bool {
    matches!(file_system_kind(file), TMPFS | RAMFS)
}

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// Alignment that direct I/O on `file` requires of offsets and lengths, in bytes.
pub(crate) enum DirectAlignment {
    /// The alignment of memory and of offsets.
    Known(usize, usize),
    /// Direct I/O is impossible.
    Impossible,
    /// Unknown (before Linux 6.1, or on file systems that do not report it).
    Unknown,
}

/// Queries the alignment of direct I/O (`STATX_DIOALIGN`).
pub(crate) fn direct_alignment(file: &File) -> DirectAlignment {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let Ok(found) = found else { return DirectAlignment::Unknown };
    if found.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return DirectAlignment::Unknown;
    }
    match (found.stx_dio_mem_align as usize, found.stx_dio_offset_align as usize) {
        (0, _) | (_, 0) => DirectAlignment::Impossible,
        (memory, offset) => DirectAlignment::Known(memory, offset),
    }
}

/// Returns whether direct I/O on `file` may work, with everything aligned to [`ALIGN_BYTES`].
pub(crate) fn can_be_direct(file: &File) -> bool {
    // These accept it but use the page cache.
    if is_in_memory(file) {
        return false;
    }
    match direct_alignment(file) {
        DirectAlignment::Impossible => false,
        DirectAlignment::Unknown => true,
        DirectAlignment::Known(memory, offset) => memory <= ALIGN_BYTES && offset <= ALIGN_BYTES,
    }
}

/// Writes `[start, end)` of a file to the device, waits, and drops its clean pages from the page
/// cache. Not durable: the device's own cache is not flushed.
pub(crate) fn write_back_and_drop(file: &File, start: u64, end: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    match retry_on_intr(|| sync_range(file, start, end, flags)) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => sync_data(file)?,
        synced => synced?,
    }
    give_up_cached(file, start, end - start);
    Ok(())
}

/// Makes all data of a file durable, with the metadata needed to read it back.
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fdatasync(file))?)
}

/// Advises the kernel to drop `bytes` bytes of a file from `start` on from the page cache.
pub(crate) fn give_up_cached(file: impl AsFd, start: u64, bytes: u64) {
    let _ = fadvise(file, start, NonZeroU64::new(bytes), Advice::DontNeed);
}

/// Asks the kernel not to read ahead: bytes read beyond the requested range would stay cached while
/// direct writes change them on the device.
pub(crate) fn expect_random_reads(file: &File) {
    let _ = fadvise(file, 0, None, Advice::Random);
}

/// Begins to write `[start, end)` back without waiting; if that fails, the kernel does so later.
pub(crate) fn begin_write_back(file: &File, start: u64, end: u64) {
    let _ = sync_range(file, start, end, libc::SYNC_FILE_RANGE_WRITE);
}

fn sync_range(file: &File, start: u64, end: u64, flags: libc::c_uint) -> Result<(), Errno> {
    let (start, bytes) = (start as i64, (end - start) as i64);
    // SAFETY: a plain system call on a descriptor that `file` keeps open.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), start, bytes, flags) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Returns whether `[start, end)` reads as zeros because nothing was ever stored there; false if
/// the file system does not say.
pub(crate) fn is_hole(file: &File, start: u64, end: u64) -> bool {
    match seek(file, SeekFrom::Data(start)) {
        Ok(data) => data >= end,
        // The only error that means "no data from here on".
        Err(error) => error == Errno::NXIO,
    }
}

/// Returns the first hole at or after `offset`, counting the end of the file as one. `None` if the
/// file system does not say.
pub(crate) fn first_hole(file: &File, offset: u64) -> Option<u64> {
    seek(file, SeekFrom::Hole(offset)).ok()
}

/// Returns the first byte of data at or after `offset`; `None` if there is none or it is unknown.
pub(crate) fn first_data(file: &File, offset: u64) -> Option<u64> {
    seek(file, SeekFrom::Data(offset)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, IoMode};

    /// The flags of the mapping that this address is in.
    fn mapping_flags(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let is_ours = |line: &&str| {
            let bounds = line.split(' ').next().and_then(|bounds| bounds.split_once('-'));
            let hex = |text| usize::from_str_radix(text, 16).ok();
            let bounds = bounds.and_then(|(from, to)| Some(hex(from)?..hex(to)?));
            bounds.is_some_and(|bounds| bounds.contains(&address))
        };
        let mut lines = maps.lines().skip_while(|line| !is_ours(line));
        lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap_or_default().to_owned()
    }

    #[test]
    fn what_the_disk_writes_from_is_put_into_huge_pages() {
        if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            println!("skipped: this kernel has no transparent huge pages");
            return;
        }
        let pool = Pool::new(16, HUGE_BYTES / 8);
        let address = pool.region().0 as usize;
        let _disk = Disk::start(&pool, IoMode::Buffered).unwrap();
        let flags = mapping_flags(address);
        assert!(flags.contains(" hg"), "{flags}");
    }
}
