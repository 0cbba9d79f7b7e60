//! Entity tags (RFC 9110, section 8.8.3) and their two comparisons.

use crate::text::trim_blanks;

/// The tag of one version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etag {
    raw: Box<str>,
}

impl Etag {
    /// Parses the value of an `ETag` header. A tag without quotes, as some servers send, is kept as
    /// it is. `None` if it cannot be sent back: empty, or with control characters.
    pub fn parse(value: &str) -> Option<Etag> {
        let raw = trim_blanks(value);
        let is_fit = !raw.is_empty() && raw.len() <= ETAG_BYTES_MAX;
        (is_fit && !raw.contains(|c: char| c.is_control())).then(|| Etag { raw: raw.into() })
    }

    /// Returns it as received, for `If-Range` or `If-Match`.
    pub fn as_str(&self) -> &str {
        &self.raw
    }

    /// Returns whether it promises only equivalence; `If-Range` needs a strong tag.
    pub fn is_weak(&self) -> bool {
        self.raw.starts_with("W/") || self.raw.starts_with("w/")
    }

    /// Compares strongly: true if equal bytes are promised.
    pub fn matches_strongly(&self, other: &Etag) -> bool {
        !self.is_weak() && !other.is_weak() && self.opaque() == other.opaque()
    }

    /// Compares weakly: true if the tag is the same, whether weak or not.
    pub fn matches_weakly(&self, other: &Etag) -> bool {
        self.opaque() == other.opaque()
    }

    fn opaque(&self) -> &str {
        if self.is_weak() { &self.raw[2..] } else { &self.raw }
    }
}

/// Longer than any real tag; one is kept for each source.
const ETAG_BYTES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 9110, section 8.8.3.2.
    #[test]
    fn comparisons_follow_the_rfc() {
        for (a, b, strongly, weakly) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
            ("abc", "abc", true, true),
        ] {
            let (a, b) = (Etag::parse(a).unwrap(), Etag::parse(b).unwrap());
            assert_eq!((a.matches_strongly(&b), a.matches_weakly(&b)), (strongly, weakly));
            assert_eq!((b.matches_strongly(&a), b.matches_weakly(&a)), (strongly, weakly));
        }
    }

    #[test]
    fn unfit_tags_are_none() {
        assert_eq!(Etag::parse(" "), None);
        assert_eq!(Etag::parse("\"a\r\nHost: x\""), None);
        assert_eq!(Etag::parse(&"x".repeat(2000)), None);
        assert_eq!(Etag::parse(" \"é\" ").unwrap().as_str(), "\"é\"");
    }
}
