//! A replica in a file of this machine, `file:///data/run7.h5`. Only what the user names is read.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use swath_formats::http_date;
use tokio::runtime::{Handle, RuntimeFlavor};
use url::Url;

use crate::error::LaneError;
use crate::facts::Facts;
use crate::local_source::{LocalSource, ReadAt};
use crate::source::Trust;

/// A file of this machine, as a replica.
pub type FileSource = LocalSource<LocalFile>;

/// A file of this machine.
#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    /// As it was when it was looked at last.
    file: Mutex<Option<Arc<File>>>,
}

impl FileSource {
    /// Returns the file at `url`, which is named by whom `trust` says.
    ///
    /// # Errors
    /// [`LaneError::NotForOthers`] if that is not the user, and [`LaneError::Scheme`] if it names no file
    /// of this machine.
    pub fn at(url: &Url, trust: Trust) -> Result<Arc<FileSource>, LaneError> {
        let scheme = || url.scheme().to_owned();
        if trust != Trust::Named {
            return Err(LaneError::NotForOthers { scheme: scheme() });
        }
        let path = url.to_file_path().map_err(|()| LaneError::Scheme { scheme: scheme() })?;
        Ok(LocalSource::new(url.clone(), Arc::new(LocalFile { path, file: Mutex::default() })))
    }
}

impl LocalFile {
    /// Opens what has the name now, if it is an ordinary file: what reading another kind does nobody
    /// knows.
    fn open(&self) -> io::Result<(Arc<File>, Metadata)> {
        // Whoever opens a pipe waits for its other end.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&self.path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("it is no ordinary file"));
        }
        if has_wrong_size(&file, &found)? {
            return Err(io::Error::other(
                "its file system does not tell its size, as that of /proc",
            ));
        }
        Ok((Arc::new(file), found))
    }
}

/// Returns whether a file ends somewhere else than its size says, and has not just grown or shrunk.
fn has_wrong_size(file: &File, found: &Metadata) -> io::Result<bool> {
    let is_there = |offset| Ok::<bool, io::Error>(file.read_at(&mut [0], offset)? > 0);
    let is_wrong = is_there(found.len())? || (found.len() > 0 && !is_there(found.len() - 1)?);
    Ok(is_wrong && file.metadata()?.len() == found.len())
}

impl ReadAt for LocalFile {
    async fn facts(&self) -> Result<Facts, LaneError> {
        let (file, found) = blocking(|| self.open()).map_err(|error| unreadable(&error))?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        let modified_s = u64::try_from(found.mtime()).unwrap_or_default();
        let (inode, seconds, nanoseconds) = (found.ino(), found.mtime(), found.mtime_nsec());
        Ok(Facts {
            size_bytes: Some(found.len()),
            etag: Some(format!("\"{inode:x}-{seconds:x}-{nanoseconds:x}\"")),
            last_modified: Some(http_date::write(modified_s)),
            ranges: true,
            ..Facts::default()
        })
    }

    async fn read_at(&self, offset: u64, space: &mut [u8]) -> Result<usize, LaneError> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let read = blocking(|| match file {
            Some(file) => file.read_at(space, offset),
            None => self.open()?.0.read_at(space, offset),
        });
        read.map_err(|error| unreadable(&error))
    }
}

fn unreadable(error: &io::Error) -> LaneError {
    LaneError::Unreadable { kind: error.kind(), reason: error.to_string() }
}

/// Runs what may wait for a disk, without holding up others where that is possible.
fn blocking<T>(run: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(run),
        _ => run(),
    }
}
