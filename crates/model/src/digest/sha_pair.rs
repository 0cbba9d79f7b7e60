//! Two messages are hashed at once, with the SHA instructions of x86-64.
//!
//! Every instruction for one message waits for the one before it, which leaves the unit that computes
//! them idle for about half of the time. Those for another message fill the gaps.

/// Returns the SHA-256 of two messages of the same length, which is a multiple of 64 bytes. `None` if
/// their lengths are others, or the processor does not have the instructions.
pub(super) fn sha256_pair(messages: [&[u8]; 2]) -> Option<[[u8; 32]; 2]> {
    let [one, other] = messages.map(<[u8]>::len);
    if one != other || !one.is_multiple_of(BLOCK_BYTES) {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    if has_instructions() {
        // SAFETY: the processor has these instructions, as was just found.
        return Some(unsafe { x86_64::sha256(messages) });
    }
    None
}

/// Compresses as many blocks into each of two states of SHA-1. Returns false, and changes nothing, if
/// the processor does not have the instructions or the numbers of blocks differ.
pub(super) fn sha1_compress_pair(
    states: [&mut [u32; 5]; 2],
    blocks: [&[[u8; BLOCK_BYTES]]; 2],
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if has_instructions() && blocks[0].len() == blocks[1].len() {
        // SAFETY: the processor has these instructions, as was just found.
        unsafe { x86_64::sha1(states, blocks) };
        return true;
    }
    let _ = (states, blocks);
    false
}

#[cfg(target_arch = "x86_64")]
fn has_instructions() -> bool {
    is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1")
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::*;

    use super::{BLOCK_BYTES, INITIAL, ROUND};

    /// A state in the order of the instructions: words A, B, E, F and C, D, G, H.
    type State = [__m128i; 2];

    #[target_feature(enable = "sha,sse4.1,ssse3")]
    pub(super) fn sha256(messages: [&[u8]; 2]) -> [[u8; 32]; 2] {
        let words = |at: [usize; 4]| {
            let [a, b, c, d] = at.map(|at| INITIAL[at].cast_signed());
            _mm_set_epi32(a, b, c, d)
        };
        let initial: State = [words([0, 1, 4, 5]), words([2, 3, 6, 7])];
        let mut states = [initial; 2];
        let [one, other] = messages.map(|message| message.as_chunks::<BLOCK_BYTES>().0);
        for (one, other) in one.iter().zip(other) {
            sha256_compress(&mut states, [one, other]);
        }
        // What follows the message: a bit, zeros, and the length in bits.
        let mut end = [0; BLOCK_BYTES];
        end[0] = 0x80;
        end[BLOCK_BYTES - 8..].copy_from_slice(&(8 * messages[0].len() as u64).to_be_bytes());
        sha256_compress(&mut states, [&end; 2]);
        states.map(|state| bytes(state))
    }

    #[target_feature(enable = "sha,sse4.1,ssse3")]
    #[inline]
    fn sha256_compress(states: &mut [State; 2], blocks: [&[u8; BLOCK_BYTES]; 2]) {
        let before = *states;
        let mut words = [[_mm_setzero_si128(); 4]; 2];
        for (words, block) in words.iter_mut().zip(blocks) {
            for (words, bytes) in words.iter_mut().zip(block.as_chunks::<16>().0) {
                *words = load(bytes);
            }
        }
        macro_rules! rounds {
            ($($group:literal)*) => { $(
                let constants = load_words(&ROUND[4 * $group..4 * $group + 4]);
                for (words, [abef, cdgh]) in words.iter_mut().zip(states.iter_mut()) {
                    if $group >= 4 {
                        let middle = _mm_alignr_epi8::<4>(words[($group + 3) % 4], words[($group + 2) % 4]);
                        let first = _mm_sha256msg1_epu32(words[$group % 4], words[($group + 1) % 4]);
                        let sum = _mm_add_epi32(first, middle);
                        words[$group % 4] = _mm_sha256msg2_epu32(sum, words[($group + 3) % 4]);
                    }
                    let sum = _mm_add_epi32(words[$group % 4], constants);
                    *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, sum);
                    *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32::<0x0e>(sum));
                }
            )* };
        }
        rounds!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        for (state, before) in states.iter_mut().zip(before) {
            for (half, before) in state.iter_mut().zip(before) {
                *half = _mm_add_epi32(*half, before);
            }
        }
    }

    #[target_feature(enable = "sha,sse4.1,ssse3")]
    pub(super) fn sha1(states: [&mut [u32; 5]; 2], blocks: [&[[u8; BLOCK_BYTES]]; 2]) {
        // Words A to D, and word E in the highest place.
        let mut packed: [State; 2] = [&states[0], &states[1]].map(|state| {
            let [a, b, c, d, e] = state.map(u32::cast_signed);
            [_mm_set_epi32(a, b, c, d), _mm_set_epi32(e, 0, 0, 0)]
        });
        let [one, other] = blocks;
        for (one, other) in one.iter().zip(other) {
            sha1_compress(&mut packed, [one, other]);
        }
        for (state, [abcd, e]) in states.into_iter().zip(packed) {
            *state = [
                _mm_extract_epi32::<3>(abcd),
                _mm_extract_epi32::<2>(abcd),
                _mm_extract_epi32::<1>(abcd),
                _mm_extract_epi32::<0>(abcd),
                _mm_extract_epi32::<3>(e),
            ]
            .map(i32::cast_unsigned);
        }
    }

    #[target_feature(enable = "sha,sse4.1,ssse3")]
    #[inline]
    fn sha1_compress(states: &mut [State; 2], blocks: [&[u8; BLOCK_BYTES]; 2]) {
        let before = *states;
        let mut words = [[_mm_setzero_si128(); 4]; 2];
        for (words, block) in words.iter_mut().zip(blocks) {
            for (words, bytes) in words.iter_mut().zip(block.as_chunks::<16>().0) {
                // The first word is the highest one.
                *words = _mm_shuffle_epi32::<0x1b>(load(bytes));
            }
        }
        macro_rules! rounds {
            ($($group:literal)*) => { $(
                for (words, [abcd, e]) in words.iter_mut().zip(states.iter_mut()) {
                    if $group >= 4 {
                        let first = _mm_sha1msg1_epu32(words[$group % 4], words[($group + 1) % 4]);
                        let mixed = _mm_xor_si128(first, words[($group + 2) % 4]);
                        words[$group % 4] = _mm_sha1msg2_epu32(mixed, words[($group + 3) % 4]);
                    }
                    // After the first group, `e` holds the words A to D of the group before.
                    let sum = match $group {
                        0 => _mm_add_epi32(*e, words[0]),
                        _ => _mm_sha1nexte_epu32(*e, words[$group % 4]),
                    };
                    *e = *abcd;
                    *abcd = _mm_sha1rnds4_epu32::<{ $group / 5 }>(*abcd, sum);
                }
            )* };
        }
        rounds!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        for ([abcd, e], [abcd_before, e_before]) in states.iter_mut().zip(before) {
            *e = _mm_sha1nexte_epu32(*e, e_before);
            *abcd = _mm_add_epi32(*abcd, abcd_before);
        }
    }

    /// Four words of a block, which are big-endian there.
    #[target_feature(enable = "ssse3")]
    #[inline]
    fn load(bytes: &[u8; 16]) -> __m128i {
        let [low, high] = [0, 8].map(|at| {
            let mut half = [0; 8];
            half.copy_from_slice(&bytes[at..at + 8]);
            i64::from_le_bytes(half)
        });
        let order = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
        _mm_shuffle_epi8(_mm_set_epi64x(high, low), order)
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn load_words(words: &[u32]) -> __m128i {
        let [d, c, b, a] = [0, 1, 2, 3].map(|at| words[at].cast_signed());
        _mm_set_epi32(a, b, c, d)
    }

    #[target_feature(enable = "sse4.1")]
    fn bytes([abef, cdgh]: State) -> [u8; 32] {
        let words = [
            _mm_extract_epi32::<3>(abef),
            _mm_extract_epi32::<2>(abef),
            _mm_extract_epi32::<3>(cdgh),
            _mm_extract_epi32::<2>(cdgh),
            _mm_extract_epi32::<1>(abef),
            _mm_extract_epi32::<0>(abef),
            _mm_extract_epi32::<1>(cdgh),
            _mm_extract_epi32::<0>(cdgh),
        ];
        let mut bytes = [0; 32];
        for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

const BLOCK_BYTES: usize = 64;

/// The first state (FIPS 180-4, section 5.3.3).
#[cfg(target_arch = "x86_64")]
const INITIAL: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

/// The constants of the rounds (FIPS 180-4, section 4.2.2).
#[cfg(target_arch = "x86_64")]
const ROUND: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest as _;

    #[test]
    fn pairs_are_hashed_as_each_of_them() {
        let mut random = fastrand::Rng::with_seed(5);
        for blocks in [0, 1, 2, 3, 255, 256] {
            let [one, other] = [(); 2]
                .map(|()| (0..blocks * BLOCK_BYTES).map(|_| random.u8(..)).collect::<Vec<u8>>());
            let Some(pair) = sha256_pair([&one, &other]) else {
                println!("skipped: the processor has no SHA instructions");
                return;
            };
            let wanted: [[u8; 32]; 2] = [&one, &other].map(|it| sha2::Sha256::digest(it).into());
            assert_eq!(pair, wanted, "{blocks}");
        }
    }

    #[test]
    fn other_lengths_are_left_to_others() {
        assert_eq!(sha256_pair([&[0; 64], &[0; 128]]), None);
        assert_eq!(sha256_pair([&[0; 63], &[0; 63]]), None);
    }
}
