//! Control requests: small documents, heads, and what a replica offers.
//!
//! They follow the same rules as lanes: redirects, credentials, permitted addresses, proxies.

mod about;
mod depot;
mod depot_room;
mod download;
mod exchange;
mod forward;
mod probe;
mod third_party;
mod turned;
mod upload;

use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_formats::content_disposition;
use swath_model::path::SafePath;
use swath_model::{Range, counted};
use swath_transport::Transport;
use tokio::time::{sleep, timeout};
use url::Url;

pub use about::AboutRelay;
pub use depot::{DepotError, DepotFetch, DepotLease, DepotStatus, DepotWish, Fetched};
pub use download::Download;
pub use forward::{Forward, ForwardedFile, Forwarding};
pub use probe::{ProbeReport, probe};
pub use third_party::{CopyRequest, CopyTold, CopyWay, RemoteCopy, make_folder};
pub use upload::{Stored, Upload};

use crate::cookies::Cookies;
use crate::error::LaneError;
use crate::facts::Facts;
use crate::http::answer::{Answer, judge};
use crate::http::head::{EXPLANATION_BYTES_MAX, Head, explained};
use crate::http::request::{self, Lines};
use crate::net::{Conn, Net};
use crate::redirect::{self, Visit};
use crate::shown::without_credentials;
use crate::source::Trust;
use crate::target::Target;
use exchange::{Exchange, Opening};

/// A small document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its media type as written.
    pub content_type: Option<String>,
    /// Where it came from after redirects, without credentials.
    pub final_url: Url,
}

/// Fetches the whole of a small document (a Metalink, a list), asking for the media types in
/// `accept`.
///
/// # Errors
/// Any [`LaneError`]; [`LaneError::TooLarge`] if it is longer than `limit_bytes`.
pub fn fetch_small<'a>(
    net: &'a Net,
    url: &'a Url,
    trust: Trust,
    accept: &'a str,
    limit_bytes: usize,
) -> BoxFuture<'a, Result<Document, LaneError>> {
    Box::pin(async move {
        let request = Request { accept, limit_bytes, ..Request::GET };
        let mut answered = ask(net, url, trust, &request).await?;
        // The next question to this server need not connect again.
        if let Some(conn) = answered.conn.take().filter(|_| answered.complete) {
            net.keep_idle(conn);
        }
        answered.document(limit_bytes)
    })
}

/// How far a WebDAV server is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// At the address itself.
    Itself,
    /// At what is in the folder, too.
    Children,
}

/// Asks a WebDAV server what is at an address (`PROPFIND`).
///
/// # Errors
/// As [`fetch_small`]; an answer other than 207 among them.
pub fn properties<'a>(
    net: &'a Net,
    url: &'a Url,
    trust: Trust,
    depth: Depth,
    limit_bytes: usize,
) -> BoxFuture<'a, Result<Document, LaneError>> {
    Box::pin(async move {
        let depth = match depth {
            Depth::Itself => "0",
            Depth::Children => "1",
        };
        let more = Lines::default().with("Depth", depth);
        let method = Method::Other("PROPFIND");
        let request = Request { method, more: &more, limit_bytes, ..Request::GET };
        let answered = ask(net, url, trust, &request).await?;
        answered.expect_status(&[207])?;
        answered.into_document(limit_bytes)
    })
}

/// What identifies a version of a document to its server (RFC 9110, section 8.8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentVersion {
    /// Its entity tag, as written.
    pub etag: Option<String>,
    /// Its modification time, as written.
    pub last_modified: Option<String>,
}

impl DocumentVersion {
    fn of(head: &Head) -> DocumentVersion {
        let field = |name| head.field(name).map(str::to_owned);
        DocumentVersion { etag: field("etag"), last_modified: field("last-modified") }
    }

    /// Returns the header lines that ask for another version only. What cannot stand in a header is left
    /// out.
    fn lines(&self) -> Lines {
        fn safe(value: Option<&String>) -> Option<&str> {
            value.map(String::as_str).filter(|value| !value.contains(char::is_control))
        }
        Lines::default()
            .with_any("If-None-Match", safe(self.etag.as_ref()))
            .with_any("If-Modified-Since", safe(self.last_modified.as_ref()))
    }
}

/// Fetches a small document as [`fetch_small`] does, unless it still is the `known` version: `None` then.
///
/// # Errors
/// As [`fetch_small`].
pub fn fetch_small_if_changed<'a>(
    net: &'a Net,
    url: &'a Url,
    trust: Trust,
    accept: &'a str,
    limit_bytes: usize,
    known: &'a DocumentVersion,
) -> BoxFuture<'a, Result<Option<(Document, DocumentVersion)>, LaneError>> {
    Box::pin(async move {
        let more = &known.lines();
        let request = Request { accept, more, limit_bytes, ..Request::GET };
        let answered = ask(net, url, trust, &request).await?;
        // Whoever was not asked for a condition has no reason to answer so.
        if answered.head.status == 304 && !more.is_empty() {
            return Ok(None);
        }
        let version = DocumentVersion::of(&answered.head);
        Ok(Some((answered.document(limit_bytes)?, version)))
    })
}

/// Fetches a small part of a file, from where a lane would fetch more of it, and what the answer tells of
/// the whole. The connection is kept for the next one who asks there.
///
/// # Errors
/// Any [`LaneError`]; an answer that is not this part, whole, among them.
pub fn fetch_part<'a>(
    net: &'a Net,
    url: &'a Url,
    trust: Trust,
    range: Range,
) -> BoxFuture<'a, Result<(Facts, Vec<u8>), LaneError>> {
    Box::pin(async move {
        let limit_bytes = usize::try_from(range.len()).unwrap_or(usize::MAX);
        let request = Request { range: Some(range), limit_bytes, ..Request::GET };
        let mut answered = ask(net, url, trust, &request).await?;
        answered.expect_status(&[206])?;
        let size_bytes = match judge(&answered.head, range, answered.target.teller()) {
            Answer::Data { size_bytes, .. } if answered.body.len() == limit_bytes => size_bytes,
            Answer::Refused(error) => return Err(error),
            _ => {
                let held = counted(answered.body.len() as u64, "byte");
                let reason = format!("asked for {range}, the answer holds {held}");
                return Err(LaneError::WrongRange { reason });
            }
        };
        if let Some(conn) = answered.conn.take() {
            net.keep_idle(conn);
        }
        let facts = Facts::brief(&answered.head, &answered.target.url);
        Ok((Facts { size_bytes, ranges: true, ..facts }, answered.body))
    })
}

/// Returns the name that the server gives a file (`Content-Disposition`); `None` if it gives none that is safe.
/// One byte of the file is asked for: some addresses are for `GET` alone.
///
/// # Errors
/// Any [`LaneError`].
pub fn given_name<'a>(
    net: &'a Net,
    url: &'a Url,
    trust: Trust,
) -> BoxFuture<'a, Result<Option<SafePath>, LaneError>> {
    Box::pin(async move {
        let (method, range) = (Method::Get, Some(Range::new(0, 1)));
        let (more, work) = (Lines::NONE, Duration::ZERO);
        let request = Request { method, range, accept: "*/*", more, limit_bytes: 1, work };
        let mut answered = ask(net, url, trust, &request).await?;
        answered.expect_status(&[200, 206])?;
        if let Some(conn) = answered.conn.take().filter(|_| answered.complete) {
            net.keep_idle(conn);
        }
        let given = answered.head.field("content-disposition");
        Ok(given.and_then(content_disposition::file_name))
    })
}

/// What the server says about the file in answer to HEAD. Servers may have to compute a digest first, and some
/// of XRootD's answers to that get lost: whoever is silent is asked once more, on another connection.
///
/// # Errors
/// Any [`LaneError`].
pub fn head<'a>(
    net: &'a Net,
    url: &'a Url,
    trust: Trust,
) -> BoxFuture<'a, Result<Facts, LaneError>> {
    Box::pin(async move {
        let wishes = net.digest_wishes();
        let mut answered = ask_twice(net, url, trust, &Request::head(wishes)).await?;
        // XRootD without checksums refuses the wish for one, and fails if it computes too many already.
        if matches!(answered.head.status, 405 | 500) {
            answered = ask(net, url, trust, &Request::head(Lines::NONE)).await?;
        }
        answered.expect_status(&[200])?;
        Ok(answered.head_facts())
    })
}

/// Asks for a digest of the whole file, which the server may have to compute first: its answer may take `work`
/// beyond the time-out. Asks once, because each question can make the server read the file.
///
/// # Errors
/// Any [`LaneError`].
pub fn head_with_digest<'a>(
    net: &'a Net,
    url: &'a Url,
    trust: Trust,
    work: Duration,
) -> BoxFuture<'a, Result<Facts, LaneError>> {
    Box::pin(async move {
        let request = Request { work, ..Request::head(net.digest_wishes()) };
        let answered = ask(net, url, trust, &request).await?;
        answered.expect_status(&[200])?;
        Ok(answered.head_facts())
    })
}

/// The same, without asking for digests.
///
/// # Errors
/// Any [`LaneError`].
pub fn head_without_digests<'a>(
    net: &'a Net,
    url: &'a Url,
    trust: Trust,
) -> BoxFuture<'a, Result<Facts, LaneError>> {
    Box::pin(async move {
        let answered = ask(net, url, trust, &Request::head(Lines::NONE)).await?;
        answered.expect_status(&[200])?;
        Ok(answered.head_facts())
    })
}

/// Sends something small by POST, and reads the small answer.
///
/// # Errors
/// Any [`LaneError`]; an answer other than 200 or 204 among them.
pub fn post<'a>(
    net: &'a Net,
    url: &'a Url,
    trust: Trust,
    body: &'a [u8],
) -> BoxFuture<'a, Result<Vec<u8>, LaneError>> {
    Box::pin(async move {
        let (method, limit_bytes) = (Method::Post(body), POST_ANSWER_BYTES);
        let request = Request { method, limit_bytes, ..Request::GET };
        let answered = ask(net, url, trust, &request).await?;
        answered.expect_status(&[200, 204])?;
        Ok(answered.body)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method<'a> {
    Get,
    Head,
    /// With this body.
    Post(&'a [u8]),
    /// Another one, without a body.
    Other(&'static str),
}

/// What to ask.
struct Request<'a> {
    method: Method<'a>,
    range: Option<Range>,
    accept: &'a str,
    /// Further header lines.
    more: &'a Lines,
    /// More of the body is not read.
    limit_bytes: usize,
    /// How long the server may work beyond the time-out before its answer begins.
    work: Duration,
}

impl Request<'_> {
    /// Asks for a whole file.
    const GET: Request<'static> = Request {
        method: Method::Get,
        range: None,
        accept: "*/*",
        more: Lines::NONE,
        limit_bytes: 0,
        work: Duration::ZERO,
    };

    fn bytes(&self, target: &Target) -> Result<Vec<u8>, LaneError> {
        let (method, body) = match self.method {
            Method::Get => ("GET", None),
            Method::Head => ("HEAD", None),
            Method::Post(body) => ("POST", Some(body)),
            Method::Other(name) => (name, Some(&b""[..])),
        };
        let range = self.range.map(request::range_value);
        let length = body.map(|body| body.len().to_string());
        let lines = target.begin(method, Some(self.accept)).with_any("Range", range.as_deref());
        let mut out = lines.and(self.more).with_any("Content-Length", length.as_deref()).end()?;
        out.extend_from_slice(body.unwrap_or_default());
        Ok(out)
    }
}

impl<'a> Request<'a> {
    /// Asks for a head alone, with further header lines.
    fn head(more: &'a Lines) -> Request<'a> {
        Request { method: Method::Head, more, ..Request::GET }
    }
}

/// The final answer to a request.
struct Answered {
    head: Head,
    body: Vec<u8>,
    /// Whether `body` is all of it.
    complete: bool,
    /// Who gave it.
    target: Target,
    redirects: Vec<Url>,
    /// The connection, if it can be used further.
    conn: Option<Conn>,
    /// Seconds from the request to the first byte of the answer.
    first_byte: Duration,
    facts: Connected,
}

impl Answered {
    fn expect_status(&self, good: &[u16]) -> Result<(), LaneError> {
        if good.contains(&self.head.status) {
            return Ok(());
        }
        Err(self.target.explain(LaneError::status(
            self.head.status,
            crate::http::head::explained(&self.head, &self.body),
            crate::http::answer::retry_after(&self.head),
        )))
    }

    fn document(self, limit_bytes: usize) -> Result<Document, LaneError> {
        self.expect_status(&[200])?;
        self.into_document(limit_bytes)
    }

    fn into_document(self, limit_bytes: usize) -> Result<Document, LaneError> {
        if !self.complete {
            return Err(LaneError::TooLarge { limit_bytes: limit_bytes as u64 });
        }
        Ok(Document {
            content_type: self.head.field("content-type").map(str::to_owned),
            final_url: without_credentials(&self.target.url),
            bytes: self.body,
        })
    }

    /// Facts from the answer to HEAD.
    fn head_facts(&self) -> Facts {
        let ranges = self
            .head
            .field("accept-ranges")
            .is_some_and(|unit| unit.trim().eq_ignore_ascii_case("bytes"));
        let size_bytes = self.head.content_length().ok().flatten();
        Facts { size_bytes, ranges, ..Facts::brief(&self.head, &self.target.url) }
            .complete(&self.head)
    }
}

/// Asks, following redirects. The final answer must begin within the time-out, however many servers
/// are asked for it; a small body has some time of its own.
async fn ask(
    net: &Net,
    url: &Url,
    trust: Trust,
    request: &Request<'_>,
) -> Result<Answered, LaneError> {
    let limit = net.timeout() + request.work;
    let opened = net.awake().within(limit, open(net, url, trust, request)).await;
    let Opened { mut exchange, head, first_byte, target, redirects, facts } =
        opened.ok_or(LaneError::Timeout { after: limit })??;
    let (body, complete) = match request.method {
        Method::Head => (Vec::new(), true),
        Method::Get | Method::Post(_) | Method::Other(_) => {
            exchange.body(request.limit_bytes).await?
        }
    };
    let conn = exchange.into_conn();
    Ok(Answered { head, body, complete, target, redirects, conn, first_byte, facts })
}

/// Asks, and asks once more while there is no answer. The first answer counts.
async fn ask_twice(
    net: &Net,
    url: &Url,
    trust: Trust,
    request: &Request<'_>,
) -> Result<Answered, LaneError> {
    let mut first = std::pin::pin!(ask(net, url, trust, request));
    tokio::select! {
        answered = &mut first => return answered,
        () = sleep(AGAIN_AFTER) => {}
    }
    let mut second = std::pin::pin!(ask(net, url, trust, request));
    tokio::select! {
        answered = &mut first => match answered {
            Ok(answered) => Ok(answered),
            Err(_) => second.await,
        },
        answered = &mut second => match answered {
            Ok(answered) => Ok(answered),
            Err(_) => first.await,
        },
    }
}

/// A final answer whose body has not been read.
struct Opened {
    exchange: Exchange,
    head: Head,
    first_byte: Duration,
    target: Target,
    redirects: Vec<Url>,
    facts: Connected,
}

/// What there is to tell of a connection.
struct Connected {
    peer: std::net::SocketAddr,
    rtt: Duration,
    tls: Option<String>,
}

/// Asks, following redirects, up to the head of the final answer.
async fn open(
    net: &Net,
    url: &Url,
    trust: Trust,
    request: &Request<'_>,
) -> Result<Opened, LaneError> {
    if trust == Trust::Named {
        net.note_named(url);
    }
    let (mut redirects, mut cookies) = (Vec::new(), Cookies::default());
    let mut at = url.clone();
    loop {
        let target = Target::new(net, url, &at, trust).showing(&cookies);
        let renewals = net.token_renewals();
        let (exchange, opening, facts) = match open_once(net, &target, request, true).await {
            // An idle connection may have been closed meanwhile.
            Err((_, true)) => {
                open_once(net, &target, request, false).await.map_err(|(error, _)| error)?
            }
            other => other.map_err(|(error, _)| error)?,
        };
        let Opening { head, first_byte } = opening;
        // Its token was renewed meanwhile.
        if matches!(head.status, 401 | 403) && net.has_renewed_tokens(renewals) {
            continue;
        }
        let location = match head.status {
            301 | 302 | 303 | 307 | 308 => head.field("location"),
            _ => None,
        };
        match location {
            Some(location) => {
                cookies.take(&at, &head);
                let from = Visit { url: at, cookies: target.cookies };
                at = redirect::follow(from, location, &mut redirects, &cookies)?;
            }
            None => {
                let redirects = redirects.into_iter().map(|visit| visit.url).collect();
                return Ok(Opened { exchange, head, first_byte, target, redirects, facts });
            }
        }
    }
}

/// Asks one server. The error says whether it befell a connection that had been used before.
async fn open_once(
    net: &Net,
    target: &Target,
    request: &Request<'_>,
    reuse: bool,
) -> Result<(Exchange, Opening, Connected), (LaneError, bool)> {
    let conn = net.connect(target, reuse, false).await.map_err(|error| (error, false))?;
    let reused = conn.reused;
    let facts = Connected {
        peer: conn.peer,
        rtt: conn.rtt,
        tls: conn.transport().and_then(Transport::encryption).map(|it| it.name),
    };
    let mut exchange = Exchange::new(conn, net, net.timeout());
    exchange.is_head = request.method == Method::Head;
    let talk = async {
        exchange.send(&request.bytes(target)?).await?;
        exchange.opening_after(request.work).await
    };
    let opening = talk.await.map_err(|error| (error, reused))?;
    Ok((exchange, opening, facts))
}

/// Returns the error of a refusal whose body has not been read.
async fn refused(exchange: &mut Exchange, target: &Target, head: &Head) -> LaneError {
    let why = timeout(WHY_WITHIN, exchange.body(EXPLANATION_BYTES_MAX)).await;
    let why = why.ok().and_then(Result::ok).unwrap_or_default().0;
    target.explain(LaneError::status(
        head.status,
        explained(head, &why),
        crate::http::answer::retry_after(head),
    ))
}

/// Whoever has not answered then is asked again.
const AGAIN_AFTER: Duration = Duration::from_secs(3);
/// Whoever refuses has so long to say why.
const WHY_WITHIN: Duration = Duration::from_secs(3);
/// More of the answer to a small request is not read.
const POST_ANSWER_BYTES: usize = 64 << 10;
