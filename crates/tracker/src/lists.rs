//! Who may use a tracker, and for which torrents: a whitelist of torrents, networks of clients,
//! passkeys. Each list is a text of one entry a line. Lines that begin with `#`, and what follows
//! ` # `, are remarks.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use swath_formats::Network;
use swath_formats::feed::Feed;
use swath_formats::tracker::InfoHash;

/// The lists of a tracker. A list that is missing allows everybody, or every torrent.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// Torrents that are tracked, and no others.
    pub torrents: Option<Torrents>,
    /// What a catalogue announces.
    pub feed: Option<Arc<Feed>>,
    /// Networks of allowed clients; empty if clients may come from everywhere.
    pub networks: Vec<Network>,
    /// Passkeys, one of which a client must have in its announce address.
    pub passkeys: Option<Passkeys>,
}

/// Torrents and their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Torrents {
    names: HashMap<InfoHash, String>,
}

/// Passkeys, kept as keyed digests: the time that a comparison takes tells nothing about a key.
#[derive(Clone)]
pub struct Passkeys {
    key: [u8; 32],
    /// `blake3::Hash` compares in constant time.
    digests: HashSet<blake3::Hash>,
}

/// A line of a list is invalid. The message does not quote it, since it may be a passkey.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct LineError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

impl Lists {
    /// Whether clients at this address are allowed.
    pub fn allow(&self, client: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.contains(client))
    }
}

impl Torrents {
    /// Reads a whitelist: `INFO-HASH [NAME]` a line, with 40 or, for v2, 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`LineError`] of the first invalid line.
    pub fn read(text: &str) -> Result<Torrents, LineError> {
        let mut torrents = Torrents::default();
        for (line, entry) in entries(text) {
            let (hash, name) = halves(entry);
            let hash = hash.parse().map_err(|error| LineError::new(line, &error))?;
            torrents.insert(hash, name);
        }
        Ok(torrents)
    }

    /// Adds a torrent. A name without characters means that it has none.
    pub fn insert(&mut self, hash: InfoHash, name: &str) {
        self.names.insert(hash, name.chars().take(NAME_MAX).collect());
    }

    /// Whether it is on the list.
    pub fn contains(&self, hash: &InfoHash) -> bool {
        self.names.contains_key(hash)
    }

    /// Returns the name of a torrent, empty if it has none.
    pub fn name(&self, hash: &InfoHash) -> &str {
        self.names.get(hash).map_or("", String::as_str)
    }

    /// Returns all torrents, in no order.
    pub fn all(&self) -> impl Iterator<Item = (InfoHash, &str)> {
        self.names.iter().map(|(hash, name)| (*hash, name.as_str()))
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl Passkeys {
    /// Reads a list of passkeys: `PASSKEY [NAME]` a line. `key` is a secret of this process.
    ///
    /// # Errors
    /// [`LineError`] of the first invalid line.
    pub fn read(text: &str, key: [u8; 32]) -> Result<Passkeys, LineError> {
        let mut passkeys = Passkeys { key, digests: HashSet::new() };
        for (line, entry) in entries(text) {
            let (passkey, _) = halves(entry);
            let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            if passkey.len() < PASSKEY_MIN || !passkey.bytes().all(is_fit) {
                let problem =
                    format!("a passkey has at least {PASSKEY_MIN} letters, digits, '-' or '_'");
                return Err(LineError { line, problem });
            }
            passkeys.digests.insert(passkeys.digest(passkey));
        }
        Ok(passkeys)
    }

    /// Whether this is one of the passkeys.
    pub fn contains(&self, shown: &str) -> bool {
        self.digests.contains(&self.digest(shown))
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.digests.len()
    }

    /// Whether there is none: then nobody is admitted.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    fn digest(&self, passkey: &str) -> blake3::Hash {
        blake3::keyed_hash(&self.key, passkey.as_bytes())
    }
}

impl fmt::Debug for Passkeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passkeys", self.digests.len())
    }
}

impl LineError {
    fn new(line: usize, problem: &dyn fmt::Display) -> LineError {
        LineError { line, problem: problem.to_string() }
    }
}

/// Reads a list of networks, such as `192.0.2.0/24` or a single address, one a line.
///
/// # Errors
/// [`LineError`] of the first invalid line.
pub fn read_networks(text: &str) -> Result<Vec<Network>, LineError> {
    let network = |(line, entry): (usize, &str)| {
        entry.parse::<Network>().map_err(|error| LineError::new(line, &error))
    };
    entries(text).map(network).collect()
}

/// The entries of a list with their lines.
fn entries(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let entries = text.lines().enumerate().map(|(at, line)| {
        let is_remark = line.trim_start().starts_with('#');
        let entry = line.split(" # ").next().unwrap_or_default();
        (at + 1, if is_remark { "" } else { entry.trim() })
    });
    entries.filter(|(_, entry)| !entry.is_empty())
}

/// The first word of an entry, and the rest.
fn halves(entry: &str) -> (&str, &str) {
    let (first, rest) = entry.split_once(char::is_whitespace).unwrap_or((entry, ""));
    (first, rest.trim())
}

/// Nobody guesses 16 random characters.
const PASSKEY_MIN: usize = 16;
/// Characters that a name has on the page.
const NAME_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitelists_have_hashes_names_and_remarks() {
        let (a, b) = ("aa".repeat(20), "bb".repeat(32));
        let text = format!("# ours\n{a}  run 7, part #2 # of last year\n\n{}\n", b.to_uppercase());
        let torrents = Torrents::read(&text).unwrap();
        assert_eq!(torrents.len(), 2);
        assert_eq!(torrents.name(&InfoHash([0xaa; 20])), "run 7, part #2");
        assert!(torrents.contains(&InfoHash([0xbb; 20])) && !torrents.contains(&InfoHash([0; 20])));
        let error = Torrents::read(&format!("{a}\n{a}0\n")).unwrap_err();
        assert_eq!(error.to_string(), "line 2: an info-hash has 40 hexadecimal digits, or 64 (v2)");
        assert_eq!(Torrents::read("# nothing\n"), Ok(Torrents::default()));
    }

    #[test]
    fn networks_are_one_a_line() {
        let networks = read_networks("192.0.2.0/24 # the lab\n::1\n").unwrap();
        let lists = Lists { networks, ..Lists::default() };
        for (client, is_allowed) in [("192.0.2.9", true), ("192.0.3.1", false), ("::1", true)] {
            assert_eq!(lists.allow(client.parse().unwrap()), is_allowed, "{client}");
        }
        assert!(Lists::default().allow("192.0.3.1".parse().unwrap()));
        assert_eq!(read_networks("\n10.0.0.0/33").unwrap_err().line, 2);
    }

    #[test]
    fn passkeys_are_never_shown() {
        let passkeys =
            Passkeys::read("0123456789abcdef Ada\nABCDEFGHIJ-_klmnop\n", [1; 32]).unwrap();
        assert!(passkeys.contains("0123456789abcdef") && passkeys.contains("ABCDEFGHIJ-_klmnop"));
        for other in ["", "0123456789abcde", "0123456789abcdeF", "Ada"] {
            assert!(!passkeys.contains(other), "{other}");
        }
        assert_eq!(format!("{passkeys:?}"), "2 passkeys");
        let error = Passkeys::read("secret/with/slashes", [1; 32]).unwrap_err().to_string();
        assert!(error.starts_with("line 1: ") && !error.contains("secret"), "{error}");
        assert!(Passkeys::read("", [1; 32]).unwrap().is_empty());
    }
}
