//! What is meant for one relay of a route alone: sealed to its key, so that those before it pass on
//! what they cannot read, and bound to the address that it is for, so that it opens nothing else.
//!
//! HPKE (RFC 9180) in its base mode with X25519, HKDF-SHA-256 and AES-128-GCM. As text: the
//! encapsulated key and the ciphertext in base64url, a point between them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_128 as SUITE;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke, HpkePrivateKey, HpkePublicKey};

/// The key of one relay.
pub struct SealingKey {
    secret: HpkePrivateKey,
    public: String,
}

/// Why nothing can be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealingError {
    /// The key is none.
    #[error("what is said to be a relay's key is none")]
    Key,
    /// It was sealed for another key or another purpose, or is damaged.
    #[error(
        "what was sealed for this relay cannot be opened: it was sealed for another key, or for another address"
    )]
    Closed,
}

impl SealingKey {
    /// A new one.
    ///
    /// # Errors
    /// [`SealingError::Key`] if the system has no randomness.
    pub fn new() -> Result<SealingKey, SealingError> {
        let (public, secret) = SUITE.generate_key_pair().map_err(|_| SealingError::Key)?;
        Ok(SealingKey { secret, public: URL_SAFE_NO_PAD.encode(public.0) })
    }

    /// What others seal with.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// Open what was sealed for this key and for `purpose`.
    ///
    /// # Errors
    /// [`SealingError::Closed`].
    pub fn open(&self, sealed: &str, purpose: &str) -> Result<Vec<u8>, SealingError> {
        let closed = |_| SealingError::Closed;
        let (enc, text) = sealed.split_once('.').ok_or(SealingError::Closed)?;
        let enc = URL_SAFE_NO_PAD.decode(enc).map_err(|_| SealingError::Closed)?;
        let text = URL_SAFE_NO_PAD.decode(text).map_err(|_| SealingError::Closed)?;
        let enc = EncapsulatedSecret(enc);
        SUITE.open(&enc, INFO, purpose.as_bytes(), &text, &self.secret).map_err(closed)
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({})", self.public)
    }
}

/// Seal `text` for the relay with this public key and for `purpose`.
///
/// # Errors
/// [`SealingError::Key`] if the key is none.
pub fn seal(public: &str, purpose: &str, text: &[u8]) -> Result<String, SealingError> {
    let bytes = URL_SAFE_NO_PAD.decode(public).map_err(|_| SealingError::Key)?;
    let key = HpkePublicKey(bytes);
    let sealed = SUITE.seal(INFO, purpose.as_bytes(), text, &key);
    let (enc, text) = sealed.map_err(|_| SealingError::Key)?;
    Ok(format!("{}.{}", URL_SAFE_NO_PAD.encode(enc.0), URL_SAFE_NO_PAD.encode(text)))
}

/// What a token for a relay is sealed for: one thing that the relay is asked to do, so that whoever
/// passes the token on cannot use it for anything else. (What opens an origin is sealed for the
/// address that is asked.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass<'a> {
    /// To read this: the address that the relay is to ask, or a path of its own.
    Read(&'a str),
    /// To open a tunnel to this host and port.
    Tunnel(&'a str),
}

impl Pass<'_> {
    /// Returns it as the purpose of [`seal`] and [`SealingKey::open`].
    pub fn purpose(&self) -> String {
        match self {
            Pass::Read(asked) => format!("pass to read\n{asked}"),
            Pass::Tunnel(end) => format!("pass to tunnel\n{end}"),
        }
    }
}

/// What a sealed text is in general; part of every key that is derived.
const INFO: &[u8] = b"swath relay 1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_for_its_key_and_its_purpose_alone() {
        let (key, other) = (SealingKey::new().unwrap(), SealingKey::new().unwrap());
        let sealed = seal(key.public(), "https://a/f", b"Authorization: Bearer s").unwrap();
        assert_eq!(key.open(&sealed, "https://a/f").unwrap(), b"Authorization: Bearer s");
        assert_eq!(other.open(&sealed, "https://a/f"), Err(SealingError::Closed));
        assert_eq!(key.open(&sealed, "https://a/g"), Err(SealingError::Closed));
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone().into_bytes();
            damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
            let damaged = String::from_utf8(damaged).unwrap();
            assert_eq!(key.open(&damaged, "https://a/f"), Err(SealingError::Closed), "{at}");
        }
        for nonsense in ["", ".", "a.b", "=.=", "a"] {
            assert_eq!(key.open(nonsense, ""), Err(SealingError::Closed), "{nonsense}");
        }
        assert_eq!(seal("AAAA", "", b""), Err(SealingError::Key));
        assert!(!sealed.contains("Bearer") && !format!("{key:?}").contains("secret"));
    }
}
