//! The digest algorithms that swath computes, and the spellings of their names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A digest algorithm, ordered by strength, weakest first, so that `digests.max()` is the one to
/// trust.
///
/// SHA-512 stands above BLAKE3 and SHA-256 for its length; no practical attack is known against any
/// of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Algorithm {
    /// Adler-32 (RFC 1950): the traditional checksum of grid storage. Weak on short files.
    Adler32,
    /// CRC-32C (RFC 9260, Castagnoli).
    Crc32c,
    /// MD5 (RFC 1321): no protection against malice, good against accidents.
    Md5,
    /// SHA-1 (RFC 3174): no protection against malice, good against accidents.
    Sha1,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// BLAKE3, 256 bits, unkeyed.
    Blake3,
    /// SHA-512 (FIPS 180-4).
    Sha512,
}

impl Algorithm {
    /// All algorithms, weakest first.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::Adler32,
        Algorithm::Crc32c,
        Algorithm::Md5,
        Algorithm::Sha1,
        Algorithm::Sha256,
        Algorithm::Blake3,
        Algorithm::Sha512,
    ];

    /// Returns the canonical name, as in the IANA hash registry and Metalink.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Adler32 => "adler32",
            Algorithm::Crc32c => "crc32c",
            Algorithm::Md5 => "md5",
            Algorithm::Sha1 => "sha-1",
            Algorithm::Sha256 => "sha-256",
            Algorithm::Blake3 => "blake3",
            Algorithm::Sha512 => "sha-512",
        }
    }

    /// Returns the length of a digest in bytes.
    pub const fn digest_bytes(self) -> usize {
        match self {
            Algorithm::Adler32 | Algorithm::Crc32c => 4,
            Algorithm::Md5 => 16,
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 | Algorithm::Blake3 => 32,
            Algorithm::Sha512 => 64,
        }
    }

    /// Returns whether it was designed to withstand malice: all but the checksums. A match then
    /// rules out every accident.
    pub const fn is_cryptographic(self) -> bool {
        !matches!(self, Algorithm::Adler32 | Algorithm::Crc32c)
    }

    /// Returns whether no way to forge a second content is known: SHA-256, SHA-512 and BLAKE3.
    pub const fn resists_malice(self) -> bool {
        matches!(self, Algorithm::Sha256 | Algorithm::Sha512 | Algorithm::Blake3)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown algorithm name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown digest algorithm '{0}' (known: sha-256, sha-512, blake3, sha-1, md5, crc32c, adler32)"
)]
pub struct UnknownAlgorithm(pub String);

/// Parses a name leniently: in any case, and with or without `-` and `_`, so that `sha-256`,
/// `SHA256` and `sha_256` are equal. A bare `sha` is SHA-1, as in RFC 3230.
impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let name = name.trim();
        // The longest spelling is "sha-512"; a little slack for doubled separators.
        let plain: String = name
            .chars()
            .take(NAME_CHARS_MAX + 1)
            .filter(|c| !matches!(c, '-' | '_'))
            .map(|c| c.to_ascii_lowercase())
            .collect();
        match plain.as_str() {
            "adler32" | "adler" | "ad" => Ok(Algorithm::Adler32),
            "crc32c" => Ok(Algorithm::Crc32c),
            "md5" => Ok(Algorithm::Md5),
            "sha1" | "sha" => Ok(Algorithm::Sha1),
            "sha256" => Ok(Algorithm::Sha256),
            "sha512" => Ok(Algorithm::Sha512),
            "blake3" | "b3" => Ok(Algorithm::Blake3),
            _ => {
                let shown: String =
                    name.chars().take(NAME_CHARS_MAX).flat_map(char::escape_debug).collect();
                Err(UnknownAlgorithm(shown))
            }
        }
    }
}

impl From<Algorithm> for String {
    fn from(algorithm: Algorithm) -> String {
        algorithm.name().to_owned()
    }
}

impl TryFrom<String> for Algorithm {
    type Error = UnknownAlgorithm;

    fn try_from(name: String) -> Result<Algorithm, UnknownAlgorithm> {
        name.parse()
    }
}

/// Longest name shown; a longer one is cut, as it may come from a network.
const NAME_CHARS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_understood() {
        for (name, algorithm) in [
            ("sha-256", Algorithm::Sha256),
            ("sha256", Algorithm::Sha256),
            ("SHA-256", Algorithm::Sha256),
            ("SHA_256", Algorithm::Sha256),
            (" Sha-512 ", Algorithm::Sha512),
            ("SHA", Algorithm::Sha1),
            ("sha1", Algorithm::Sha1),
            ("MD5", Algorithm::Md5),
            ("ADLER32", Algorithm::Adler32),
            ("adler-32", Algorithm::Adler32),
            ("BLAKE3", Algorithm::Blake3),
            ("crc32C", Algorithm::Crc32c),
        ] {
            assert_eq!(name.parse(), Ok(algorithm), "{name}");
        }
    }

    #[test]
    fn display_parses_back_and_orders_by_strength() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert!(Algorithm::ALL.is_sorted());
        assert!(Algorithm::Sha256 > Algorithm::Sha1 && Algorithm::Md5 > Algorithm::Adler32);
        assert!(!Algorithm::Adler32.is_cryptographic() && Algorithm::Md5.is_cryptographic());
        assert!(!Algorithm::Md5.resists_malice());
    }

    #[test]
    fn unknown_names_are_refused_with_words() {
        assert!("sha-224".parse::<Algorithm>().unwrap_err().to_string().contains("'sha-224'"));
        assert!("".parse::<Algorithm>().is_err());
        let long = "x".repeat(10_000).parse::<Algorithm>().unwrap_err();
        assert!(long.to_string().len() < 200);
    }
}
