//! SHA-1 of streams, two of which can be hashed at once: about half as fast again as one after the
//! other, for the pieces of a torrent.

use sha1::block_api::compress;

use super::sha_pair::sha1_compress_pair;

/// Computes the SHA-1 of bytes given front to back.
#[derive(Clone, Debug)]
pub struct Sha1 {
    state: [u32; 5],
    bytes: u64,
    /// The last bytes, which are not a whole block yet.
    rest: [u8; BLOCK_BYTES],
}

impl Sha1 {
    /// Returns a stream without bytes.
    pub fn new() -> Sha1 {
        Sha1 { state: INITIAL, bytes: 0, rest: [0; BLOCK_BYTES] }
    }

    /// Hashes the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let filled = (self.bytes % BLOCK_BYTES as u64) as usize;
        self.bytes += bytes.len() as u64;
        if filled > 0 {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - filled));
            self.rest[filled..filled + now.len()].copy_from_slice(now);
            if filled + now.len() < BLOCK_BYTES {
                return;
            }
            compress(&mut self.state, &[self.rest]);
            bytes = later;
        }
        let (blocks, rest) = bytes.as_chunks();
        compress(&mut self.state, blocks);
        self.rest[..rest.len()].copy_from_slice(rest);
    }

    /// Hashes the next bytes of two streams.
    pub fn update_pair(pair: [&mut Sha1; 2], bytes: [&[u8]; 2]) {
        let [one, other] = pair;
        let is_whole = |stream: &Sha1| stream.bytes.is_multiple_of(BLOCK_BYTES as u64);
        let both = match is_whole(one) && is_whole(other) {
            true => bytes[0].len().min(bytes[1].len()) / BLOCK_BYTES * BLOCK_BYTES,
            false => 0,
        };
        let [(one_now, one_later), (other_now, other_later)] = bytes.map(|it| it.split_at(both));
        let blocks = [one_now, other_now].map(|now| now.as_chunks().0);
        if sha1_compress_pair([&mut one.state, &mut other.state], blocks) {
            one.bytes += both as u64;
            other.bytes += both as u64;
        } else {
            one.update(one_now);
            other.update(other_now);
        }
        one.update(one_later);
        other.update(other_later);
    }

    /// Returns the digest of all bytes so far. The stream may go on.
    pub fn finish(&self) -> [u8; 20] {
        let filled = (self.bytes % BLOCK_BYTES as u64) as usize;
        let mut end = [[0; BLOCK_BYTES]; 2];
        end[0][..filled].copy_from_slice(&self.rest[..filled]);
        end[0][filled] = 0x80;
        // The length in bits has the last eight bytes.
        let blocks = if filled < BLOCK_BYTES - 8 { 1 } else { 2 };
        end[blocks - 1][BLOCK_BYTES - 8..].copy_from_slice(&(8 * self.bytes).to_be_bytes());
        let mut state = self.state;
        compress(&mut state, &end[..blocks]);
        let mut digest = [0; 20];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        digest
    }
}

impl Default for Sha1 {
    fn default() -> Sha1 {
        Sha1::new()
    }
}

const BLOCK_BYTES: usize = 64;
/// The first state (FIPS 180-4, section 5.3.1).
const INITIAL: [u32; 5] = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha1::Digest as _;

    fn wanted(bytes: &[u8]) -> [u8; 20] {
        sha1::Sha1::digest(bytes).into()
    }

    proptest! {
        #[test]
        fn streams_are_hashed_alike_alone_and_in_pairs(
            one in prop::collection::vec(any::<u8>(), 0..700),
            other in prop::collection::vec(any::<u8>(), 0..700),
            cuts in prop::collection::vec((0usize..300, 0usize..300), 0..6),
        ) {
            let mut pair = [Sha1::new(), Sha1::new()];
            let mut alone = Sha1::new();
            let (mut one_left, mut other_left) = (&one[..], &other[..]);
            for (one_cut, other_cut) in cuts {
                let (one_now, one_later) = one_left.split_at(one_cut.min(one_left.len()));
                let (other_now, other_later) = other_left.split_at(other_cut.min(other_left.len()));
                let [first, second] = &mut pair;
                Sha1::update_pair([first, second], [one_now, other_now]);
                alone.update(one_now);
                prop_assert_eq!(first.finish(), alone.finish());
                (one_left, other_left) = (one_later, other_later);
            }
            let [mut first, mut second] = pair;
            Sha1::update_pair([&mut first, &mut second], [one_left, other_left]);
            prop_assert_eq!(first.finish(), wanted(&one));
            prop_assert_eq!(second.finish(), wanted(&other));
        }
    }

    #[test]
    fn every_length_of_the_last_block_is_right() {
        let bytes = [7; 300];
        for length in 0..bytes.len() {
            let mut stream = Sha1::new();
            stream.update(&bytes[..length]);
            assert_eq!(stream.finish(), wanted(&bytes[..length]), "{length}");
        }
    }
}
