//! Signatures: made, written, read and verified.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;

use super::key::{KeyError, KeyId, PublicKey, SecretKey};
use super::{BASE64, PLAIN, PREHASHED, TRUSTED, UNTRUSTED, comment, decoded, take};

/// A signature of a message and of a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// A remark that the signature does not cover.
    pub untrusted_comment: String,
    /// The number of the key that made it.
    pub key: KeyId,
    /// Whether it covers the BLAKE2b-512 of the message.
    is_prehashed: bool,
    signature: [u8; 64],
    /// A remark that the signature covers.
    trusted_comment: String,
    /// Covers `signature` and the trusted comment.
    of_comment: [u8; 64],
}

/// Why a text is no signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no minisign signature")]
pub struct SignatureError;

/// Why a signature proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Another key made it.
    #[error("it was made by the key {by}, not by {expected}")]
    OtherKey {
        /// The number of that key.
        by: KeyId,
        /// The number of the expected one.
        expected: KeyId,
    },
    /// The message is not the one that was signed.
    #[error("it does not match: the signed content was changed, or the signature was forged")]
    Message,
    /// The trusted comment is not the one that was signed.
    #[error("its trusted comment was changed")]
    Comment,
}

impl SecretKey {
    /// Signs a message. Control characters in the comment, apart from tabs, become blanks.
    ///
    /// # Errors
    /// [`KeyError::Damaged`], which does not happen to a key that was read or made.
    pub fn sign(&self, message: &[u8], comment: &str) -> Result<Signature, KeyError> {
        let pair = self.pair().ok_or(KeyError::Damaged)?;
        let sign = |bytes: &[u8]| -> Result<[u8; 64], KeyError> {
            pair.sign(bytes).as_ref().try_into().map_err(|_| KeyError::Damaged)
        };
        let in_line = |c: char| if c.is_control() && c != '\t' { ' ' } else { c };
        let trusted_comment: String = comment.chars().map(in_line).collect();
        let signature = sign(blake2b_simd::blake2b(message).as_bytes())?;
        Ok(Signature {
            untrusted_comment: "signature of swath".to_owned(),
            key: self.public().id,
            is_prehashed: true,
            signature,
            of_comment: sign(&[&signature[..], trusted_comment.as_bytes()].concat())?,
            trusted_comment,
        })
    }
}

impl PublicKey {
    /// Verifies the signature of a message, and returns the comment that it covers.
    ///
    /// # Errors
    /// [`VerifyError`].
    pub fn verify<'a>(
        &self,
        message: &[u8],
        signature: &'a Signature,
    ) -> Result<&'a str, VerifyError> {
        if signature.key != self.id {
            return Err(VerifyError::OtherKey { by: signature.key, expected: self.id });
        }
        let key = UnparsedPublicKey::new(&ED25519, &self.key);
        let hash = signature.is_prehashed.then(|| blake2b_simd::blake2b(message));
        let signed = hash.as_ref().map_or(message, |hash| hash.as_bytes());
        key.verify(signed, &signature.signature).map_err(|_| VerifyError::Message)?;
        let signed = [&signature.signature[..], signature.trusted_comment.as_bytes()].concat();
        key.verify(&signed, &signature.of_comment).map_err(|_| VerifyError::Comment)?;
        Ok(&signature.trusted_comment)
    }
}

impl Signature {
    /// Reads a signature file.
    ///
    /// # Errors
    /// [`SignatureError`].
    pub fn read(text: &str) -> Result<Signature, SignatureError> {
        Signature::parse(text).ok_or(SignatureError)
    }

    fn parse(text: &str) -> Option<Signature> {
        let mut lines = text.split('\n');
        let untrusted_comment = comment(&mut lines, UNTRUSTED)?.to_owned();
        let bytes: [u8; 2 + 8 + 64] = decoded(lines.next()?)?;
        let trusted_comment = comment(&mut lines, TRUSTED)?.to_owned();
        let of_comment = decoded(lines.next()?)?;
        if !lines.all(|line| line.trim_end().is_empty()) {
            return None;
        }
        let mut rest = &bytes[..];
        let is_prehashed = match take(&mut rest)? {
            PREHASHED => true,
            PLAIN => false,
            _ => return None,
        };
        let (key, signature) = (KeyId(take(&mut rest)?), take(&mut rest)?);
        Some(Signature {
            untrusted_comment,
            key,
            is_prehashed,
            signature,
            trusted_comment,
            of_comment,
        })
    }

    /// Returns the signature file.
    pub fn write(&self) -> String {
        let mark = if self.is_prehashed { PREHASHED } else { PLAIN };
        let signature = BASE64.encode([&mark[..], &self.key.0, &self.signature].concat());
        format!(
            "{UNTRUSTED}{}\n{signature}\n{TRUSTED}{}\n{}\n",
            self.untrusted_comment,
            self.trusted_comment,
            BASE64.encode(self.of_comment)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "RWRD3K94cDtC/mc1V38C5grinfTS9nf/mJEJ6Fo+Cl8cZsbdJa3SIKXM";
    /// Made by `minisign -S` (0.11) of the message `hi\n`.
    const PREHASHED: &str = "untrusted comment: signature from minisign secret key\n\
        RURD3K94cDtC/nNiXBMZ+uLcd/mJMzaxv2iXj5pQXwPeq6W0LJdXXIYpSHLWBVSh4lJCPBnos+Yw1TgCwEI7gkY+4LWC\
        zyU2GQM=\n\
        trusted comment: timestamp:1795704282\tfile:f\thashed\n\
        vlwT3o9ELnTN8cEH7fkorpJo91nxl8CZPKs16Uk9PGfq+GeDOrtWwvYcHHwm0xRgns4Kq8cQva7Zt4jfxX6NBQ==\n";
    /// The same by `minisign -S -l`.
    const LEGACY: &str = "untrusted comment: signature from minisign secret key\n\
        RWRD3K94cDtC/rW9O7N+bHcmOsbVsxOnw9tvD9k7lc+UUYTA1jVF7X6ZhhZxpI/+AFGWE681Ez0xJPjmHRpExTghpbOz\
        aJsxYA8=\n\
        trusted comment: timestamp:1795704282\tfile:f\n\
        5u6ppJ4Wh5budhBT/elUvjnQijHTKljMqHFDqnjZx/vv84Mberm2rGYmu+U+lLuzZOIu7vI9zaI4EkBncb0bBA==\n";

    #[test]
    fn signatures_of_minisign_are_verified() {
        let key = PublicKey::read(KEY).unwrap();
        for (text, comment) in [
            (PREHASHED, "timestamp:1795704282\tfile:f\thashed"),
            (LEGACY, "timestamp:1795704282\tfile:f"),
        ] {
            let signature = Signature::read(text).unwrap();
            assert_eq!(signature.write(), text);
            assert_eq!(key.verify(b"hi\n", &signature), Ok(comment));
            assert_eq!(key.verify(b"hj\n", &signature), Err(VerifyError::Message));
            let other = Signature::read(&text.replace("file:f", "file:g")).unwrap();
            assert_eq!(key.verify(b"hi\n", &other), Err(VerifyError::Comment));
            assert_eq!(Signature::read(&text.replace('\n', "\r\n")), Ok(signature));
        }
        let swapped = PREHASHED.replace("RURD", "RWRD");
        let swapped = Signature::read(&swapped).unwrap();
        assert_eq!(key.verify(b"hi\n", &swapped), Err(VerifyError::Message));
    }

    #[test]
    fn what_is_signed_is_verified() {
        let secret = SecretKey::from_random(&[9; 40]).unwrap();
        let signature = secret.sign(b"message", "a\tb\nuntrusted").unwrap();
        let read = Signature::read(&signature.write()).unwrap();
        assert_eq!(secret.public().verify(b"message", &read), Ok("a\tb untrusted"));
        assert_eq!(secret.public().verify(b"", &read), Err(VerifyError::Message));
        let other = SecretKey::from_random(&[8; 40]).unwrap();
        let error = other.public().verify(b"message", &read).unwrap_err();
        assert!(matches!(error, VerifyError::OtherKey { .. }), "{error}");
        // The same number, but another key.
        let forged = PublicKey { key: other.public().key, ..secret.public().clone() };
        assert_eq!(forged.verify(b"message", &read), Err(VerifyError::Message));
    }

    #[test]
    fn other_texts_are_refused() {
        let cut = |end: usize| &PREHASHED[..end];
        for text in ["", "x\n", cut(60), cut(160), cut(PREHASHED.len() - 10), &PREHASHED[1..]] {
            assert_eq!(Signature::read(text), Err(SignatureError), "{text:?}");
        }
        for (from, to) in [("RURD", "RVRD"), ("RURD", ""), ("BQ==", "BQ=="), ("vlwT", "vl")] {
            let text = PREHASHED.replace(from, to) + "more\n";
            assert_eq!(Signature::read(&text), Err(SignatureError), "{text:?}");
        }
    }
}
