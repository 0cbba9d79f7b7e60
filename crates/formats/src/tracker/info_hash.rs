//! The identifier of a torrent.

use core::fmt;
use core::str::FromStr;

use crate::torrent::{InfoHashV1, InfoHashV2};

/// The identifier of a torrent as trackers have it: the SHA-1 of a v1 torrent's `info` dictionary
/// (BEP 3), or the first 20 bytes of a v2 torrent's SHA-256 (BEP 52).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InfoHash(pub [u8; 20]);

/// The text is not an info-hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an info-hash has 40 hexadecimal digits, or 64 (v2)")]
pub struct InfoHashError;

impl From<InfoHashV1> for InfoHash {
    fn from(hash: InfoHashV1) -> InfoHash {
        InfoHash(hash.0)
    }
}

impl From<InfoHashV2> for InfoHash {
    /// Cuts it to its first 20 bytes.
    fn from(hash: InfoHashV2) -> InfoHash {
        InfoHash(hash.truncated())
    }
}

impl fmt::Display for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for InfoHash {
    type Err = InfoHashError;

    /// Reads hexadecimal digits of any case. A v2 info-hash is cut to its first 20 bytes.
    fn from_str(text: &str) -> Result<InfoHash, InfoHashError> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex || !matches!(text.len(), 40 | 64) {
            return Err(InfoHashError);
        }
        let mut hash = [0; 20];
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digit = |at: usize| char::from(digits[at]).to_digit(16).unwrap_or(0) as u8;
            *byte = digit(0) << 4 | digit(1);
        }
        Ok(InfoHash(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_read_and_written() {
        let text = "0123456789abcdef0123456789abcdef01234567";
        let hash: InfoHash = text.to_uppercase().parse().unwrap();
        assert_eq!(hash.to_string(), text);
        assert_eq!(format!("{text}{}", "8".repeat(24)).parse(), Ok(hash));
        for wrong in ["", &text[1..], &format!("{text}0"), &format!("+{}", &text[1..]), "é"] {
            assert_eq!(wrong.parse::<InfoHash>(), Err(InfoHashError), "{wrong}");
        }
    }
}
