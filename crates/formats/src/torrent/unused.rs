//! What a magnet link or a metafile says and nobody here uses, so that users can be told of it.

use std::fmt;

/// A statement that is not used: it is of an unknown kind, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    /// Its key.
    pub field: String,
    /// The beginning of its value. Of an address only scheme and host: the rest may hold a password or a
    /// passkey.
    pub value: String,
}

impl Unused {
    fn new(field: &str, value: &str) -> Unused {
        let cut = |text: &str| text.chars().take(SHOWN_CHARS_MAX).collect::<String>();
        let value = match value.split_once("://") {
            Some((scheme, rest)) => {
                let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
                let host = host.rsplit('@').next().unwrap_or_default();
                format!("{scheme}://{host}")
            }
            None => value.to_owned(),
        };
        Unused { field: cut(field), value: cut(&value) }
    }
}

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => f.write_str(&self.field),
            value => write!(f, "{}={value}", self.field),
        }
    }
}

/// Notes that a statement is not used; a bounded number of them.
pub(super) fn unused(list: &mut Vec<Unused>, field: &str, value: &str) {
    let unused = Unused::new(field, value);
    if list.len() < UNUSED_MAX && !list.contains(&unused) {
        list.push(unused);
    }
}

/// Nobody reads more.
const UNUSED_MAX: usize = 20;
const SHOWN_CHARS_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_addresses_are_not_shown() {
        let mut list = Vec::new();
        unused(&mut list, "tr", "wss://me:secret@t.example:7/passkey/announce?key=1");
        unused(&mut list, "tr", "wss://me:other@t.example:7/passkey");
        unused(&mut list, "xt", &"urn:sha1:".repeat(100));
        assert_eq!(list.len(), 2);
        assert_eq!(list[0].to_string(), "tr=wss://t.example:7");
        assert_eq!(list[1].value.len(), SHOWN_CHARS_MAX);
        (0..99).for_each(|number| unused(&mut list, "x", &number.to_string()));
        assert_eq!(list.len(), UNUSED_MAX);
        assert_eq!(Unused::new("nodes", "").to_string(), "nodes");
    }
}
