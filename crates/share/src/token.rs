//! The token of a cluster, and what is made of it: the name of a content, and the key by which nodes prove
//! to one another that they have the token.
//!
//! The token itself never leaves a machine. Both ends of every connection prove that they have it, for this
//! connection alone (TLS with a certificate and a key that are made of it): what is read along opens nothing,
//! and an address that a stranger or a tracker names is of no use to either.

use std::fmt;

use swath_formats::tracker::InfoHash;
use swath_model::digest::Digest;
use swath_serve::GroupKey;
use swath_source::{Facts, Secret};
use url::Url;

use crate::units::Units;

/// The secret that the nodes of a cluster have in common.
#[derive(Clone)]
pub struct ClusterToken([u8; 32]);

/// The name of a content among those who have the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentId([u8; 32]);

/// What says that two nodes fetch the same.
#[derive(Clone, Debug)]
pub enum Sameness {
    /// A digest of the content.
    Digest(Digest),
    /// The address and the strong entity tag that its server gives it.
    Version {
        /// The address.
        url: Url,
        /// The tag.
        etag: String,
    },
    /// The digest of the index of a dataset.
    Index([u8; 32]),
}

impl Sameness {
    /// Returns what says so: a digest that the user knows, else the server's entity tag, else a digest
    /// that the server tells. `None` if nothing does.
    pub fn find(known: Option<Digest>, url: &Url, facts: &Facts) -> Option<Sameness> {
        let strong = facts.etag.clone().filter(|tag| !tag.starts_with("W/"));
        let told = || facts.digests.iter().copied().max_by_key(|digest| digest.as_bytes().len());
        known
            .map(Sameness::Digest)
            .or_else(|| Some(Sameness::Version { url: url.clone(), etag: strong? }))
            .or_else(|| told().map(Sameness::Digest))
    }
}

impl ClusterToken {
    /// Takes the token as the user has it.
    pub fn new(secret: &Secret) -> ClusterToken {
        ClusterToken(blake3::derive_key("swath cluster token 1", secret.expose().as_bytes()))
    }

    /// Names a content that is cut so.
    pub fn content(&self, sameness: &Sameness, units: &Units) -> ContentId {
        let text = match sameness {
            Sameness::Digest(digest) => format!("digest {digest}"),
            Sameness::Index(digest) => format!("index {}", blake3::Hash::from_bytes(*digest)),
            Sameness::Version { url, etag } => {
                let mut url = url.clone();
                // Whoever asks, it is the same file.
                let _ = (url.set_username(""), url.set_password(None));
                format!("version {url} {etag}")
            }
        };
        let (size, unit) = (units.size_bytes().to_string(), units.unit_bytes().to_string());
        ContentId(self.keyed(&["content", &size, &unit, &text]))
    }

    /// Returns what nodes prove to one another.
    pub fn group(&self) -> GroupKey {
        GroupKey::new(self.keyed(&["group"]))
    }

    /// Each part comes with its length, so that no two lists of parts are the same bytes.
    fn keyed(&self, parts: &[&str]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }
}

impl ContentId {
    /// Returns the info-hash under which nodes find each other at a tracker.
    pub fn info_hash(&self) -> InfoHash {
        let mut bytes = [0; 20];
        bytes.copy_from_slice(&self.0[..20]);
        InfoHash(bytes)
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl std::str::FromStr for ContentId {
    type Err = ();

    fn from_str(text: &str) -> Result<ContentId, ()> {
        blake3::Hash::from_hex(text).map(|hash| ContentId(*hash.as_bytes())).map_err(drop)
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentId({self})")
    }
}

impl fmt::Debug for ClusterToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> ClusterToken {
        ClusterToken::new(&Secret::new(text))
    }

    fn version(url: &str, etag: &str) -> Sameness {
        Sameness::Version { url: Url::parse(url).unwrap(), etag: etag.to_owned() }
    }

    #[test]
    fn a_content_has_one_name_for_each_token_version_and_size() {
        let named =
            |secret, url, etag, size| token(secret).content(&version(url, etag), &Units::of(size));
        let name = named("a", "http://h/f", "\"1\"", 10);
        assert_eq!(name, named("a", "http://h/f", "\"1\"", 10));
        assert_eq!(name, named("a", "http://user:word@h/f", "\"1\"", 10), "whoever asks");
        for other in [
            named("b", "http://h/f", "\"1\"", 10),
            named("a", "http://h/g", "\"1\"", 10),
            named("a", "http://h/f?g", "\"1\"", 10),
            named("a", "http://h/f", "\"2\"", 10),
            named("a", "http://h/f", "\"1\"", 11),
        ] {
            assert_ne!(name, other);
        }
        assert_eq!(name.to_string().parse(), Ok(name));
    }

    #[test]
    fn a_token_makes_one_group() {
        assert_eq!(token("a").group(), token("a").group());
        assert_ne!(token("a").group(), token("b").group());
    }
}
