//! Keys and signatures of [minisign](https://jedisct1.github.io/minisign/): Ed25519 (RFC 8032) in
//! small text files, which that program reads and writes too.
//!
//! A signature covers the BLAKE2b-512 of a message (algorithm `ED`); older ones that cover the
//! message itself (`Ed`) are verified as well. A second signature covers the first one together with
//! the trusted comment. Secret keys are those that `minisign -W` writes, without a password.

mod key;
mod signature;

pub use key::{KeyError, KeyId, PublicKey, SECRET_RANDOM_BYTES, SecretKey};
pub use signature::{Signature, SignatureError, VerifyError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Returns the text after `prefix` in the next line, which may end like a line of Windows.
fn comment<'a>(lines: &mut impl Iterator<Item = &'a str>, prefix: &str) -> Option<&'a str> {
    lines.next()?.trim_end_matches('\r').strip_prefix(prefix)
}

/// Returns the `N` bytes in a line of base64.
fn decoded<const N: usize>(line: &str) -> Option<[u8; N]> {
    BASE64.decode(line.trim_end()).ok()?.try_into().ok()
}

/// Takes the first `N` bytes off.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

const UNTRUSTED: &str = "untrusted comment: ";
const TRUSTED: &str = "trusted comment: ";
/// Ed25519 over the message itself; also the mark of keys.
const PLAIN: [u8; 2] = *b"Ed";
/// Ed25519 over the BLAKE2b-512 of the message.
const PREHASHED: [u8; 2] = *b"ED";
