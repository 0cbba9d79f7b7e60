//! Computes all digests of a dataset in one pass, on all processors, in constant memory.
//!
//! The files lie in the torrent's virtual file, which is cut into units of whole pieces. A worker
//! takes a buffer, then the next unit, reads it, and hashes its pieces (SHA-1 for version 1, trees
//! of SHA-256 for version 2). Digests of whole files have to be computed front to back: a file that
//! spans units has a chain, to which workers append their buffers. The worker that finds the next
//! buffer of the chain there hashes it, and all that follow; the others go on with further units.
//! So no processor waits while there is work, and at most [`BUFFERS_BYTES`] are held.
//!
//! A buffer is taken before a unit. So the worker of the earliest unit always has one, and the
//! buffers that wait in chains come free.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use sha1::{Digest as _, Sha1};
use swath_model::digest::sha256_tree::{self, LEAF_BYTES, MerkleHash};
use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_store::tree::Files;
use swath_store::{Direct, PastCache, Reads, Through};

use crate::content::{Content, shown};

/// What to compute.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// SHA-1 of the pieces of the virtual file (BEP 3).
    pub v1: bool,
    /// The SHA-256 tree of each file (BEP 52).
    pub v2: bool,
    /// With SHA-1: that of each file's last piece without the padding behind it.
    pub ends: bool,
    /// Digests of each whole file.
    pub whole: Vec<Algorithm>,
}

/// What was computed.
#[derive(Debug, Default)]
pub struct Hashes {
    /// The SHA-1 of each piece in a row, 20 bytes each; empty unless wanted.
    pub v1_pieces: Vec<u8>,
    /// The hashes of each file, in the order of the content.
    pub files: Vec<FileHashes>,
}

/// The hashes of one file.
#[derive(Clone, Debug, Default)]
pub struct FileHashes {
    /// The roots of its pieces (BEP 52); empty unless wanted, or if the file is empty.
    pub v2_pieces: Vec<[u8; 32]>,
    /// The SHA-1 of its last piece without padding, if wanted; a piece begins where the file does.
    pub end: Option<[u8; 20]>,
    /// Its digests, in the order wanted.
    pub whole: Vec<Digest>,
}

/// Where the files lie in the torrent's virtual file.
#[derive(Clone, Debug)]
pub struct Places {
    /// Bytes of a piece.
    pub piece_bytes: u64,
    /// Where each file begins, in the order of the content. Version 2 wants each at a multiple of
    /// a piece.
    pub offsets: Vec<u64>,
    /// The length of the virtual file.
    pub total_bytes: u64,
}

/// Counts the bytes that were read so far.
pub type Progress = AtomicU64;

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
pub enum HashError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Its path below the dataset's folder.
        path: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// A file is not the one that was listed.
    #[error("{0} changed while it was read")]
    Changed(String),
}

/// Hashes all files of `content`, which lie at `places`.
///
/// # Errors
/// [`HashError`]; nothing of an incomplete pass is returned.
pub fn hash(
    content: &Content,
    places: &Places,
    wanted: &Wanted,
    progress: &Progress,
) -> Result<Hashes, HashError> {
    let unit_bytes = unit_bytes(places.piece_bytes);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Twice as many as processors, since some of them wait for the disk.
    let buffers = (BUFFERS_BYTES / unit_bytes).clamp(2, 3 * processors as u64 + 2) as usize;
    let workers = (2 * processors).min(buffers);
    let v1_bytes = if wanted.v1 {
        places.total_bytes.div_ceil(places.piece_bytes) as usize * SHA1_BYTES
    } else {
        0
    };
    let state = State {
        next_unit: 0,
        units: places.total_bytes.div_ceil(unit_bytes),
        free: vec![Vec::new(); buffers],
        chains: HashMap::new(),
        hashes: Hashes {
            v1_pieces: vec![0; v1_bytes],
            files: vec![FileHashes::default(); content.files.len()],
        },
        failed: None,
    };
    let pass = Pass {
        content,
        places,
        wanted,
        progress,
        unit_bytes,
        past_cache: PastCache::new(Reads::Auto),
        state: Mutex::new(state),
        freed: Condvar::new(),
    };
    pass.hash_empty_files();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| pass.work());
        }
    });
    let state = pass.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match state.failed {
        Some(error) => Err(error),
        None => Ok(state.hashes),
    }
}

/// One pass over a dataset.
struct Pass<'a> {
    content: &'a Content,
    places: &'a Places,
    wanted: &'a Wanted,
    progress: &'a Progress,
    unit_bytes: u64,
    past_cache: PastCache,
    state: Mutex<State>,
    /// A buffer came free, or the pass has failed.
    freed: Condvar,
}

struct State {
    next_unit: u64,
    units: u64,
    /// Buffers that nobody uses; each grows to a unit when it is first used.
    free: Vec<Vec<u8>>,
    /// Whole files of which a part was hashed, by number.
    chains: HashMap<usize, Chain>,
    hashes: Hashes,
    failed: Option<HashError>,
}

/// The digests of a whole file that spans units.
struct Chain {
    /// Absent while a worker hashes with them.
    hashers: Option<Vec<Hasher>>,
    /// The next byte of the file that they need.
    next: u64,
    /// Parts behind it, by their offset in the file.
    parts: BTreeMap<u64, (Arc<Vec<u8>>, Range<usize>)>,
}

/// A part of a file in a unit.
struct Part {
    /// Number of the file.
    file: usize,
    /// Where the part begins in the file.
    offset: u64,
    /// Where it lies in the unit's buffer.
    range: Range<usize>,
}

impl Pass<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut reader = Reader { files: self.content.opener(), open: None };
        while let Some((unit, buffer)) = self.next_unit() {
            if let Err(error) = self.hash_unit(unit, buffer, &mut reader) {
                let mut state = self.lock();
                state.failed.get_or_insert(error);
                state.next_unit = state.units;
                self.freed.notify_all();
            }
        }
    }

    /// Takes the next unit, and a buffer for it.
    fn next_unit(&self) -> Option<(u64, Vec<u8>)> {
        let mut state = self.lock();
        loop {
            if state.next_unit >= state.units {
                // Wake the next who waits for a buffer that nobody needs any more.
                self.freed.notify_one();
                return None;
            }
            if let Some(buffer) = state.free.pop() {
                state.next_unit += 1;
                return Some((state.next_unit - 1, buffer));
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn free(&self, buffer: Arc<Vec<u8>>) {
        if let Some(buffer) = Arc::into_inner(buffer) {
            self.lock().free.push(buffer);
            self.freed.notify_one();
        }
    }

    /// Reads a unit and hashes it; bytes between files are zero.
    fn hash_unit(
        &self,
        unit: u64,
        mut buffer: Vec<u8>,
        reader: &mut Reader,
    ) -> Result<(), HashError> {
        let start = unit * self.unit_bytes;
        let end = self.places.total_bytes.min(start + self.unit_bytes);
        let first = self.places.offsets.partition_point(|&at| at <= start).saturating_sub(1);
        if !self.has_bytes(first, start, end) {
            self.free(Arc::new(buffer));
            return Ok(());
        }
        // Digests of whole files may need the bytes later; else those of one read suffice.
        let keeps = !self.wanted.whole.is_empty();
        buffer.resize(if keeps { (end - start) as usize } else { STEP_BYTES }, 0);
        let mut pieces = PieceHasher::new(self.wanted, self.places.piece_bytes);
        let mut parts = Vec::new();
        let mut hashed_to = start;
        for file in first..self.content.files.len() {
            let (at, bytes) = (self.places.offsets[file], self.content.files[file].bytes);
            if at >= end {
                break;
            }
            if bytes == 0 || at + bytes <= start {
                continue;
            }
            let (from, to) = (at.max(start), (at + bytes).min(end));
            pieces.zeros(from - hashed_to);
            hashed_to = to;
            let range = (from - start) as usize..(to - start) as usize;
            let mut done = 0;
            while done < range.len() {
                let step = (range.len() - done).min(STEP_BYTES);
                let place =
                    if keeps { range.start + done..range.start + done + step } else { 0..step };
                let follows = (range.len() - done - step) as u64;
                self.read(
                    file,
                    from - at + done as u64,
                    &mut buffer[place.clone()],
                    follows,
                    reader,
                )?;
                pieces.update(&buffer[place]);
                done += step;
            }
            let is_end = to == at + bytes;
            self.note_file_pieces(file, from - at, pieces.end_part(bytes, is_end));
            parts.push(Part { file, offset: from - at, range });
        }
        pieces.zeros(end - hashed_to);
        let v1_pieces = pieces.finish();
        let at = (start / self.places.piece_bytes) as usize * SHA1_BYTES;
        if self.wanted.v1 {
            let known = &mut self.lock().hashes.v1_pieces;
            known[at..at + v1_pieces.len()].copy_from_slice(&v1_pieces);
        }
        self.hash_whole_files(buffer, parts);
        Ok(())
    }

    /// Returns whether a unit has bytes of files from number `first` on. Only when files are missing
    /// that should be checked are there units without: their pieces stay zero.
    fn has_bytes(&self, first: usize, start: u64, end: u64) -> bool {
        let files = self.places.offsets[first..].iter().zip(&self.content.files[first..]);
        let mut near = files.take_while(|(at, _)| **at < end);
        near.any(|(at, file)| file.bytes > 0 && at + file.bytes > start)
    }

    fn note_file_pieces(&self, file: usize, offset: u64, found: FilePieces) {
        let first = (offset / self.places.piece_bytes) as usize;
        let all = self.content.files[file].bytes.div_ceil(self.places.piece_bytes) as usize;
        let mut state = self.lock();
        let known = &mut state.hashes.files[file];
        if self.wanted.v2 {
            known.v2_pieces.resize(all, [0; 32]);
            known.v2_pieces[first..first + found.roots.len()].copy_from_slice(&found.roots);
        }
        known.end = known.end.or(found.end);
    }

    /// Reads bytes of a file; the `follows` bytes behind them will be read next.
    fn read(
        &self,
        file: usize,
        offset: u64,
        out: &mut [u8],
        follows: u64,
        reader: &mut Reader,
    ) -> Result<(), HashError> {
        let listed = &self.content.files[file];
        let path = || shown(&listed.path);
        let failed = |error| HashError::Read { path: path(), error };
        if reader.open.as_ref().is_none_or(|open| open.number != file) {
            let plain = reader.files.file(&listed.path).map_err(failed)?;
            let again = || self.content.opener().file(&listed.path);
            let direct = self.past_cache.open(&plain, listed.bytes, again);
            reader.open = Some(OpenFile { number: file, plain, direct });
        }
        let Some(open) = &mut reader.open else { return Ok(()) };
        let past =
            open.direct.as_mut().map(|direct| direct.read(&open.plain, out, offset, follows));
        if past != Some(Through::Past) {
            open.plain.read_exact_at(out, offset).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => HashError::Changed(path()),
                _ => failed(error),
            })?;
        }
        if let Some(direct) = open.direct.as_mut().filter(|_| follows == 0) {
            direct.rest();
        }
        self.progress.fetch_add(out.len() as u64, Ordering::Relaxed);
        if offset + out.len() as u64 == listed.bytes {
            let now = open.plain.metadata().map_err(failed)?;
            let is_same = now.len() == listed.bytes
                && now.mtime() == listed.mtime.seconds
                && now.mtime_nsec() == i64::from(listed.mtime.nanoseconds);
            if !is_same {
                return Err(HashError::Changed(path()));
            }
        }
        Ok(())
    }

    /// Hashes the whole files of which `buffer` has parts, as far as they are due.
    fn hash_whole_files(&self, buffer: Vec<u8>, parts: Vec<Part>) {
        let buffer = Arc::new(buffer);
        if !self.wanted.whole.is_empty() {
            for Part { file, offset, range } in parts {
                if range.len() as u64 == self.content.files[file].bytes {
                    let mut hashers = self.hashers();
                    hashers.iter_mut().for_each(|hasher| hasher.update(&buffer[range.clone()]));
                    self.finish(file, &hashers);
                } else {
                    self.append(file, offset, (Arc::clone(&buffer), range));
                }
            }
        }
        self.free(buffer);
    }

    /// Appends a part to the chain of its file, and hashes what is due there unless somebody does.
    fn append(&self, file: usize, offset: u64, part: (Arc<Vec<u8>>, Range<usize>)) {
        let bytes = self.content.files[file].bytes;
        let mut state = self.lock();
        let chain = state.chains.entry(file).or_insert_with(|| Chain {
            hashers: Some(self.hashers()),
            next: 0,
            parts: BTreeMap::new(),
        });
        chain.parts.insert(offset, part);
        while let Some(chain) = state.chains.get_mut(&file)
            && let Some(mut hashers) = chain.hashers.take()
        {
            let Some((buffer, range)) = chain.parts.remove(&chain.next) else {
                chain.hashers = Some(hashers);
                return;
            };
            drop(state);
            hashers.iter_mut().for_each(|hasher| hasher.update(&buffer[range.clone()]));
            self.free(buffer);
            state = self.lock();
            let Some(chain) = state.chains.get_mut(&file) else { return };
            chain.next += range.len() as u64;
            if chain.next == bytes {
                state.chains.remove(&file);
                drop(state);
                return self.finish(file, &hashers);
            }
            chain.hashers = Some(hashers);
        }
    }

    fn hashers(&self) -> Vec<Hasher> {
        self.wanted.whole.iter().map(|&algorithm| Hasher::new(algorithm)).collect()
    }

    fn finish(&self, file: usize, hashers: &[Hasher]) {
        self.lock().hashes.files[file].whole = hashers.iter().map(Hasher::finish).collect();
    }

    fn hash_empty_files(&self) {
        for (number, file) in self.content.files.iter().enumerate() {
            if file.bytes == 0 {
                self.finish(number, &self.hashers());
            }
        }
    }
}

/// Hashes the pieces of a unit, step by step, while each step is in the processor's cache.
struct PieceHasher<'a> {
    wanted: &'a Wanted,
    piece_bytes: u64,
    sha1: Sha1,
    /// Bytes of the piece so far.
    in_piece: u64,
    v1_pieces: Vec<u8>,
    /// The leaves of the file's piece so far, and the roots of its pieces before.
    leaves: Vec<MerkleHash>,
    roots: Vec<MerkleHash>,
}

/// What the pieces of a part of a file yield.
struct FilePieces {
    roots: Vec<MerkleHash>,
    end: Option<[u8; 20]>,
}

impl<'a> PieceHasher<'a> {
    fn new(wanted: &'a Wanted, piece_bytes: u64) -> PieceHasher<'a> {
        PieceHasher {
            wanted,
            piece_bytes,
            sha1: Sha1::new(),
            in_piece: 0,
            v1_pieces: Vec::new(),
            leaves: Vec::new(),
            roots: Vec::new(),
        }
    }

    /// Hashes the next bytes of a file: whole leaves, unless the file ends.
    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(self.piece_bytes - self.in_piece).unwrap_or(usize::MAX);
            let (now, rest) = bytes.split_at(bytes.len().min(room));
            bytes = rest;
            if self.wanted.v2 {
                self.leaves.extend(now.chunks(LEAF_BYTES as usize).map(sha256_tree::leaf));
            }
            if self.wanted.v1 {
                self.sha1.update(now);
            }
            self.advance(now.len() as u64);
        }
    }

    /// Hashes the padding behind a file.
    fn zeros(&mut self, mut count: u64) {
        while count > 0 {
            let now = count.min(self.piece_bytes - self.in_piece).min(ZEROS.len() as u64);
            if self.wanted.v1 {
                self.sha1.update(&ZEROS[..now as usize]);
            }
            self.advance(now);
            count -= now;
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.in_piece += bytes;
        if self.in_piece == self.piece_bytes {
            self.end_piece();
        }
    }

    fn end_piece(&mut self) {
        self.in_piece = 0;
        if self.wanted.v1 {
            self.v1_pieces.extend_from_slice(&self.sha1.finalize_reset());
        }
        if !self.leaves.is_empty() {
            self.roots.push(root(&self.leaves));
            self.leaves.clear();
        }
    }

    /// Ends a part of a file of `file_bytes`.
    fn end_part(&mut self, file_bytes: u64, is_end: bool) -> FilePieces {
        let is_ended = self.in_piece == 0;
        if !self.leaves.is_empty() {
            if file_bytes > self.piece_bytes {
                self.leaves
                    .resize((self.piece_bytes / LEAF_BYTES) as usize, sha256_tree::zero_hash(0));
            }
            self.roots.push(root(&self.leaves));
            self.leaves.clear();
        }
        let end = (is_end && self.wanted.ends).then(|| match is_ended {
            false => self.sha1.clone().finalize().into(),
            true => {
                let mut end = [0; SHA1_BYTES];
                end.copy_from_slice(&self.v1_pieces[self.v1_pieces.len() - SHA1_BYTES..]);
                end
            }
        });
        FilePieces { roots: std::mem::take(&mut self.roots), end }
    }

    /// Returns the SHA-1 of all pieces, the last of which may be short.
    fn finish(mut self) -> Vec<u8> {
        if self.in_piece > 0 {
            self.end_piece();
        }
        self.v1_pieces
    }
}

fn root(leaves: &[MerkleHash]) -> MerkleHash {
    match leaves {
        [only] => *only,
        leaves => sha256_tree::root_of_layer(leaves, LEAF_BYTES),
    }
}

/// What one worker has open.
struct Reader {
    files: Files,
    open: Option<OpenFile>,
}

struct OpenFile {
    number: usize,
    plain: File,
    /// Reads past the page cache, if that is better.
    direct: Option<Direct>,
}

/// Returns the length of a unit: whole pieces, and enough of them to be worth a turn.
fn unit_bytes(piece_bytes: u64) -> u64 {
    piece_bytes * (UNIT_BYTES / piece_bytes).max(1)
}

/// Bytes of a unit, unless a piece is longer.
const UNIT_BYTES: u64 = 2 << 20;
/// Most bytes of all buffers together, unless two pieces are longer.
const BUFFERS_BYTES: u64 = 64 << 20;
/// Bytes of one read, whole leaves: they are hashed while they are in the processor's cache.
const STEP_BYTES: usize = 256 << 10;
/// Padding is hashed in steps of this.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Bytes of a SHA-1.
const SHA1_BYTES: usize = 20;
