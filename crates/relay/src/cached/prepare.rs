//! Prepares an answer: the current version, whether the request is about that version, and the
//! first bytes.

use std::sync::Arc;
use std::time::Instant;

use swath_formats::conditions::{Current, Decision};
use swath_formats::range_header::{self, Ranges};
use swath_model::Range;
use swath_source::AnswerHead;
use swath_store::cache::Part;
use url::Url;

use super::addresses::Present;
use super::facts::Facts;
use super::fetcher::Jobs;
use super::reader::{CacheStatus, Read, Reader, ReaderOptions};
use crate::Relay;
use swath_serve::http::{Head, Method, now_s, reason};

/// What is answered.
pub(super) enum Prepared {
    /// Nothing by the cache.
    Apart,
    /// A head alone.
    Told(AnswerHead, CacheStatus),
    /// A head, these bytes, and what comes behind them.
    Bytes(AnswerHead, Part, Box<Reader>),
}

/// One request.
pub(super) struct Asked {
    pub head: Arc<Head>,
    pub url: Url,
    pub via: Arc<str>,
}

/// What is to be answered, as soon as its first bytes are here.
pub(super) async fn prepare(relay: Arc<Relay>, asked: Asked, jobs: Jobs) -> Prepared {
    let Some(cached) = &relay.cached else { return Prepared::Apart };
    let Some(address) = cached.addresses.address(&asked.url) else { return Prepared::Apart };
    // A file that changes while somebody waits for its first bytes is looked at again.
    for _ in 0..LOOKS_MAX {
        let must_ask = wants_news(&asked.head);
        let began = Instant::now();
        let present = address.present(&relay, &asked.via, must_ask).await;
        let Some(Present { facts, version }) = present else { return Prepared::Apart };
        let (status, range) = match decide(&asked.head, &facts) {
            Decided::Told(status) => {
                let how = if facts.asked >= began { CacheStatus::Miss } else { CacheStatus::Hit };
                return Prepared::Told(answer(&facts, &[], status, None), how);
            }
            Decided::Bytes(status, range) => (status, range),
        };
        let (store, key, size_bytes) = (cached.store.clone(), version.key(), version.size_bytes);
        let entry = tokio::task::spawn_blocking(move || store.lookup(&key, size_bytes)).await;
        let Ok(Ok(entry)) = entry else { return Prepared::Apart };
        let options = ReaderOptions {
            address: Arc::clone(&address),
            version: Arc::clone(&version),
            via: Arc::clone(&asked.via),
            jobs: jobs.clone(),
        };
        let mut reader = Reader::new(options, entry, range);
        match reader.next().await {
            Ok(Read::Part(part)) => {
                let head = answer(&facts, version.digests(), status, Some(range));
                return Prepared::Bytes(head, part, Box::new(reader));
            }
            Ok(Read::Cut) => {}
            Ok(Read::Rest(_) | Read::End) | Err(_) => return Prepared::Apart,
        }
    }
    Prepared::Apart
}

enum Decided {
    Told(u16),
    Bytes(u16, Range),
}

/// What a request comes to for the present version (RFC 9110, sections 13.2.2 and 14.2).
fn decide(head: &Head, facts: &Facts) -> Decided {
    let conditions = head.conditions();
    let current = Current { etag: Some(&facts.etag), modified_s: facts.modified_s };
    match conditions.decide(current, true) {
        Decision::NotModified => return Decided::Told(304),
        Decision::Failed => return Decided::Told(412),
        Decision::Proceed if head.method == Method::HEAD => return Decided::Told(200),
        Decision::Proceed => {}
    }
    let counts = conditions.range_counts(current, now_s());
    let whole = Range::new(0, facts.size_bytes);
    match head.field("range").filter(|_| counts) {
        None => Decided::Bytes(200, whole),
        Some(value) => match range_header::parse(value, facts.size_bytes) {
            Ranges::Unsatisfiable => Decided::Told(416),
            Ranges::Parts(parts) if parts.len() == 1 => Decided::Bytes(206, parts[0]),
            // Several are not for the cache.
            Ranges::Parts(_) | Ranges::Whole => Decided::Bytes(200, whole),
        },
    }
}

/// Whether whoever asks does not want to hear what was known before.
fn wants_news(head: &Head) -> bool {
    let is_news = |one: &str| {
        let one = one.trim().to_ascii_lowercase().replace(' ', "");
        one == "no-cache" || one == "max-age=0"
    };
    match head.field("cache-control") {
        Some(value) => value.split(',').any(is_news),
        None => head.field("pragma").is_some_and(|value| value.contains("no-cache")),
    }
}

/// The head of an answer, with `range` of the bytes if any.
fn answer(
    facts: &Facts,
    digests: &[(String, String)],
    status: u16,
    range: Option<Range>,
) -> AnswerHead {
    let mut fields = facts.fields.clone();
    let mut put = |name: &str, value: String| fields.push((name.to_owned(), value));
    put("age", facts.age_s(Instant::now()).to_string());
    let size_bytes = facts.size_bytes;
    match (status, range) {
        (206, Some(range)) => {
            let (first, last) = (range.start, range.end - 1);
            put("content-range", format!("bytes {first}-{last}/{size_bytes}"));
        }
        (416, _) => put("content-range", format!("bytes */{size_bytes}")),
        // To a HEAD: what there would be.
        (200, None) => put("content-length", size_bytes.to_string()),
        _ => {}
    }
    for (name, value) in digests {
        if facts.fields.iter().all(|(own, _)| own != name) {
            fields.push((name.clone(), value.clone()));
        }
    }
    AnswerHead {
        status,
        reason: reason(status).to_owned(),
        fields,
        length: Some(range.map_or(0, Range::len)),
        is_bodiless: range.is_none(),
    }
}

/// A file that changes more often while it is being asked for is passed on as it comes.
const LOOKS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use swath_formats::Etag;

    fn head(method: &str, fields: &str) -> Head {
        let text = format!("{method} /x HTTP/1.1\r\nHost: r\r\n{fields}\r\n");
        Head::parse_passing(text.as_bytes()).unwrap().unwrap().0
    }

    fn facts() -> Facts {
        Facts {
            etag: Etag::parse("\"a\"").unwrap(),
            size_bytes: 100,
            modified_s: Some(784_111_777),
            fields: vec![("etag".to_owned(), "\"a\"".to_owned())],
            fresh_for: Duration::from_secs(2),
            age: Duration::ZERO,
            asked: Instant::now(),
        }
    }

    #[test]
    fn requests_are_judged_against_the_present_version() {
        for (method, fields, status, range) in [
            ("GET", "", 200, Some((0, 100))),
            ("HEAD", "Range: bytes=0-9\r\n", 200, None),
            ("GET", "Range: bytes=10-19\r\n", 206, Some((10, 20))),
            ("GET", "Range: bytes=-10\r\n", 206, Some((90, 100))),
            ("GET", "Range: bytes=100-\r\n", 416, None),
            ("GET", "Range: lines=1-2\r\n", 200, Some((0, 100))),
            ("GET", "Range: bytes=10-19\r\nIf-Range: \"a\"\r\n", 206, Some((10, 20))),
            ("GET", "Range: bytes=10-19\r\nIf-Range: \"b\"\r\n", 200, Some((0, 100))),
            ("GET", "If-Match: \"b\"\r\n", 412, None),
            ("GET", "If-None-Match: \"a\"\r\n", 304, None),
            ("GET", "If-None-Match: \"b\"\r\n", 200, Some((0, 100))),
            ("HEAD", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n", 304, None),
        ] {
            let found = match decide(&head(method, fields), &facts()) {
                Decided::Told(status) => (status, None),
                Decided::Bytes(status, range) => (status, Some((range.start, range.end))),
            };
            assert_eq!(found, (status, range), "{method} {fields}");
        }
        for (fields, expected) in [
            ("", false),
            ("Cache-Control: no-cache\r\n", true),
            ("Cache-Control: min-fresh=1, max-age = 0\r\n", true),
            ("Cache-Control: max-age=10\r\n", false),
            ("Pragma: no-cache\r\n", true),
        ] {
            assert_eq!(wants_news(&head("GET", fields)), expected, "{fields}");
        }
    }
}
