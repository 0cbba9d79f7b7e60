//! The keys of an issuer: a JWK set (RFC 7517), checked and bounded.
//!
//! Only keys for signatures that anybody can check are taken: RSA, the curves P-256 and P-384, and
//! Ed25519. Others in the set are left out, so that a new kind of key shuts nobody out.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde::Deserialize;

/// The keys with which an issuer signs.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    id: Option<String>,
    algorithms: &'static [Algorithm],
    key: DecodingKey,
}

/// Why a document has no keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// It is no JWK set.
    #[error("this is no set of keys: {0}")]
    Form(#[from] serde_json::Error),
    /// It is longer than any set should be.
    #[error("the set of keys is too long")]
    TooLong,
    /// No key in it is of use.
    #[error("there is no RSA, P-256, P-384 or Ed25519 key for signatures in it")]
    Empty,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<serde_json::Value>,
}

impl KeySet {
    /// Reads a JWK set.
    ///
    /// # Errors
    /// [`KeysError`] if there is no key of use in it.
    pub fn read(json: &[u8]) -> Result<KeySet, KeysError> {
        if json.len() > KEYS_BYTES_MAX {
            return Err(KeysError::TooLong);
        }
        let document: Document = serde_json::from_slice(json)?;
        let keys: Vec<Key> = document.keys.into_iter().filter_map(key).take(KEYS_MAX).collect();
        if keys.is_empty() { Err(KeysError::Empty) } else { Ok(KeySet { keys }) }
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Whether a token that names this key could be checked.
    pub(super) fn has(&self, id: Option<&str>) -> bool {
        self.candidates(id).next().is_some()
    }

    /// Whether one of the keys that are meant by `id` has signed `message`.
    pub(super) fn have_signed(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        message: &str,
        signature: &str,
    ) -> bool {
        let fit = self.candidates(id).filter(|key| key.algorithms.contains(&algorithm));
        let mut fit = fit.take(TRIED_MAX);
        fit.any(|key| {
            crypto::verify(signature, message.as_bytes(), &key.key, algorithm).unwrap_or(false)
        })
    }

    fn candidates(&self, id: Option<&str>) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(move |key| id.is_none() || key.id.as_deref() == id)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({:?}, {:?})", self.id, self.algorithms)
    }
}

fn key(value: serde_json::Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    if jwk.common.public_key_use.as_ref().is_some_and(|is| *is != PublicKeyUse::Signature) {
        return None;
    }
    let fit: &'static [Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &RSA,
        AlgorithmParameters::EllipticCurve(about) => match about.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(about) if about.curve == EllipticCurve::Ed25519 => {
            &[Algorithm::EdDSA]
        }
        // A shared secret among them: whoever has the set of keys could sign.
        _ => return None,
    };
    let algorithms = match jwk.common.key_algorithm {
        None => fit,
        Some(only) => {
            let only = Algorithm::try_from(only).ok()?;
            let at = fit.iter().position(|algorithm| *algorithm == only)?;
            &fit[at..=at]
        }
    };
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    Some(Key { id: jwk.common.key_id, algorithms, key })
}

/// What RSA keys sign with.
const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];
/// The sets of the WLCG's issuers have a few kilobytes, with certificates some ten.
pub(crate) const KEYS_BYTES_MAX: usize = 256 << 10;
/// More keys of one issuer are left out.
const KEYS_MAX: usize = 64;
/// A token that does not name its key is checked with so many: each costs some 50 microseconds.
const TRIED_MAX: usize = 4;
