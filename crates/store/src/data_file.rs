//! The part file for the engines: one inode, an ordinary descriptor, perhaps a direct one.
//!
//! Direct and ordinary writes must not meet. A direct write goes past the page cache; if the cache
//! holds a page of the same place, or a large page that reaches into it, the kernel has to drop
//! that page, and where it cannot, readers see old bytes. So every direct job holds the
//! [`DataFile::gate`] shared. An ordinary job on such a file holds it alone, pushes its bytes to
//! the device and empties the cache of them before it releases the gate. Then no direct write ever
//! finds a cached page. As the blocks of an ordinary write are never covered as a whole by a direct
//! write of other bytes, neither can undo the other.
//!
//! The holder of the gate waits only for the kernel and the journal: a job has its buffer before it
//! requests the gate, and requests no other before it releases it. The holder of the journal (a
//! commit) never requests the gate.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::RwLock;

use crate::engine::BufferedQueue;
use crate::sys::{self, DirectAlignment};

/// An open part file.
pub(crate) struct DataFile {
    plain: File,
    direct: Option<Direct>,
    /// Cleared for good when direct I/O does not work or does not pay.
    direct_on: AtomicBool,
    /// Ordinary writes that interrupted direct ones.
    interruptions: AtomicU32,
    pub(crate) gate: Arc<RwLock<()>>,
    pub(crate) buffered: BufferedQueue,
}

struct Direct {
    file: File,
    /// Offsets and lengths must be multiples of this.
    align_bytes: u64,
}

impl Drop for DataFile {
    /// Releases the lock. Closing the file is not enough: a program that is just being started
    /// shares it until it begins.
    fn drop(&mut self) {
        sys::unlock(&self.plain);
    }
}

impl DataFile {
    /// Wraps the part file at `path`; `direct`: whether direct I/O is wanted.
    pub(crate) fn new(plain: File, path: &Path, direct: bool) -> DataFile {
        let direct = if direct { Direct::open(&plain, path) } else { None };
        if direct.is_some() {
            sys::expect_random_reads(&plain);
        }
        DataFile {
            direct_on: AtomicBool::new(direct.is_some()),
            direct,
            plain,
            interruptions: AtomicU32::new(0),
            gate: Arc::default(),
            buffered: BufferedQueue::default(),
        }
    }

    pub(crate) fn plain(&self) -> &File {
        &self.plain
    }

    pub(crate) fn plain_fd(&self) -> i32 {
        self.plain.as_raw_fd()
    }

    /// Returns the direct descriptor, or else the ordinary one, which is slower but correct.
    pub(crate) fn direct_fd(&self) -> i32 {
        self.direct.as_ref().map_or(self.plain.as_raw_fd(), |direct| direct.file.as_raw_fd())
    }

    /// Returns whether there is a direct descriptor, used or not.
    pub(crate) fn was_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Returns the alignment that direct jobs need; `None` if none are allowed.
    pub(crate) fn direct_align_bytes(&self) -> Option<u64> {
        let direct = self.direct.as_ref()?;
        self.direct_on.load(Ordering::Acquire).then_some(direct.align_bytes)
    }

    /// Turns direct I/O off for good.
    pub(crate) fn stop_direct(&self) {
        self.direct_on.store(false, Ordering::Release);
    }

    /// Counts an ordinary write that interrupted direct ones. If that happens often, the whole file
    /// is better off without direct I/O.
    pub(crate) fn count_interruption(&self) {
        if self.interruptions.fetch_add(1, Ordering::Relaxed) >= INTERRUPTIONS_MAX {
            self.stop_direct();
        }
    }
}

impl Direct {
    fn open(plain: &File, path: &Path) -> Option<Direct> {
        // These accept O_DIRECT (tmpfs since Linux 6.6) but use the page cache.
        if sys::is_in_memory(plain) {
            return None;
        }
        let align_bytes = match sys::direct_alignment(plain) {
            DirectAlignment::Impossible => return None,
            DirectAlignment::Unknown => swath_model::pool::ALIGN_BYTES,
            DirectAlignment::Known(memory, offset) => {
                if memory > swath_model::pool::ALIGN_BYTES {
                    return None;
                }
                // Never below a page, for the reason given in the module header.
                offset.max(swath_model::pool::ALIGN_BYTES)
            }
        };
        if !align_bytes.is_power_of_two() {
            return None;
        }
        let file = Self::open_again(plain, path).ok()?;
        Some(Direct { file, align_bytes: align_bytes as u64 })
    }

    /// Opens a second descriptor of the same inode, because its flags differ.
    fn open_again(plain: &File, path: &Path) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_DIRECT | libc::O_NOFOLLOW);
        let file = options.open(path)?;
        if sys::is_same(plain, &file) { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// Each costs a few milliseconds; the planner's grid leaves a handful per file.
const INTERRUPTIONS_MAX: u32 = 64;
