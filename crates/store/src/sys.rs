//! System calls that the standard library does not offer, with their odd cases handled.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use swath_model::Pool;
use swath_model::pool::{ALIGN_BYTES, HUGE_BYTES};

/// The result of a system call that answers −1 and `errno` on failure.
pub(crate) fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Call again as long as a signal interrupts.
pub(crate) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A path as the kernel takes it.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
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

/// Have a pool's memory in huge pages, before it is used; one that is too small for that stays as
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

/// Take the lock of an open file for this open file alone, without waiting. `Ok(false)` if another
/// one holds it. File systems without locks count as unlocked: `Ok(true)`.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: a plain system call on a descriptor that `file` keeps open.
    let locked =
        retry(|| check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }));
    match locked {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EWOULDBLOCK) => Ok(false),
            Some(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL) => Ok(true),
            _ => Err(error),
        },
    }
}

/// Rename without ever replacing a file: `EEXIST` if `to` is taken.
pub(crate) fn rename_if_free(from: &Path, to: &Path) -> io::Result<()> {
    let (from_c, to_c) = (c_path(from)?, c_path(to)?);
    // SAFETY: both are valid C strings that outlive the call. Called by number because older C
    // libraries have no wrapper.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            from_c.as_ptr(),
            libc::AT_FDCWD,
            to_c.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    if answer == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if !is_unsupported(&error) {
        return Err(error);
    }
    // A second name refuses to replace too, on every file system that has second names.
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => {
            // Neither exists here; between this look and the rename another program could still
            // create the name, which only such file systems suffer.
            if to.symlink_metadata().is_ok() {
                return Err(io::Error::from_raw_os_error(libc::EEXIST));
            }
            std::fs::rename(from, to)
        }
    }
}

/// Set the time of last modification.
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

/// Ask the file system behind `folder`.
pub(crate) fn file_system(folder: &Path) -> io::Result<FileSystem> {
    let folder = c_path(folder)?;
    let mut answer = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `folder` is a valid C string and `answer` has room for the result.
    retry(|| check(unsafe { libc::statvfs(folder.as_ptr(), answer.as_mut_ptr()) }))?;
    // SAFETY: the call succeeded, so it filled the structure.
    let answer = unsafe { answer.assume_init() };
    let unit_bytes = if answer.f_frsize == 0 { answer.f_bsize } else { answer.f_frsize };
    Ok(FileSystem {
        available_bytes: answer.f_bavail.saturating_mul(unit_bytes),
        read_only: answer.f_flag & libc::ST_RDONLY != 0,
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

/// Reserve the bytes `[start, end)` on the device without changing the file's size.
pub(crate) fn reserve(file: &File, start: u64, end: u64) -> io::Result<()> {
    let (Ok(start), Ok(bytes)) = (i64::try_from(start), i64::try_from(end - start)) else {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    };
    retry(|| {
        // SAFETY: a plain system call on a descriptor that `file` keeps open.
        check(unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, start, bytes) })
    })
    .map(drop)
}

/// Give the bytes `[start, end)` back to the file system: they read as zeros from then on.
pub(crate) fn make_hole(file: &File, start: u64, end: u64) -> io::Result<()> {
    let (Ok(start), Ok(bytes)) = (i64::try_from(start), i64::try_from(end - start)) else {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    };
    let mode = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
    // SAFETY: a plain system call on a descriptor that `file` keeps open.
    retry(|| check(unsafe { libc::fallocate(file.as_raw_fd(), mode, start, bytes) })).map(drop)
}

/// The magic number of the file system that `file` lies on, 0 if it cannot be had.
pub(crate) fn file_system_kind(file: &File) -> i64 {
    let mut answer = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open and `answer` has room for the result.
    let done = retry(|| check(unsafe { libc::fstatfs(file.as_raw_fd(), answer.as_mut_ptr()) }));
    // SAFETY: read only after the call succeeded and filled the structure.
    done.map_or(0, |_| unsafe { answer.assume_init() }.f_type)
}

/// Whether what lies at `path` is on a file system whose files do not say how long they are, such as
/// `/proc`: read by its size each is empty. `false` if nobody can say.
pub fn tells_no_sizes(path: &std::path::Path) -> bool {
    // From <linux/magic.h>: proc, sysfs, cgroup, cgroup2, debugfs, tracefs.
    const KINDS: [i64; 6] = [0x9fa0, 0x6265_6572, 0x27_e0eb, 0x6367_7270, 0x6462_6720, 0x7472_6163];
    rustix::fs::statfs(path).is_ok_and(|found| KINDS.iter().any(|&kind| found.f_type == kind as _))
}

/// Let the kernel begin to read `bytes` bytes of a file from `offset` on. A hint: nothing is waited
/// for, and nothing can go wrong.
pub fn read_ahead(file: &File, offset: u64, bytes: u64) {
    let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else { return };
    // SAFETY: a plain system call on a descriptor that `file` keeps open.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, bytes, libc::POSIX_FADV_WILLNEED) };
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
    let Ok(offset) = i64::try_from(offset) else { return false };
    let mut byte = 0u8;
    let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let fd = file.as_raw_fd();
    // SAFETY: the one part is a byte of ours.
    if unsafe { libc::preadv2(fd, &raw const part, 1, offset, libc::RWF_NOWAIT) } == 1 {
        return true;
    }
    let page = offset - offset % PAGE_BYTES;
    // SAFETY: a plain system call; it is advice only.
    unsafe { libc::posix_fadvise(fd, page, PAGE_BYTES, libc::POSIX_FADV_DONTNEED) };
    false
}

/// What the page cache is made of, nearly everywhere.
const PAGE_BYTES: i64 = 4096;

/// Bytes of memory that the machine has, 0 if it does not say.
pub(crate) fn memory_bytes() -> u64 {
    // SAFETY: plain library calls.
    let (pages, bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(bytes).unwrap_or(0))
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

/// Ask for the alignment of direct I/O (`STATX_DIOALIGN`).
pub(crate) fn direct_alignment(file: &File) -> DirectAlignment {
    let mut answer = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty C string, which with AT_EMPTY_PATH means the descriptor, and
    // `answer` has room for the result.
    let done = retry(|| {
        // SAFETY: as said above.
        check(unsafe {
            libc::statx(
                file.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                libc::STATX_DIOALIGN,
                answer.as_mut_ptr(),
            )
        })
    });
    if done.is_err() {
        return DirectAlignment::Unknown;
    }
    // SAFETY: zero-initialised, and filled by the call.
    let answer = unsafe { answer.assume_init() };
    if answer.stx_mask & libc::STATX_DIOALIGN == 0 {
        return DirectAlignment::Unknown;
    }
    match (answer.stx_dio_mem_align as usize, answer.stx_dio_offset_align as usize) {
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

/// Push `[start, end)` of a file to the device and wait; what the page cache holds of it is clean
/// afterwards and is given up. Says nothing about durability: the device's own cache is not
/// flushed.
pub(crate) fn write_back_and_drop(file: &File, start: u64, end: u64) -> io::Result<()> {
    let (start, bytes) = (start as i64, (end - start) as i64);
    let fd = file.as_raw_fd();
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: plain system calls on a descriptor that `file` keeps open.
    if let Err(error) = retry(|| check(unsafe { libc::sync_file_range(fd, start, bytes, flags) })) {
        if !is_unsupported(&error) {
            return Err(error);
        }
        // SAFETY: as above.
        retry(|| check(unsafe { libc::fdatasync(fd) }))?;
    }
    // Advice only: the answer does not matter.
    // SAFETY: as above.
    unsafe { libc::posix_fadvise(fd, start, bytes, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}

/// Ask the kernel not to read ahead: what it reads beyond the asked range would stay cached while
/// direct writes change it on the device.
pub(crate) fn expect_random_reads(file: &File) {
    // SAFETY: a plain system call on a descriptor that `file` keeps open; it is advice only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}

/// Begin to write `[start, end)` back without waiting.
pub(crate) fn begin_write_back(file: &File, start: u64, end: u64) {
    // SAFETY: a plain system call on a descriptor that `file` keeps open; failure only means that
    // the kernel writes back when it likes.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            start as i64,
            (end - start) as i64,
            libc::SYNC_FILE_RANGE_WRITE,
        )
    };
}

/// Whether `[start, end)` reads as zeros because nothing was ever stored there. False if the file
/// system does not say.
pub(crate) fn is_hole(file: &File, start: u64, end: u64) -> bool {
    match first_data(file, start) {
        Some(data) => data >= end,
        // The only error that means "no data from here on".
        None => io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO),
    }
}

/// The first hole at or after `offset`, the end of the file counting as one. `None` if the file
/// system does not say.
pub(crate) fn first_hole(file: &File, offset: u64) -> Option<u64> {
    seek(file.as_raw_fd(), offset, libc::SEEK_HOLE)
}

/// The first byte of data at or after `offset`; `None` if there is none or it cannot be told.
pub(crate) fn first_data(file: &File, offset: u64) -> Option<u64> {
    seek(file.as_raw_fd(), offset, libc::SEEK_DATA)
}

fn seek(fd: RawFd, offset: u64, whence: libc::c_int) -> Option<u64> {
    let offset = i64::try_from(offset).ok()?;
    // SAFETY: a plain system call; all reads and writes here carry their own offset, so the
    // descriptor's position means nothing to anyone.
    u64::try_from(unsafe { libc::lseek(fd, offset, whence) }).ok()
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
