//! Keeps the peers in a file, so that they survive a restart.
//!
//! The file is written under another name first and then renamed: it is always whole. A damaged one
//! is put aside. A lock beside it keeps a second tracker away.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufWriter, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use crate::core::Core;
use crate::server::{Note, Notes};
use crate::snapshot;
use crate::tracker::Tracker;

/// The file with the peers.
pub(crate) struct Keeper {
    path: PathBuf,
    _lock: File,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// Another tracker has it.
    #[error("{} is in use by another tracker", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is something else, and must not be replaced.
    #[error("{} is not a file of a tracker's peers", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The system refuses to read or write it.
    #[error("cannot keep the peers in {}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl Keeper {
    /// Opens the file, and adds the peers that it has.
    pub fn open(path: PathBuf, tracker: &Tracker, notes: &Notes) -> Result<Keeper, KeepError> {
        let failed = |source| KeepError::System { path: path.clone(), source };
        if let Some(folder) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        let lock = open(&with(&path, ".lock"), false).map_err(failed)?;
        let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        // Other errors come from file systems without locks.
        if locked == Err(rustix::io::Errno::WOULDBLOCK) {
            return Err(KeepError::InUse { path });
        }
        match read(&path) {
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) if !snapshot::is_one(&bytes) => return Err(KeepError::Foreign { path }),
            Ok(bytes) => {
                let restored = tracker.core().restore(&bytes, tracker.now(), since_1970());
                match restored {
                    Ok(0) => {}
                    Ok(peers) => notes(Note::Restored { peers }),
                    Err(_) => {
                        let aside = with(&path, &format!(".damaged-{}", since_1970().as_secs()));
                        fs::rename(&path, &aside).map_err(failed)?;
                        notes(Note::Damaged { path: path.clone(), aside });
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let keeper = Keeper { path: path.clone(), _lock: lock };
        // A tracker that cannot save its peers says so at once.
        keeper.save(tracker).map_err(failed)?;
        Ok(keeper)
    }

    /// Saves all peers for the last time.
    pub fn finish(&self, tracker: &Tracker) -> Result<(), KeepError> {
        let failed = |source| KeepError::System { path: self.path.clone(), source };
        self.save(tracker).map(drop).map_err(failed)
    }

    /// Saves all peers; returns the size of the file.
    pub fn save(&self, tracker: &Tracker) -> io::Result<u64> {
        let new = with(&self.path, ".new");
        let mut out = BufWriter::new(open(&new, true)?);
        let mut hasher = blake3::Hasher::new();
        let mut bytes = snapshot::head(since_1970());
        let mut length = 0;
        let mut from = Some(0);
        tracker.core().is_changed = false;
        while let Some(at) = from {
            from = Core::save_part(&tracker.core(), at, tracker.now(), &mut bytes);
            hasher.update(&bytes);
            out.write_all(&bytes)?;
            length += bytes.len() as u64;
            bytes.clear();
        }
        out.write_all(&snapshot::end(&hasher))?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&new, &self.path)?;
        Ok(length)
    }
}

/// Saves the peers whenever they have changed: a small file soon, a large one once a minute. Never
/// ends.
pub(crate) async fn keep(keeper: Arc<Keeper>, tracker: Arc<Tracker>, notes: Notes) {
    let (mut saved_at, mut bytes, mut is_failing) = (Instant::now(), 0, false);
    loop {
        tokio::time::sleep(SMALL_EVERY).await;
        let is_due = bytes < SMALL_BYTES || saved_at.elapsed() >= LARGE_EVERY;
        if !is_due || !tracker.core().is_changed {
            continue;
        }
        let (keeping, saving) = (Arc::clone(&keeper), Arc::clone(&tracker));
        let saved = tokio::task::spawn_blocking(move || keeping.save(&saving)).await;
        saved_at = Instant::now();
        match saved {
            Ok(Ok(length)) => {
                bytes = length;
                if std::mem::take(&mut is_failing) {
                    notes(Note::SavedAgain { path: keeper.path.clone() });
                }
            }
            Ok(Err(error)) => {
                // Tried again, although nothing else changes.
                tracker.core().is_changed = true;
                if !std::mem::replace(&mut is_failing, true) {
                    notes(Note::Unsaved { path: keeper.path.clone(), error });
                }
            }
            // The program ends.
            Err(_) => {}
        }
    }
}

/// Reads the file, or as much of it as can be a snapshot.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Devices may be endless, and pipes may block.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file that only its owner may read: it has addresses of people.
fn open(path: &Path, is_emptied: bool) -> io::Result<File> {
    File::options().write(true).create(true).truncate(is_emptied).mode(0o600).open(path)
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Longer than the file of a full tracker, and short enough for memory.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// A file of fewer bytes is small: it has some 25,000 peers, and takes milliseconds.
const SMALL_BYTES: u64 = 1 << 20;
/// How often a small file may be written …
const SMALL_EVERY: Duration = Duration::from_secs(5);
/// … and a large one.
const LARGE_EVERY: Duration = Duration::from_secs(60);
