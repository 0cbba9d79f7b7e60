//! A depot of a relay, as its client: space is leased there, it fetches ranges by itself, and what is
//! held is asked for, kept for longer, and given up.
//!
//! Who may use the relay may allocate; from then on the addresses that come back open everything. They
//! are secrets: no error holds one.

use std::future::poll_fn;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use swath_formats::plain_http::SpeaksHttps;
use swath_formats::{ProxyFault, depot, percent, proxy_status, relay};
use swath_model::{Range, RangeSet};
use url::Url;

use crate::error::LaneError;
use crate::http::request::Lines;
use crate::net::{Net, Secret};
use crate::source::{RelayMode, Trust};
use crate::target::Origin;
use crate::upstream::{AnswerHead, Upstream};

/// Space that a depot has leased.
#[derive(Clone, PartialEq, Eq)]
pub struct DepotLease {
    /// Where it is read: no secret of whoever may read.
    pub read: Url,
    /// Where it is stored.
    pub write: Url,
    /// Where it is extended and given up.
    pub manage: Url,
    /// How long it runs.
    pub left: Duration,
}

/// What an allocation is like.
#[derive(Clone, Debug, PartialEq)]
pub struct DepotStatus {
    /// How many bytes could be stored there.
    pub size_bytes: u64,
    /// Which are.
    pub held: RangeSet,
    /// Which were stored and are damaged.
    pub damaged: RangeSet,
    /// How long its lease still runs.
    pub left: Duration,
}

/// Bytes that a depot is to fetch.
#[derive(Clone, Copy, Debug)]
pub struct DepotWish<'a> {
    /// Where it stores them.
    pub write: &'a Url,
    /// Where they come from.
    pub from: &'a Url,
    /// Who named that.
    pub trust: Trust,
    /// Which bytes, of both.
    pub range: Range,
    /// The strong entity tag of the version that is meant, as written.
    pub etag: Option<&'a str>,
    /// When that was modified, as written.
    pub modified: Option<&'a str>,
}

/// A depot that fetches. Dropped, it stops; what it has told to be durable stays.
pub struct DepotFetch {
    upstream: Upstream,
    line: Vec<u8>,
    limit: Duration,
    net: Net,
}

/// What a depot tells while it fetches; all counts are from the beginning of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// So many bytes have come.
    Came(u64),
    /// So many are durable.
    Stored(u64),
    /// All are.
    Done,
}

/// Why a depot does not do what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DepotError {
    /// It cannot be reached, breaks off, or does not answer as depots do.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// There is no such allocation (any more).
    #[error("its lease has ended")]
    Ended,
    /// Somebody has taken away the files of the allocation.
    #[error("what was stored there was removed from its disk")]
    Lost,
    /// It is full, or has as many allocations as it may have.
    #[error("it has no room: {words}")]
    Full {
        /// Its words for it.
        words: String,
    },
    /// It could not have from the source what it was to fetch.
    #[error("it cannot fetch: {words}")]
    Source {
        /// Its words for it.
        words: String,
        /// Whether trying again may help.
        may_pass: bool,
        /// What is wrong on its way to the source, if it has said that.
        fault: Option<ProxyFault>,
    },
    /// The source has another file by now.
    #[error("{words}")]
    Changed {
        /// Its words for it.
        words: String,
    },
    /// Anything else that it refuses.
    #[error("it answered {status}: {words}")]
    Refused {
        /// The status code.
        status: u16,
        /// Its words for it.
        words: String,
    },
}

impl DepotError {
    /// Returns whether the same request may do better later.
    pub fn may_pass(&self) -> bool {
        match self {
            DepotError::Lane(error) => {
                matches!(error.class(), crate::Class::Transient | crate::Class::Busy(_))
            }
            DepotError::Source { may_pass, .. } => *may_pass,
            DepotError::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
            DepotError::Ended
            | DepotError::Lost
            | DepotError::Full { .. }
            | DepotError::Changed { .. } => false,
        }
    }

    /// What an answer, or the last line of one, says.
    fn of(status: u16, words: &str) -> DepotError {
        let words = crate::http::head::words(words);
        if let Some(who) = SpeaksHttps::read(status, &words) {
            return DepotError::Lane(LaneError::SpeaksHttps(who));
        }
        match status {
            507 => DepotError::Full { words },
            409 => DepotError::Changed { words },
            502 | 504 => DepotError::Source { words, may_pass: true, fault: None },
            status => DepotError::Refused { status, words },
        }
    }
}

impl Net {
    /// Leases `size_bytes` at the depot of `relay` for `length`. Space is taken as bytes come to be
    /// stored.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub fn depot_allocate<'a>(
        &'a self,
        relay: &'a Url,
        size_bytes: u64,
        length: Duration,
    ) -> BoxFuture<'a, Result<DepotLease, DepotError>> {
        Box::pin(async move {
            self.note_relay(relay);
            // What opens the relay is nobody else's: these addresses are written down and handed on.
            let bare = crate::shown::without_credentials(relay);
            let at = |path: &str| bare.join(path).map_err(|_| no_depot());
            let lease_s = length.as_secs().max(1);
            let target = at(&format!("/depot?size={size_bytes}&lease={lease_s}&reserve=no"))?;
            let told = self.depot_told("POST", &target).await.map_err(|error| match error {
                DepotError::Refused { status: 404, .. } => {
                    DepotError::Refused { status: 404, words: "it has no depot".to_owned() }
                }
                error => error,
            })?;
            allocated(&bare, &told)
        })
    }

    /// Returns what an allocation for a file of this size is like, by any of its addresses.
    ///
    /// # Errors
    /// See [`DepotError`]; [`LaneError::SizeMismatch`] if it is for another one.
    pub fn depot_status<'a>(
        &'a self,
        any: &'a Url,
        size_bytes: u64,
    ) -> BoxFuture<'a, Result<DepotStatus, DepotError>> {
        Box::pin(async move {
            let mut target = any.clone();
            target.set_query(Some("status"));
            status_of(&self.depot_told("GET", &target).await?, size_bytes)
        })
    }

    /// Lets a lease run for `length` from now on: how long it runs.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub fn depot_extend<'a>(
        &'a self,
        manage: &'a Url,
        length: Duration,
    ) -> BoxFuture<'a, Result<Duration, DepotError>> {
        Box::pin(async move {
            let mut target = manage.clone();
            target.set_query(Some(&format!("extend={}", length.as_secs().max(1))));
            lease_of(&self.depot_told("POST", &target).await?)
        })
    }

    /// Gives an allocation up; `false` if it is no more, as when its lease has ended.
    ///
    /// # Errors
    /// See [`DepotError`]. Only a depot's own word counts: whoever else answers at its address, or its
    /// relay without the depot, must not have the only keys thrown away.
    pub fn depot_release<'a>(&'a self, manage: &'a Url) -> BoxFuture<'a, Result<bool, DepotError>> {
        Box::pin(async move {
            let (mut upstream, head) =
                match self.depot_ask("DELETE", manage, Lines::NONE, false, ANSWERS_WITHIN).await {
                    Err(DepotError::Ended) => return Ok(false),
                    asked => asked?,
                };
            match head.status {
                200..=299 if has_ended(&head) => {
                    upstream.put_aside();
                    Ok(true)
                }
                200..=299 => Err(no_depot()),
                status => Err(DepotError::of(status, &self.text_of(&mut upstream).await?)),
            }
        })
    }

    /// Has a depot fetch bytes. What opens the source goes along, encrypted for the depot's relay; what
    /// opens the relay of another depot, encrypted for that one.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub fn depot_fetch<'a>(
        &'a self,
        wish: DepotWish<'a>,
    ) -> BoxFuture<'a, Result<DepotFetch, DepotError>> {
        Box::pin(async move {
            if self.awaits_keys(std::slice::from_ref(wish.write), wish.from, RelayMode::Forward) {
                // Where it tells none, its relay may let in the one that asks.
                let _ = self.about_relay(wish.from, &[]).await;
            }
            let from = crate::shown::without_credentials(wish.from);
            let relays = std::slice::from_ref(wish.write);
            let mut encrypted = self.encrypted_for(relays, wish.from, &from, wish.trust);
            let first = self.depot_fetch_with(&wish, &encrypted.lines).await;
            match first {
                // A relay has another key since it was started again.
                Err((_, true)) if self.have_changed(&encrypted.keys).await => {
                    encrypted = self.encrypted_for(relays, wish.from, &from, wish.trust);
                    self.depot_fetch_with(&wish, &encrypted.lines).await.map_err(|(error, _)| error)
                }
                first => first.map_err(|(error, _)| error),
            }
        })
    }

    /// One try; with an error goes whether what was encrypted may have been for another key.
    async fn depot_fetch_with(
        &self,
        wish: &DepotWish<'_>,
        encrypted: &Lines,
    ) -> Result<DepotFetch, (DepotError, bool)> {
        let lines = match (wish.etag, wish.modified) {
            (Some(etag), _) => encrypted.clone().with("If-Match", etag),
            (None, modified) => encrypted.clone().with_any("If-Unmodified-Since", modified),
        };
        let mut target = wish.write.clone();
        let from = crate::shown::without_credentials(wish.from);
        let from = percent::encode(from.as_str().as_bytes());
        let Range { start, end } = wish.range;
        target.set_query(Some(&format!("from={from}&range={start}-{}", end.saturating_sub(1))));
        // A depot waits for the source before it answers: whoever is in a hurry asks it whether it is there.
        let asked = self.depot_ask("POST", &target, &lines, true, self.timeout()).await;
        let (mut upstream, head) = asked.map_err(|error| (error, false))?;
        if head.status != 200 {
            let words = self.text_of(&mut upstream).await.map_err(|error| (error.into(), false))?;
            // What the server behind it answered, if it was that.
            let told = head.field("swath-status").and_then(|code| code.parse::<u16>().ok());
            let entry = head.field("proxy-status").and_then(proxy_status::read);
            let fault = entry.as_ref().and_then(|entry| entry.fault);
            let is_closed = fault == Some(ProxyFault::OtherKey)
                || depot::is_path(wish.from.path()) && matches!(told, Some(401 | 403));
            // A certificate that its relay does not trust is the same the next time.
            let is_final = entry.is_some()
                && (matches!(head.status, 403 | 508) || fault == Some(ProxyFault::Certificate));
            let of_source = |may_pass| {
                let words = crate::http::head::words(&words);
                DepotError::Source { words, may_pass, fault }
            };
            let error = match (head.status, told) {
                (_, Some(code)) => of_source(matches!(code, 408 | 425 | 429 | 500..=599)),
                (_, None) if is_final => of_source(false),
                (502 | 504, None) => of_source(true),
                (status, None) => DepotError::of(status, &words),
            };
            return Err((error, is_closed));
        }
        let (net, limit) = (self.clone(), self.timeout());
        Ok(DepotFetch { upstream, line: Vec::new(), limit, net })
    }

    /// The JSON that a depot answers with.
    pub(super) async fn depot_told(&self, method: &str, target: &Url) -> Result<Value, DepotError> {
        let (mut upstream, head) =
            self.depot_ask(method, target, Lines::NONE, false, ANSWERS_WITHIN).await?;
        let text = self.text_of(&mut upstream).await?;
        upstream.put_aside();
        match head.status {
            200 | 201 => serde_json::from_str(&text).map_err(|_| no_depot()),
            status => Err(DepotError::of(status, &text)),
        }
    }

    /// Asks a depot: the head of its answer, which comes `within` so long or never. `again`: the request
    /// may be sent twice.
    async fn depot_ask(
        &self,
        method: &str,
        target: &Url,
        lines: &Lines,
        again: bool,
        within: Duration,
    ) -> Result<(Upstream, AnswerHead), DepotError> {
        let limit = self.timeout().min(within);
        let asked = async {
            let first = self.depot_send(method, target, lines, again).await;
            match first {
                // Servers close connections that nobody used for a while.
                Err((_, true)) => self.depot_send(method, target, lines, false).await,
                first => first,
            }
        };
        let asked = self.awake().within(limit, asked).await;
        let answered = asked.unwrap_or(Err((LaneError::Timeout { after: limit }, false)));
        let (upstream, head) = answered.map_err(|(error, _)| error)?;
        if head.field("swath-lost").is_some() {
            return Err(DepotError::Lost);
        }
        if matches!(head.status, 404 | 410) && has_ended(&head) {
            return Err(DepotError::Ended);
        }
        Ok((upstream, head))
    }

    /// Returns the whole body, as text. Whoever stops in the middle of it is waited for no longer than one who
    /// says nothing at all.
    async fn text_of(&self, upstream: &mut Upstream) -> Result<String, LaneError> {
        let limit = self.timeout().min(ANSWERS_WITHIN);
        let reading = async {
            let mut body = Vec::new();
            let mut space = vec![0; 16 << 10];
            loop {
                match poll_fn(|cx| upstream.poll_body(cx, &mut space)).await? {
                    0 => return Ok(String::from_utf8_lossy(&body).into_owned()),
                    bytes => body.extend_from_slice(&space[..bytes]),
                }
                if body.len() > BODY_BYTES_MAX {
                    return Err(LaneError::TooLarge { limit_bytes: BODY_BYTES_MAX as u64 });
                }
            }
        };
        let read = self.awake().within(limit, reading).await;
        read.unwrap_or(Err(LaneError::Timeout { after: limit }))
    }

    /// One try; with an error goes whether the connection had been used before.
    async fn depot_send(
        &self,
        method: &str,
        target: &Url,
        lines: &Lines,
        reuse: bool,
    ) -> Result<(Upstream, AnswerHead), (LaneError, bool)> {
        let origin = Origin::of(target)
            .ok_or_else(|| (LaneError::Scheme { scheme: target.scheme().to_owned() }, false))?;
        let mut upstream = self.upstream(target, reuse).await.map_err(|error| (error, false))?;
        let was_used = reuse && upstream.was_used();
        let host = relay::site(target).unwrap_or_default();
        let query = target.query().map(|query| format!("?{query}")).unwrap_or_default();
        let authorization = self.credentials_for_relay(&origin).authorization.map(|it| it.value());
        let request = Lines::request(method, &format!("{}{query}", target.path()), &host)
            .with("User-Agent", self.user_agent())
            .and(lines)
            .with_any("Content-Length", (method == "POST").then_some("0"))
            .with_any("Authorization", authorization.as_ref().map(Secret::expose));
        upstream.send(&request.end().map_err(|error| (error, false))?);
        let sent = poll_fn(|cx| upstream.poll_send(cx)).await;
        sent.map_err(|error| (LaneError::reset(&error), was_used))?;
        let head = poll_fn(|cx| upstream.poll_head(cx, false)).await;
        let head = head.map_err(|error| (error, was_used))?;
        let none = || (LaneError::protocol("it closed the connection without an answer"), was_used);
        head.ok_or_else(none).map(|head| (upstream, head))
    }
}

impl DepotFetch {
    /// The next word of it; after [`Fetched::Done`] there is none.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub fn next<'a>(&'a mut self) -> BoxFuture<'a, Result<Fetched, DepotError>> {
        Box::pin(async move {
            loop {
                let line = self.line().await?;
                let Ok(told) = serde_json::from_slice::<Value>(&line) else {
                    return Err(no_depot());
                };
                let number = |name: &str| told.get(name).and_then(Value::as_u64);
                if let Some(words) = told.get("error").and_then(Value::as_str) {
                    let status = number("status").and_then(|status| u16::try_from(status).ok());
                    return Err(DepotError::of(status.unwrap_or(500), words));
                }
                if told.get("done").and_then(Value::as_bool) == Some(true) {
                    return Ok(Fetched::Done);
                }
                if let Some(stored) = number("stored") {
                    return Ok(Fetched::Stored(stored));
                }
                if let Some(came) = number("came") {
                    return Ok(Fetched::Came(came));
                }
                // A depot of later days may have more to tell.
            }
        })
    }

    async fn line(&mut self) -> Result<Vec<u8>, DepotError> {
        loop {
            if let Some(end) = self.line.iter().position(|&byte| byte == b'\n') {
                let rest = self.line.split_off(end + 1);
                return Ok(std::mem::replace(&mut self.line, rest));
            }
            if self.line.len() > LINE_BYTES_MAX {
                return Err(no_depot());
            }
            let mut space = [0; 4096];
            let (upstream, limit) = (&mut self.upstream, self.limit);
            let reading = poll_fn(|cx| upstream.poll_body(cx, &mut space));
            let read = self.net.awake().within(limit, reading).await;
            match read.unwrap_or(Err(LaneError::Timeout { after: limit }))? {
                0 => return Err(LaneError::protocol("its answer ends before it is done").into()),
                bytes => self.line.extend_from_slice(&space[..bytes]),
            }
        }
    }

    /// It has told that it is done: its connection serves the next one.
    pub async fn put_aside(mut self) {
        let mut space = [0; 16];
        let upstream = &mut self.upstream;
        let rest = poll_fn(|cx| upstream.poll_body(cx, &mut space));
        if let Some(Ok(0)) = self.net.awake().within(END_WITHIN, rest).await {
            self.upstream.put_aside();
        }
    }
}

impl std::fmt::Debug for DepotLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DepotLease({}, {:?})", crate::shown::display_name(&self.read), self.left)
    }
}

/// Returns where the depot at `bare` has allocated. Its paths are those of allocations and nothing else: what
/// it tells must not lead to other servers, or have us ask its relay for something on its behalf.
fn allocated(bare: &Url, told: &Value) -> Result<DepotLease, DepotError> {
    let path = |name: &str| {
        let path = told.get(name).and_then(Value::as_str).filter(|path| depot::is_path(path));
        path.and_then(|path| bare.join(path).ok()).ok_or_else(no_depot)
    };
    Ok(DepotLease {
        read: path("read")?,
        write: path("write")?,
        manage: path("manage")?,
        left: lease_of(told)?,
    })
}

/// Returns what is told of an allocation for a file of this size.
fn status_of(told: &Value, size_bytes: u64) -> Result<DepotStatus, DepotError> {
    let actual = told.get("size").and_then(Value::as_u64).ok_or_else(no_depot)?;
    if actual != size_bytes {
        return Err(LaneError::SizeMismatch { expected: size_bytes, actual }.into());
    }
    let ranges = |name: &str| ranges_of(told.get(name)?, size_bytes);
    Ok(DepotStatus {
        size_bytes,
        held: ranges("held").ok_or_else(no_depot)?,
        damaged: ranges("damaged").unwrap_or_default(),
        left: lease_of(told)?,
    })
}

fn lease_of(told: &Value) -> Result<Duration, DepotError> {
    let left = told.get("lease_s").and_then(Value::as_f64);
    left.and_then(|left| Duration::try_from_secs_f64(left).ok()).ok_or_else(no_depot)
}

/// Half-open ranges, in order or not.
fn ranges_of(told: &Value, size_bytes: u64) -> Option<RangeSet> {
    let range = |pair: &Value| {
        let (start, end) = (pair.get(0)?.as_u64()?, pair.get(1)?.as_u64()?);
        (start < end && end <= size_bytes).then(|| Range::new(start, end))
    };
    told.as_array()?.iter().map(range).collect()
}

/// Returns whether a depot says that no lease runs (any more).
fn has_ended(head: &AnswerHead) -> bool {
    head.field("swath-lease") == Some("0")
}

pub(super) fn no_depot() -> DepotError {
    LaneError::protocol("it does not answer as a depot does").into()
}

/// Allocating and committing take a depot's disk; whoever takes longer is not there.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// For the end of an answer whose last line was there.
const END_WITHIN: Duration = Duration::from_secs(1);
const LINE_BYTES_MAX: usize = 64 << 10;
/// A status names up to some hundred thousand ranges.
const BODY_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_depot_leads_to_its_own_allocations_alone() {
        // `//10.0.0.5/admin` begins with a stroke too, and is another host: whatever the depot chose was
        // asked with GET, POST and DELETE, with the logins for it.
        let bare = Url::parse("https://r3.example:8471/").unwrap();
        let own = format!("/depot/{}", "0123456789abcdef".repeat(4));
        let told = |read: &str| {
            let told = json!({"read": read, "write": own, "manage": own, "lease_s": 5.0});
            allocated(&bare, &told).map(|lease| lease.read.to_string())
        };
        assert_eq!(told(&own), Ok(format!("https://r3.example:8471{own}")));
        let host = format!("//10.0.0.5{own}");
        for other in [
            &*host,
            &host.replace("//", "/\\"),
            &host.replace("//", "/\t/"),
            &host.replace("//", "http://"),
            "//10.0.0.5/admin",
            "/relay/http://10.0.0.5/",
            &format!("/x/..{own}"),
            &format!("{own}?extend=9"),
            &format!("{own}/../../metrics"),
            "/depot",
            "",
        ] {
            assert_eq!(told(other), Err(no_depot()), "{other}");
        }
    }

    #[test]
    fn a_status_is_that_of_a_file_of_the_right_size() {
        // What was held of a larger one reached beyond the file's end.
        let told = json!({"size": 100, "held": [[0, 100]], "lease_s": 5.0});
        assert_eq!(status_of(&told, 100).unwrap().held.total_bytes(), 100);
        for size_bytes in [99, 101] {
            let error = LaneError::SizeMismatch { expected: size_bytes, actual: 100 };
            assert_eq!(status_of(&told, size_bytes), Err(error.into()));
        }
    }

    #[test]
    fn ranges_beyond_the_end_are_not_believed() {
        let read = |text: &str| ranges_of(&serde_json::from_str(text).unwrap(), 100);
        let expected = [Range::new(0, 10), Range::new(90, 100)].into_iter().collect();
        assert_eq!(read("[[90,100],[0,10]]"), Some(expected));
        assert_eq!(read("[]"), Some(RangeSet::new()));
        for wrong in ["[[0,101]]", "[[5,5]]", "[[9,3]]", "[[1]]", "[1,2]", "{}", "[[-1,4]]"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
