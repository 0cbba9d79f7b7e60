//! How a source is shown to people.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A source for users: its address, and the relays on the way to it.
///
/// Both are shown without credentials, queries or anything else that grants access. Decisions never
/// use the text: `relays` says whether there is a route, and through which relays.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceName {
    /// The address of the replica.
    #[serde(rename = "name", default)]
    pub address: String,
    /// The relays on the way to it as `host:port`, the nearest to us first; empty if it is reached
    /// directly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<String>,
}

impl SourceName {
    /// Returns a source that is reached directly.
    pub fn direct(address: impl Into<String>) -> SourceName {
        SourceName { address: address.into(), relays: Vec::new() }
    }

    /// Returns a source reached through these relays, the nearest to us first.
    pub fn routed<R: Into<String>>(
        address: impl Into<String>,
        relays: impl IntoIterator<Item = R>,
    ) -> SourceName {
        let relays = relays.into_iter().map(Into::into).collect();
        SourceName { address: address.into(), relays }
    }

    /// Returns whether relays are on the way.
    pub fn is_relayed(&self) -> bool {
        !self.relays.is_empty()
    }

    /// Returns the address without its scheme.
    pub fn bare_address(&self) -> &str {
        self.address.split_once("://").map_or(&self.address, |(_, rest)| rest)
    }

    /// Returns the host (and port) of the address.
    pub fn host(&self) -> &str {
        self.bare_address().split('/').next().unwrap_or_default()
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)?;
        match self.is_relayed() {
            true => write!(f, " by {}", self.relays.join(", ")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_as_an_address_and_its_relays() {
        let direct = SourceName::direct("https://data.example:444/f");
        assert_eq!(direct.to_string(), "https://data.example:444/f");
        assert_eq!((direct.host(), direct.is_relayed()), ("data.example:444", false));
        let routed = SourceName::routed(&direct.address, ["r1:8471", "r2:8471"]);
        assert_eq!(routed.to_string(), "https://data.example:444/f by r1:8471, r2:8471");
        assert_eq!(SourceName::direct("/home/ada/by by bob").host(), "");
    }
}
