//! Which mirrors hold the same file. Mirrors that disagree are never mixed.
//!
//! | known beforehand | what must agree |
//! | --- | --- |
//! | a digest of the whole or of the pieces | the size; bytes are proved, so validators may differ |
//! | nothing | the size, and strong validators: equal strong entity tags, or else equal `Last-Modified` |
//!
//! Entity tags of different servers are made by different rules, so unequal tags alone prove
//! nothing when the modification time is equal to the second.

use swath_source::Facts;

/// What identifies a mirror's version of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Size in bytes.
    pub size_bytes: u64,
    /// The strong entity tag.
    pub etag: Option<String>,
    /// When it changed last, as the server writes it.
    pub last_modified: Option<String>,
}

impl Version {
    /// The version that an answer speaks of, `None` if it does not tell the size.
    pub fn of(facts: &Facts) -> Option<Self> {
        Some(Self {
            size_bytes: facts.size_bytes?,
            etag: facts.etag.clone().filter(|tag| !tag.starts_with("W/")),
            last_modified: facts.last_modified.clone(),
        })
    }

    /// Whether a mirror with `other` may be used beside one with this, where `proved` says that a
    /// digest will prove the bytes.
    ///
    /// # Errors
    /// The reason in words, if not.
    pub fn admits(&self, other: &Version, proved: bool) -> Result<(), String> {
        if other.size_bytes != self.size_bytes {
            return Err(format!(
                "its file has {} bytes, the others' {}",
                other.size_bytes, self.size_bytes
            ));
        }
        if proved {
            return Ok(());
        }
        match (&self.etag, &other.etag) {
            (Some(ours), Some(theirs)) if ours == theirs => return Ok(()),
            _ => {}
        }
        match (&self.last_modified, &other.last_modified) {
            (Some(ours), Some(theirs)) if ours == theirs => Ok(()),
            (Some(ours), Some(theirs)) => Err(format!(
                "its file was modified {theirs}, the others' {ours}; give --digest to prove whatever comes and use it all the same"
            )),
            _ => match (&self.etag, &other.etag) {
                (Some(ours), Some(theirs)) => Err(format!(
                    "its validator is {theirs}, the others' {ours}; give --digest to prove whatever comes and use it all the same"
                )),
                _ => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(size_bytes: u64, etag: Option<&str>, last_modified: Option<&str>) -> Version {
        Version {
            size_bytes,
            etag: etag.map(str::to_owned),
            last_modified: last_modified.map(str::to_owned),
        }
    }

    #[test]
    fn sizes_and_strong_validators_decide() {
        let ours = version(10, Some("\"a\""), Some("Mon"));
        let table = [
            (version(11, Some("\"a\""), Some("Mon")), true, false),
            (version(10, Some("\"b\""), Some("Tue")), true, true),
            (version(10, Some("\"b\""), Some("Tue")), false, false),
            (version(10, Some("\"b\""), Some("Mon")), false, true),
            (version(10, Some("\"a\""), Some("Tue")), false, true),
            (version(10, Some("\"b\""), None), false, false),
            (version(10, None, None), false, true),
        ];
        for (theirs, proved, admitted) in table {
            assert_eq!(
                ours.admits(&theirs, proved).is_ok(),
                admitted,
                "{theirs:?} proved: {proved}"
            );
        }
    }
}
