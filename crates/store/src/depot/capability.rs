//! Capabilities: each allows one kind of access to one allocation.
//!
//! Each is 256 random bits; the three of an allocation are unrelated. The depot keeps only their
//! BLAKE3 values and looks them up by these, so the time of a lookup tells nothing about existing
//! capabilities.

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// The right to read, to write or to manage one allocation. Its text, 64 hexadecimal digits, is a
/// secret: [`fmt::Display`] gives it, `Debug` does not.
#[derive(Clone)]
pub struct Capability([u8; 32]);

/// What a capability is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// The right to read stored bytes.
    Read,
    /// The right to store.
    Write,
    /// The right to extend and release.
    Manage,
}

/// The hash that is kept of a capability.
pub(crate) type CapabilityHash = [u8; 32];

impl Capability {
    pub(crate) fn random() -> io::Result<Capability> {
        random().map(Capability)
    }

    pub(crate) fn hash(&self) -> CapabilityHash {
        *blake3::hash(&self.0).as_bytes()
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capability(..)")
    }
}

/// The text is not 64 hexadecimal digits in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a capability is 64 hexadecimal digits")]
pub struct NoCapability;

impl FromStr for Capability {
    type Err = NoCapability;

    fn from_str(text: &str) -> Result<Capability, NoCapability> {
        from_hex(text).map(Capability).ok_or(NoCapability)
    }
}

/// The name of an allocation in logs and file names; not secret, and grants nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId([u8; 16]);

impl LeaseId {
    pub(crate) fn random() -> io::Result<LeaseId> {
        random().map(LeaseId)
    }

    /// Parses the text of a name.
    pub(crate) fn of(text: &str) -> Option<LeaseId> {
        from_hex(text).map(LeaseId)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_its_text_and_shows_itself_only_when_asked() {
        let one = Capability::random().unwrap();
        let text = one.to_string();
        assert_eq!(text.len(), 64);
        assert_eq!(text.parse::<Capability>().unwrap().hash(), one.hash());
        assert!(!format!("{one:?}").contains(&text[..8]));
        for wrong in ["", &text[1..], &text.to_uppercase().replace('0', "A"), &"g".repeat(64)] {
            assert!(wrong.parse::<Capability>().is_err(), "{wrong}");
        }
        assert!(format!("{text}0").parse::<Capability>().is_err());
        assert!("é".repeat(32).parse::<Capability>().is_err());
    }

    #[test]
    fn no_two_are_alike() {
        let hashes: std::collections::HashSet<CapabilityHash> =
            (0..1000).map(|_| Capability::random().unwrap().hash()).collect();
        assert_eq!(hashes.len(), 1000);
    }
}
