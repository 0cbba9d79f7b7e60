//! The token of a cluster, and what is made of it: the name of a content, and keys that open one node.
//!
//! The token itself never leaves a machine. A node is shown a key that opens this very node for this
//! very content, so an address that a tracker invents learns nothing that opens another one.

use std::fmt;
use std::net::SocketAddr;

use swath_formats::tracker::InfoHash;
use swath_model::digest::Digest;
use swath_source::{Facts, Secret};
use url::Url;

use crate::units::Units;

/// The secret that the nodes of a cluster have in common.
#[derive(Clone)]
pub struct ClusterToken([u8; 32]);

/// The name of a content among those who have the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentId([u8; 32]);

/// What opens one content at one node.
#[derive(Clone)]
pub struct NodeKey([u8; 32]);

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

    /// Returns the key to a content at the node with this address.
    pub fn key(&self, content: ContentId, node: SocketAddr) -> NodeKey {
        let address = SocketAddr::new(node.ip().to_canonical(), node.port());
        NodeKey(self.keyed(&["node", &content.to_string(), &address.to_string()]))
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

impl NodeKey {
    /// Returns whether this text is the key, in the same time whatever it is.
    pub fn is(&self, text: &str) -> bool {
        blake3::Hash::from_hex(text).is_ok_and(|other| other == blake3::Hash::from_bytes(self.0))
    }

    /// Returns the key as text, for sending.
    pub fn expose(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
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

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(…)")
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
    fn a_key_opens_one_content_at_one_node() {
        let (ours, theirs) = (token("a"), token("b"));
        let units = Units::of(10);
        let name = ours.content(&version("http://h/f", "\"1\""), &units);
        let other = ours.content(&version("http://h/g", "\"1\""), &units);
        let node = "10.0.0.1:8474".parse().unwrap();
        let key = ours.key(name, node);
        assert!(key.is(&key.expose()));
        let mapped = "[::ffff:10.0.0.1]:8474".parse().unwrap();
        assert!(key.is(&ours.key(name, mapped).expose()), "one address in two notations");
        for other in [
            theirs.key(name, node),
            ours.key(other, node),
            ours.key(name, "10.0.0.2:8474".parse().unwrap()),
            ours.key(name, "10.0.0.1:8475".parse().unwrap()),
        ] {
            assert!(!key.is(&other.expose()));
        }
        assert!(!key.is(""));
        assert!(!format!("{key:?}{ours:?}").contains(&key.expose()));
    }
}
