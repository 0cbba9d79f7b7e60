//! What is meant for one relay of a route alone: sealed to its key, so that those before it pass on
//! what they cannot read, and bound to the address that it is for, so that it opens nothing else.
//!
//! HPKE (RFC 9180) in its base mode with X25519, HKDF-SHA-256 and AES-128-GCM. As text: the
//! encapsulated key and the ciphertext in base64url, a point between them. The clear text begins with
//! the time at which it was sealed, by the clock of the one who is to open it: it can be used for
//! [`LASTS_S`] seconds. The encapsulated key is another one each time, and so tells whether something is
//! used again ([`HpkeKey::spend`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_128 as SUITE;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke, HpkePrivateKey, HpkePublicKey};

/// The key of one relay.
pub struct HpkeKey {
    secret: HpkePrivateKey,
    public: String,
    /// What was used, and until when it could be used again otherwise.
    used: Mutex<HashMap<Vec<u8>, u64>>,
}

/// What was sealed.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    /// It.
    pub text: Vec<u8>,
    number: Vec<u8>,
    sealed_at_s: u64,
}

/// Why nothing can be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HpkeError {
    /// The key is none.
    #[error("what is said to be a relay's key is none")]
    Key,
    /// It was sealed for another key or another purpose, or is damaged.
    #[error(
        "what was sealed for this relay cannot be opened: it was sealed for another key, or for another address"
    )]
    Closed,
    /// It is too old, or was sealed for a time to come.
    #[error(
        "what was sealed for this relay was sealed too long ago, or the clocks of this relay and of its client differ"
    )]
    TooOld,
    /// It was used before.
    #[error("what was sealed for this relay has been used already")]
    Used,
    /// So much was used lately that no more can be told from what was.
    #[error("this relay has no room to note that what was sealed for it is used")]
    Full,
}

impl HpkeKey {
    /// Returns a new one.
    ///
    /// # Errors
    /// [`HpkeError::Key`] if the system has no randomness.
    pub fn new() -> Result<HpkeKey, HpkeError> {
        let (public, secret) = SUITE.generate_key_pair().map_err(|_| HpkeError::Key)?;
        let public = URL_SAFE_NO_PAD.encode(public.0);
        Ok(HpkeKey { secret, public, used: Mutex::default() })
    }

    /// Returns what others seal with.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// Opens what was sealed for this key and for `purpose`, at `now_s` seconds since 1970; `None` where its
    /// age does not matter.
    ///
    /// # Errors
    /// [`HpkeError::Closed`] and [`HpkeError::TooOld`].
    pub fn open(
        &self,
        sealed: &str,
        purpose: &str,
        now_s: Option<u64>,
    ) -> Result<Opened, HpkeError> {
        let closed = |_| HpkeError::Closed;
        let (enc, text) = sealed.split_once('.').ok_or(HpkeError::Closed)?;
        let enc = URL_SAFE_NO_PAD.decode(enc).map_err(|_| HpkeError::Closed)?;
        let text = URL_SAFE_NO_PAD.decode(text).map_err(|_| HpkeError::Closed)?;
        let enc = EncapsulatedSecret(enc);
        let clear = SUITE.open(&enc, INFO, purpose.as_bytes(), &text, &self.secret);
        let clear = clear.map_err(closed)?;
        let (time, text) = clear.split_first_chunk::<8>().ok_or(HpkeError::Closed)?;
        let sealed_at_s = u64::from_be_bytes(*time);
        if now_s.is_some_and(|now_s| now_s.abs_diff(sealed_at_s) > LASTS_S) {
            return Err(HpkeError::TooOld);
        }
        Ok(Opened { text: text.to_vec(), number: enc.0, sealed_at_s })
    }

    /// It is used now, and cannot be again.
    ///
    /// # Errors
    /// [`HpkeError::Used`] if it was before; [`HpkeError::Full`].
    pub fn spend(&self, opened: &Opened, now_s: u64) -> Result<(), HpkeError> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.contains_key(&opened.number) {
            return Err(HpkeError::Used);
        }
        if used.len() >= USED_MAX {
            used.retain(|_, until_s| *until_s >= now_s);
        }
        if used.len() >= USED_MAX {
            return Err(HpkeError::Full);
        }
        used.insert(opened.number.clone(), opened.sealed_at_s.saturating_add(LASTS_S));
        Ok(())
    }
}

impl fmt::Debug for HpkeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HpkeKey({})", self.public)
    }
}

/// Seals `text` for the relay with this public key and for `purpose`, at `now_s` seconds since 1970 by
/// its clock.
///
/// # Errors
/// [`HpkeError::Key`] if the key is none.
pub fn seal(public: &str, purpose: &str, text: &[u8], now_s: u64) -> Result<String, HpkeError> {
    let bytes = URL_SAFE_NO_PAD.decode(public).map_err(|_| HpkeError::Key)?;
    let key = HpkePublicKey(bytes);
    let clear = [&now_s.to_be_bytes()[..], text].concat();
    let sealed = SUITE.seal(INFO, purpose.as_bytes(), &clear, &key);
    let (enc, text) = sealed.map_err(|_| HpkeError::Key)?;
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
    /// Returns it as the purpose of [`seal`] and [`HpkeKey::open`].
    pub fn purpose(&self) -> String {
        match self {
            Pass::Read(asked) => format!("pass to read\n{asked}"),
            Pass::Tunnel(end) => format!("pass to tunnel\n{end}"),
        }
    }
}

/// What was sealed so many seconds ago is too old, and so is what was sealed so far in the future.
pub const LASTS_S: u64 = 120;
/// What was used within that time, in all.
const USED_MAX: usize = 1 << 20;
/// What a sealed text is in general; part of every key that is derived.
const INFO: &[u8] = b"swath relay 2";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_for_its_key_and_its_purpose_alone() {
        let (key, other) = (HpkeKey::new().unwrap(), HpkeKey::new().unwrap());
        let sealed = seal(key.public(), "https://a/f", b"Authorization: Bearer s", 1000).unwrap();
        assert_eq!(
            key.open(&sealed, "https://a/f", Some(1000)).unwrap().text,
            b"Authorization: Bearer s"
        );
        assert_eq!(other.open(&sealed, "https://a/f", Some(1000)), Err(HpkeError::Closed));
        assert_eq!(key.open(&sealed, "https://a/g", Some(1000)), Err(HpkeError::Closed));
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone().into_bytes();
            damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
            let damaged = String::from_utf8(damaged).unwrap();
            assert_eq!(
                key.open(&damaged, "https://a/f", Some(1000)),
                Err(HpkeError::Closed),
                "{at}"
            );
        }
        for nonsense in ["", ".", "a.b", "=.=", "a"] {
            assert_eq!(key.open(nonsense, "", Some(1000)), Err(HpkeError::Closed), "{nonsense}");
        }
        assert_eq!(seal("AAAA", "", b"", 0), Err(HpkeError::Key));
        assert!(!sealed.contains("Bearer") && !format!("{key:?}").contains("secret"));
    }

    /// Whoever passed a request on could repeat it as often as they liked, and for ever.
    #[test]
    fn what_was_sealed_can_be_used_once_and_for_a_while() {
        let key = HpkeKey::new().unwrap();
        let sealed = || seal(key.public(), "p", b"s", 1000).unwrap();
        let first = sealed();
        for late in [1000 - LASTS_S - 1, 1000 + LASTS_S + 1] {
            assert_eq!(key.open(&first, "p", Some(late)), Err(HpkeError::TooOld));
        }
        for now in [1000 - LASTS_S, 1000, 1000 + LASTS_S] {
            assert_eq!(key.open(&first, "p", Some(now)).unwrap().text, b"s");
        }
        let opened = key.open(&first, "p", Some(1000)).unwrap();
        assert_eq!(key.spend(&opened, 1000), Ok(()));
        let again = key.open(&first, "p", Some(1000)).unwrap();
        assert_eq!(key.spend(&again, 1000), Err(HpkeError::Used));
        let next = key.open(&sealed(), "p", Some(1000)).unwrap();
        assert_eq!(key.spend(&next, 1000), Ok(()));
    }
}
