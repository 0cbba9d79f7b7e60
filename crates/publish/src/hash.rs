//! Computes all digests of a dataset in one pass, on all processors, in constant memory.
//!
//! The files lie in the torrent's virtual file, which is cut into units of whole pieces. A worker
//! takes a buffer, then the next unit, reads it, and hashes its pieces (SHA-1 for version 1, trees
//! of SHA-256 for version 2). For SHA-1 a unit has two lanes of pieces, since two pieces are hashed
//! faster at once than one after the other. Digests of whole files have to be computed front to back: a file that
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

use swath_model::digest::sha256_tree::{self, LEAF_BYTES, MerkleHash};
use swath_model::digest::{Algorithm, Digest, Hasher, Sha1};
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
    /// The roots of its pieces (BEP 52), in its trees one after the other; empty unless wanted, or if
    /// the file is empty.
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
    /// Version 2 has a tree for each part of a file of this length, a multiple of a piece; `u64::MAX`
    /// if only for each file.
    pub segment_bytes: u64,
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
    let unit_bytes = unit_bytes(places.piece_bytes, wanted.v1);
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
        let mut readers = [(); 2].map(|()| Reader { files: self.content.opener(), open: None });
        while let Some((unit, buffer)) = self.next_unit() {
            if let Err(error) = self.hash_unit(unit, buffer, &mut readers) {
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
        readers: &mut [Reader; 2],
    ) -> Result<(), HashError> {
        let start = unit * self.unit_bytes;
        let end = self.places.total_bytes.min(start + self.unit_bytes);
        let first = self.places.offsets.partition_point(|&at| at <= start).saturating_sub(1);
        if !self.has_bytes(first, start, end) {
            self.free(Arc::new(buffer));
            return Ok(());
        }
        // Digests of whole files may need the bytes later; else those of one step suffice.
        let keeps = !self.wanted.whole.is_empty();
        buffer.resize(if keeps { (end - start) as usize } else { 2 * STEP_BYTES }, 0);
        let pieces = (end - start).div_ceil(self.places.piece_bytes);
        let lane_pieces = if self.wanted.v1 { pieces.div_ceil(2) } else { pieces };
        let middle = end.min(start + lane_pieces * self.places.piece_bytes);
        let split = if keeps { (middle - start) as usize } else { STEP_BYTES };
        let mut lanes = [Lane::new(self, start, middle), Lane::new(self, middle, end)];
        loop {
            let mut steps: [&[u8]; 2] = [&[]; 2];
            let (left, right) = buffer.split_at_mut(split);
            let halves = [left, right].into_iter().zip(&mut lanes).zip(&mut *readers);
            for (step, ((half, lane), reader)) in steps.iter_mut().zip(halves) {
                let from = if keeps { (lane.at - lane.start) as usize } else { 0 };
                let filled = lane.step_bytes();
                let bytes = &mut half[from..from + filled];
                lane.fill(bytes, reader)?;
                *step = bytes;
            }
            if steps.iter().all(|step| step.is_empty()) {
                break;
            }
            let [one, other] = &mut lanes;
            if self.wanted.v1 {
                Sha1::update_pair([&mut one.sha1, &mut other.sha1], steps);
            }
            one.advance(steps[0].len() as u64);
            other.advance(steps[1].len() as u64);
        }
        let v1_pieces = lanes.map(|lane| lane.v1_pieces).concat();
        let at = (start / self.places.piece_bytes) as usize * SHA1_BYTES;
        if self.wanted.v1 {
            let known = &mut self.lock().hashes.v1_pieces;
            known[at..at + v1_pieces.len()].copy_from_slice(&v1_pieces);
        }
        self.hash_whole_files(buffer, self.parts(first, start, end));
        Ok(())
    }

    /// Returns the parts of files from number `first` on in a unit.
    fn parts(&self, first: usize, start: u64, end: u64) -> Vec<Part> {
        let files =
            (first..self.content.files.len()).take_while(|&file| self.places.offsets[file] < end);
        let part = |file: usize| {
            let (at, bytes) = (self.places.offsets[file], self.content.files[file].bytes);
            let (from, to) = (at.max(start), (at + bytes).min(end));
            let range = from.checked_sub(start)? as usize..to.checked_sub(start)? as usize;
            (from < to).then(|| Part { file, offset: from - at, range })
        };
        files.filter_map(part).collect()
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

/// Hashes consecutive pieces of a unit, step by step, while each step is in the processor's cache.
/// Whoever has a lane updates its `sha1` with the bytes of each step, between filling and advancing.
struct Lane<'a> {
    pass: &'a Pass<'a>,
    /// The first byte, the next one, and the end in the virtual file. A lane begins at a piece.
    start: u64,
    at: u64,
    end: u64,
    /// The first file that may have bytes at `at`.
    file: usize,
    sha1: Sha1,
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

impl<'a> Lane<'a> {
    fn new(pass: &'a Pass<'a>, start: u64, end: u64) -> Lane<'a> {
        let file = pass.places.offsets.partition_point(|&at| at <= start).saturating_sub(1);
        Lane {
            pass,
            start,
            at: start,
            end,
            file,
            sha1: Sha1::new(),
            v1_pieces: Vec::new(),
            leaves: Vec::new(),
            roots: Vec::new(),
        }
    }

    /// Returns the bytes of the next step, which lie in one piece; 0 at the end. If the SHA-1 up to the
    /// end of a file is wanted, a step ends there.
    fn step_bytes(&self) -> usize {
        let piece_bytes = self.pass.places.piece_bytes;
        let piece_end = (self.at / piece_bytes + 1) * piece_bytes;
        let mut end = self.end.min(piece_end).min(self.at + STEP_BYTES as u64);
        if self.pass.wanted.ends {
            let mut ends = self.files(end).map(|(_, range)| range.end);
            end = ends.find(|&file_end| file_end > self.at).map_or(end, |it| it.min(end));
        }
        (end - self.at) as usize
    }

    /// Returns the files that may have bytes in the step that ends at `end`, and where they lie.
    fn files(&self, end: u64) -> impl Iterator<Item = (usize, Range<u64>)> + use<'a> {
        let pass = self.pass;
        let from = self.file..pass.content.files.len();
        let files = from.map(|file| {
            let at = pass.places.offsets[file];
            (file, at..at + pass.content.files[file].bytes)
        });
        files.take_while(move |(_, range)| range.start < end)
    }

    /// Reads the bytes of a step, and hashes the leaves of its file.
    fn fill(&mut self, out: &mut [u8], reader: &mut Reader) -> Result<(), HashError> {
        let end = self.at + out.len() as u64;
        let mut filled = 0;
        for (file, range) in self.files(end) {
            let (from, to) = (range.start.max(self.at), range.end.min(end));
            if from >= to {
                continue;
            }
            let place = (from - self.at) as usize..(to - self.at) as usize;
            out[filled..place.start].fill(0);
            filled = place.end;
            let follows = range.end.min(self.end) - to;
            let bytes = &mut out[place];
            self.pass.read(file, from - range.start, bytes, follows, reader)?;
            if self.pass.wanted.v2 {
                sha256_tree::push_leaves(&mut self.leaves, bytes);
            }
        }
        out[filled..].fill(0);
        Ok(())
    }

    /// Goes on behind a step.
    fn advance(&mut self, step_bytes: u64) {
        if step_bytes == 0 {
            return;
        }
        let (before, piece_bytes) = (self.at, self.pass.places.piece_bytes);
        self.at += step_bytes;
        if self.at.is_multiple_of(piece_bytes) || self.at == self.end {
            if self.pass.wanted.v1 {
                self.v1_pieces.extend_from_slice(&self.sha1.finish());
            }
            self.sha1 = Sha1::new();
        }
        for (file, range) in self.files(self.at) {
            let part_end = range.end.min(self.end);
            if before < part_end && part_end <= self.at {
                self.end_part(file, &range);
            }
            if range.end <= self.at {
                self.file = file + 1;
            }
        }
        if self.at.is_multiple_of(piece_bytes) {
            self.end_leaves(false);
        }
    }

    /// Ends a part of a file: the file ends here, or the lane.
    fn end_part(&mut self, file: usize, range: &Range<u64>) {
        let piece_bytes = self.pass.places.piece_bytes;
        // Only the last tree can end within a piece.
        let tree_bytes =
            (range.end - range.start).saturating_sub(1) % self.pass.places.segment_bytes + 1;
        let has_layer = tree_bytes > piece_bytes;
        self.end_leaves(has_layer);
        let is_end = range.end <= self.end && self.pass.wanted.ends;
        let end = is_end.then(|| match self.v1_pieces.last_chunk() {
            Some(last) if self.at.is_multiple_of(piece_bytes) || self.at == self.end => *last,
            _ => self.sha1.finish(),
        });
        let offset = range.start.max(self.start) - range.start;
        let roots = std::mem::take(&mut self.roots);
        self.pass.note_file_pieces(file, offset, FilePieces { roots, end });
    }

    /// Ends the tree of a piece. In a file of several pieces the last one is filled up.
    fn end_leaves(&mut self, is_filled: bool) {
        if self.leaves.is_empty() {
            return;
        }
        if is_filled {
            let leaves = (self.pass.places.piece_bytes / LEAF_BYTES) as usize;
            self.leaves.resize(leaves, sha256_tree::zero_hash(0));
        }
        self.roots.push(root(&self.leaves));
        self.leaves.clear();
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

/// Returns the length of a unit: whole pieces, and enough of them to be worth a turn. Two of them are
/// hashed at once if `in_pairs`, unless that takes too much memory.
fn unit_bytes(piece_bytes: u64, in_pairs: bool) -> u64 {
    let least = if in_pairs && piece_bytes <= BUFFERS_BYTES / 8 { 2 } else { 1 };
    piece_bytes * (UNIT_BYTES / piece_bytes).max(least)
}

/// Bytes of a unit, unless a piece is longer.
const UNIT_BYTES: u64 = 4 << 20;
/// Most bytes of all buffers together, unless two pieces are longer.
const BUFFERS_BYTES: u64 = 64 << 20;
/// Bytes of one read, whole leaves: they are hashed while they are in the processor's cache.
const STEP_BYTES: usize = 256 << 10;
/// Bytes of a SHA-1.
const SHA1_BYTES: usize = 20;
