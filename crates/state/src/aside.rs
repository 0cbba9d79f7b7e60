//! Moves a damaged file aside: it keeps its bytes under another name, with SQLite's side files.
//!
//! Processes that find the damage at the same time must not move the new file that the first of
//! them creates, and nobody may be opening it meanwhile: SQLite finds side files by name and would
//! take the new log for the old one. So opening holds a shared lock on the folder, and renaming an
//! exclusive one.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Which file it is that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    number: u64,
}

impl Identity {
    /// Of what has this name now.
    pub(crate) fn of(path: &Path) -> Option<Identity> {
        path.metadata().ok().map(|found| Identity::seen(&found))
    }

    fn seen(found: &Metadata) -> Identity {
        Identity { device: found.dev(), number: found.ino() }
    }
}

/// A lock on the folder of a file, until it is dropped.
pub(crate) struct Guard {
    _folder: Option<File>,
}

impl Guard {
    /// For opening, beside others who do. Where the file system has no such locks, or somebody
    /// holds one for long, it is done without.
    pub(crate) fn shared(path: &Path) -> Guard {
        Guard { _folder: lock(path, FlockOperation::NonBlockingLockShared) }
    }

    fn alone(path: &Path) -> Guard {
        Guard { _folder: lock(path, FlockOperation::NonBlockingLockExclusive) }
    }
}

fn lock(path: &Path, how: FlockOperation) -> Option<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new("."))).ok()?;
    for _ in 0..LOCK_TRIES {
        match flock(&folder, how) {
            Ok(()) => return Some(folder),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_WAIT),
            Err(_) => return None,
        }
    }
    None
}

/// Sets the file aside that was found damaged; its new name, or `None` where somebody else did so
/// meanwhile. The error is in the system's words. Nobody in this process may have the file open.
pub(crate) fn set_aside(path: &Path, damaged: Identity) -> Result<Option<PathBuf>, String> {
    rename(path, damaged).map_err(|error| error.to_string())
}

fn rename(path: &Path, damaged: Identity) -> io::Result<Option<PathBuf>> {
    let _guard = Guard::alone(path);
    if Identity::of(path) != Some(damaged) {
        return Ok(None);
    }
    let aside = free_name(path);
    // The log first: beside a new file it would be taken for that file's.
    for beside in ["-wal", "-journal"] {
        match fs::rename(with(path, beside), with(&aside, beside)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // Made of the log, and made again from it.
    let _ = fs::remove_file(with(path, "-shm"));
    fs::rename(path, &aside)?;
    Ok(Some(aside))
}

fn free_name(path: &Path) -> PathBuf {
    let first = with(path, &format!(".damaged-{}", date()));
    let further = (2..).map(|n| with(&first, &format!("-{n}")));
    let is_free = |name: &PathBuf| name.symlink_metadata().is_err();
    std::iter::once(first.clone()).chain(further).find(is_free).unwrap_or(first)
}

/// The date and time in UTC as one word; SQLite knows the calendar.
fn date() -> String {
    let ask = || -> rusqlite::Result<String> {
        let calendar = rusqlite::Connection::open_in_memory()?;
        calendar.query_row("SELECT strftime('%Y%m%dT%H%M%SZ', 'now')", [], |row| row.get(0))
    };
    ask().unwrap_or_else(|_| "some-day".to_owned())
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Opening and renaming take milliseconds, and on a busy machine a hundred times as long: two seconds.
const LOCK_TRIES: u32 = 400;
const LOCK_WAIT: std::time::Duration = std::time::Duration::from_millis(5);
