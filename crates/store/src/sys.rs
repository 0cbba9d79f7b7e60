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

/// Options to open a file of ours with, which is never reached through a link.
pub(crate) fn no_follow() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NOFOLLOW);
    options
}

/// Whether the error means that the device or a quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// Whether the error means that the kernel or file system lacks the call.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM)
    )
}

/// Has a pool's memory in huge pages, before it is used; one that is too small for that stays as
/// it is. Copying, hashing and direct I/O go through every page of it again and again: with small
/// ones, a file from loopback to a disk took a third longer, and as much more of the processor.
pub fn prefer_huge_pages(pool: &Pool) {
    let (start, bytes) = pool.region();
    if bytes >= HUGE_BYTES {
        // SAFETY: the memory belongs to the pool, begins at a page, and keeps what is in it. Where
        // the advice is not taken, pages stay small.
        unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
    }
}

/// Takes the lock of an open file for this open file alone, without waiting. `Ok(false)` if another
/// one holds it. File systems without locks count as unlocked: `Ok(true)`.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) | Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives the lock of an open file back, whoever else has this open file.
pub(crate) fn unlock(file: &File) {
    let _ = retry_on_intr(|| flock(file, FlockOperation::Unlock));
}

/// Opens, or makes, and locks a file that is there to be locked; `None` if another process holds it.
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
    // A second name refuses to replace too, on every file system that has second names.
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => {
            // Neither exists here; between this look and the rename another program could still
            // create the name, which only such file systems suffer.
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

/// What a file system says about a folder.
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

/// What a file or a folder takes of its disk.
pub(crate) fn taken_bytes(found: &std::fs::Metadata) -> u64 {
    // In these units, whatever the file system's own are.
    found.blocks().saturating_mul(512)
}

/// Bytes that this process may still write where `file` lies.
pub(crate) fn free_bytes(file: &File) -> io::Result<u64> {
    free_and_all_bytes(file).map(|(free_bytes, _)| free_bytes)
}

/// The same, and how many bytes there are in all.
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

/// Gives the bytes `[start, end)` back to the file system: they read as zeros from then on.
pub(crate) fn make_hole(file: &File, start: u64, end: u64) -> io::Result<()> {
    allocate(file, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE, start, end)
}

fn allocate(file: &File, flags: FallocateFlags, start: u64, end: u64) -> io::Result<()> {
    if i64::try_from(end).is_err() {
        return Err(Errno::FBIG.into());
    }
    Ok(retry_on_intr(|| fallocate(file, flags, start, end - start))?)
}

/// The magic number of the file system that `file` lies on, 0 if it cannot be had.
pub(crate) fn file_system_kind(file: &File) -> i64 {
    rustix::fs::fstatfs(file).map_or(0, |found| found.f_type as _)
}

/// Whether what lies at `path` is on a file system whose files do not say how long they are, such as
/// `/proc`: read by its size each is empty. `false` if nobody can say.
pub fn tells_no_sizes(path: &std::path::Path) -> bool {
    // From <linux/magic.h>: proc, sysfs, cgroup, cgroup2, debugfs, tracefs.
    const KINDS: [i64; 6] = [0x9fa0, 0x6265_6572, 0x27_e0eb, 0x6367_7270, 0x6462_6720, 0x7472_6163];
    rustix::fs::statfs(path).is_ok_and(|found| KINDS.iter().any(|&kind| found.f_type == kind as _))
}

/// Lets the kernel begin to read `bytes` bytes of a file from `offset` on. A hint: nothing is waited
/// for, and nothing can go wrong.
pub fn read_ahead(file: &File, offset: u64, bytes: u64) {
    let _ = fadvise(file, offset, NonZeroU64::new(bytes), Advice::WillNeed);
}

/// How many pages of a file the page cache holds from `offset` on; `None` where the kernel does not
/// tell.
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
    // SAFETY: both structures are laid out as `cachestat` wants them and live through the call. Called
    // by number because the C libraries have no wrapper.
    let answer =
        unsafe { libc::syscall(SYS_CACHESTAT, file, &raw const wanted, &raw mut found, 0u32) };
    (answer == 0).then_some(found.cached)
}

/// The same number on every kind of processor that we run on; elsewhere it is no call at all.
const SYS_CACHESTAT: libc::c_long = 451;

/// Whether the byte at `offset` can be had without waiting. Asking leaves nothing in the page cache
/// that was not there: what the kernel reads because of it is given up again.
pub(crate) fn is_at_hand(file: &File, offset: u64) -> bool {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    if rustix::io::preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT) == Ok(1) {
        return true;
    }
    give_up_cached(file, offset - offset % PAGE_BYTES, PAGE_BYTES);
    false
}

/// What the page cache is made of, nearly everywhere.
const PAGE_BYTES: u64 = 4096;

/// Bytes of memory that the machine has, 0 if it does not say.
pub(crate) fn memory_bytes() -> u64 {
    let found = rustix::system::sysinfo();
    let bytes = u128::from(found.totalram) * u128::from(found.mem_unit);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Whether two descriptors are of one file.
pub(crate) fn is_same(one: &File, other: &File) -> bool {
    let place = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).ok();
    place(one).is_some_and(|here| place(other) == Some(here))
}

/// How often this thread has gone to sleep of its own accord so far: for a disk, where it did nothing
/// but read and compute meanwhile.
pub fn sleeps() -> u64 {
    // SAFETY: plain integers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local value that the kernel fills.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    if answer == 0 { u64::try_from(usage.ru_nvcsw).unwrap_or(0) } else { 0 }
}

/// Whether the file lies in memory, where direct I/O is taken and does not exist.
pub(crate) fn is_in_memory(file: &File) -> bool {
    matches!(file_system_kind(file), TMPFS | RAMFS)
}

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// What direct I/O on `file` asks of offsets and lengths, in bytes.
pub(crate) enum DirectAlignment {
    /// The kernel knows: this alignment of memory and of offsets.
    Known(usize, usize),
    /// The kernel knows that it is impossible.
    Impossible,
    /// The kernel cannot tell (before Linux 6.1, or this file system does not say).
    Unknown,
}

/// Asks for the alignment of direct I/O (`STATX_DIOALIGN`).
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

/// Whether direct I/O on `file`, from memory and at offsets aligned to [`ALIGN_BYTES`], may go well.
pub(crate) fn can_be_direct(file: &File) -> bool {
    // These take it and use the page cache all the same.
    if is_in_memory(file) {
        return false;
    }
    match direct_alignment(file) {
        DirectAlignment::Impossible => false,
        DirectAlignment::Unknown => true,
        DirectAlignment::Known(memory, offset) => memory <= ALIGN_BYTES && offset <= ALIGN_BYTES,
    }
}

/// Pushes `[start, end)` of a file to the device and waits; what the page cache holds of it is clean
/// afterwards and is given up. Says nothing about durability: the device's own cache is not
/// flushed.
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

/// Makes all data written to a file durable, with what is needed to read it back.
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fdatasync(file))?)
}

/// Advises the kernel to drop `bytes` bytes of a file from `start` on from the page cache.
pub(crate) fn give_up_cached(file: impl AsFd, start: u64, bytes: u64) {
    let _ = fadvise(file, start, NonZeroU64::new(bytes), Advice::DontNeed);
}

/// Asks the kernel not to read ahead: what it reads beyond the asked range would stay cached while
/// direct writes change it on the device.
pub(crate) fn expect_random_reads(file: &File) {
    let _ = fadvise(file, 0, None, Advice::Random);
}

/// Begins to write `[start, end)` back without waiting; if that fails, the kernel writes back when
/// it likes.
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

/// Whether `[start, end)` reads as zeros because nothing was ever stored there. False if the file
/// system does not say.
pub(crate) fn is_hole(file: &File, start: u64, end: u64) -> bool {
    match seek(file, SeekFrom::Data(start)) {
        Ok(data) => data >= end,
        // The only error that means "no data from here on".
        Err(error) => error == Errno::NXIO,
    }
}

/// The first hole at or after `offset`, the end of the file counting as one. `None` if the file
/// system does not say.
pub(crate) fn first_hole(file: &File, offset: u64) -> Option<u64> {
    seek(file, SeekFrom::Hole(offset)).ok()
}

/// The first byte of data at or after `offset`; `None` if there is none or it cannot be told.
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
