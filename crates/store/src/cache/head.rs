//! The head of a cached file: its address, validator and size.
//!
//! Magic (16 bytes), the BLAKE3 of all that follows (32), nonce (32), size (`u64`), then address
//! and validator, each with its length (`u32`), then zeros up to a block. Integers are
//! little-endian. A journal's frames would take more code for this one record, which is written
//! once.

use crate::hashed_file::{Layout, blocks};
use crate::journal::{Bytes, put_u64};

/// What identifies a cached file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Unique for each file. It masks the group hashes in the file, so that remains of another file
    /// on the disk fit none of them.
    pub(crate) nonce: [u8; 32],
    pub(crate) size_bytes: u64,
    pub(crate) url: String,
    pub(crate) validator: String,
}

impl Head {
    /// Returns where things lie in its file.
    pub(crate) fn layout(&self) -> Layout {
        let texts_bytes = (self.url.len() + self.validator.len()) as u64;
        Layout { head_bytes: blocks(FIXED_BYTES + texts_bytes), size_bytes: self.size_bytes }
    }

    /// Returns whether such a file can exist: nothing is empty or too large.
    pub(crate) fn is_possible(&self) -> bool {
        let texts_bytes = (self.url.len() + self.validator.len()) as u64;
        texts_bytes <= TEXTS_BYTES_MAX && (1..=SIZE_BYTES_MAX).contains(&self.size_bytes)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[0; 32]);
        bytes.extend_from_slice(&self.nonce);
        put_u64(&mut bytes, self.size_bytes);
        for text in [&self.url, &self.validator] {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.resize(self.layout().head_bytes as usize, 0);
        let sum = blake3::hash(&bytes[SUMMED_FROM..]);
        bytes[16..SUMMED_FROM].copy_from_slice(sum.as_bytes());
        bytes
    }

    /// Decodes the head at the beginning of a file; `None` if it is invalid or incomplete.
    pub(crate) fn decode(file: &[u8]) -> Option<Head> {
        let mut bytes = Bytes(file.strip_prefix(MAGIC)?.get(32..)?);
        let (nonce, size_bytes) = (bytes.array()?, bytes.u64()?);
        let (url, validator) = (bytes.text()?, bytes.text()?);
        let head = Head { nonce, size_bytes, url, validator };
        // There is only one encoding, sum and zeros included.
        (head.is_possible() && file.starts_with(&head.encode())).then_some(head)
    }
}

/// Name and version; another version of the format has another magic.
const MAGIC: &[u8; 16] = b"swath cache 1  \n";
const SUMMED_FROM: usize = 48;
/// All fields but the texts.
const FIXED_BYTES: u64 = SUMMED_FROM as u64 + 32 + 8 + 2 * 4;
/// Most bytes of address and validator; files with longer ones are not cached.
const TEXTS_BYTES_MAX: u64 = 16 << 10;
/// Larger than every disk, and small enough that sums do not overflow.
const SIZE_BYTES_MAX: u64 = 1 << 60;
/// Longest possible head.
pub(crate) const HEAD_BYTES_MAX: u64 = 5 * 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn head(url: &str) -> Head {
        let (url, validator) = (url.to_owned(), "\"v1\"".to_owned());
        Head { nonce: [7; 32], size_bytes: 12_345_678_901, url, validator }
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_not_otherwise() {
        for url in ["http://a/f", &"http://b/".repeat(1700)] {
            let head = head(url);
            let bytes = head.encode();
            assert_eq!(bytes.len() as u64, head.layout().head_bytes);
            assert!(bytes.len() as u64 <= HEAD_BYTES_MAX);
            assert_eq!(Head::decode(&bytes), Some(head.clone()));
            assert_eq!(Head::decode(&[&bytes[..], b"the file's own"].concat()), Some(head));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 4;
                assert_eq!(Head::decode(&damaged), None, "byte {at}");
                if at % 97 == 0 {
                    assert_eq!(Head::decode(&bytes[..at]), None, "cut at {at}");
                }
            }
        }
        assert!(!head(&"x".repeat(20_000)).is_possible());
    }
}
