//! One digest: an algorithm and its bytes, written `sha-256:HEX`.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

use super::algorithm::{Algorithm, UnknownAlgorithm};

/// A digest of known algorithm. Always as long as its algorithm requires.
///
/// Small and `Copy`; the bytes past the length are zero, so that derived comparison is right.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest {
    algorithm: Algorithm,
    bytes: [u8; DIGEST_BYTES_MAX],
}

impl Digest {
    /// Returns a digest from its bytes.
    ///
    /// # Errors
    /// [`DigestError::Length`] unless the number of bytes fits the algorithm.
    pub fn new(algorithm: Algorithm, bytes: &[u8]) -> Result<Digest, DigestError> {
        if bytes.len() != algorithm.digest_bytes() {
            return Err(DigestError::Length {
                algorithm,
                expected_bytes: algorithm.digest_bytes(),
                actual_bytes: bytes.len(),
            });
        }
        let mut own = [0; DIGEST_BYTES_MAX];
        own[..bytes.len()].copy_from_slice(bytes);
        Ok(Digest { algorithm, bytes: own })
    }

    /// Returns a digest from hexadecimal digits of any case.
    ///
    /// Adler-32 and CRC-32C may be short: grid storage drops their leading zeros.
    ///
    /// # Errors
    /// [`DigestError`] for any other length, and for characters that are not digits.
    pub fn from_hex(algorithm: Algorithm, hex: &str) -> Result<Digest, DigestError> {
        let hex = hex.trim();
        let expected_digits = algorithm.digest_bytes() * 2;
        if let Some((position, found)) = hex.char_indices().find(|(_, c)| !c.is_ascii_hexdigit()) {
            return Err(DigestError::NotHex { algorithm, position, found });
        }
        let short_is_fine = !algorithm.is_cryptographic() && !hex.is_empty();
        let padding_digits = match expected_digits.checked_sub(hex.len()) {
            Some(0) => 0,
            Some(missing) if short_is_fine => missing,
            _ => {
                let actual_digits = hex.len();
                return Err(DigestError::HexLength { algorithm, expected_digits, actual_digits });
            }
        };
        let mut bytes = [0; DIGEST_BYTES_MAX];
        for (at, digit) in hex.chars().enumerate() {
            let value = digit.to_digit(16).unwrap_or(0) as u8;
            let at = at + padding_digits;
            bytes[at / 2] |= if at % 2 == 0 { value << 4 } else { value };
        }
        Ok(Digest { algorithm, bytes })
    }

    /// Returns a digest from base64, as in HTTP headers; accepts the URL-safe alphabet and missing
    /// padding.
    ///
    /// # Errors
    /// [`DigestError`] if it is not base64, or decodes to another length.
    pub fn from_base64(algorithm: Algorithm, text: &str) -> Result<Digest, DigestError> {
        let text = text.trim();
        // Checked before decoding, which allocates.
        if text.len() > DIGEST_BYTES_MAX * 2 {
            return Err(DigestError::NotBase64 { algorithm });
        }
        let engine = if text.contains(['-', '_']) { &BASE64_URL } else { &BASE64 };
        match engine.decode(text) {
            Ok(bytes) => Digest::new(algorithm, &bytes),
            Err(_) => Err(DigestError::NotBase64 { algorithm }),
        }
    }

    /// Returns its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns its bytes, [`Algorithm::digest_bytes`] of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.digest_bytes()]
    }

    /// Returns lower-case hexadecimal digits, without the algorithm.
    pub fn to_hex(&self) -> String {
        let mut hex = String::with_capacity(self.algorithm.digest_bytes() * 2);
        for byte in self.as_bytes() {
            for nibble in [byte >> 4, byte & 15] {
                hex.push(char::from_digit(nibble.into(), 16).unwrap_or('0'));
            }
        }
        hex
    }

    /// Returns padded standard base64, without the algorithm.
    pub fn to_base64(&self) -> String {
        BASE64.encode(self.as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses `ALGORITHM:HEX`; accepts `=` for the colon, as in aria2's `--checksum`.
impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Digest, DigestError> {
        let (name, hex) = text.split_once([':', '=']).ok_or(DigestError::NoAlgorithm)?;
        Digest::from_hex(name.parse()?, hex)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Digest, DigestError> {
        text.parse()
    }
}

/// Why a text or bytes are not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// There is no `:` between algorithm and digits.
    #[error("a digest is written ALGORITHM:HEX, for example sha-256:2cf24dba…; the ':' is missing")]
    NoAlgorithm,
    /// The algorithm is unknown.
    #[error(transparent)]
    Algorithm(#[from] UnknownAlgorithm),
    /// The number of hexadecimal digits is wrong.
    #[error(
        "a {algorithm} digest has {expected_digits} hexadecimal digits, this has {actual_digits}"
    )]
    HexLength {
        /// The algorithm named.
        algorithm: Algorithm,
        /// Digits that it needs.
        expected_digits: usize,
        /// Digits that there are.
        actual_digits: usize,
    },
    /// The number of bytes is wrong.
    #[error("a {algorithm} digest has {expected_bytes} bytes, this has {actual_bytes}")]
    Length {
        /// The algorithm named.
        algorithm: Algorithm,
        /// Bytes that it needs.
        expected_bytes: usize,
        /// Bytes that there are.
        actual_bytes: usize,
    },
    /// A character is not a hexadecimal digit.
    #[error("{found:?} at position {position} of the {algorithm} digest is no hexadecimal digit")]
    NotHex {
        /// The algorithm named.
        algorithm: Algorithm,
        /// Its position in bytes, from the first digit.
        position: usize,
        /// The character.
        found: char,
    },
    /// The text is not base64.
    #[error("the {algorithm} digest is not valid base64")]
    NotBase64 {
        /// The algorithm named.
        algorithm: Algorithm,
    },
}

/// SHA-512 is the longest.
const DIGEST_BYTES_MAX: usize = 64;

/// Servers drop the padding, and some leave stray bits in the last character.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HELLO: &str = "sha-256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn hex_of_any_case_is_read() {
        let digest: Digest = HELLO.parse().unwrap();
        assert_eq!(digest.to_string(), HELLO);
        assert_eq!(HELLO.to_uppercase().parse(), Ok(digest));
        assert_eq!(HELLO.replace(':', "=").parse(), Ok(digest));
        assert_eq!(digest.algorithm(), Algorithm::Sha256);
    }

    #[test]
    fn base64_of_any_alphabet_is_read() {
        let digest: Digest = HELLO.parse().unwrap();
        let text = digest.to_base64();
        assert_eq!(text, "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=");
        for text in [text.clone(), text.replace('+', "-"), text.replace('=', "")] {
            assert_eq!(Digest::from_base64(Algorithm::Sha256, &text), Ok(digest));
        }
        assert!(Digest::from_base64(Algorithm::Sha512, &text).is_err());
        assert!(Digest::from_base64(Algorithm::Sha256, "*").is_err());
    }

    #[test]
    fn a_wrong_length_says_what_was_expected() {
        let error = "sha-256:2cf2".parse::<Digest>().unwrap_err();
        assert_eq!(error.to_string(), "a sha-256 digest has 64 hexadecimal digits, this has 4");
        assert!("2cf2".parse::<Digest>().unwrap_err().to_string().contains("ALGORITHM:HEX"));
        let error = "md5:zz".parse::<Digest>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "'z' at position 0 of the md5 digest is no hexadecimal digit"
        );
        assert!("md5:é".parse::<Digest>().is_err());
    }

    #[test]
    fn a_checksum_without_leading_zeros_is_read() {
        let digest: Digest = "adler32:2ff01".parse().unwrap();
        assert_eq!(digest.to_hex(), "0002ff01");
        assert!("adler32:".parse::<Digest>().is_err());
        assert!("adler32:123456789".parse::<Digest>().is_err());
    }

    proptest! {
        #[test]
        fn writing_and_reading_agree(which in 0..7usize, bytes: [[u8; 32]; 2]) {
            let algorithm = Algorithm::ALL[which];
            let bytes = bytes.concat();
            let digest = Digest::new(algorithm, &bytes[..algorithm.digest_bytes()]).unwrap();
            prop_assert_eq!(digest.to_string().parse(), Ok(digest));
            prop_assert_eq!(Digest::from_base64(algorithm, &digest.to_base64()), Ok(digest));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Digest>();
            for algorithm in Algorithm::ALL {
                let _ = Digest::from_hex(algorithm, &text);
                let _ = Digest::from_base64(algorithm, &text);
            }
        }
    }
}
