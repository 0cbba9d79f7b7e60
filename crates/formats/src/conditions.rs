//! Conditional requests (RFC 9110, section 13), as read by a server.

use crate::etag::Etag;
use crate::http_date;

/// The conditions of a request; each is the value of the header of that name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions<'a> {
    /// `If-Match`.
    pub if_match: Option<&'a str>,
    /// `If-None-Match`.
    pub if_none_match: Option<&'a str>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<&'a str>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<&'a str>,
    /// `If-Range`.
    pub if_range: Option<&'a str>,
}

/// The present version.
#[derive(Clone, Copy, Debug)]
pub struct Current<'a> {
    /// Its tag; `None` if nothing has that name.
    pub etag: Option<&'a Etag>,
    /// Modification time in seconds since 1970.
    pub modified_s: Option<u64>,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Do what it requests.
    Proceed,
    /// Answer 304: the client has it.
    NotModified,
    /// Answer 412: a condition is false.
    Failed,
}

impl Conditions<'_> {
    /// Decides in the order of section 13.2.2. `is_read` means that the method is GET or HEAD.
    pub fn decide(&self, current: Current<'_>, is_read: bool) -> Decision {
        if let Some(tags) = self.if_match {
            if !names(tags, current.etag, Etag::matches_strongly) {
                return Decision::Failed;
            }
        } else if let Some(since_s) = self.if_unmodified_since.and_then(seconds)
            && current.modified_s.is_none_or(|modified_s| modified_s > since_s)
        {
            return Decision::Failed;
        }
        if let Some(tags) = self.if_none_match {
            if names(tags, current.etag, Etag::matches_weakly) {
                return if is_read { Decision::NotModified } else { Decision::Failed };
            }
        } else if let Some(since_s) = self.if_modified_since.and_then(seconds)
            && is_read
            && current.modified_s.is_some_and(|modified_s| modified_s <= since_s)
        {
            return Decision::NotModified;
        }
        Decision::Proceed
    }

    /// Returns whether a `Range` header counts: not if `If-Range` names another version. A date
    /// must be identical, and counts only for changes well before `now_s` (section 13.1.5).
    pub fn range_counts(&self, current: Current<'_>, now_s: u64) -> bool {
        let Some(value) = self.if_range.map(str::trim) else { return true };
        if value.starts_with('"') || value.starts_with("W/") {
            let asked = Etag::parse(value);
            return asked.zip(current.etag).is_some_and(|(a, b)| a.matches_strongly(b));
        }
        let strong = |modified_s: u64| modified_s < now_s.saturating_sub(CLOCK_GRAIN_S);
        seconds(value).is_some_and(|asked_s| {
            current.modified_s.is_some_and(|own_s| own_s == asked_s && strong(own_s))
        })
    }
}

/// Returns whether a list of tags, or `*`, contains this one.
fn names(tags: &str, current: Option<&Etag>, same: fn(&Etag, &Etag) -> bool) -> bool {
    let Some(current) = current else { return false };
    if tags.trim() == "*" {
        return true;
    }
    // Commas within a tag's quotes do not separate tags.
    let mut rest = tags;
    while !rest.is_empty() {
        let mut is_quoted = false;
        let end = rest.find(|c: char| {
            is_quoted ^= c == '"';
            c == ',' && !is_quoted
        });
        let (tag, after) = rest.split_at(end.unwrap_or(rest.len()));
        if Etag::parse(tag).is_some_and(|tag| same(&tag, current)) {
            return true;
        }
        rest = after.strip_prefix(',').unwrap_or_default();
    }
    false
}

fn seconds(date: &str) -> Option<u64> {
    http_date::parse(date.trim())
}

/// Within this time after a change, another one may have the same date.
const CLOCK_GRAIN_S: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGED_S: u64 = 784_111_777;
    const CHANGED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn decide(conditions: Conditions<'_>, is_read: bool) -> Decision {
        let etag = Etag::parse("\"a,b\"");
        let current = Current { etag: etag.as_ref(), modified_s: Some(CHANGED_S) };
        conditions.decide(current, is_read)
    }

    #[test]
    fn tags_are_compared_as_the_rfc_says() {
        let matching = |tags| Conditions { if_match: Some(tags), ..Conditions::default() };
        let unlike = |tags| Conditions { if_none_match: Some(tags), ..Conditions::default() };
        for (tags, is_named, is_named_weakly) in [
            ("*", true, true),
            ("\"a,b\"", true, true),
            ("\"x\", \"a,b\"", true, true),
            ("\"a,b\",\"x\"", true, true),
            ("W/\"a,b\"", false, true),
            ("\"a\", \"b\"", false, false),
            ("", false, false),
            (",,", false, false),
        ] {
            let (met, unmet) = (Decision::Proceed, Decision::Failed);
            assert_eq!(decide(matching(tags), true), if is_named { met } else { unmet }, "{tags}");
            let read = if is_named_weakly { Decision::NotModified } else { met };
            assert_eq!(decide(unlike(tags), true), read, "{tags}");
            assert_eq!(decide(unlike(tags), false), if is_named_weakly { unmet } else { met });
        }
        // "Only if there is none yet", and "only if there is one".
        let nothing = Current { etag: None, modified_s: None };
        assert_eq!(unlike("*").decide(nothing, false), Decision::Proceed);
        assert_eq!(matching("*").decide(nothing, false), Decision::Failed);
    }

    #[test]
    fn dates_count_where_no_tags_do() {
        let since = |date| Conditions { if_modified_since: Some(date), ..Conditions::default() };
        assert_eq!(decide(since(EARLIER), true), Decision::Proceed);
        assert_eq!(decide(since(CHANGED), true), Decision::NotModified);
        assert_eq!(decide(since(LATER), true), Decision::NotModified);
        assert_eq!(decide(since(LATER), false), Decision::Proceed);
        assert_eq!(decide(since("yesterday"), true), Decision::Proceed);
        let both = Conditions { if_none_match: Some("\"x\""), ..since(LATER) };
        assert_eq!(decide(both, true), Decision::Proceed);
        let unless = |date| Conditions { if_unmodified_since: Some(date), ..Conditions::default() };
        assert_eq!(decide(unless(EARLIER), true), Decision::Failed);
        assert_eq!(decide(unless(CHANGED), true), Decision::Proceed);
        let both = Conditions { if_match: Some("*"), ..unless(EARLIER) };
        assert_eq!(decide(both, true), Decision::Proceed);
    }

    #[test]
    fn a_range_of_another_version_does_not_count() {
        let strong = Etag::parse("\"a\"");
        let weak = Etag::parse("W/\"a\"");
        let counts = |value: Option<&str>, etag: &Option<Etag>, now_s| {
            let current = Current { etag: etag.as_ref(), modified_s: Some(CHANGED_S) };
            Conditions { if_range: value, ..Conditions::default() }.range_counts(current, now_s)
        };
        let later_s = CHANGED_S + 100;
        assert!(counts(None, &strong, later_s));
        assert!(counts(Some("\"a\""), &strong, later_s));
        assert!(!counts(Some("\"b\""), &strong, later_s));
        assert!(!counts(Some("W/\"a\""), &weak, later_s), "weak tags promise no equal bytes");
        assert!(!counts(Some("\"a\""), &None, later_s));
        assert!(counts(Some(CHANGED), &strong, later_s));
        assert!(!counts(Some(LATER), &strong, later_s), "later is not the same");
        assert!(
            !counts(Some(CHANGED), &strong, CHANGED_S),
            "it may still change within the second"
        );
        assert!(!counts(Some("whatever"), &strong, later_s));
    }
}
