//! What servers say by which versions of a file are told apart, and what it proves.
//!
//! One rule serves every place where bytes of two answers would lie in one file: two mirrors of
//! one transfer, and an earlier run and this one.
//!
//! | first that applies | likeness |
//! | --- | --- |
//! | equal strong entity tags | the same |
//! | both tell when the file was modified | the same by that time if it is equal, else different |
//! | both have a strong entity tag (unequal ones) | different |
//! | otherwise | unknown |
//!
//! Unequal tags do not outweigh an equal time, because every server makes its tags by a rule of
//! its own: nginx of time and size, Apache of size and a finer time (formerly of the inode too),
//! object stores of the bytes. On a network of mirrors they differ as a rule, while tools that
//! mirror keep the time to the second. Equal times are weaker evidence all the same (times can
//! be set, or clamped by a build), so whoever relies on them has to tell the user.

/// The validators of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// The strong entity tag, with its quotes.
    pub etag: Option<String>,
    /// When the file changed last, as the server writes it.
    pub last_modified: Option<String>,
}

/// What two answers' validators say of their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// Equal strong entity tags.
    Same,
    /// Entity tags are missing or unequal; the time of modification is equal to the second.
    SameTime,
    /// Nothing could be compared.
    Unknown,
    /// Other versions; what differs: (ours, theirs).
    Different(String, String),
}

impl Validators {
    /// Compares with what another answer said. Sizes are compared elsewhere.
    pub fn compare(&self, theirs: &Validators) -> Likeness {
        let differ =
            |ours: &String, theirs: &String| Likeness::Different(ours.clone(), theirs.clone());
        let tags = self.etag.as_ref().zip(theirs.etag.as_ref());
        if tags.is_some_and(|(ours, theirs)| ours == theirs) {
            return Likeness::Same;
        }
        match (self.last_modified.as_ref().zip(theirs.last_modified.as_ref()), tags) {
            (Some((ours, theirs)), _) if ours == theirs => Likeness::SameTime,
            (Some((ours, theirs)), _) | (None, Some((ours, theirs))) => differ(ours, theirs),
            (None, None) => Likeness::Unknown,
        }
    }

    /// Whether there is nothing to compare by.
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_first_then_times_then_nothing() {
        let of = |etag: &str, time: &str| Validators {
            etag: (!etag.is_empty()).then(|| etag.to_owned()),
            last_modified: (!time.is_empty()).then(|| time.to_owned()),
        };
        let ours = of("a", "Mon");
        assert_eq!(ours.compare(&of("a", "Tue")), Likeness::Same);
        assert_eq!(ours.compare(&of("b", "Mon")), Likeness::SameTime);
        assert_eq!(ours.compare(&of("", "Mon")), Likeness::SameTime);
        assert!(matches!(ours.compare(&of("b", "Tue")), Likeness::Different(..)));
        assert!(matches!(ours.compare(&of("", "Tue")), Likeness::Different(..)));
        assert!(matches!(ours.compare(&of("b", "")), Likeness::Different(..)));
        assert_eq!(ours.compare(&of("", "")), Likeness::Unknown);
        assert_eq!(of("a", "").compare(&of("", "Mon")), Likeness::Unknown);
        assert!(of("", "").is_empty() && !of("", "Mon").is_empty());
    }
}
