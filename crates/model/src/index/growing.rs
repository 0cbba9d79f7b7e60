//! The index as it grows: written by a walk, or read from a stream.

use super::cursor::Cursor;
use super::entry::{Absence, Entry, Kind};
use super::error::IndexError;
use super::wire::{self, Context, FORMAT_VERSION, MAGIC, Read};
use super::xattrs::{Sets, StoredXattrs, Xattrs};

/// The entries of a dataset in the order of the virtual file, in their encoded form.
pub struct Index {
    /// Whole records, several per chunk; the first chunk begins with the header.
    chunks: Vec<Vec<u8>>,
    /// Start of each chunk, in bytes of the whole.
    chunk_starts: Vec<u64>,
    checkpoints: Vec<Checkpoint>,
    context: Context,
    /// A bit for each entry: whether it is a regular file. Only files can have further names.
    files: Vec<u64>,
    hasher: blake3::Hasher,
    layout: blake3::Hasher,
    counts: Counts,
    sets: Sets,
    digests: Option<Digests>,
    scratch: Vec<u8>,
}

/// A place from which the index can be read.
#[derive(Clone)]
pub(super) struct Checkpoint {
    pub chunk: usize,
    pub at: usize,
    /// The context for the record there.
    pub context: Context,
}

/// The digests that identify a complete index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// BLAKE3 of the index: the name of the dataset.
    pub dataset: [u8; 32],
    /// BLAKE3 of its paths, kinds, sizes, reported holes and links, without modes, times and
    /// extended attributes. If it is equal, the same bytes of the virtual file belong to the same
    /// file.
    pub layout: [u8; 32],
}

/// Number of entries of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Regular files.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Symbolic links.
    pub links: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Entries that the dataset cannot contain.
    pub absent: u64,
    /// Among these, devices, sockets and pipes.
    pub special: u64,
    /// Bytes of all files, holes included.
    pub file_bytes: u64,
}

impl Index {
    /// Returns an index without entries, not complete.
    pub fn new() -> Index {
        let mut first = MAGIC.to_vec();
        first.push(FORMAT_VERSION);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&first);
        Index {
            chunks: vec![first],
            chunk_starts: vec![0],
            checkpoints: Vec::new(),
            context: Context::new(),
            files: Vec::new(),
            hasher,
            layout: blake3::Hasher::new(),
            counts: Counts::default(),
            sets: Sets::default(),
            digests: None,
            scratch: Vec::new(),
        }
    }

    /// Adds an entry. Returns where its bytes begin in the virtual file.
    ///
    /// # Errors
    /// [`IndexError::Entry`] if it breaks a rule, [`IndexError::Complete`] after
    /// [`Index::complete`]; the index is unchanged.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<u64, IndexError> {
        if self.digests.is_some() {
            return Err(IndexError::Complete);
        }
        let before = self.is_checkpoint_due().then(|| self.context.clone());
        let number = self.context.number;
        let mut record = std::mem::take(&mut self.scratch);
        record.clear();
        let is_file = |number| is_set(&self.files, number);
        let told = self.sets.told(&entry.xattrs);
        let start = wire::write(entry, told, &mut self.context, &is_file, &mut record)
            .map_err(|what| IndexError::Entry { number, what });
        if start.is_ok() {
            self.keep(&record, entry, told, before);
        }
        self.scratch = record;
        start
    }

    /// Completes the index: nothing can be added any more.
    pub fn complete(&mut self) -> Digests {
        if let Some(digests) = self.digests {
            return digests;
        }
        let dataset = *self.hasher.finalize().as_bytes();
        let layout = *self.layout.finalize().as_bytes();
        let mut end = Vec::new();
        wire::write_end(self.context.number, self.context.end, &dataset, &mut end);
        self.append(&end);
        let digests = Digests { dataset, layout };
        self.digests = Some(digests);
        digests
    }

    /// Returns whether the next entry gets a checkpoint. Checkpoints take no more memory than the
    /// records between them, however long the paths are.
    fn is_checkpoint_due(&self) -> bool {
        let Some(last) = self.checkpoints.last() else { return true };
        let between = self.wire_bytes() - (self.chunk_starts[last.chunk] + last.at as u64);
        self.context.number - last.context.number >= ENTRIES_PER_CHECKPOINT
            && between >= self.context.path.len() as u64
    }

    /// Adds a checked record; `before` is its context, if it gets a checkpoint.
    fn keep(
        &mut self,
        record: &[u8],
        entry: &Entry<'_>,
        told: StoredXattrs<'_>,
        before: Option<Context>,
    ) {
        let number = self.context.number - 1;
        self.hasher.update(record);
        let (chunk, at) = self.append(record);
        if let StoredXattrs::New(bytes) = told {
            self.sets.push(bytes, chunk, at, record.len());
        }
        if let Some(context) = before {
            self.checkpoints.push(Checkpoint { chunk, at, context });
        }
        let mut layout = Vec::new();
        wire::write_layout(entry, number, &mut layout);
        self.layout.update(&layout);
        match &entry.kind {
            Kind::File { size_bytes, .. } => {
                set(&mut self.files, number);
                self.counts.files += 1;
                self.counts.file_bytes = self.counts.file_bytes.saturating_add(*size_bytes);
            }
            Kind::Folder => self.counts.folders += 1,
            Kind::Symlink(_) => self.counts.links += 1,
            Kind::HardLink(_) => self.counts.hard_links += 1,
            Kind::Absent(absence) => {
                self.counts.absent += 1;
                self.counts.special += u64::from(*absence == Absence::Special);
            }
        }
    }

    /// Appends bytes that stay together; returns where they are.
    fn append(&mut self, bytes: &[u8]) -> (usize, usize) {
        let last = self.chunks.len() - 1;
        if self.chunks[last].len() + bytes.len() > CHUNK_BYTES && !self.chunks[last].is_empty() {
            self.chunks[last].shrink_to_fit();
            self.chunk_starts.push(self.wire_bytes());
            self.chunks.push(Vec::new());
        }
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        let at = chunk.len();
        chunk.extend_from_slice(bytes);
        (last, at)
    }

    /// Returns some encoded bytes from `position` on; empty if there are no more yet.
    pub fn wire_from(&self, position: u64) -> &[u8] {
        let chunk = self.chunk_starts.partition_point(|&start| start <= position) - 1;
        let at = usize::try_from(position - self.chunk_starts[chunk]).unwrap_or(usize::MAX);
        self.chunks[chunk].get(at..).unwrap_or_default()
    }

    /// Returns how many encoded bytes it has so far.
    pub fn wire_bytes(&self) -> u64 {
        let last = self.chunks.len() - 1;
        self.chunk_starts[last] + self.chunks[last].len() as u64
    }

    /// Returns the number of entries so far.
    pub fn entries(&self) -> u64 {
        self.context.number
    }

    /// Returns the number of entries of each kind.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the length of the virtual file so far.
    pub fn size_bytes(&self) -> u64 {
        self.context.end
    }

    /// Returns the digests that identify it, once it is complete.
    pub fn digests(&self) -> Option<Digests> {
        self.digests
    }

    /// Returns a cursor over all entries.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self, self.checkpoints.first())
    }

    /// Returns a cursor over the entries from number `number` on.
    pub fn cursor_from(&self, number: u64) -> Cursor<'_> {
        let at = self.checkpoints.partition_point(|checkpoint| checkpoint.context.number <= number);
        let mut cursor = Cursor::new(self, self.checkpoints.get(at.saturating_sub(1)));
        cursor.skip_while(|item| item.number < number);
        cursor
    }

    /// Returns a cursor from the first entry with bytes at or behind `offset` of the virtual file.
    pub fn cursor_at(&self, offset: u64) -> Cursor<'_> {
        let at = self.checkpoints.partition_point(|checkpoint| checkpoint.context.end <= offset);
        let mut cursor = Cursor::new(self, self.checkpoints.get(at.saturating_sub(1)));
        cursor.skip_while(|item| item.end <= offset);
        cursor
    }

    /// Returns the memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(Vec::capacity).sum();
        let paths: usize =
            self.checkpoints.iter().map(|checkpoint| checkpoint.context.path.capacity()).sum();
        let checkpoints = self.checkpoints.capacity() * size_of::<Checkpoint>();
        let files = self.files.capacity() * size_of::<u64>();
        chunks + paths + checkpoints + files + self.sets.memory_bytes()
    }

    /// Returns the extended attributes that a record of it refers to.
    pub(super) fn xattrs<'i>(&'i self, told: StoredXattrs<'i>) -> Xattrs<'i> {
        self.sets.resolve(told, |chunk| self.chunk(chunk))
    }

    pub(super) fn chunk(&self, chunk: usize) -> &[u8] {
        self.chunks.get(chunk).map_or(&[], Vec::as_slice)
    }
}

impl Default for Index {
    fn default() -> Index {
        Index::new()
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Index({} entries, {} bytes)", self.entries(), self.size_bytes())
    }
}

/// Reads an index from a stream, in parts of any size.
pub struct Reader {
    limit_bytes: u64,
    /// Received bytes that are not a whole record yet.
    pending: Vec<u8>,
    /// Length of `pending` from which another look is worthwhile.
    look_from: usize,
    begun: bool,
}

impl Reader {
    /// Returns a reader that accepts at most `limit_bytes` of index.
    pub fn new(limit_bytes: u64) -> Reader {
        Reader { limit_bytes, pending: Vec::new(), look_from: 0, begun: false }
    }

    /// Reads the next bytes of the stream into an index. It must have been new when the stream
    /// began, and nobody else may add to it.
    ///
    /// # Errors
    /// [`IndexError`]; earlier entries remain valid.
    pub fn feed(&mut self, index: &mut Index, bytes: &[u8]) -> Result<(), IndexError> {
        self.pending.extend_from_slice(bytes);
        if index.wire_bytes() + self.pending.len() as u64 > self.limit_bytes {
            return Err(IndexError::TooLarge { limit_bytes: self.limit_bytes });
        }
        if self.pending.len() < self.look_from { Ok(()) } else { self.look(index) }
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// [`IndexError`], above all [`IndexError::CutOff`].
    pub fn finish(mut self, index: &mut Index) -> Result<Digests, IndexError> {
        self.look(index)?;
        index.digests.ok_or(IndexError::CutOff { entries: index.entries() })
    }

    fn look(&mut self, index: &mut Index) -> Result<(), IndexError> {
        let pending = std::mem::take(&mut self.pending);
        let used = self.take_in(index, &pending)?;
        self.pending = pending;
        self.pending.drain(..used);
        // A long record that comes in small parts is not read again for each of them.
        self.look_from = self.pending.len() + self.pending.len() / 4;
        Ok(())
    }

    /// Reads whole records; returns how many bytes these are.
    fn take_in(&mut self, index: &mut Index, bytes: &[u8]) -> Result<usize, IndexError> {
        let mut used = 0;
        if !self.begun {
            let header = &bytes[..bytes.len().min(MAGIC.len())];
            if !MAGIC.starts_with(header) {
                return Err(IndexError::NotAnIndex);
            }
            match bytes.get(MAGIC.len()) {
                None => return Ok(0),
                Some(&FORMAT_VERSION) => used = MAGIC.len() + 1,
                Some(&version) => return Err(IndexError::Version(version)),
            }
            self.begun = true;
        }
        loop {
            let rest = &bytes[used..];
            if index.digests.is_some() {
                return if rest.is_empty() { Ok(used) } else { Err(IndexError::Trailing) };
            }
            let number = index.context.number;
            let before = index.is_checkpoint_due().then(|| index.context.clone());
            let mut context = std::mem::replace(&mut index.context, Context::new());
            let read = wire::read(rest, &mut context, &|number| is_set(&index.files, number));
            index.context = context;
            match read.map_err(|what| IndexError::Entry { number, what })? {
                Read::Entry { entry, length, told, .. } => {
                    if let StoredXattrs::New(bytes) = told
                        && index.sets.find(bytes).is_some()
                    {
                        let what = "tells extended attributes again";
                        return Err(IndexError::Entry { number, what });
                    }
                    index.keep(&rest[..length], &entry, told, before);
                    used += length;
                }
                Read::CutOff => return Ok(used),
                Read::End => match wire::read_end(rest)? {
                    None => return Ok(used),
                    Some(said) => {
                        check_end(index, said)?;
                        used += rest.len();
                    }
                },
            }
        }
    }
}

/// Returns whether the bit of this number is set.
fn is_set(bits: &[u64], number: u64) -> bool {
    let word = usize::try_from(number / 64).ok().and_then(|at| bits.get(at));
    word.is_some_and(|word| word >> (number % 64) & 1 == 1)
}

fn set(bits: &mut Vec<u64>, number: u64) {
    let at = usize::try_from(number / 64).unwrap_or(usize::MAX);
    if bits.len() <= at {
        bits.resize(at + 1, 0);
    }
    bits[at] |= 1 << (number % 64);
}

fn check_end(
    index: &mut Index,
    (entries, size_bytes, digest): (u64, u64, [u8; 32]),
) -> Result<(), IndexError> {
    let damaged = |what| Err(IndexError::Damaged { what });
    if entries != index.entries() {
        return damaged("number of entries");
    }
    if size_bytes != index.size_bytes() {
        return damaged("size");
    }
    if digest != *index.hasher.finalize().as_bytes() {
        return damaged("digest");
    }
    index.complete();
    Ok(())
}

/// Entries between two checkpoints: finding an entry takes some microseconds, and the checkpoints
/// take about a byte per entry.
const ENTRIES_PER_CHECKPOINT: u64 = 128;
/// Step in which memory grows.
const CHUNK_BYTES: usize = 1 << 20;
