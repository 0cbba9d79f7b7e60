//! Public and secret keys.

use std::fmt;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use zeroize::Zeroizing;

use super::{BASE64, PLAIN, UNTRUSTED, comment, decoded, take};

/// The number of a key pair: keys and signatures that belong together have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(pub [u8; 8]);

/// The key that verifies signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    /// Its number.
    pub id: KeyId,
    /// The key itself (RFC 8032).
    pub key: [u8; 32],
}

/// The key that makes signatures. It is wiped from memory when dropped, and never shown by `Debug`.
pub struct SecretKey {
    public: PublicKey,
    seed: Zeroizing<[u8; 32]>,
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It does not have the form of a key.
    #[error("it is no minisign key of this kind")]
    Form,
    /// It is a secret key, where a public one is expected.
    #[error("it is a secret key, not a public one")]
    Secret,
    /// It is a public key, where a secret one is expected.
    #[error("it is a public key, not a secret one")]
    Public,
    /// It is protected by a password.
    #[error("it is protected by a password, which swath does not support")]
    Password,
    /// Its two halves do not belong together.
    #[error("it is damaged: its halves do not belong together")]
    Damaged,
}

impl PublicKey {
    /// Reads a file of a public key, or only its second line, as `minisign -P` takes it.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(text: &str) -> Result<PublicKey, KeyError> {
        let line = key_line(text)?;
        let Some(bytes) = decoded::<PUBLIC_BYTES>(line) else {
            let is_secret = decoded::<SECRET_BYTES>(line).map(Zeroizing::new).is_some();
            return Err(if is_secret { KeyError::Secret } else { KeyError::Form });
        };
        let mut rest = &bytes[..];
        let mut parts = || Some((take::<2>(&mut rest)?, take(&mut rest)?, take(&mut rest)?));
        match parts() {
            Some((PLAIN, id, key)) => Ok(PublicKey { id: KeyId(id), key }),
            _ => Err(KeyError::Form),
        }
    }

    /// Returns the file of the key.
    pub fn write(&self) -> String {
        format!("{UNTRUSTED}minisign public key {}\n{self}\n", self.id)
    }
}

/// The line that names the key to other programs, such as `RWQ…`.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode([&PLAIN[..], &self.id.0, &self.key].concat()))
    }
}

impl SecretKey {
    /// Makes a key of random bytes, which must be unpredictable.
    ///
    /// # Errors
    /// [`KeyError::Damaged`] if the library refuses them, which it does for no bytes known.
    pub fn from_random(random: &[u8; SECRET_RANDOM_BYTES]) -> Result<SecretKey, KeyError> {
        let mut rest = &random[..];
        let mut parts = || Some((take(&mut rest)?, take(&mut rest)?));
        let (id, seed) = parts().ok_or(KeyError::Damaged)?;
        let seed = Zeroizing::new(seed);
        let pair = Ed25519KeyPair::from_seed_unchecked(&*seed).map_err(|_| KeyError::Damaged)?;
        let key = pair.public_key().as_ref().try_into().map_err(|_| KeyError::Damaged)?;
        Ok(SecretKey { public: PublicKey { id: KeyId(id), key }, seed })
    }

    /// Reads a file of a secret key.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(text: &str) -> Result<SecretKey, KeyError> {
        let line = key_line(text)?;
        let Some(bytes) = decoded::<SECRET_BYTES>(line).map(Zeroizing::new) else {
            let is_public = PublicKey::read(line).is_ok();
            return Err(if is_public { KeyError::Public } else { KeyError::Form });
        };
        let mut rest = &bytes[..];
        let mut head =
            || Some((take::<2>(&mut rest)?, take::<2>(&mut rest)?, take::<2>(&mut rest)?));
        match head() {
            Some((PLAIN, NO_PASSWORD, CHECKSUM)) => {}
            Some((PLAIN, SCRYPT, CHECKSUM)) => return Err(KeyError::Password),
            _ => return Err(KeyError::Form),
        }
        let mut rest = &bytes[6 + PASSWORD_BYTES..];
        let mut parts = || Some((take(&mut rest)?, take(&mut rest)?, take(&mut rest)?));
        let (id, seed, key) = parts().ok_or(KeyError::Form)?;
        let secret =
            SecretKey { public: PublicKey { id: KeyId(id), key }, seed: Zeroizing::new(seed) };
        secret.pair().ok_or(KeyError::Damaged)?;
        Ok(secret)
    }

    /// Returns the file of the key: only for a file that nobody else can read.
    pub fn write(&self) -> Zeroizing<String> {
        let PublicKey { id, key } = &self.public;
        let secret = Zeroizing::new([&self.seed[..], key].concat());
        let covered = Zeroizing::new([&PLAIN[..], &id.0, &secret].concat());
        let checksum = blake2b_simd::Params::new().hash_length(32).hash(&covered);
        let head = [&PLAIN[..], &NO_PASSWORD, &CHECKSUM, &[0; PASSWORD_BYTES]].concat();
        let whole = Zeroizing::new([&head, &id.0[..], &secret, checksum.as_bytes()].concat());
        let line = Zeroizing::new(BASE64.encode(&whole));
        // minisign calls it encrypted, whether it is or not.
        Zeroizing::new(format!("{UNTRUSTED}minisign encrypted secret key\n{}\n", *line))
    }

    /// Returns the public key that belongs to it.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns the pair of keys, `None` if they do not belong together.
    pub(super) fn pair(&self) -> Option<Ed25519KeyPair> {
        Ed25519KeyPair::from_seed_and_public_key(&*self.seed, &self.public.key).ok()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// As minisign shows it: 16 hexadecimal digits.
impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", u64::from_le_bytes(self.0))
    }
}

/// Returns the line with the key. Keys may stand without the comment before them.
fn key_line(text: &str) -> Result<&str, KeyError> {
    let mut lines = text.trim_end().lines();
    let first = text.lines().next().unwrap_or_default();
    let line = match comment(&mut lines.clone(), UNTRUSTED) {
        Some(_) => lines.nth(1),
        None => lines.next().filter(|_| !first.is_empty()),
    };
    line.filter(|_| lines.next().is_none()).ok_or(KeyError::Form)
}

/// Random bytes that make a secret key: its number and its seed.
pub const SECRET_RANDOM_BYTES: usize = 8 + 32;
/// Mark, number, key.
const PUBLIC_BYTES: usize = 2 + 8 + 32;
/// Marks, the parameters of the password, number, seed and public key, checksum.
const SECRET_BYTES: usize = 6 + PASSWORD_BYTES + 8 + 64 + 32;
/// Salt and limits of scrypt: zeros without a password.
const PASSWORD_BYTES: usize = 32 + 8 + 8;
const NO_PASSWORD: [u8; 2] = [0, 0];
const SCRYPT: [u8; 2] = *b"Sc";
/// BLAKE2b-256; matters only with a password, and is zero in keys of minisign 0.11 without one.
const CHECKSUM: [u8; 2] = *b"B2";

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `minisign -G -W` (0.11), for this test only.
    const SECRET: &str = "untrusted comment: minisign encrypted secret key\n\
        RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQ9yveHA7Qv7JBZWxPy2W\
        cAHPP29a7ZUqvV0Y66Lrqnr29c39CRGKYmc1V38C5grinfTS9nf/mJEJ6Fo+Cl8cZsbdJa3SIKXMAAAAAAAAAAAAAAAAAA\
        AAAAAAAAAAAAAAAAAAAAAAAAA=\n";
    const PUBLIC: &str = "untrusted comment: minisign public key FE423B7078AFDC43\n\
        RWRD3K94cDtC/mc1V38C5grinfTS9nf/mJEJ6Fo+Cl8cZsbdJa3SIKXM\n";

    #[test]
    fn keys_of_minisign_are_read() {
        let secret = SecretKey::read(SECRET).unwrap();
        let public = PublicKey::read(PUBLIC).unwrap();
        assert_eq!(secret.public(), &public);
        assert_eq!(public.write(), PUBLIC);
        assert_eq!(public.id.to_string(), "FE423B7078AFDC43");
        assert_eq!(PublicKey::read(&public.to_string()).as_ref(), Ok(&public));
        assert_eq!(PublicKey::read(&PUBLIC.replace('\n', "\r\n")).as_ref(), Ok(&public));
        assert!(!format!("{secret:?}").contains("201"), "the seed begins with this byte");
    }

    #[test]
    fn what_is_written_is_read() {
        let secret = SecretKey::from_random(&[7; SECRET_RANDOM_BYTES]).unwrap();
        let read = SecretKey::read(&secret.write()).unwrap();
        assert_eq!((read.public(), &*read.seed), (secret.public(), &[7; 32]));
        let public = secret.public();
        assert_eq!(PublicKey::read(&public.write()).as_ref(), Ok(public));
    }

    #[test]
    fn other_texts_are_refused() {
        let error = |text: &str| SecretKey::read(text).unwrap_err();
        assert_eq!(error(PUBLIC), KeyError::Public);
        assert_eq!(PublicKey::read(SECRET), Err(KeyError::Secret));
        assert_eq!(error(&SECRET.replace("RWQAAEIy", "RWRTY0Iy")), KeyError::Password);
        assert_eq!(error(&SECRET.replace("cAHPP", "cAHPQ")), KeyError::Damaged);
        for text in ["", "\n", "x", "untrusted comment: x", "untrusted comment: x\n", &PUBLIC[1..]]
        {
            assert_eq!(error(text), KeyError::Form, "{text:?}");
            assert_eq!(PublicKey::read(text), Err(KeyError::Form), "{text:?}");
        }
        for text in [PUBLIC.to_owned() + "x\n", PUBLIC.replace("RWRD", "RURD")] {
            assert_eq!(PublicKey::read(&text), Err(KeyError::Form), "{text:?}");
        }
        assert_eq!(error(&SECRET.replace("RWQAAEIy", "RWQAAEIx")), KeyError::Form);
    }
}
