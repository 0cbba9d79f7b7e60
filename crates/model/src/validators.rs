//! Facts by which servers tell versions of a file apart, and what they prove.
//!
//! One rule serves every place where bytes of two answers would lie in one file: two mirrors of one
//! transfer, or an earlier run and this one.
//!
//! | first that applies | likeness |
//! | --- | --- |
//! | equal strong entity tags | the same |
//! | both report a modification time | the same by that time if equal, otherwise different |
//! | both have a strong entity tag (unequal ones) | different |
//! | otherwise | unknown |
//!
//! Unequal tags do not outweigh an equal time, because every server makes its tags by a rule of its
//! own: nginx from time and size, Apache from size and a finer time (formerly also the inode),
//! object stores from the bytes. In a network of mirrors they usually differ, while mirroring tools
//! keep the time to the second. But equal times are weaker evidence (times can be set, or clamped
//! by a build), so code that relies on them has to warn the user.

/// The validators of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// The strong entity tag, with its quotes.
    pub etag: Option<String>,
    /// Time of the last change, as the server writes it.
    pub last_modified: Option<String>,
}

/// What the validators of two answers say about their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// Equal strong entity tags.
    Same,
    /// Entity tags are missing or unequal; the modification times are equal to the second.
    SameTime,
    /// Nothing could be compared.
    Unknown,
    /// Different versions, and what differs: (ours, theirs).
    Different(String, String),
}

impl Validators {
    /// Compares with another answer's validators. Sizes are compared elsewhere.
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

    /// Returns whether there is nothing to compare.
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
