//! The depot fetches a range from another server, which may be another depot, through relays or
//! directly.
//!
//! It asks only servers that the relay may ask, with the conditions of its client (`If-Match`) and
//! what the client encrypted for this relay. The status tells of errors before the first byte.
//! After that, lines of JSON tell how many bytes have arrived and how many are durable; the last
//! line is `{"done":true,…}` or `{"error":…,"status":…}`, and a body without either was cut off.
//! The fetch goes on while somebody reads the lines; what was stored by then stays.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::ready;
use std::time::Duration;

use serde_json::{Value, json};
use swath_formats::{Etag, ProxyFault, content_range, relay as address};
use swath_model::Range;
use swath_source::{AnswerHead, LaneError, Upstream};
use swath_store::depot::{Capability, Right, Writer};
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use super::super::headers::{self, Form};
use super::super::{Relay, faults};
use super::DepotService;
use super::store::{commit, fitting, put, unstored};
use swath_serve::http::{Content, Head, Made, Make, Method, Response};

impl Relay {
    /// Fetches `range` of what is at `from`.
    pub(super) async fn fetch(
        &self,
        door: &Arc<DepotService>,
        head: &Head,
        write: Capability,
        from: Url,
        range: Range,
    ) -> Result<Response, Response> {
        let status = door.find(&write, Right::Write).await?;
        let size_bytes = status.size_bytes;
        let range = fitting(Some(range), None, size_bytes)?;
        // What lies at either end of it already is not asked for again.
        let gaps = status.held.gaps_within(range);
        let left = match (gaps.first(), gaps.last()) {
            (Some(first), Some(last)) => Range::new(first.start, last.end),
            _ => Range::new(range.end, range.end),
        };
        let fetching = if left.is_empty() {
            None
        } else {
            let upstream = self.opened(head, from, left, size_bytes).await?;
            let writer = door.writer(&write, left.start).await?;
            let buffer = vec![0; BUFFER_BYTES];
            let came_at = Instant::now();
            Some(Fetching { upstream, writer, left, buffer, came_at, is_durable: true })
        };
        let lines = Lines {
            door: Arc::clone(door),
            fetching,
            range,
            timeout: self.timeout,
            last: None,
            is_over: false,
            told_to: left.start,
            durable_at: Instant::now() + DURABLE_EVERY,
        };
        Ok(Response::empty(200)
            .with("content-type", "application/x-ndjson")
            .with("cache-control", "no-store")
            .containing(Content::Made(Box::new(lines))))
    }

    /// An answer whose body begins with `range`.
    async fn opened(
        &self,
        head: &Head,
        from: Url,
        range: Range,
        size_bytes: u64,
    ) -> Result<Upstream, Response> {
        let mut url = from;
        let mut shown = self.unsealed(head, &url)?;
        for _ in 0..REDIRECTS_MAX {
            self.judge_way(head, &url)?;
            let (upstream, answer) = self.ask(head, &url, &shown, range).await?;
            let site = address::site(&url).unwrap_or_default();
            let refused = |fault, text: &str| self.refusal(fault, Some(&site), text);
            if let (301 | 302 | 303 | 307 | 308, Some(to)) =
                (answer.status, answer.field("location"))
            {
                let to = url.join(to).ok().filter(|to| matches!(to.scheme(), "http" | "https"));
                let to = to.ok_or_else(|| {
                    refused(ProxyFault::Protocol, "it redirects to nowhere that can be asked")
                })?;
                if to.origin() != url.origin() {
                    // They are for the server that they were sealed for.
                    shown.clear();
                }
                url = to;
                continue;
            }
            let checked = check(&answer, range, size_bytes).and_then(|()| same(&answer, head));
            checked.map_err(|wrong| match wrong {
                Wrong::Changed(text) => Response::text(409, format!("{site}: {text}")),
                Wrong::Status => {
                    let text = format!("it answers {} {}", answer.status, answer.reason);
                    let refusal = refused(ProxyFault::Protocol, &text);
                    refusal.with("swath-status", answer.status.to_string())
                }
                Wrong::Ranges => refused(ProxyFault::Protocol, "it sends no ranges"),
            })?;
            return Ok(upstream);
        }
        Err(Response::text(502, "it redirects too often"))
    }

    /// Asks a server for `range`; answers the head of its answer.
    async fn ask(
        &self,
        head: &Head,
        url: &Url,
        shown: &[(String, String)],
        range: Range,
    ) -> Result<(Upstream, AnswerHead), Response> {
        let site = address::site(url).unwrap_or_default();
        let failed = |error: &LaneError| {
            let (fault, words) = faults::of(error);
            self.refusal(fault, Some(&site), &words)
        };
        let mut asked = head.clone();
        asked.method = Method::GET;
        let mut more = shown.to_vec();
        more.push(("Range".to_owned(), format!("bytes={}-{}", range.start, range.end - 1)));
        more.push(("Accept-Encoding".to_owned(), "identity".to_owned()));
        let request = headers::request(&asked, url, Form::Path, &self.pseudonym, &more);
        let mut reuse = true;
        loop {
            let mut upstream =
                self.net.upstream(url, reuse).await.map_err(|error| failed(&error))?;
            upstream.send(&request);
            let answered = poll_fn(|cx| {
                if upstream.has_unsent() {
                    // Why it could not be sent is seen where the answer is read.
                    let _ = ready!(upstream.poll_send(cx));
                }
                upstream.poll_head(cx, false)
            });
            match timeout(self.timeout, answered).await {
                Ok(Ok(Some(answer))) => return Ok((upstream, answer)),
                // Servers close connections that nobody used for a while.
                Ok(Ok(None) | Err(LaneError::Reset { .. })) if reuse && upstream.was_used() => {
                    reuse = false;
                }
                Ok(Ok(None)) => {
                    let words = "it closed the connection without an answer";
                    return Err(self.refusal(ProxyFault::Terminated, Some(&site), words));
                }
                Ok(Err(error)) => return Err(failed(&error)),
                Err(_) => {
                    let words = format!("it said nothing for {} s", self.timeout.as_secs_f64());
                    return Err(self.refusal(ProxyFault::ReadTimeout, Some(&site), &words));
                }
            }
        }
    }
}

/// Why an answer is not what was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    /// It is about something else than what is to be stored.
    Changed(String),
    Status,
    Ranges,
}

/// Whether the body of an answer begins with `range` of a file of this size.
fn check(answer: &AnswerHead, range: Range, size_bytes: u64) -> Result<(), Wrong> {
    let other = |size| {
        Wrong::Changed(format!("it has {size} bytes there, the allocation has {size_bytes}"))
    };
    if answer
        .field("content-encoding")
        .is_some_and(|coding| !coding.eq_ignore_ascii_case("identity"))
    {
        return Err(Wrong::Ranges);
    }
    match answer.status {
        206 => {
            let told =
                answer.field("content-range").and_then(|value| content_range::parse(value).ok());
            let told = told.ok_or(Wrong::Ranges)?;
            match told.size_bytes {
                Some(size) if size != size_bytes => Err(other(size)),
                _ if told.range == Some(range) => Ok(()),
                _ => Err(Wrong::Ranges),
            }
        }
        200 => match answer.length {
            Some(size) if size != size_bytes => Err(other(size)),
            // It begins with what was asked for; the rest is left.
            Some(_) if range.start == 0 => Ok(()),
            _ => Err(Wrong::Ranges),
        },
        412 => Err(Wrong::Changed("it has changed there".to_owned())),
        _ => Err(Wrong::Status),
    }
}

/// Whether an answer is of the version that was asked for: not every server looks at conditions.
fn same(answer: &AnswerHead, asked: &Head) -> Result<(), Wrong> {
    let wanted = asked.field("if-match").and_then(Etag::parse);
    let is_same = match (wanted, answer.field("etag").and_then(Etag::parse)) {
        (Some(wanted), Some(told)) => told.matches_strongly(&wanted),
        _ => match (asked.field("if-unmodified-since"), answer.field("last-modified")) {
            (Some(wanted), Some(told)) => told.trim() == wanted.trim(),
            _ => true,
        },
    };
    if is_same { Ok(()) } else { Err(Wrong::Changed("it has changed there".to_owned())) }
}

/// What is under way.
struct Fetching {
    upstream: Upstream,
    writer: Writer,
    left: Range,
    buffer: Vec<u8>,
    /// When bytes last came.
    came_at: Instant,
    /// Whether all that came is durable.
    is_durable: bool,
}

/// The lines that tell of it.
struct Lines {
    door: Arc<DepotService>,
    /// `None`: everything is stored.
    fetching: Option<Fetching>,
    range: Range,
    timeout: Duration,
    /// Why nothing more comes, to be told yet.
    last: Option<Value>,
    is_over: bool,
    /// Up to where it was told to be durable.
    told_to: u64,
    /// When what was taken is to be durable.
    durable_at: Instant,
}

impl Lines {
    /// Works for a while, and tells of it: also where nothing came, since whoever is gone is noticed
    /// by what cannot be told any more.
    async fn line(&mut self) -> Value {
        if let Some(last) = self.last.take() {
            self.is_over = true;
            return last;
        }
        let until = Instant::now() + CAME_EVERY;
        while let Some(fetching) = self.fetching.take() {
            match self.step(fetching, until).await {
                Ok((fetching, is_durable)) if !fetching.left.is_empty() => {
                    let at = fetching.left.start;
                    self.fetching = Some(fetching);
                    if is_durable {
                        self.durable_at = Instant::now() + DURABLE_EVERY;
                        self.told_to = at;
                        return json!({"stored": at - self.range.start});
                    }
                    if Instant::now() >= until {
                        return json!({"came": at - self.range.start});
                    }
                }
                Ok((fetching, _)) => {
                    fetching.upstream.put_aside();
                }
                // What came before it is kept, and whoever asks anew need not take it for a standstill.
                Err((stored_to, error)) if stored_to > self.told_to => {
                    self.last = Some(error);
                    return json!({"stored": stored_to - self.range.start});
                }
                Err((_, error)) => {
                    self.is_over = true;
                    return error;
                }
            }
        }
        self.is_over = true;
        json!({"stored": self.range.len(), "done": true})
    }

    /// Takes some of the body. What is taken is durable at the end, and now and then. With an error goes
    /// up to where it is.
    async fn step(
        &self,
        mut fetching: Fetching,
        until: Instant,
    ) -> Result<(Fetching, bool), (u64, Value)> {
        let most = fetching.left.len().min(BUFFER_BYTES as u64) as usize;
        let Fetching { upstream, buffer, .. } = &mut fetching;
        let (came, broken) = fill(upstream, &mut buffer[..most], until).await;
        let mut broken = broken.map(|error| faults::of(&error));
        let mut error = None;
        if came > 0 {
            fetching.came_at = Instant::now();
            fetching.is_durable = false;
            let part = fetching.buffer[..came].to_vec();
            let lost = |_| (0, failure(500, "the depot could not do this"));
            (fetching.writer, error) = put(fetching.writer, part).await.map_err(lost)?;
            fetching.left.start = fetching.writer.offset();
            self.door.figures.fetched_bytes.fetch_add(came as u64, Ordering::Relaxed);
        } else if fetching.came_at.elapsed() >= self.timeout {
            let words = format!("it said nothing for {} s", self.timeout.as_secs_f64());
            broken = broken.or(Some((ProxyFault::ReadTimeout, words)));
        }
        let ends = broken.is_some() || error.is_some() || fetching.left.is_empty();
        let is_durable = !fetching.is_durable && (ends || Instant::now() >= self.durable_at);
        if is_durable {
            fetching.writer =
                commit(fetching.writer).await.map_err(|refusal| (0, said(&refusal)))?;
            fetching.is_durable = true;
        }
        let to = fetching.left.start;
        match (error, broken) {
            (Some(error), _) => Err((to, said(&unstored(&error)))),
            (None, Some((fault, words))) => Err((to, failure(fault.status(), &words))),
            (None, None) => Ok((fetching, is_durable)),
        }
    }
}

impl Drop for Lines {
    /// Whoever leaves takes nothing along: what has come is made durable, since it takes space.
    fn drop(&mut self) {
        if let Some(Fetching { mut writer, .. }) = self.fetching.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn_blocking(move || {
                if let Err(error) = writer.commit() {
                    tracing::debug!(%error, "what had come of a fetch that was given up is lost");
                }
            });
        }
    }
}

/// Fills a buffer with what comes `until` then; with why no more comes.
async fn fill(
    upstream: &mut Upstream,
    buffer: &mut [u8],
    until: Instant,
) -> (usize, Option<LaneError>) {
    let mut came = 0;
    while came < buffer.len() {
        let read = poll_fn(|cx| upstream.poll_body(cx, &mut buffer[came..]));
        match timeout_at(until, read).await {
            Ok(Ok(0)) => {
                let wanted = buffer.len() as u64;
                return (came, Some(LaneError::Truncated { got: came as u64, wanted }));
            }
            Ok(Ok(bytes)) => came += bytes,
            Ok(Err(error)) => return (came, Some(error)),
            Err(_) => break,
        }
    }
    (came, None)
}

/// The last line where nothing more comes.
fn failure(status: u16, words: &str) -> Value {
    json!({"error": words, "status": status})
}

/// The same of a refusal.
fn said(refusal: &Response) -> Value {
    let words = match &refusal.body {
        Content::Bytes(bytes) => String::from_utf8_lossy(bytes).trim().to_owned(),
        _ => String::new(),
    };
    failure(refusal.status, &words)
}

impl Make for Lines {
    fn length(&self) -> Option<u64> {
        None
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            if self.is_over {
                return Ok(Vec::new());
            }
            let line = self.line().await;
            Ok::<_, io::Error>(format!("{line}\n").into_bytes())
        })
    }
}

/// So often a line tells what is durable: each costs a sync of the disk.
const DURABLE_EVERY: Duration = Duration::from_millis(500);
/// And so often what has come, by which its rate is seen.
const CAME_EVERY: Duration = Duration::from_millis(100);
/// Written at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// As many as a transfer follows would be more than a depot needs.
const REDIRECTS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_stored() {
        let answer = |status, fields: &[(&str, &str)], length| {
            let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            AnswerHead {
                status,
                reason: String::new(),
                fields: fields.collect(),
                length,
                is_bodiless: false,
            }
        };
        let part = |value| answer(206, &[("content-range", value)], Some(10));
        let range = Range::new(10, 20);
        let is = |head: &AnswerHead, range| check(head, range, 100);
        assert_eq!(is(&part("bytes 10-19/100"), range), Ok(()));
        assert_eq!(is(&part("bytes 10-19/*"), range), Ok(()));
        assert_eq!(is(&part("bytes 0-9/100"), range), Err(Wrong::Ranges));
        assert_eq!(is(&part("bytes 10-18/100"), range), Err(Wrong::Ranges));
        assert!(matches!(is(&part("bytes 10-19/101"), range), Err(Wrong::Changed(_))));
        assert_eq!(is(&answer(206, &[], Some(10)), range), Err(Wrong::Ranges));
        let whole = |length| answer(200, &[], length);
        assert_eq!(is(&whole(Some(100)), range), Err(Wrong::Ranges));
        assert_eq!(is(&whole(Some(100)), Range::new(0, 20)), Ok(()));
        assert!(matches!(is(&whole(Some(99)), Range::new(0, 20)), Err(Wrong::Changed(_))));
        assert_eq!(is(&whole(None), Range::new(0, 20)), Err(Wrong::Ranges));
        let coded = answer(200, &[("content-encoding", "gzip")], Some(100));
        assert_eq!(is(&coded, Range::new(0, 20)), Err(Wrong::Ranges));
        assert!(matches!(is(&answer(412, &[], None), range), Err(Wrong::Changed(_))));
        assert_eq!(is(&answer(404, &[], None), range), Err(Wrong::Status));
    }

    #[test]
    fn a_server_that_looks_at_no_conditions_is_not_believed() {
        // Depots stored two versions of a file as one.
        let asked = |fields: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            Head::parse(text.as_bytes()).unwrap().unwrap().0
        };
        let answer = |fields: &[(&str, &str)]| AnswerHead {
            status: 206,
            reason: String::new(),
            fields: fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            length: Some(10),
            is_bodiless: false,
        };
        let day = "Tue, 24 Nov 2026 01:00:17 GMT";
        let other = "Tue, 24 Nov 2026 01:00:15 GMT";
        let since = format!("If-Unmodified-Since: {day}\r\n");
        let both = format!("If-Match: \"a\"\r\n{since}");
        type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], bool);
        let cases: [Case<'_>; 9] = [
            (&both, &[("etag", "\"a\""), ("last-modified", day)], true),
            (&both, &[("etag", "\"b\""), ("last-modified", day)], false),
            (&both, &[("etag", "W/\"a\"")], false),
            (&both, &[("last-modified", day)], true),
            (&both, &[("last-modified", other)], false),
            (&both, &[], true),
            (&since, &[("etag", "\"b\""), ("last-modified", day)], true),
            (&since, &[("last-modified", other)], false),
            ("", &[("etag", "\"b\""), ("last-modified", other)], true),
        ];
        for (fields, told, is_same) in cases {
            assert_eq!(same(&answer(told), &asked(fields)).is_ok(), is_same, "{fields} {told:?}");
        }
    }
}
