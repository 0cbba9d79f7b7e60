//! Requests that the cache makes for all clients that want a file, and how their answers are
//! judged.

use std::future::poll_fn;
use std::time::Duration;

use swath_formats::{content_range, digest_header};
use swath_model::Range;
use swath_source::{AnswerHead, Upstream};
use tokio::time::timeout;
use url::Url;

use super::facts::may_be_kept;
use super::version::Version;
use crate::Relay;
use crate::headers::request_start;

/// Why something did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The file is another one now, or none.
    Changed,
    /// The server does not give parts of it, or not to be kept.
    Apart,
    /// The connection, or a server that cannot just now: it may come another time.
    Failed,
    /// Nobody wants it any more.
    Unwanted,
}

/// `method` for `url`, asked by nobody in particular: `via` are those whom the request came by.
fn request(method: &str, url: &Url, via: &str, more: &str) -> Vec<u8> {
    let start = request_start(method, url);
    format!("{start}Accept: */*\r\nAccept-Encoding: identity\r\n{more}Via: {via}\r\n\r\n")
        .into_bytes()
}

/// For `range` of a version of a file, and of no other one.
pub(super) fn range_request(version: &Version, range: Range, via: &str) -> Vec<u8> {
    let more = format!(
        "Range: bytes={}-{}\r\nIf-Match: {}\r\nWant-Repr-Digest: {}\r\nWant-Digest: {}\r\n",
        range.start,
        range.end - 1,
        version.etag.as_str(),
        digest_header::WANT_REPR_DIGEST,
        digest_header::WANT_DIGEST,
    );
    request("GET", &version.url, via, &more)
}

/// Whether this is the head of an answer that brings just `range` of this version.
pub(super) fn judge(answer: &AnswerHead, version: &Version, range: Range) -> Result<(), Trouble> {
    let is_ours = answer
        .field("etag")
        .and_then(swath_formats::Etag::parse)
        .map(|etag| etag.matches_strongly(&version.etag));
    match (answer.status, is_ours) {
        (412 | 404 | 410 | 416, _) | (200 | 206, Some(false)) => return Err(Trouble::Changed),
        (206, Some(true)) => {}
        // It gives nothing but the whole, which was what was asked for.
        (200, Some(true)) if range == Range::new(0, version.size_bytes) => {}
        (500..=599 | 408 | 429, _) => return Err(Trouble::Failed),
        _ => return Err(Trouble::Apart),
    }
    if !may_be_kept(answer) {
        return Err(Trouble::Apart);
    }
    if answer.status == 206 {
        let told = answer.field("content-range").map(content_range::parse);
        let Some(Ok(told)) = told else { return Err(Trouble::Apart) };
        if told.size_bytes.is_some_and(|bytes| bytes != version.size_bytes) {
            return Err(Trouble::Changed);
        }
        if told.range != Some(range) {
            return Err(Trouble::Apart);
        }
    }
    match answer.length {
        Some(bytes) if bytes != range.len() => Err(Trouble::Apart),
        _ => Ok(()),
    }
}

/// What the server says of `url` without sending it; `None` if it says nothing.
pub(super) async fn about(relay: &Relay, url: &Url, via: &str) -> Option<AnswerHead> {
    let request = request("HEAD", url, via, "");
    let asked = ask(relay, url, &request, true, relay.timeout).await;
    let (answer, upstream) = asked?;
    upstream.put_aside();
    Some(answer)
}

/// `range` of a version, as a connection from which it comes next.
pub(super) async fn range(
    relay: &Relay,
    version: &Version,
    range: Range,
    via: &str,
) -> Result<Upstream, Trouble> {
    let request = range_request(version, range, via);
    let asked = ask(relay, &version.url, &request, false, relay.timeout).await;
    let (answer, upstream) = asked.ok_or(Trouble::Failed)?;
    judge(&answer, version, range)?;
    Ok(upstream)
}

async fn ask(
    relay: &Relay,
    url: &Url,
    request: &[u8],
    is_head: bool,
    within: Duration,
) -> Option<(AnswerHead, Upstream)> {
    // Who served before may have closed the connection meanwhile.
    for reuse in [true, false] {
        let mut upstream = relay.net.upstream(url, reuse).await.ok()?;
        let was_used = upstream.was_used();
        upstream.send(request);
        let answer = poll_fn(|cx| {
            // Why it cannot be sent is seen where the answer is read.
            let _ = upstream.poll_send(cx);
            upstream.poll_head(cx, is_head)
        });
        match timeout(within, answer).await.ok()? {
            Ok(Some(answer)) => return Some((answer, upstream)),
            _ if !was_used => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use swath_formats::Etag;

    fn version() -> Version {
        let url = Url::parse("http://a.example:81/f?x=1").unwrap();
        Version::new(&url, Etag::parse("\"v1\"").unwrap(), 1000)
    }

    #[test]
    fn parts_are_asked_for_by_their_version() {
        let request = range_request(&version(), Range::new(10, 20), "1.1 r0, 1.1 r1");
        let text = String::from_utf8(request).unwrap();
        assert!(text.starts_with("GET /f?x=1 HTTP/1.1\r\nHost: a.example:81\r\n"), "{text}");
        for line in ["Range: bytes=10-19", "If-Match: \"v1\"", "Via: 1.1 r0, 1.1 r1"] {
            assert!(text.contains(&format!("\r\n{line}\r\n")), "{line}: {text}");
        }
    }

    #[test]
    fn nothing_but_what_was_asked_for_is_taken() {
        let judged = |status, etag: &str, told: &str, length| {
            let fields = [("etag", etag), ("content-range", told), ("cache-control", "max-age=1")];
            let answer = AnswerHead {
                status,
                reason: String::new(),
                fields: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
                length,
                is_bodiless: false,
            };
            judge(&answer, &version(), Range::new(10, 20))
        };
        let right = "bytes 10-19/1000";
        assert_eq!(judged(206, "\"v1\"", right, Some(10)), Ok(()));
        assert_eq!(judged(206, "\"v1\"", "bytes 10-19/*", None), Ok(()));
        for (status, etag, told, length, trouble) in [
            (206, "\"v2\"", right, Some(10), Trouble::Changed),
            (200, "\"v2\"", "", Some(10), Trouble::Changed),
            (206, "\"v1\"", "bytes 10-19/1001", Some(10), Trouble::Changed),
            (412, "\"v2\"", "", Some(0), Trouble::Changed),
            (404, "", "", Some(0), Trouble::Changed),
            (206, "", right, Some(10), Trouble::Apart),
            (206, "W/\"v1\"", right, Some(10), Trouble::Changed),
            (206, "\"v1\"", "bytes 11-20/1000", Some(10), Trouble::Apart),
            (206, "\"v1\"", right, Some(11), Trouble::Apart),
            (200, "\"v1\"", "", Some(1000), Trouble::Apart),
            (403, "", "", Some(0), Trouble::Apart),
            (503, "", "", Some(0), Trouble::Failed),
        ] {
            assert_eq!(judged(status, etag, told, length), Err(trouble), "{status} {etag} {told}");
        }
    }
}
