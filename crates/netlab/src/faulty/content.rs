//! What a faulty server serves: bytes that can be asked for at any offset.
//!
//! Random content is a counter-based generator: word `i` of the file is a mix of the seed and
//! `i`, so a 100 GiB file costs no memory, any range can be made or checked without the bytes
//! before it, and two servers with one seed are true replicas of each other.
//!
//! The digests here are made from the generator directly, never through the product's own
//! hashing: what a test expects must not come from the code under test.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use sha2::Digest as _;

/// The bytes of one file. Cheap to clone; clones share their cache of digests.
#[derive(Clone, Debug)]
pub struct Content {
    kind: Kind,
    digests: Arc<Mutex<HashMap<Algorithm, Vec<u8>>>>,
}

#[derive(Clone, Debug)]
enum Kind {
    Random { seed: u64, size_bytes: u64 },
    Sparse { seed: u64, size_bytes: u64 },
    Bytes(Arc<[u8]>),
    File(Arc<File>),
}

impl Content {
    /// Pseudo-random bytes that are a function of `seed` and offset alone.
    pub fn random(seed: u64, size_bytes: u64) -> Self {
        Self::of(Kind::Random { seed, size_bytes })
    }

    /// Zeros, but for the first mebibyte of every gibibyte and the last hundred bytes, which are
    /// those of [`Content::random`]: what a sparse file of any size looks like.
    pub fn sparse(seed: u64, size_bytes: u64) -> Self {
        Self::of(Kind::Sparse { seed, size_bytes })
    }

    /// Returns bytes held in memory.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::of(Kind::Bytes(bytes.into().into()))
    }

    /// Returns a file on disk, read as it is asked for. Its size is the size at the time of each request.
    ///
    /// # Errors
    /// When the file cannot be opened for reading.
    pub fn file(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self::of(Kind::File(Arc::new(File::open(path)?))))
    }

    fn of(kind: Kind) -> Self {
        Content { kind, digests: Arc::default() }
    }

    /// Returns the length in bytes.
    pub fn size_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Random { size_bytes, .. } | Kind::Sparse { size_bytes, .. } => *size_bytes,
            Kind::Bytes(bytes) => bytes.len() as u64,
            Kind::File(file) => file.metadata().map_or(0, |m| m.len()),
        }
    }

    /// Writes the bytes from `offset` on into `buffer`. What lies beyond the end reads as zeros.
    pub fn fill(&self, offset: u64, buffer: &mut [u8]) {
        let inside = self.size_bytes().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (inside, beyond) = buffer.split_at_mut(inside);
        beyond.fill(0);
        match &self.kind {
            Kind::Random { seed, .. } => fill_random(*seed, offset, inside),
            Kind::Sparse { seed, size_bytes } => fill_sparse(*seed, *size_bytes, offset, inside),
            Kind::Bytes(bytes) => {
                let start = (offset as usize).min(bytes.len());
                inside.copy_from_slice(&bytes[start..start + inside.len()]);
            }
            Kind::File(file) => {
                // A file that shrank between the size and the read reads as zeros too.
                if file.read_exact_at(inside, offset).is_err() {
                    inside.fill(0);
                }
            }
        }
    }

    /// Returns the bytes of `[start, end)` in a vector, for small ranges.
    pub fn read(&self, start: u64, end: u64) -> Vec<u8> {
        let mut bytes = vec![0; end.saturating_sub(start) as usize];
        self.fill(start, &mut bytes);
        bytes
    }

    /// Returns the digest of the whole content, computed in a stream and remembered.
    pub fn digest(&self, algorithm: Algorithm) -> Vec<u8> {
        let known = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = known.get(&algorithm) {
            return digest.clone();
        }
        drop(known);
        let digest = self.digest_of(0, self.size_bytes(), algorithm);
        // A file on disk may change under us, so its digest is not remembered.
        if !matches!(self.kind, Kind::File(_)) {
            let mut known = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(algorithm, digest.clone());
        }
        digest
    }

    /// Returns the digest of `[start, end)`.
    pub fn digest_of(&self, start: u64, end: u64, algorithm: Algorithm) -> Vec<u8> {
        let mut hasher = Hasher::new(algorithm);
        let mut buffer = vec![0; DIGEST_STEP_BYTES.min(end.saturating_sub(start) as usize)];
        let mut offset = start;
        while offset < end {
            let step = buffer.len().min((end - offset) as usize);
            self.fill(offset, &mut buffer[..step]);
            hasher.update(&buffer[..step]);
            offset += step as u64;
        }
        hasher.finish()
    }

    /// [`Content::digest`] in lower-case hexadecimal, as Metalink and `sha256sum` write it.
    pub fn digest_hex(&self, algorithm: Algorithm) -> String {
        hex(&self.digest(algorithm))
    }

    /// Returns a strong validator that replicas of the same content share, without its quotes.
    pub(super) fn tag(&self) -> String {
        match &self.kind {
            Kind::Random { seed, size_bytes } => format!("{size_bytes:x}-{seed:x}"),
            Kind::Sparse { seed, size_bytes } => format!("{size_bytes:x}-{seed:x}-sparse"),
            Kind::Bytes(bytes) => {
                format!("{:x}-{}", bytes.len(), &blake3::hash(bytes).to_hex()[..16])
            }
            Kind::File(file) => file.metadata().map_or_else(
                |_| "gone".to_owned(),
                |m| format!("{:x}-{:x}-{:x}", m.len(), m.mtime(), m.mtime_nsec()),
            ),
        }
    }
}

/// The digest algorithms that servers and Metalinks of this field use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
#[allow(missing_docs)] // The names say all.
pub enum Algorithm {
    #[value(name = "sha-256")]
    Sha256,
    #[value(name = "sha-512")]
    Sha512,
    #[value(name = "sha-1")]
    Sha1,
    Md5,
    Adler32,
    Crc32c,
    Blake3,
}

impl Algorithm {
    /// Returns the name as Metalink (RFC 5854) and RFC 9530 write it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha-256",
            Algorithm::Sha512 => "sha-512",
            Algorithm::Sha1 => "sha-1",
            Algorithm::Md5 => "md5",
            Algorithm::Adler32 => "adler32",
            Algorithm::Crc32c => "crc32c",
            Algorithm::Blake3 => "blake3",
        }
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Standard base64 with padding, as digest headers carry it.
pub(super) fn base64_text(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

enum Hasher {
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
    Sha1(sha1::Sha1),
    Md5(md5::Md5),
    Adler32(simd_adler32::Adler32),
    Crc32c(u32),
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Hasher::Sha256(sha2::Sha256::new()),
            Algorithm::Sha512 => Hasher::Sha512(sha2::Sha512::new()),
            Algorithm::Sha1 => Hasher::Sha1(sha1::Sha1::new()),
            Algorithm::Md5 => Hasher::Md5(md5::Md5::new()),
            Algorithm::Adler32 => Hasher::Adler32(simd_adler32::Adler32::new()),
            Algorithm::Crc32c => Hasher::Crc32c(0),
            Algorithm::Blake3 => Hasher::Blake3(Box::default()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Sha512(hasher) => hasher.update(bytes),
            Hasher::Sha1(hasher) => hasher.update(bytes),
            Hasher::Md5(hasher) => hasher.update(bytes),
            Hasher::Adler32(hasher) => hasher.write(bytes),
            Hasher::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, bytes),
            Hasher::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Hasher::Sha256(hasher) => hasher.finalize().to_vec(),
            Hasher::Sha512(hasher) => hasher.finalize().to_vec(),
            Hasher::Sha1(hasher) => hasher.finalize().to_vec(),
            Hasher::Md5(hasher) => hasher.finalize().to_vec(),
            Hasher::Adler32(hasher) => hasher.finish().to_be_bytes().to_vec(),
            Hasher::Crc32c(sum) => sum.to_be_bytes().to_vec(),
            Hasher::Blake3(hasher) => hasher.finalize().as_bytes().to_vec(),
        }
    }
}

/// Zeros with islands of random bytes.
fn fill_sparse(seed: u64, size_bytes: u64, offset: u64, buffer: &mut [u8]) {
    buffer.fill(0);
    let (start, end) = (offset, offset + buffer.len() as u64);
    let islands = (start / ISLAND_EVERY_BYTES..=end / ISLAND_EVERY_BYTES)
        .map(|number| (number * ISLAND_EVERY_BYTES, number * ISLAND_EVERY_BYTES + ISLAND_BYTES))
        .chain([(size_bytes.saturating_sub(100), size_bytes)]);
    for (from, to) in islands {
        let (from, to) = (from.max(start), to.min(end));
        if from < to {
            fill_random(seed, from, &mut buffer[(from - start) as usize..(to - start) as usize]);
        }
    }
}

/// Fills from any offset: a part of the first word, whole words, a part of the last.
fn fill_random(seed: u64, offset: u64, buffer: &mut [u8]) {
    let mut word_index = offset / 8;
    let skip = (offset % 8) as usize;
    let mut rest = buffer;
    if skip > 0 {
        let take = rest.len().min(8 - skip);
        let (front, back) = rest.split_at_mut(take);
        front.copy_from_slice(&word(seed, word_index)[skip..skip + take]);
        word_index += 1;
        rest = back;
    }
    let mut words = rest.chunks_exact_mut(8);
    for chunk in &mut words {
        chunk.copy_from_slice(&word(seed, word_index));
        word_index += 1;
    }
    let tail = words.into_remainder();
    let length = tail.len();
    tail.copy_from_slice(&word(seed, word_index)[..length]);
}

/// Returns the finaliser of SplitMix64 over a Weyl sequence that starts at the mixed seed.
#[inline]
fn word(seed: u64, index: u64) -> [u8; 8] {
    let mut z = seed.wrapping_mul(SEED_SPREAD).wrapping_add(index.wrapping_mul(WEYL_STEP));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// 2^64 over the golden ratio: the step of SplitMix64.
const WEYL_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Any other odd constant: keeps neighbouring seeds from being shifted copies of each other.
const SEED_SPREAD: u64 = 0xd6e8_feb8_6659_fd93;
/// Large enough to amortise a call, small enough for the second-level cache.
const DIGEST_STEP_BYTES: usize = 256 << 10;

/// How far the islands of a sparse content lie apart, and how long each is.
const ISLAND_EVERY_BYTES: u64 = 1 << 30;
const ISLAND_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_gives_the_same_bytes() {
        let content = Content::random(7, 1000);
        let whole = content.read(0, 1000);
        for start in [0, 1, 7, 8, 9, 500, 993, 999] {
            for end in [start, start + 1, start + 7, start + 8, start + 9, 1000] {
                let end = end.min(1000);
                assert_eq!(content.read(start, end), whole[start as usize..end as usize]);
            }
        }
    }

    #[test]
    fn seeds_and_offsets_differ_and_nothing_repeats() {
        let a = Content::random(1, 1 << 16).read(0, 1 << 16);
        let b = Content::random(2, 1 << 16).read(0, 1 << 16);
        let words = |bytes: &[u8]| -> std::collections::HashSet<[u8; 8]> {
            bytes.chunks_exact(8).map(|c| c.try_into().unwrap()).collect()
        };
        assert_eq!(words(&a).len(), 1 << 13);
        assert!(words(&a).is_disjoint(&words(&b)));
    }

    #[test]
    fn a_huge_file_costs_nothing_and_beyond_the_end_is_zero() {
        let content = Content::random(7, 100 << 30);
        let far = content.read((100 << 30) - 5, (100 << 30) + 5);
        assert!(far[..5].iter().any(|b| *b != 0));
        assert_eq!(far[5..], [0; 5]);
    }

    #[test]
    fn a_sparse_file_is_zero_between_its_islands_wherever_it_is_cut() {
        let content = Content::sparse(7, 3 << 30);
        assert_eq!(content.read((1 << 30) + (1 << 20), (1 << 30) + (1 << 20) + 100), [0; 100]);
        let like = Content::random(7, 3 << 30);
        for at in [0, 1 << 30, (3 << 30) - 100] {
            assert_eq!(content.read(at, at + 50), like.read(at, at + 50), "{at}");
        }
        let edge = content.read((2 << 30) - 8, (2 << 30) + 8);
        assert_eq!(edge[..8], [0; 8]);
        assert_eq!(edge[8..], like.read(2 << 30, (2 << 30) + 8));
    }

    #[test]
    fn digests_are_the_published_ones() {
        let content = Content::bytes(*b"123456789");
        assert_eq!(content.digest_hex(Algorithm::Adler32), "091e01de");
        assert_eq!(content.digest_hex(Algorithm::Crc32c), "e3069283");
        assert_eq!(content.digest_hex(Algorithm::Md5), "25f9e794323b453885f5181f1b624d0b");
        assert_eq!(content.digest_hex(Algorithm::Sha1), "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
        assert_eq!(
            content.digest_hex(Algorithm::Sha256),
            "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
        );
        assert_eq!(content.digest(Algorithm::Sha512).len(), 64);
        assert_eq!(content.digest(Algorithm::Blake3), blake3::hash(b"123456789").as_bytes());
    }

    #[test]
    fn a_file_on_disk_reads_like_memory() {
        let mut path = std::env::temp_dir();
        path.push(format!("netlab-content-{}", std::process::id()));
        std::fs::write(&path, b"hello world").unwrap();
        let content = Content::file(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(content.size_bytes(), 11);
        assert_eq!(content.read(6, 13), b"world\0\0");
    }
}
