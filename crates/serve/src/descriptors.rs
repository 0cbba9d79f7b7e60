//! How many descriptors the system lets this process have.

/// Returns the limit that holds now (`RLIMIT_NOFILE`).
pub(crate) fn limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain system call with a structure of our own.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if asked == 0 { usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX) } else { FALLBACK }
}

/// The usual limit of a process.
const FALLBACK: usize = 1024;
