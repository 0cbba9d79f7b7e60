//! Digests of files, computed when somebody asks and remembered for as long as the file stays as
//! it is.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use swath_model::digest::{Algorithm, Digest, Hasher};

/// Digests that are known.
#[derive(Debug, Default)]
pub(super) struct Digests {
    known: Mutex<HashMap<FileId, Known>>,
    /// How many are being computed.
    busy: Mutex<usize>,
    freed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    inode: u64,
}

/// What tells one content of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    size_bytes: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

#[derive(Debug)]
struct Known {
    version: Version,
    digests: Vec<Digest>,
}

/// How much work a digest may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// The file is read if need be, however long that takes.
    Any,
    /// Only a short file is read.
    Little,
    /// None is read.
    None,
}

impl Digests {
    /// The first of `wanted` that is known, else the first of them, if it may be computed; none
    /// where the file changes meanwhile. Blocks on the disk, and until it is its turn.
    ///
    /// # Errors
    /// What the system says about reading the file.
    pub fn find(
        &self,
        file: &File,
        meta: &Metadata,
        wanted: &[Algorithm],
        effort: Effort,
    ) -> io::Result<Option<Digest>> {
        let Some(&first) = wanted.first() else { return Ok(None) };
        if let Some(known) = self.known(meta, wanted) {
            return Ok(Some(known));
        }
        let is_too_much = match effort {
            Effort::Any => false,
            Effort::Little => meta.len() > LITTLE_BYTES,
            Effort::None => true,
        };
        if is_too_much {
            return Ok(None);
        }
        let _turn = self.turn();
        if let Some(known) = self.known(meta, wanted) {
            return Ok(Some(known));
        }
        let mut hasher = Hasher::new(first);
        let mut buffer = vec![0; READ_BYTES.min(meta.len().max(1) as usize)];
        let mut at = 0;
        while at < meta.len() {
            let most = buffer.len().min(usize::try_from(meta.len() - at).unwrap_or(usize::MAX));
            match file.read_at(&mut buffer[..most], at)? {
                0 => return Ok(None),
                bytes => {
                    hasher.update(&buffer[..bytes]);
                    at += bytes as u64;
                }
            }
        }
        if Version::of(&file.metadata()?) != Version::of(meta) {
            return Ok(None);
        }
        let digest = hasher.finish();
        self.remember(meta, digest);
        Ok(Some(digest))
    }

    /// Whether [`Digests::find`] tells any at little effort.
    pub fn tells(&self, meta: &Metadata) -> bool {
        meta.len() <= LITTLE_BYTES || self.known(meta, &Algorithm::ALL).is_some()
    }

    fn known(&self, meta: &Metadata, wanted: &[Algorithm]) -> Option<Digest> {
        let known = lock(&self.known);
        let of_file = known.get(&FileId::of(meta))?;
        if of_file.version != Version::of(meta) {
            return None;
        }
        let mut found = wanted.iter().filter_map(|&algorithm| {
            of_file.digests.iter().find(|digest| digest.algorithm() == algorithm)
        });
        found.next().copied()
    }

    fn remember(&self, meta: &Metadata, digest: Digest) {
        let mut known = lock(&self.known);
        let id = FileId::of(meta);
        if known.len() >= KNOWN_MAX
            && !known.contains_key(&id)
            && let Some(&other) = known.keys().next()
        {
            // Any will do: whoever needs it again has it computed again.
            known.remove(&other);
        }
        let version = Version::of(meta);
        let of_file = known.entry(id).or_insert_with(|| Known { version, digests: Vec::new() });
        if of_file.version != version {
            *of_file = Known { version, digests: Vec::new() };
        }
        of_file.digests.push(digest);
    }

    /// Wait until few others compute.
    fn turn(&self) -> Turn<'_> {
        let busy = lock(&self.busy);
        let waited = self.freed.wait_while(busy, |busy| *busy >= BUSY_MAX);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        Turn { digests: self }
    }
}

/// One of the few that may compute.
struct Turn<'a> {
    digests: &'a Digests,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.digests.busy) -= 1;
        self.digests.freed.notify_one();
    }
}

impl FileId {
    fn of(meta: &Metadata) -> FileId {
        FileId { device: meta.dev(), inode: meta.ino() }
    }
}

impl Version {
    fn of(meta: &Metadata) -> Version {
        Version {
            size_bytes: meta.len(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            ctime: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many files are remembered, about 100 bytes each.
const KNOWN_MAX: usize = 100_000;
/// So many are computed at once; they share the disk and the processor with the sending.
const BUSY_MAX: usize = 2;
/// Read at a time.
const READ_BYTES: usize = 1 << 20;
/// Hashed within some hundredths of a second.
const LITTLE_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_known_until_the_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"hello").unwrap();
        let digests = Digests::default();
        let ask = |wanted: &[Algorithm], effort| {
            let file = File::open(&path).unwrap();
            digests.find(&file, &file.metadata().unwrap(), wanted, effort).unwrap()
        };
        let of = |algorithm, bytes: &[u8]| Some(Hasher::digest(algorithm, bytes));
        assert_eq!(ask(&[], Effort::Any), None);
        assert_eq!(ask(&[Algorithm::Md5], Effort::Little), of(Algorithm::Md5, b"hello"));
        // What is there already is better than what is wanted more and costs something.
        let wanted = [Algorithm::Sha256, Algorithm::Md5];
        assert_eq!(ask(&wanted, Effort::Any), of(Algorithm::Md5, b"hello"));
        std::fs::write(&path, b"other").unwrap();
        assert_eq!(ask(&wanted, Effort::Any), of(Algorithm::Sha256, b"other"));
        // A long file is only read for those who wait for it.
        let long = vec![7; LITTLE_BYTES as usize + 1];
        std::fs::write(&path, &long).unwrap();
        assert_eq!(ask(&wanted, Effort::Little), None);
        assert_eq!(ask(&wanted, Effort::Any), of(Algorithm::Sha256, &long));
        assert_eq!(ask(&wanted, Effort::Little), of(Algorithm::Sha256, &long));
    }
}
