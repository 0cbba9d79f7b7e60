//! Reads bytes of a virtual file and computes their group hashes.
//!
//! Reading never fails. Bytes that cannot be read as the index promised (the file changed, shrank,
//! vanished or is forbidden) are void: the walk notes the file, and the hash of a group with void
//! bytes is inverted to say so. Everything here blocks.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::Errno;
use swath_model::Range;
use swath_model::digest::blake3_tree::{GROUP_BYTES, group_value};
use swath_model::index::{Kind, Lack, Mtime, Part};
use swath_store::tree::Files;
use swath_store::{Direct, Through};

use super::walks::Walk;
use crate::file_version::FileVersion;

/// Reads a virtual file. Keeps the file that it read last open.
pub(crate) struct Reader {
    walk: Arc<Walk>,
    files: Files,
    open: Option<Open>,
    /// Up to here the virtual file will be asked for next.
    until: u64,
    /// Something was read past the page cache.
    was_direct: bool,
}

struct Open {
    number: u64,
    file: File,
    /// As it was when it was opened.
    was: FileVersion,
    /// Up to here the kernel was told to read.
    ahead_to: u64,
    /// For a large file, to be read past the page cache.
    direct: Option<Direct>,
}

/// A piece of one file that is to be read.
struct Wanted {
    number: u64,
    path: Vec<u8>,
    size_bytes: u64,
    /// Without its holes.
    data_bytes: u64,
    mtime: Mtime,
    parts: Vec<Part>,
    /// So much of it lies behind the last part and will be asked for next.
    follows_bytes: u64,
}

impl Reader {
    pub fn new(walk: Arc<Walk>) -> Reader {
        let files = walk.files();
        Reader { walk, files, open: None, until: 0, was_direct: false }
    }

    /// What is read from now on is a part of what is read up to `end` of the virtual file, without
    /// a pause; [`Reader::rest`] comes after it.
    pub fn begin(&mut self, end: u64) {
        self.until = end;
    }

    /// Nothing is read for a while. Answers whether anything was read past the page cache.
    pub fn rest(&mut self) -> bool {
        self.until = 0;
        if let Some(direct) = self.open.as_mut().and_then(|open| open.direct.as_mut()) {
            direct.rest();
        }
        std::mem::take(&mut self.was_direct)
    }

    /// Fills `out` with the virtual file from `start` on. What lies between files is zeros.
    /// Answers whether all of it is as the index promised.
    pub fn read(&mut self, start: u64, out: &mut [u8]) -> bool {
        let range = Range::of_len(start, out.len() as u64);
        let mut is_sound = true;
        // Files come in the order of their bytes.
        let mut filled = 0;
        for wanted in self.wanted(range) {
            let read = self.read_file(&wanted, start, out);
            for part in &wanted.parts {
                let from = (part.start - start) as usize;
                out[filled..from].fill(0);
                filled = from + part.bytes as usize;
                if read.is_err() {
                    out[from..filled].fill(0);
                }
            }
            if let Err(error) = read {
                self.walk.note_changed(wanted.number, lack(&error));
                is_sound = false;
            }
        }
        out[filled..].fill(0);
        is_sound
    }

    fn wanted(&self, range: Range) -> Vec<Wanted> {
        let index = self.walk.read();
        let mut cursor = index.cursor_at(range.start);
        let with_next = Range::new(range.start, range.end.max(self.until));
        let mut all = Vec::new();
        while let Some(item) = cursor.next() {
            if item.start >= range.end {
                break;
            }
            let Kind::File { size_bytes, .. } = item.entry.kind else { continue };
            let parts: Vec<Part> = item.parts(range).collect();
            let Some(last) = parts.last() else { continue };
            let longer = item.parts(with_next).find(|part| part.start == last.start);
            let follows_bytes = longer.map_or(0, |longer| longer.bytes - last.bytes);
            let (number, path, mtime) = (item.number, item.path.to_vec(), item.entry.mtime);
            let data_bytes = item.range().len();
            all.push(Wanted { number, path, size_bytes, data_bytes, mtime, parts, follows_bytes });
        }
        all
    }

    fn read_file(&mut self, wanted: &Wanted, start: u64, out: &mut [u8]) -> io::Result<()> {
        let changed = || io::Error::from(io::ErrorKind::InvalidData);
        let mut open = match self.open.take().filter(|open| open.number == wanted.number) {
            Some(open) => open,
            None => {
                let file = self.files.file(&wanted.path)?;
                let was = version(&file)?;
                let files = &mut self.files;
                let read_bytes: u64 = wanted.parts.iter().map(|part| part.bytes).sum();
                let is_in_parts = read_bytes < wanted.data_bytes;
                if is_in_parts && !self.walk.is_same(wanted.number, number(&was)) {
                    return Err(changed());
                }
                let again = || files.file(&wanted.path);
                let direct = self.walk.past_cache().open(&file, was.size_bytes, again);
                Open { number: wanted.number, file, was, ahead_to: 0, direct }
            }
        };
        if (open.was.size_bytes, open.was.mtime) != (wanted.size_bytes, wanted.mtime) {
            return Err(changed());
        }
        for (at, part) in wanted.parts.iter().enumerate() {
            let is_last = at + 1 == wanted.parts.len();
            let follows_bytes = if is_last { wanted.follows_bytes } else { 0 };
            let from = (part.start - start) as usize;
            let out = &mut out[from..from + part.bytes as usize];
            self.was_direct |= open.read(out, part.offset, follows_bytes)?;
        }
        // What was written meanwhile may be half of what was read.
        if version(&open.file)? != open.was {
            return Err(changed());
        }
        self.open = Some(open);
        Ok(())
    }
}

impl Open {
    /// Fills `out` with what is at `offset`. Answers whether it came past the page cache.
    fn read(&mut self, out: &mut [u8], offset: u64, follows_bytes: u64) -> io::Result<bool> {
        let through = match &mut self.direct {
            Some(direct) => direct.read(&self.file, out, offset, follows_bytes),
            None => Through::Cache,
        };
        match through {
            Through::Past => return Ok(true),
            Through::Held => {}
            Through::Cache => self.read_ahead(offset),
        }
        self.file.read_exact_at(out, offset)?;
        Ok(false)
    }

    /// One request at a time keeps no disk busy: of a large file what comes next is on its way while
    /// this part is read, hashed and sent.
    fn read_ahead(&mut self, offset: u64) {
        if self.was.size_bytes < AHEAD_FROM_BYTES {
            return;
        }
        let is_elsewhere = !(offset..=offset + 2 * AHEAD_BYTES).contains(&self.ahead_to);
        if is_elsewhere {
            self.ahead_to = offset;
        }
        if self.ahead_to < offset + AHEAD_BYTES && self.ahead_to < self.was.size_bytes {
            swath_store::read_ahead(&self.file, self.ahead_to, AHEAD_BYTES);
            self.ahead_to += AHEAD_BYTES;
        }
    }
}

/// The version of an open regular file.
fn version(file: &File) -> io::Result<FileVersion> {
    let found = file.metadata()?;
    if found.is_file() { Ok((&found).into()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// A version as a number, without size and time, which are compared with the index.
fn number(version: &FileVersion) -> u64 {
    let mut hasher = DefaultHasher::new();
    (version.id, version.ctime).hash(&mut hasher);
    hasher.finish()
}

/// What an error says of the file that was read.
fn lack(error: &io::Error) -> Lack {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => Lack::Forbidden,
        Some(Errno::NOENT | Errno::NOTDIR) => Lack::Vanished,
        // Something else has its name now.
        Some(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => Lack::Changed,
        Some(_) => Lack::Unreadable,
        // Our own words, and the end of the file before its time.
        None => Lack::Changed,
    }
}

/// A virtual file with the group hashes between its groups.
pub(crate) struct Sealed {
    reader: Reader,
    /// Length of the virtual file.
    size_bytes: u64,
    /// A group of which not all is wanted, with its group hash.
    bytes: Vec<u8>,
}

/// Makes it so long, and no larger than that needs.
pub(super) fn set_length(bytes: &mut Vec<u8>, length: usize) {
    bytes.reserve_exact(length.saturating_sub(bytes.len()));
    bytes.resize(length, 0);
}

/// Bytes of a group hash.
pub(crate) const GROUP_HASH_BYTES: u64 = 32;
/// Smaller files the kernel reads ahead well enough by itself.
const AHEAD_FROM_BYTES: u64 = 2 << 20;
/// So much of a file is read ahead at a time.
const AHEAD_BYTES: u64 = 4 << 20;

impl Sealed {
    /// The virtual file of a walk, of which `size_bytes` are known.
    pub fn new(walk: Arc<Walk>, size_bytes: u64) -> Sealed {
        Sealed { reader: Reader::new(walk), size_bytes, bytes: Vec::new() }
    }

    /// Length of the sealed file for a virtual one of `size_bytes`.
    pub fn length(size_bytes: u64) -> u64 {
        size_bytes + size_bytes.div_ceil(GROUP_BYTES) * GROUP_HASH_BYTES
    }

    /// The group hash of the group of this number, which must be one of the file's.
    pub fn group_hash(&mut self, group: u64) -> [u8; GROUP_HASH_BYTES as usize] {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(self.sealed_bytes(group), 0);
        self.group_hash_into(group, &mut bytes);
        let group_hash = bytes.last_chunk().copied().unwrap_or_default();
        self.bytes = bytes;
        group_hash
    }

    /// Groups up to this one are asked for without a pause; [`Sealed::rest`] comes after them.
    pub fn begin(&mut self, end_group: u64) {
        self.reader.begin(self.size_bytes.min(end_group.saturating_mul(GROUP_BYTES)));
    }

    /// As [`Reader::rest`].
    pub fn rest(&mut self) -> bool {
        self.reader.rest()
    }

    /// Makes `out`, whatever was in it before, that part of `range` which the sealed file has.
    pub fn read(&mut self, range: Range, out: &mut Vec<u8>) {
        let unit = GROUP_BYTES + GROUP_HASH_BYTES;
        let end = range.end.min(Sealed::length(self.size_bytes));
        // What was there before need not be made zeros: all of it is written to.
        set_length(out, end.saturating_sub(range.start) as usize);
        self.begin(end.div_ceil(unit));
        let mut rest = &mut out[..];
        let mut at = range.start;
        while !rest.is_empty() {
            let number = at / unit;
            let (sealed, from) = (self.sealed_bytes(number), (at % unit) as usize);
            let part = rest.split_off_mut(..rest.len().min(sealed - from)).unwrap_or_default();
            at += part.len() as u64;
            // The group hash is of the whole group, whatever part of it was asked for.
            if part.len() == sealed {
                self.group_hash_into(number, part);
            } else {
                let mut whole = std::mem::take(&mut self.bytes);
                whole.resize(sealed, 0);
                self.group_hash_into(number, &mut whole);
                part.copy_from_slice(&whole[from..from + part.len()]);
                self.bytes = whole;
            }
        }
    }

    /// How long a group is with its group hash.
    fn sealed_bytes(&self, group: u64) -> usize {
        let start = group * GROUP_BYTES;
        (self.size_bytes.saturating_sub(start).min(GROUP_BYTES) + GROUP_HASH_BYTES) as usize
    }

    /// Fills `out` with a group and its group hash, which it has room for exactly.
    fn group_hash_into(&mut self, group: u64, out: &mut [u8]) {
        let (bytes, group_hash) = out.split_at_mut(out.len() - GROUP_HASH_BYTES as usize);
        let is_sound = self.reader.read(group * GROUP_BYTES, bytes);
        let value = group_value(group, bytes);
        group_hash.copy_from_slice(&if is_sound { value } else { value.map(|byte| !byte) });
    }
}
