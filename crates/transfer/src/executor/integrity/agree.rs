//! Which mirrors hold the same file. Mirrors that disagree are never mixed.
//!
//! | known beforehand | what must agree |
//! | --- | --- |
//! | a digest of the whole or of the pieces | the size; bytes are proved, so validators may differ |
//! | nothing | the size, and validators as [`swath_model::validators`] compares them |
//!
//! The user sees the basis of the agreement: equal times are weaker than equal tags, and a size
//! alone is weak.

use swath_model::{Likeness, Validators};
use swath_source::Facts;

/// A mirror's version of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Validators, which distinguish versions of one size.
    pub validators: Validators,
}

/// The basis of two mirrors' agreement, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agreement {
    /// A digest will prove the bytes, or strong entity tags are equal.
    Strong,
    /// Size and time of modification are equal; entity tags are not, or are missing.
    Time,
    /// The size is equal, and nothing else could be compared.
    Size,
}

/// Why a mirror may not be used beside others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlikeness {
    /// Its file has another size, in bytes.
    #[error("its file has {theirs} bytes, the others' {ours}")]
    Size {
        /// The mirror's.
        theirs: u64,
        /// The others'.
        ours: u64,
    },
    /// Its file is another version. With a digest, which proves the bytes, it could be used.
    #[error("its version is {theirs}, the others' {ours}")]
    Version {
        /// The mirror's.
        theirs: String,
        /// The others'.
        ours: String,
    },
}

impl Unlikeness {
    /// Returns the reason with advice on how to use the mirror all the same, if there is a way.
    pub fn with_advice(&self) -> String {
        match self {
            Self::Size { .. } => self.to_string(),
            Self::Version { .. } => {
                format!("{self}; to use it all the same, give --digest")
            }
        }
    }
}

impl Version {
    /// Returns the version of an answer, `None` if it has no size.
    pub fn of(facts: &Facts) -> Option<Self> {
        Some(Self { size_bytes: facts.size_bytes?, validators: validators(facts) })
    }

    /// Returns whether a mirror with `other` may be used beside one with this; `proved` says that a
    /// digest will prove the bytes.
    ///
    /// # Errors
    /// The reason, if not.
    pub fn admits(&self, other: &Version, proved: bool) -> Result<Agreement, Unlikeness> {
        if other.size_bytes != self.size_bytes {
            let (theirs, ours) = (other.size_bytes, self.size_bytes);
            return Err(Unlikeness::Size { theirs, ours });
        }
        if proved {
            return Ok(Agreement::Strong);
        }
        match self.validators.compare(&other.validators) {
            Likeness::Same => Ok(Agreement::Strong),
            Likeness::SameTime => Ok(Agreement::Time),
            Likeness::Unknown => Ok(Agreement::Size),
            Likeness::Different(ours, theirs) => Err(Unlikeness::Version { theirs, ours }),
        }
    }
}

/// Returns the validators of an answer without weak tags, which prove nothing.
pub(crate) fn validators(facts: &Facts) -> Validators {
    Validators {
        etag: facts.etag.clone().filter(|tag| !tag.starts_with("W/")),
        last_modified: facts.last_modified.clone(),
    }
}

/// Returns what supports the file if no digest is known.
pub(crate) fn without_digest(agreement: Option<Agreement>) -> &'static str {
    match agreement {
        None => "no digest of it is known",
        Some(Agreement::Strong) => {
            "no digest of it is known; the mirrors agree on size and version"
        }
        Some(Agreement::Time) => {
            "no digest of it is known; the mirrors agree on size and time of modification, their entity tags differ"
        }
        Some(Agreement::Size) => "no digest of it is known; the mirrors agree on the size",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(size_bytes: u64, etag: Option<&str>, last_modified: Option<&str>) -> Version {
        let validators = Validators {
            etag: etag.map(str::to_owned),
            last_modified: last_modified.map(str::to_owned),
        };
        Version { size_bytes, validators }
    }

    #[test]
    fn sizes_and_strong_validators_decide() {
        use Agreement::{Size, Strong, Time};
        let ours = version(10, Some("\"a\""), Some("Mon"));
        let table = [
            (version(11, Some("\"a\""), Some("Mon")), true, None),
            (version(10, Some("\"b\""), Some("Tue")), true, Some(Strong)),
            (version(10, Some("\"b\""), Some("Tue")), false, None),
            (version(10, Some("\"b\""), Some("Mon")), false, Some(Time)),
            (version(10, Some("\"a\""), Some("Tue")), false, Some(Strong)),
            (version(10, Some("\"b\""), None), false, None),
            (version(10, None, None), false, Some(Size)),
        ];
        for (theirs, proved, agreement) in table {
            assert_eq!(ours.admits(&theirs, proved).ok(), agreement, "{theirs:?}, {proved}");
        }
    }
}
