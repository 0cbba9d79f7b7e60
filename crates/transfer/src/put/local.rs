//! A local file that is sent. It may be read twice: for its digests, and to send it.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use swath_model::digest::Digest;
use tokio::sync::{mpsc, oneshot};

use super::{Announced, Hashers, PARTS_AHEAD, Part, PutError, Reading};
use crate::engine::{Engine, Stop};

/// An open file with its digests.
pub struct LocalReader {
    path: PathBuf,
    file: Arc<File>,
    state: State,
    digests: Vec<Digest>,
    announced: Option<Digest>,
}

impl LocalReader {
    /// Opens a file and computes its digests if one is to go ahead.
    pub async fn open(
        engine: &Engine,
        path: &Path,
        announced: &Announced,
        stop: &Stop,
    ) -> Result<LocalReader, PutError> {
        let looked = {
            let (path, stop) = (path.to_owned(), stop.clone());
            let computes = matches!(announced, Announced::Computed);
            engine.disk.work(move || look(&path, computes, &stop)).await
        };
        let failed = |source| PutError::Read { path: path.to_owned(), source };
        let (file, state, digests) = looked.and_then(|looked| looked).map_err(failed)?;
        let announced = match announced {
            Announced::Computed => digests.first().copied(),
            Announced::Known(digest) => Some(*digest),
            Announced::Nothing => None,
        };
        Ok(LocalReader { path: path.to_owned(), file: Arc::new(file), state, digests, announced })
    }

    /// Begins to read it.
    pub fn read(&self) -> Reading {
        let (tell, digests) = oneshot::channel();
        let known = self.digests.clone();
        let parts = read_ahead(self.path.clone(), Arc::clone(&self.file), self.state, known, tell);
        let announced = self.announced;
        Reading { size_bytes: self.state.size_bytes, announced, parts, digests }
    }
}

/// Metadata that shows whether a file is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl State {
    fn of(found: &Metadata) -> State {
        State {
            size_bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// Opens a file, and `computes` its digests.
fn look(path: &Path, computes: bool, stop: &Stop) -> io::Result<(File, State, Vec<Digest>)> {
    // Opening a pipe without a writer would wait for one.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let state = State::of(&found);
    if !computes {
        return Ok((file, state, Vec::new()));
    }
    let mut hashers = Hashers::new(&[]);
    let mut part = vec![0; PART_BYTES];
    let mut at = 0;
    while !stop.is_set() {
        match file.read_at(&mut part, at) {
            Ok(0) => break,
            Ok(bytes) => {
                hashers.update(&part[..bytes]);
                at += bytes as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((file, state, hashers.finish()))
}

/// Reads a file a few parts ahead, until the receiver is dropped. Checks that it has not changed
/// before the last part: without that part the server has no file.
fn read_ahead(
    path: PathBuf,
    file: Arc<File>,
    state: State,
    known: Vec<Digest>,
    tell: oneshot::Sender<Vec<Digest>>,
) -> mpsc::Receiver<Part> {
    let (give, take) = mpsc::channel(PARTS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut hashers = known.is_empty().then(|| Hashers::new(&[]));
        let mut at = 0;
        while at < state.size_bytes {
            let bytes = (state.size_bytes - at).min(PART_BYTES as u64);
            let read = match read_part(&file, &state, at, bytes) {
                Ok(Some(part)) => Ok(part),
                Ok(None) => Err(PutError::Changed { path: path.clone() }),
                Err(source) => Err(PutError::Read { path: path.clone(), source }),
            };
            if let (Some(hashers), Ok(part)) = (&mut hashers, &read) {
                hashers.update(part);
            }
            let is_last = read.is_err();
            if give.blocking_send(read).is_err() || is_last {
                return;
            }
            at += bytes;
        }
        // Its end is told by `give`, which is dropped later.
        let _ = tell.send(hashers.map_or(known, Hashers::finish));
        drop(give);
    });
    take
}

/// Returns the bytes; `None` if the file has changed.
fn read_part(file: &File, state: &State, at: u64, bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let mut part = vec![0; bytes as usize];
    match file.read_exact_at(&mut part, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let is_end = at + bytes == state.size_bytes;
    if is_end && State::of(&file.metadata()?) != *state {
        return Ok(None);
    }
    Ok(Some(part))
}

/// Bytes of one read.
const PART_BYTES: usize = 1 << 20;
