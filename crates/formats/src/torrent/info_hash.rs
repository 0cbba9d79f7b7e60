//! Info-hashes: the names by which peers and trackers know a torrent.

use std::fmt;
use std::str::FromStr;

use swath_model::digest::{Algorithm, Hasher};

/// The SHA-1 of an info dictionary (BEP 3), of a v1 or hybrid torrent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InfoHashV1(pub [u8; 20]);

/// The SHA-256 of an info dictionary (BEP 52), of a v2 or hybrid torrent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InfoHashV2(pub [u8; 32]);

/// An info-hash of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InfoHash {
    /// That of a v1 torrent.
    V1(InfoHashV1),
    /// That of a v2 torrent.
    V2(InfoHashV2),
}

impl InfoHashV1 {
    /// Returns the info-hash of an info dictionary, given as it stands in the metafile.
    pub fn of(info: &[u8]) -> InfoHashV1 {
        let mut hash = InfoHashV1([0; 20]);
        hash.0.copy_from_slice(Hasher::digest(Algorithm::Sha1, info).as_bytes());
        hash
    }
}

impl InfoHashV2 {
    /// Returns the info-hash of an info dictionary, given as it stands in the metafile.
    pub fn of(info: &[u8]) -> InfoHashV2 {
        let mut hash = InfoHashV2([0; 32]);
        hash.0.copy_from_slice(Hasher::digest(Algorithm::Sha256, info).as_bytes());
        hash
    }

    /// Returns the 20 bytes that stand for it in handshakes, in the DHT and at trackers.
    pub fn truncated(&self) -> [u8; 20] {
        let mut short = [0; 20];
        short.copy_from_slice(&self.0[..20]);
        short
    }
}

impl InfoHash {
    /// Returns the info-hash with these bytes, `None` for other lengths than 20 and 32.
    pub fn from_bytes(bytes: &[u8]) -> Option<InfoHash> {
        let v1 = bytes.try_into().map(|bytes| InfoHash::V1(InfoHashV1(bytes)));
        v1.or_else(|_| bytes.try_into().map(|bytes| InfoHash::V2(InfoHashV2(bytes)))).ok()
    }

    /// Returns its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            InfoHash::V1(hash) => &hash.0,
            InfoHash::V2(hash) => &hash.0,
        }
    }
}

impl fmt::Display for InfoHashV1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for InfoHashV2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(self.as_bytes(), f)
    }
}

impl fmt::Debug for InfoHashV1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InfoHashV1({self})")
    }
}

impl fmt::Debug for InfoHashV2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InfoHashV2({self})")
    }
}

impl FromStr for InfoHashV1 {
    type Err = InfoHashError;

    /// Parses 40 hexadecimal digits or 32 characters of base32 (RFC 4648), both of any case.
    fn from_str(text: &str) -> Result<InfoHashV1, InfoHashError> {
        decoded(text).map(InfoHashV1)
    }
}

impl FromStr for InfoHashV2 {
    type Err = InfoHashError;

    /// Parses 64 hexadecimal digits or 52 characters of base32 (RFC 4648), both of any case.
    fn from_str(text: &str) -> Result<InfoHashV2, InfoHashError> {
        decoded(text).map(InfoHashV2)
    }
}

/// Why a text is no info-hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InfoHashError {
    /// Neither the length in hexadecimal digits nor that in base32.
    #[error(
        "an info-hash has {hex} hexadecimal digits or {base32} characters of base32, not {found}"
    )]
    Length {
        /// Its length in hexadecimal digits.
        hex: usize,
        /// Its length in base32.
        base32: usize,
        /// The length found.
        found: usize,
    },
    /// A character that cannot stand there.
    #[error("character {0} cannot be part of an info-hash")]
    Character(usize),
}

fn decoded<const N: usize>(text: &str) -> Result<[u8; N], InfoHashError> {
    let (hex, base32) = (2 * N, (8 * N).div_ceil(5));
    let digit_bits = match text.len() {
        length if length == hex => 4,
        length if length == base32 => 5,
        found => return Err(InfoHashError::Length { hex, base32, found }),
    };
    let mut out = [0; N];
    let (mut waiting, mut waiting_bits, mut filled) = (0u32, 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        let value = if digit_bits == 4 { hex_value(byte) } else { base32_value(byte) };
        waiting = waiting << digit_bits | value.ok_or(InfoHashError::Character(at + 1))?;
        waiting_bits += digit_bits;
        if waiting_bits >= 8 && filled < N {
            waiting_bits -= 8;
            out[filled] = (waiting >> waiting_bits) as u8;
            filled += 1;
            waiting &= (1 << waiting_bits) - 1;
        }
    }
    // Bits behind the last byte would make two texts of one hash.
    if waiting == 0 { Ok(out) } else { Err(InfoHashError::Character(text.len())) }
}

fn hex_value(digit: u8) -> Option<u32> {
    char::from(digit).to_digit(16)
}

fn base32_value(digit: u8) -> Option<u32> {
    match digit.to_ascii_uppercase() {
        letter @ b'A'..=b'Z' => Some(u32::from(letter - b'A')),
        number @ b'2'..=b'7' => Some(u32::from(number - b'2') + 26),
        _ => None,
    }
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hex_and_base32_are_the_same_hash() {
        // The base32 is that of Python's base64 module.
        let hash: InfoHashV1 = "c9e15763f722f23e98a29decdfae341b98d53056".parse().unwrap();
        assert_eq!("ZHQVOY7XELZD5GFCTXWN7LRUDOMNKMCW".parse(), Ok(hash));
        assert_eq!("zhqvoy7xelzd5gfctxwn7lrudomnkmcw".parse(), Ok(hash));
        assert_eq!(hash.to_string(), "c9e15763f722f23e98a29decdfae341b98d53056");
        let long = InfoHashV2([0xff; 32]);
        assert_eq!(format!("{}Q", "7".repeat(51)).parse(), Ok(long));
        assert_eq!(long.truncated(), [0xff; 20]);
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, why) in [
            ("", "not 0"),
            ("c9e15763f722f23e98a29decdfae341b98d5305", "not 39"),
            ("x9e15763f722f23e98a29decdfae341b98d53056", "character 1 "),
            ("ZHQVOY7XELZD5GFCTXWN7LRUDOMNKMC1", "character 32 "),
            ("é9e15763f722f23e98a29decdfae341b98d5305", "character 1 "),
        ] {
            let error = text.parse::<InfoHashV1>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!("7".repeat(52).parse::<InfoHashV2>().is_err());
        assert_eq!(InfoHash::from_bytes(&[0; 21]), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes: [u8; 32]) {
            let hash = InfoHashV2(bytes);
            prop_assert_eq!(hash.to_string().parse(), Ok(hash));
            let short = InfoHashV1(hash.truncated());
            prop_assert_eq!(short.to_string().parse(), Ok(short));
            prop_assert_eq!(InfoHash::from_bytes(&bytes), Some(InfoHash::V2(hash)));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,70}") {
            let _ = (text.parse::<InfoHashV1>(), text.parse::<InfoHashV2>());
        }
    }
}
