//! A hasher over every algorithm that can be saved in the middle and loaded after a restart.
//!
//! The saved form is one version byte, one byte for the algorithm, the number of bytes hashed,
//! and the algorithm's own state. It is small (at most about 2.8 KiB, for BLAKE3; 240 bytes for
//! the others) and meant for the journal, which checksums it; it is not secret and not portable
//! to another format version, which `load` refuses.

use sha2::digest::Digest as _;
use sha2::digest::common::hazmat::{SerializableState, SerializedState};

use super::algorithm::Algorithm;
use super::blake3_stream::Blake3Stream;
use super::value::Digest;

/// Computes one digest of bytes given front to back.
#[derive(Clone)]
pub struct Hasher {
    algorithm: Algorithm,
    state: State,
    bytes: u64,
}

#[derive(Clone)]
enum State {
    Adler32(simd_adler32::Adler32),
    Crc32c(u32),
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    // Boxed by its own vectors; the others are at most 208 bytes in place.
    Blake3(Blake3Stream),
    Sha512(sha2::Sha512),
}

impl Hasher {
    /// Returns a hasher that has seen nothing yet.
    pub fn new(algorithm: Algorithm) -> Hasher {
        let state = match algorithm {
            Algorithm::Adler32 => State::Adler32(simd_adler32::Adler32::new()),
            Algorithm::Crc32c => State::Crc32c(0),
            Algorithm::Md5 => State::Md5(md5::Md5::new()),
            Algorithm::Sha1 => State::Sha1(sha1::Sha1::new()),
            Algorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            Algorithm::Blake3 => State::Blake3(Blake3Stream::default()),
            Algorithm::Sha512 => State::Sha512(sha2::Sha512::new()),
        };
        Hasher { algorithm, state, bytes: 0 }
    }

    /// Returns the digest of `bytes` in one call.
    pub fn digest(algorithm: Algorithm, bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(bytes);
        hasher.finish()
    }

    /// Hashes `bytes` after those already seen. Large slices are fastest: BLAKE3 uses its full
    /// width from 32 KiB on.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        match &mut self.state {
            State::Adler32(state) => state.write(bytes),
            State::Crc32c(state) => *state = crc32c::crc32c_append(*state, bytes),
            State::Md5(state) => state.update(bytes),
            State::Sha1(state) => state.update(bytes),
            State::Sha256(state) => state.update(bytes),
            State::Blake3(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
        }
    }

    /// Returns the digest of everything seen so far. The hasher can continue.
    pub fn finish(&self) -> Digest {
        let digest = |bytes: &[u8]| Digest::new(self.algorithm, bytes);
        let digest = match &self.state {
            State::Adler32(state) => digest(&state.finish().to_be_bytes()),
            State::Crc32c(state) => digest(&state.to_be_bytes()),
            State::Md5(state) => digest(&state.clone().finalize()),
            State::Sha1(state) => digest(&state.clone().finalize()),
            State::Sha256(state) => digest(&state.clone().finalize()),
            State::Blake3(state) => digest(&state.finish()),
            State::Sha512(state) => digest(&state.clone().finalize()),
        };
        digest.expect("each arm yields as many bytes as its algorithm has")
    }

    /// Returns its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns how many bytes it has seen.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns its state, for a later [`Hasher::load`] in this process or another.
    pub fn save(&self) -> Vec<u8> {
        let mut out = vec![FORMAT_VERSION, tag(self.algorithm())];
        out.extend_from_slice(&self.bytes.to_le_bytes());
        match &self.state {
            State::Adler32(state) => out.extend_from_slice(&state.finish().to_le_bytes()),
            State::Crc32c(state) => out.extend_from_slice(&state.to_le_bytes()),
            State::Md5(state) => out.extend_from_slice(&state.serialize()),
            State::Sha1(state) => out.extend_from_slice(&state.serialize()),
            State::Sha256(state) => out.extend_from_slice(&state.serialize()),
            State::Blake3(state) => state.save(&mut out),
            State::Sha512(state) => out.extend_from_slice(&state.serialize()),
        }
        out
    }

    /// Restores a hasher as it was when [`Hasher::save`] was called.
    ///
    /// # Errors
    /// [`LoadError`] if the bytes are not such a state, or of another algorithm. The caller then
    /// hashes from the start.
    pub fn load(algorithm: Algorithm, saved: &[u8]) -> Result<Hasher, LoadError> {
        let [version, found, rest @ ..] = saved else { return Err(LoadError::Damaged) };
        if *version != FORMAT_VERSION {
            return Err(LoadError::Version(*version));
        }
        if *found != tag(algorithm) {
            return Err(LoadError::OtherAlgorithm(algorithm));
        }
        let (bytes, rest) = rest.split_first_chunk::<8>().ok_or(LoadError::Damaged)?;
        let bytes = u64::from_le_bytes(*bytes);
        // Lengths in bits must fit into 64 bits, with room to continue.
        if bytes > INPUT_BYTES_MAX || !counts_agree(algorithm, rest, bytes) {
            return Err(LoadError::Damaged);
        }
        let state = match algorithm {
            Algorithm::Adler32 => {
                word(rest).map(simd_adler32::Adler32::from_checksum).map(State::Adler32)
            }
            Algorithm::Crc32c => word(rest).map(State::Crc32c),
            Algorithm::Md5 => deserialize(rest).map(State::Md5),
            Algorithm::Sha1 => deserialize(rest).map(State::Sha1),
            Algorithm::Sha256 => deserialize(rest).map(State::Sha256),
            Algorithm::Blake3 => Blake3Stream::load(rest, bytes).map(State::Blake3),
            Algorithm::Sha512 => deserialize(rest).map(State::Sha512),
        };
        Ok(Hasher { algorithm, state: state.ok_or(LoadError::Damaged)?, bytes })
    }
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hasher({}, {} bytes)", self.algorithm(), self.bytes)
    }
}

/// Why a saved state cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It was written by another version of swath.
    #[error("the saved hash has format version {0}, this program reads {FORMAT_VERSION}")]
    Version(u8),
    /// It belongs to another algorithm than requested.
    #[error("the saved hash is not one of {0}")]
    OtherAlgorithm(Algorithm),
    /// It is too short, too long or contradicts itself.
    #[error("the saved hash is damaged")]
    Damaged,
}

/// Returns whether a block hash's own counts of blocks and waiting bytes match `input_bytes`. The
/// hash crates do not check theirs, and overflow on a wild one. They write the chaining words, the
/// number of blocks, the number of waiting bytes, and these bytes.
fn counts_agree(algorithm: Algorithm, state: &[u8], input_bytes: u64) -> bool {
    let (block_bytes, count_bytes) = match algorithm {
        Algorithm::Adler32 | Algorithm::Crc32c | Algorithm::Blake3 => return true,
        Algorithm::Md5 | Algorithm::Sha1 | Algorithm::Sha256 => (64, 8),
        Algorithm::Sha512 => (128, 16),
    };
    // The chaining words are as long as the digest.
    let Some((_, counts)) = state.split_at_checked(algorithm.digest_bytes()) else { return false };
    let blocks = u128::from(input_bytes / block_bytes).to_le_bytes();
    let waiting = (input_bytes % block_bytes) as u8;
    counts.starts_with(&blocks[..count_bytes]) && counts.get(count_bytes) == Some(&waiting)
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn deserialize<T: SerializableState>(bytes: &[u8]) -> Option<T> {
    let state = SerializedState::<T>::try_from(bytes).ok()?;
    T::deserialize(&state).ok()
}

/// Stable on disk, unlike the order of the enum.
fn tag(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::Adler32 => 1,
        Algorithm::Crc32c => 2,
        Algorithm::Md5 => 3,
        Algorithm::Sha1 => 4,
        Algorithm::Sha256 => 5,
        Algorithm::Blake3 => 6,
        Algorithm::Sha512 => 7,
    }
}

/// Raise this when a state changes its form, which a new minor version of a hash crate may also
/// cause: `the_saved_form_is_stable` fails then.
const FORMAT_VERSION: u8 = 1;

/// An exbibyte: no file is larger.
const INPUT_BYTES_MAX: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values published for these algorithms, or computed by other programs (coreutils, b3sum).
    const KNOWN: [(&str, &str); 14] = [
        ("", "adler32:00000001"),
        ("", "crc32c:00000000"),
        ("", "md5:d41d8cd98f00b204e9800998ecf8427e"),
        ("", "sha-1:da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("", "sha-256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("", "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (
            "",
            "sha-512:cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce\
             47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
        ),
        ("Wikipedia", "adler32:11e60398"),
        ("123456789", "crc32c:e3069283"),
        ("abc", "md5:900150983cd24fb0d6963f7d28e17f72"),
        ("abc", "sha-1:a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("abc", "sha-256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ("abc", "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
        (
            "abc",
            "sha-512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
    ];

    #[test]
    fn published_values_are_met() {
        for (input, expected) in KNOWN {
            let expected: Digest = expected.parse().unwrap();
            assert_eq!(Hasher::digest(expected.algorithm(), input.as_bytes()), expected);
        }
    }

    #[test]
    fn damaged_states_are_refused() {
        for algorithm in Algorithm::ALL {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(&[7; 5000]);
            let saved = hasher.save();
            assert!(saved.len() < 3000, "{algorithm}: {}", saved.len());
            for cut in 0..saved.len() {
                assert!(Hasher::load(algorithm, &saved[..cut]).is_err(), "{algorithm} cut {cut}");
            }
            let longer = [&saved[..], &[0]].concat();
            assert!(Hasher::load(algorithm, &longer).is_err());
            let mut newer = saved.clone();
            newer[0] = 2;
            assert_eq!(Hasher::load(algorithm, &newer).unwrap_err(), LoadError::Version(2));
            for other in Algorithm::ALL.into_iter().filter(|other| *other != algorithm) {
                let error = Hasher::load(other, &saved).unwrap_err();
                assert_eq!(error, LoadError::OtherAlgorithm(other));
            }
        }
    }

    /// Found by fuzzing: the hash crates take any count of blocks and then overflow.
    #[test]
    fn a_state_that_contradicts_its_length_is_refused() {
        for algorithm in [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha512] {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(&[7; 5000]);
            let saved = hasher.save();
            let count_at = 10 + algorithm.digest_bytes();
            for at in [2, count_at, count_at + 7] {
                let mut damaged = saved.clone();
                damaged[at] ^= 0x80;
                assert_eq!(Hasher::load(algorithm, &damaged).unwrap_err(), LoadError::Damaged);
            }
        }
    }

    /// A journal written by an earlier build of the same format version must load.
    #[test]
    fn the_saved_form_is_stable() {
        let input: Vec<u8> = (0..3333u32).map(|i| (i * 31 % 251) as u8).collect();
        let mut all = Vec::new();
        for algorithm in Algorithm::ALL {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(&input);
            all.extend(hasher.save());
        }
        let print = Hasher::digest(Algorithm::Md5, &all).to_hex();
        assert_eq!(print, "fb8f5fc492e56d690930718f168863a7");
    }

    proptest! {
        #[test]
        fn saving_anywhere_changes_nothing(
            pieces in prop::collection::vec(prop_oneof![
                0..3usize, 1000..1100usize, 0..5000usize, (0..70usize).prop_map(|k| k * 1024),
            ], 0..8),
            seed: u8,
        ) {
            let total: usize = pieces.iter().sum();
            let input: Vec<u8> =
                (0..total).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect();
            for algorithm in Algorithm::ALL {
                let mut hasher = Hasher::new(algorithm);
                let mut rest = &input[..];
                for piece in &pieces {
                    let (now, later) = rest.split_at(*piece);
                    hasher.update(now);
                    rest = later;
                    hasher = Hasher::load(algorithm, &hasher.save()).unwrap();
                }
                prop_assert_eq!(hasher.bytes(), total as u64);
                prop_assert_eq!(hasher.finish(), Hasher::digest(algorithm, &input));
                if algorithm == Algorithm::Blake3 {
                    let digest = hasher.finish();
                    let whole = blake3::hash(&input);
                    prop_assert_eq!(digest.as_bytes(), &whole.as_bytes()[..]);
                }
            }
        }

        #[test]
        fn no_saved_state_panics(saved in prop::collection::vec(any::<u8>(), 0..400), bytes: u64) {
            for algorithm in Algorithm::ALL {
                let head = [&[FORMAT_VERSION, tag(algorithm)][..], &bytes.to_le_bytes()].concat();
                if let Ok(hasher) = Hasher::load(algorithm, &[head, saved.clone()].concat()) {
                    let _ = hasher.finish();
                }
            }
        }
    }
}
