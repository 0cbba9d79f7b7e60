//! What an answer says about caching a file: which version it describes, and how long that is fresh
//! (RFC 9111, sections 3 to 5).

use std::time::{Duration, Instant};

use swath_formats::{Etag, http_date};
use swath_source::AnswerHead;

/// What is known of the present version of a file that may be kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    /// Strong: equal tags are equal bytes.
    pub etag: Etag,
    pub size_bytes: u64,
    pub modified_s: Option<u64>,
    /// What else is passed back with its bytes, names in lower case.
    pub fields: Vec<(String, String)>,
    /// It may be believed until it is so old.
    pub fresh_for: Duration,
    /// It was so old when it came.
    pub age: Duration,
    /// When it was asked for.
    pub asked: Instant,
}

impl Facts {
    /// What the answer to a HEAD says; `None` where nothing of the file may be kept.
    pub fn of(answer: &AnswerHead, asked: Instant) -> Option<Facts> {
        let etag = Etag::parse(answer.field("etag")?).filter(|etag| !etag.is_weak())?;
        let size_bytes = answer.length.filter(|&bytes| bytes > 0)?;
        if answer.status != 200 || !may_be_kept(answer) {
            return None;
        }
        let age = answer.field("age").and_then(|value| value.trim().parse().ok()).unwrap_or(0);
        let age = Duration::from_secs(age);
        let mut fields: Vec<(String, String)> =
            answer.fields.iter().filter(|(name, _)| is_of_the_file(name)).cloned().collect();
        if fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
            > FIELDS_BYTES_MAX
        {
            return None;
        }
        if answer.field("accept-ranges").is_none() {
            fields.push(("accept-ranges".to_owned(), "bytes".to_owned()));
        }
        Some(Facts {
            etag,
            size_bytes,
            modified_s: answer.field("last-modified").and_then(http_date::parse),
            fields,
            fresh_for: fresh_for(answer),
            age,
            asked,
        })
    }

    /// Whether it may still be believed at `now`.
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.age_at(now) < self.fresh_for
    }

    /// Whether it should be asked for again soon, beside whoever asks.
    pub fn is_ageing(&self, now: Instant) -> bool {
        let left = self.fresh_for.saturating_sub(self.age);
        now.saturating_duration_since(self.asked) > left / 2
    }

    /// Whether these are about the same bytes.
    pub fn is_same_file(&self, other: &Facts) -> bool {
        self.etag.matches_strongly(&other.etag) && self.size_bytes == other.size_bytes
    }

    /// `Age` at `now`.
    pub fn age_s(&self, now: Instant) -> u64 {
        self.age_at(now).as_secs()
    }

    fn age_at(&self, now: Instant) -> Duration {
        self.age.saturating_add(now.saturating_duration_since(self.asked))
    }
}

/// Whether an answer may be kept for all, and says nothing that depends on who asks.
pub(super) fn may_be_kept(answer: &AnswerHead) -> bool {
    let values = |name: &'static str| {
        let fields = answer.fields.iter().filter(move |(own, _)| own == name);
        fields.flat_map(|(_, value)| value.split(',')).map(|one| one.trim().to_ascii_lowercase())
    };
    let is_secret = |one: String| {
        let name = one.split('=').next().unwrap_or_default().trim();
        matches!(name, "no-store" | "private")
    };
    !values("cache-control").any(is_secret)
        && values("vary").all(|one| one == "accept-encoding" || one.is_empty())
        && values("content-encoding").all(|one| one == "identity" || one.is_empty())
        && answer.field("set-cookie").is_none()
}

/// How long an answer is fresh, from when it was made.
fn fresh_for(answer: &AnswerHead) -> Duration {
    let all = answer.fields.iter().filter(|(name, _)| name == "cache-control");
    let mut told = [None, None];
    for one in all.flat_map(|(_, value)| value.split(',')) {
        let (name, value) = one.split_once('=').unwrap_or((one, ""));
        let seconds = value.trim().trim_matches('"').parse::<u64>().ok();
        match name.trim().to_ascii_lowercase().as_str() {
            "no-cache" => return Duration::ZERO,
            // For caches that are many people's. Of two the lesser counts.
            "s-maxage" => told[0] = told[0].or(seconds).min(seconds),
            "max-age" => told[1] = told[1].or(seconds).min(seconds),
            _ => {}
        }
    }
    let told = told[0].or(told[1]).map(Duration::from_secs);
    told.map_or(FRESH, |told| told.min(FRESH_MAX))
}

/// Whether a field is passed back with bytes that are kept: not those of one answer or one hop, and
/// no digests of what that answer held.
fn is_of_the_file(name: &str) -> bool {
    !matches!(
        name,
        "content-length"
            | "content-range"
            | "content-digest"
            | "content-md5"
            | "age"
            | "server-timing"
            | "transfer-encoding"
            | "www-authenticate"
    )
}

/// Where the server says nothing, a file is asked for again after this: long enough for a crowd
/// that comes at once, too short for anybody to be shown yesterday's file.
const FRESH: Duration = Duration::from_secs(2);
/// More than this nobody has to say of a file, and it is kept in memory for each.
const FIELDS_BYTES_MAX: usize = 8 << 10;
/// Whatever the server says, once a day is little.
const FRESH_MAX: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(fields: &[(&str, &str)]) -> AnswerHead {
        let usual = [("etag", "\"a\""), ("content-length", "9"), ("content-type", "x/y")];
        let own = |name: &str| fields.iter().any(|(own, _)| *own == name);
        let all = usual.iter().filter(|(name, _)| !own(name)).chain(fields);
        AnswerHead {
            status: 200,
            reason: String::new(),
            fields: all.map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            length: Some(9),
            is_bodiless: true,
        }
    }

    fn facts(fields: &[(&str, &str)]) -> Option<Facts> {
        Facts::of(&answer(fields), Instant::now())
    }

    #[test]
    fn what_may_not_be_kept_is_not() {
        assert!(facts(&[]).is_some());
        for (name, value) in [
            ("etag", "W/\"a\""),
            ("etag", ""),
            ("cache-control", "max-age=9, No-Store"),
            ("cache-control", "private=\"x\""),
            ("vary", "Accept-Encoding, Origin"),
            ("vary", "*"),
            ("content-encoding", "gzip"),
            ("set-cookie", "a=b"),
        ] {
            assert_eq!(facts(&[(name, value)]), None, "{name}: {value}");
        }
        assert!(facts(&[("vary", "Accept-Encoding"), ("cache-control", "public")]).is_some());
        let other = AnswerHead { status: 206, ..answer(&[]) };
        assert_eq!(Facts::of(&other, Instant::now()), None);
        let endless = AnswerHead { length: None, ..answer(&[]) };
        assert_eq!(Facts::of(&endless, Instant::now()), None);
    }

    #[test]
    fn it_is_believed_as_long_as_was_told() {
        for (fields, seconds) in [
            (&[][..], 2),
            (&[("cache-control", "max-age=60")], 60),
            (&[("cache-control", "max-age=60, s-maxage=5")], 5),
            // What is told twice is the less.
            (&[("cache-control", "max-age=1, max-age=60")], 1),
            (&[("cache-control", "max-age=60, max-age=1")], 1),
            (&[("cache-control", "max-age=60"), ("age", "50")], 10),
            (&[("cache-control", "max-age=60"), ("age", "70")], 0),
            (&[("cache-control", "no-cache")], 0),
            (&[("cache-control", "max-age=0")], 0),
            (&[("cache-control", "max-age=99999999999")], 86_400),
            (&[("cache-control", "max-age=often")], 2),
        ] {
            let facts = facts(fields).unwrap();
            let later = |seconds| facts.asked + Duration::from_secs(seconds);
            assert!(!facts.is_fresh(later(seconds)), "{fields:?}");
            assert!(seconds == 0 || facts.is_fresh(later(seconds - 1)), "{fields:?}");
        }
        let facts = facts(&[("age", "7")]).unwrap();
        assert_eq!(facts.age_s(facts.asked + Duration::from_secs(3)), 10);
    }

    #[test]
    fn no_age_is_too_great_to_be_reckoned_with() {
        // The sum with the time since then once panicked, and so did whoever looked for room for
        // another address from then on.
        let facts =
            facts(&[("cache-control", "max-age=60"), ("age", "18446744073709551615")]).unwrap();
        let later = facts.asked + Duration::from_secs(2);
        assert!(!facts.is_fresh(later) && facts.is_ageing(later));
        assert_eq!(facts.age_s(later), u64::MAX);
    }

    #[test]
    fn what_says_too_much_is_not_kept() {
        let long = "x".repeat(FIELDS_BYTES_MAX);
        assert_eq!(facts(&[("x-long", &long)]), None);
    }

    #[test]
    fn fields_of_one_answer_are_not_those_of_the_file() {
        let facts = facts(&[("content-md5", "x"), ("age", "1"), ("link", "<a>")]).unwrap();
        let names: Vec<&str> = facts.fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["etag", "content-type", "link", "accept-ranges"]);
    }
}
