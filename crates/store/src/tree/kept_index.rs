//! An index with the group hashes of its groups, kept so that a tree can be checked later without
//! its source. `docs/cp.md` describes the file.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use swath_model::digest::blake3_tree::{ChainingValue, GROUP_BYTES};
use swath_model::index::{Index, Reader};
use swath_model::{Range, RangeSet};

/// Writes such a file: group hashes as they come, the index at the end. It gets its name only when
/// complete; otherwise nothing remains.
pub struct KeptIndexWriter {
    path: PathBuf,
    new: PathBuf,
    file: File,
    /// Numbers of the groups whose hashes are stored.
    seen: Mutex<RangeSet>,
}

impl KeptIndexWriter {
    /// Begins a file that will be at `path`, where nothing or an older file of this kind is.
    ///
    /// # Errors
    /// The system's error; `AlreadyExists` if something else is there.
    pub fn create(path: &Path) -> io::Result<KeptIndexWriter> {
        match File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
            Ok(mut old) => {
                let mut magic = [0; MAGIC.len()];
                let is_ours = old.metadata()?.is_file()
                    && old.read_exact(&mut magic).is_ok()
                    && magic == *MAGIC;
                if !is_ours {
                    let text = "something is there that is no kept index";
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut new = path.as_os_str().to_owned();
        new.push(".swath.new");
        let new = PathBuf::from(new);
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = File::options().read(true).write(true).create_new(true).open(&new)?;
        Ok(KeptIndexWriter { path: path.to_owned(), new, file, seen: Mutex::default() })
    }

    /// Returns where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores the hash of a verified group.
    pub fn keep(&self, group: u64, group_hash: &ChainingValue) -> io::Result<()> {
        self.file.write_all_at(group_hash, HEAD_BYTES + group * GROUP_HASH_BYTES)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(Range::new(group, group + 1));
        Ok(())
    }

    /// Returns the groups below `groups` whose hashes are missing.
    pub fn missing(&self, groups: u64) -> RangeSet {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.gaps_within(Range::new(0, groups)).into_iter().collect()
    }

    /// Adds the complete index and gives the file its name; all group hashes must be there.
    pub fn finish(&self, index: &Index) -> io::Result<()> {
        let groups = index.size_bytes().div_ceil(GROUP_BYTES);
        let mut head = MAGIC.to_vec();
        head.push(VERSION);
        head.extend_from_slice(&groups.to_le_bytes());
        self.file.write_all_at(&head, 0)?;
        let mut end = HEAD_BYTES + groups * GROUP_HASH_BYTES;
        self.file.set_len(end)?;
        let mut at = 0;
        while at < index.wire_bytes() {
            let part = index.wire_from(at);
            self.file.write_all_at(part, end)?;
            at += part.len() as u64;
            end += part.len() as u64;
        }
        let digest = digest_of(&self.file, end)?;
        self.file.write_all_at(digest.as_bytes(), end)?;
        self.file.sync_all()?;
        std::fs::rename(&self.new, &self.path)?;
        File::open(crate::names::folder_of(&self.path))?.sync_all()
    }
}

impl Drop for KeptIndexWriter {
    fn drop(&mut self) {
        use std::os::unix::fs::MetadataExt;
        let id = |found: std::fs::Metadata| (found.dev(), found.ino());
        let (own, named) = (self.file.metadata(), self.new.symlink_metadata());
        // After completion this name is free or another file's.
        if let (Ok(own), Ok(named)) = (own, named)
            && id(own) == id(named)
        {
            let _ = std::fs::remove_file(&self.new);
        }
    }
}

/// Such a file, open for reading.
pub struct KeptIndex {
    file: File,
    groups: u64,
}

impl KeptIndex {
    /// Opens one and reads its index.
    ///
    /// # Errors
    /// The system's error; `InvalidData` with a sentence if it is invalid or was changed.
    pub fn open(path: &Path) -> io::Result<(KeptIndex, Index)> {
        let mut file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let found = file.metadata()?;
        let mut head = [0; HEAD_BYTES as usize];
        let is_ours =
            found.is_file() && file.read_exact(&mut head).is_ok() && head.starts_with(MAGIC);
        if !is_ours {
            return Err(bad("it is no kept index"));
        }
        if head[MAGIC.len()] != VERSION {
            return Err(bad("it is of a version that this program does not know"));
        }
        let end = found.len().checked_sub(DIGEST_BYTES).ok_or_else(|| bad("it is cut off"))?;
        let mut digest = [0; DIGEST_BYTES as usize];
        file.read_exact_at(&mut digest, end)?;
        if digest_of(&file, end)? != blake3::Hash::from_bytes(digest) {
            return Err(bad("it is cut off, or was changed"));
        }
        let mut groups = [0; 8];
        groups.copy_from_slice(&head[MAGIC.len() + 1..]);
        let groups = u64::from_le_bytes(groups);
        let begin =
            groups.checked_mul(GROUP_HASH_BYTES).and_then(|bytes| bytes.checked_add(HEAD_BYTES));
        let begin = begin.filter(|&begin| begin <= end);
        let begin = begin.ok_or_else(|| bad("it has fewer values than it says"))?;
        file.seek(SeekFrom::Start(begin))?;
        let mut input = BufReader::new(&file).take(end - begin);
        let mut index = Index::new();
        let mut reader = Reader::new(u64::MAX);
        let mut part = vec![0; READ_BYTES];
        loop {
            match input.read(&mut part)? {
                0 => break,
                bytes => reader.feed(&mut index, &part[..bytes]).map_err(bad)?,
            }
        }
        reader.finish(&mut index).map_err(bad)?;
        if index.size_bytes().div_ceil(GROUP_BYTES) != groups {
            return Err(bad("its values are those of another tree"));
        }
        Ok((KeptIndex { file, groups }, index))
    }

    /// Returns the hash of a group.
    ///
    /// # Errors
    /// The system's error; `InvalidInput` if there is no such group.
    pub fn group_hash(&self, group: u64) -> io::Result<ChainingValue> {
        if group >= self.groups {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut group_hash = [0; GROUP_HASH_BYTES as usize];
        self.file.read_exact_at(&mut group_hash, HEAD_BYTES + group * GROUP_HASH_BYTES)?;
        Ok(group_hash)
    }
}

/// Returns the BLAKE3 of the first `end` bytes.
fn digest_of(file: &File, end: u64) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut part = vec![0; READ_BYTES];
    let mut at = 0;
    while at < end {
        let length = (end - at).min(READ_BYTES as u64) as usize;
        file.read_exact_at(&mut part[..length], at)?;
        hasher.write_all(&part[..length])?;
        at += length as u64;
    }
    Ok(hasher.finalize())
}

fn bad(what: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

/// First bytes of such a file.
const MAGIC: &[u8; 8] = b"swathsum";
/// Version of the format.
const VERSION: u8 = 1;
/// Magic, version, number of groups.
const HEAD_BYTES: u64 = 8 + 1 + 8;
/// Size of a group hash.
const GROUP_HASH_BYTES: u64 = 32;
/// Size of the digest of the file itself.
const DIGEST_BYTES: u64 = 32;
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use swath_model::index::{Entry, Kind, Mtime, Xattrs};

    use super::*;

    fn index() -> Index {
        let mut index = Index::new();
        let kind = Kind::File { size_bytes: 3 * GROUP_BYTES + 1, extents: None };
        let (mtime, xattrs) = (Mtime::default(), Xattrs::None);
        let entry = Entry { leaves: 0, name: b"file", kind, mode: 0o644, mtime, xattrs };
        index.push(&entry).unwrap();
        index.complete();
        index
    }

    #[test]
    fn what_was_kept_comes_back() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("kept");
        let keeper = KeptIndexWriter::create(&path).unwrap();
        keeper.keep(2, &[2; 32]).unwrap();
        keeper.keep(0, &[0; 32]).unwrap();
        let missing: Vec<Range> = keeper.missing(4).iter().collect();
        assert_eq!(missing, [Range::new(1, 2), Range::new(3, 4)]);
        keeper.keep(1, &[1; 32]).unwrap();
        keeper.keep(3, &[3; 32]).unwrap();
        assert!(!path.exists(), "no name before the end");
        keeper.finish(&index()).unwrap();
        let (kept, read) = KeptIndex::open(&path).unwrap();
        assert_eq!(read.digests(), index().digests());
        for group in 0..4 {
            assert_eq!(kept.group_hash(group).unwrap(), [group as u8; 32]);
        }
        assert!(kept.group_hash(4).is_err());
        // A newer one takes its place, and one that does not come to its end leaves it.
        drop(KeptIndexWriter::create(&path).unwrap());
        assert!(KeptIndex::open(&path).is_ok());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_was_cut_off_or_changed_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("kept");
        let keeper = KeptIndexWriter::create(&path).unwrap();
        (0..4).for_each(|group| keeper.keep(group, &[7; 32]).unwrap());
        keeper.finish(&index()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(KeptIndex::open(&path).is_err(), "{length}");
        }
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 1;
            std::fs::write(&path, &other).unwrap();
            assert!(KeptIndex::open(&path).is_err(), "{at}");
        }
    }

    #[test]
    fn what_is_no_kept_index_is_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notes");
        std::fs::write(&path, "notes of mine").unwrap();
        assert!(KeptIndexWriter::create(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"notes of mine");
    }
}
