//! Which answer a request gets: status, headers and which bytes of what. Pure, apart from
//! reading the size of the file; faults that concern the way of the bytes are left to the body.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::behaviour::{DigestField, Faults, Fresh, RangeLie};
use super::content::{Content, base64_text, hex};
use super::date::http_date;
use super::gzip::gzip_stored;
use super::request::{Asked, Request, asked};
use super::state::{Route, Version};

/// An answer before it leaves.
pub(super) struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Body,
    /// How the end of the body is known; a lie in `Length` is in the head alone.
    pub framing: Framing,
    pub close: bool,
}

/// Where the bytes of an answer come from.
pub(super) enum Body {
    /// A range of the file; the path's faults apply. The first range is what the log says, the
    /// second one says which bytes really leave.
    File { version: Arc<Version>, range: Range<u64>, bytes: Range<u64> },
    /// Something else.
    Other(Content),
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked(usize),
    UntilClose,
}

impl Answer {
    /// Decides. `requests` counts those on this connection, this one included.
    pub(super) fn to(
        request: &Request,
        route: Option<&Arc<Route>>,
        faults: &Faults,
        requests: u64,
    ) -> Answer {
        let mut answer = decide(request, route, faults);
        answer.connection_headers(request, faults, requests);
        answer.headers.extend(faults.headers.iter().cloned());
        if faults.giant_head_bytes > 0 {
            answer.add_giant_headers(faults.giant_head_bytes);
        }
        answer
    }

    /// Returns the head as bytes.
    pub(super) fn head(&self, faults: &Faults) -> Vec<u8> {
        let version = if faults.http10 { "HTTP/1.0" } else { "HTTP/1.1" };
        let mut head = match &faults.garbage_status {
            Some(garbage) => format!("{garbage}\r\n"),
            None => format!("{version} {} {}\r\n", self.status, reason(self.status)),
        };
        for line in &faults.header_lines {
            head.push_str(line);
            head.push_str("\r\n");
        }
        for (name, value) in &self.headers {
            head.push_str(name);
            head.push_str(": ");
            head.push_str(value);
            head.push_str("\r\n");
        }
        match self.framing {
            // RFC 9110, section 15.4.5: a 304 says nothing of the length.
            Framing::Length(_) if self.status == 304 => {}
            Framing::Length(length) => {
                let said = length.saturating_add_signed(faults.length_lie);
                head.push_str(&format!("Content-Length: {said}\r\n"));
            }
            Framing::Chunked(_) => head.push_str("Transfer-Encoding: chunked\r\n"),
            Framing::UntilClose => {}
        }
        head.push_str("\r\n");
        if faults.lone_line_feeds {
            head = head.replace("\r\n", "\n");
        }
        head.into_bytes()
    }

    /// Returns how many bytes the body has when nothing goes wrong.
    pub(super) fn body_bytes(&self) -> u64 {
        match &self.body {
            Body::File { bytes, .. } => bytes.end - bytes.start,
            Body::Other(content) => content.size_bytes(),
        }
    }

    fn page(status: u16, content_type: &str, text: String) -> Answer {
        let content = Content::bytes(text);
        Answer {
            status,
            headers: vec![("Content-Type".into(), content_type.into())],
            framing: Framing::Length(content.size_bytes()),
            body: Body::Other(content),
            close: false,
        }
    }

    fn plain(status: u16) -> Answer {
        let body = if status == 304 || status == 204 {
            String::new()
        } else {
            format!("{status} {}\n", reason(status))
        };
        Answer::page(status, "text/plain", body)
    }

    fn with(mut self, name: &str, value: impl Into<String>) -> Answer {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    fn connection_headers(&mut self, request: &Request, faults: &Faults, requests: u64) {
        if let Some(chunk_bytes) = faults.chunk_bytes
            && !faults.http10
            && !request.http10
        {
            self.framing = Framing::Chunked(chunk_bytes);
        } else if faults.close_delimited || faults.chunk_bytes.is_some() {
            self.framing = Framing::UntilClose;
        }
        let spent = faults.keep_alive.is_some_and(|(most, _)| requests >= most);
        self.close = !request.keeps_alive()
            || faults.close
            || faults.http10
            || spent
            || self.framing == Framing::UntilClose;
        let connection = if self.close { "close" } else { "keep-alive" };
        if self.close || request.http10 || faults.keep_alive.is_some() {
            self.headers.push(("Connection".into(), connection.into()));
        }
        if let Some((most, timeout)) = faults.keep_alive
            && !self.close
        {
            let left = most - requests;
            let value = format!("timeout={}, max={left}", timeout.as_secs());
            self.headers.push(("Keep-Alive".into(), value));
        }
    }

    fn add_giant_headers(&mut self, bytes: usize) {
        let mut left = bytes;
        let mut number = 0;
        while left > 0 {
            let step = left.min(GIANT_HEADER_BYTES);
            self.headers.push((format!("X-Junk-{number}"), "x".repeat(step)));
            left -= step;
            number += 1;
        }
    }
}

fn decide(request: &Request, route: Option<&Arc<Route>>, faults: &Faults) -> Answer {
    if let Some(wanted) = &faults.authorization
        && request.header("authorization") != Some(wanted)
    {
        return Answer::plain(401).with("WWW-Authenticate", "Bearer realm=\"netlab\"");
    }
    if let Some(document) = &faults.properties
        && request.method == "PROPFIND"
    {
        return Answer::page(207, "application/xml; charset=utf-8", document.clone());
    }
    if let Some((code, retry_after_s)) = faults.status {
        return refusal(code, retry_after_s, route);
    }
    if let Some(status) = faults.redirect_loop {
        let round = request.query.as_deref().and_then(|query| query.strip_prefix("round="));
        let round = round.and_then(|round| round.parse::<u64>().ok()).unwrap_or(0);
        let to = format!("{}?round={}", request.path, round.saturating_add(1));
        return Answer::plain(status).with("Location", to);
    }
    if let Some((status, to)) = &faults.redirect {
        return Answer::plain(*status).with("Location", to);
    }
    if faults.refused_methods.contains(&request.method)
        || !matches!(request.method.as_str(), "GET" | "HEAD")
    {
        return Answer::plain(405).with("Allow", "GET, HEAD");
    }
    if faults.html_page {
        return Answer::page(200, "text/html; charset=utf-8", HTML_PAGE.to_owned());
    }
    if let Some(document) = &faults.metalink
        && request.lists("accept", METALINK_TYPE)
    {
        return Answer::page(200, METALINK_TYPE, document.clone()).with("Vary", "Accept");
    }
    match route {
        Some(route) => file(request, route, faults),
        None => Answer::plain(404),
    }
}

fn refusal(code: u16, retry_after_s: Option<u64>, route: Option<&Arc<Route>>) -> Answer {
    let mut answer = Answer::plain(code);
    if let Some(seconds) = retry_after_s {
        answer = answer.with("Retry-After", seconds.to_string());
    }
    match (code, route) {
        (401, _) => answer.with("WWW-Authenticate", "Bearer realm=\"netlab\""),
        (416, Some(route)) => {
            let size = route.version().content().size_bytes();
            answer.with("Content-Range", format!("bytes */{size}"))
        }
        _ => answer,
    }
}

fn file(request: &Request, route: &Arc<Route>, faults: &Faults) -> Answer {
    let version = route.version();
    let content = version.content();
    let size = content.size_bytes();
    let number = ANSWERS.fetch_add(1, Ordering::Relaxed);
    let mut tag = faults.etag.clone().unwrap_or_else(|| format!("\"{}\"", version.tag));
    if matches!(faults.fresh, Some(Fresh::Etag | Fresh::Both)) {
        tag = format!("\"answer-{number}\"");
    }
    let modified = match (&faults.modified, faults.fresh) {
        (_, Some(Fresh::Modified | Fresh::Both)) => http_date(version.modified_unix_s + number),
        (Some(time), _) => time.clone(),
        _ => http_date(version.modified_unix_s),
    };
    let mut headers = vec![
        ("Date".to_owned(), http_date(version.modified_unix_s + 86_400)),
        ("Content-Type".to_owned(), route.content_type.clone()),
    ];
    if !faults.no_validators {
        if faults.fresh != Some(Fresh::Modified) {
            headers.push(("ETag".to_owned(), tag.clone()));
        }
        headers.push(("Last-Modified".to_owned(), modified.clone()));
    }
    headers.extend(faults.digests.iter().map(|(field, algorithm, right)| {
        let mut digest = content.digest(*algorithm);
        if !right {
            digest[0] ^= 1;
        }
        digest_header(*field, algorithm.name(), &digest)
    }));

    let names = |value: &str| value == "*" || value.split(',').any(|one| one.trim() == tag);
    let bare = |status| Answer { headers: headers.clone(), ..Answer::plain(status) };
    if request.header("if-match").is_some_and(|value| !names(value)) {
        return bare(412);
    }
    if request.header("if-none-match").is_some_and(names) {
        return bare(304);
    }

    if faults.gzip {
        return gzipped(headers, version, size);
    }
    let mut wanted = Asked::Whole;
    if !faults.no_ranges {
        headers.push(("Accept-Ranges".to_owned(), "bytes".to_owned()));
        // If-Range needs a strong validator or the exact date (RFC 9110, section 13.1.5).
        let fresh = request.header("if-range").is_none_or(|value| {
            !faults.no_validators && !value.starts_with("W/") && (value == tag || value == modified)
        });
        // HEAD ignores Range (RFC 9110, section 14.2).
        if fresh && request.method == "GET" {
            wanted = asked(request.header("range"), size);
        }
    }
    match wanted {
        Asked::Whole => whole(headers, version, size),
        Asked::Part(range) => {
            let part = part(headers, version, range, size, faults.range_lie);
            Answer { status: if faults.parts_with_200 { 200 } else { 206 }, ..part }
        }
        Asked::Unsatisfiable => {
            headers.push(("Content-Range".to_owned(), format!("bytes */{size}")));
            Answer { headers, ..Answer::plain(416) }
        }
    }
}

fn whole(headers: Vec<(String, String)>, version: Arc<Version>, size: u64) -> Answer {
    Answer {
        status: 200,
        headers,
        body: Body::File { version, range: 0..size, bytes: 0..size },
        framing: Framing::Length(size),
        close: false,
    }
}

fn part(
    mut headers: Vec<(String, String)>,
    version: Arc<Version>,
    range: Range<u64>,
    size: u64,
    lie: Option<RangeLie>,
) -> Answer {
    let range = match lie {
        Some(RangeLie::AlwaysFirst(bytes)) => 0..bytes.clamp(1, size),
        _ => range,
    };
    let length = range.end - range.start;
    // Moved within the file, so that there are bytes to send.
    let moved = |by: i64| {
        let start = range.start.saturating_add_signed(by).min(size - length);
        start..start + length
    };
    let (mut said, mut bytes, mut total) = (range.clone(), range.clone(), size.to_string());
    match lie {
        Some(RangeLie::Header(by)) => said = moved(by),
        Some(RangeLie::Bytes(by)) => bytes = moved(by),
        Some(RangeLie::Both(by)) => (said, bytes) = (moved(by), moved(by)),
        Some(RangeLie::Total(by)) => total = size.saturating_add_signed(by).to_string(),
        Some(RangeLie::UnknownTotal) => total = "*".to_owned(),
        Some(RangeLie::OwnEnd) => total = range.end.to_string(),
        Some(RangeLie::Missing | RangeLie::Garbage | RangeLie::AlwaysFirst(_)) | None => {}
    }
    let value = match lie {
        Some(RangeLie::Garbage) => "bytes all of them".to_owned(),
        _ => format!("bytes {}-{}/{total}", said.start, said.end - 1),
    };
    if lie != Some(RangeLie::Missing) {
        headers.push(("Content-Range".to_owned(), value));
    }
    Answer {
        status: 206,
        headers,
        body: Body::File { version, range, bytes },
        framing: Framing::Length(length),
        close: false,
    }
}

fn gzipped(mut headers: Vec<(String, String)>, version: Arc<Version>, size: u64) -> Answer {
    headers.push(("Content-Encoding".to_owned(), "gzip".to_owned()));
    headers.push(("Vary".to_owned(), "Accept-Encoding".to_owned()));
    if size > MAX_GZIP_BYTES {
        return whole(headers, version, size);
    }
    let content = Content::bytes(gzip_stored(&version.content().read(0, size)));
    Answer {
        status: 200,
        headers,
        framing: Framing::Length(content.size_bytes()),
        body: Body::Other(content),
        close: false,
    }
}

fn digest_header(field: DigestField, algorithm: &str, digest: &[u8]) -> (String, String) {
    // RFC 3230 has the checksums of this field in hexadecimal and the rest in base64.
    let is_checksum = matches!(algorithm, "adler32" | "crc32c");
    match field {
        DigestField::Digest => {
            let name = match algorithm {
                "sha-256" => "SHA-256",
                "sha-512" => "SHA-512",
                "sha-1" => "SHA",
                "md5" => "MD5",
                other => other,
            };
            let value = if is_checksum { hex(digest) } else { base64_text(digest) };
            ("Digest".to_owned(), format!("{name}={value}"))
        }
        DigestField::ReprDigest => {
            let name = match algorithm {
                "sha-1" => "sha",
                "adler32" => "adler",
                other => other,
            };
            ("Repr-Digest".to_owned(), format!("{name}=:{}:", base64_text(digest)))
        }
        DigestField::ContentMd5 => ("Content-MD5".to_owned(), base64_text(digest)),
        DigestField::OcChecksum => {
            let name = algorithm.replace('-', "").to_uppercase();
            ("OC-Checksum".to_owned(), format!("{name}:{}", hex(digest)))
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        207 => "Multi-Status",
        405 => "Method Not Allowed",
        410 => "Gone",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Other",
    }
}

/// Numbers answers of all servers, for what is new in each.
static ANSWERS: AtomicU64 = AtomicU64::new(0);
/// The media type of Metalink 4 (RFC 5854).
pub(super) const METALINK_TYPE: &str = "application/metalink4+xml";
const HTML_PAGE: &str = "<!DOCTYPE html>\n<html><head><title>Maintenance</title></head>\
    <body><h1>We will be back soon</h1></body></html>\n";
/// Larger files only get the label: the stream is made in memory.
const MAX_GZIP_BYTES: u64 = 64 << 20;
/// Junk comes in headers of this size, as a row of cookies would.
const GIANT_HEADER_BYTES: usize = 4000;
