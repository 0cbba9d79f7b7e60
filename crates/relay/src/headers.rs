//! Rewrites the heads of requests and answers.
//!
//! What is meant for both ends passes unchanged (RFC 9110, section 7.6): ranges, conditions,
//! digests, validators. Fields of one connection, and those for the relay itself, end here.

use swath_formats::depot;
use swath_formats::relay::{self, relays, through};
use url::Url;

use swath_serve::http::{Head, Method, Version};
use swath_source::AnswerHead;

/// How a request came to the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As `/relay/URL`: credentials in it are for the relay.
    Path,
    /// As to a proxy: what is in `Authorization` is for the server that is asked.
    Proxy,
}

/// The request for `url` that goes on in place of `head`, with these fields more, which take the place
/// of others of their names.
pub(super) fn request(
    head: &Head,
    url: &Url,
    form: Form,
    via: &str,
    more: &[(String, String)],
) -> Vec<u8> {
    let mut text = request_start(head.method.as_str(), url);
    let named = connection_names(head.all());
    let is_last = relays(url) == 0;
    for (name, value) in head.all() {
        let is_ours = match name {
            SEALED | PASSES => is_last,
            name if more.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)) => true,
            "host" | "via" | "content-length" | "expect" | "cookie" | "referer" | "origin" => true,
            "authorization" => form == Form::Path,
            name => is_of_connection(name) || named.iter().any(|other| other == name),
        };
        if !is_ours {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    for (name, value) in more {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    let passed: Vec<&str> = head.fields("via").collect();
    let passed = passed.iter().map(|one| format!("{one}, ")).collect::<String>();
    text.push_str(&format!("Via: {passed}1.1 {via}\r\n\r\n"));
    text.into_bytes()
}

/// The request line for `url`, and its `Host`.
pub(super) fn request_start(method: &str, url: &Url) -> String {
    let query = url.query().map_or_else(String::new, |query| format!("?{query}"));
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let host = url.host_str().unwrap_or_default();
    format!("{method} {}{query} HTTP/1.1\r\nHost: {host}{port}\r\n", url.path())
}

/// Header fields as they were sealed: none that concerns the connection, or the framing of requests.
pub(super) fn lines(text: &[u8]) -> Option<Vec<(String, String)>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = Vec::new();
    for line in text.split_terminator("\r\n") {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|it| it.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&it));
        let is_value = value.bytes().all(|it| it == b'\t' || (it >= b' ' && it != 0x7f));
        let lower = name.to_ascii_lowercase();
        let is_framing = is_of_connection(&lower)
            || matches!(&*lower, "host" | "via" | "content-length" | "expect" | "range");
        if !is_name || !is_value || is_framing || lines.len() >= LINES_MAX {
            return None;
        }
        lines.push((name.to_owned(), value.to_owned()));
    }
    Some(lines)
}

/// What opens the origin, for the last relay alone.
pub(super) const SEALED: &str = "swath-sealed";
/// What opens one of the relays, for it alone.
pub(super) const PASSES: &str = "swath-pass";
const LINES_MAX: usize = 64;

/// How the body of an answer goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none.
    None,
    /// So long as was told.
    Length(u64),
    Chunks,
    /// The end of the connection is its end.
    Close,
}

impl Framing {
    /// For an answer to somebody who speaks `version`.
    pub fn of(answer: &AnswerHead, version: Version) -> Framing {
        match answer.length {
            _ if answer.is_bodiless => Framing::None,
            Some(length) => Framing::Length(length),
            None if version > Version::HTTP_10 => Framing::Chunks,
            None => Framing::Close,
        }
    }
}

/// What is added to an answer on its way back.
pub(super) struct HopInfo<'a> {
    /// How this relay calls itself.
    pub via: &'a str,
    /// What it tells of its hop.
    pub timing: &'a str,
    pub framing: Framing,
    pub keeps_alive: bool,
    /// What was asked, and how: where a redirect leads depends on both.
    pub url: &'a Url,
    pub form: Form,
}

/// The head of `answer` as it goes back.
pub(super) fn answer(answer: &AnswerHead, marks: &HopInfo<'_>) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {} {}\r\n", answer.status, clean(&answer.reason));
    let fields = || answer.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let named = connection_names(fields());
    let mut via = String::new();
    for (name, value) in fields() {
        match name {
            "via" => via.push_str(&format!("{}, ", clean(value))),
            "content-length" => {
                // To a request for the head alone it tells what there would be.
                if marks.framing == Framing::None && answer.is_bodiless {
                    text.push_str(&format!("{name}: {}\r\n", clean(value)));
                }
            }
            // They would be taken for the relay's own.
            "set-cookie"
            | "set-cookie2"
            | "strict-transport-security"
            | "alt-svc"
            | "public-key-pins"
            | "clear-site-data"
            | "service-worker-allowed" => {}
            // What a server says of proxies of its own would be taken for a relay's word.
            "proxy-status" if marks.form == Form::Path && !is_at_relay(marks.url) => {}
            "location" => {
                text.push_str(&format!("location: {}\r\n", clean(&location(value, marks))));
            }
            name if is_of_connection(name) || named.iter().any(|other| other == name) => {}
            name => text.push_str(&format!("{name}: {}\r\n", clean(value))),
        }
    }
    text.push_str(&format!("via: {via}1.1 {}\r\n", marks.via));
    text.push_str(&format!("server-timing: {}\r\n", clean(marks.timing)));
    match marks.framing {
        Framing::Length(length) => text.push_str(&format!("content-length: {length}\r\n")),
        Framing::Chunks => text.push_str("transfer-encoding: chunked\r\n"),
        Framing::None | Framing::Close => {}
    }
    let keeps = marks.keeps_alive && marks.framing != Framing::Close;
    text.push_str(if keeps {
        "connection: keep-alive\r\n\r\n"
    } else {
        "connection: close\r\n\r\n"
    });
    text.into_bytes()
}

/// Where a redirect leads: through this relay again, so that it is followed only to where the relay
/// may go. (To a proxy's client it is shown as it is: it asks the proxy again by itself.)
fn location(value: &str, marks: &HopInfo<'_>) -> String {
    let Ok(to) = marks.url.join(value) else { return value.to_owned() };
    if marks.form == Form::Proxy || !matches!(to.scheme(), "http" | "https") {
        return to.into();
    }
    // Relative to whatever name the client knows us by.
    let Ok(here) = Url::parse("http://relay.invalid/") else { return to.into() };
    let whole: String = through(&here, &to).into();
    whole.strip_prefix("http://relay.invalid").map(str::to_owned).unwrap_or(whole)
}

/// Whether a field concerns one connection alone (RFC 9110, section 7.6.1; `Proxy-` ones by custom).
fn is_of_connection(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
            | "proxy-connection"
            | "proxy-authorization"
            | "proxy-authenticate"
            | "proxy-authentication-info"
    )
}

/// Names of fields that `Connection` says are for this connection alone.
fn connection_names<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    fields
        .filter(|(name, _)| *name == "connection")
        .flat_map(|(_, value)| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect()
}

/// Whether a relay answers there, or its depot.
fn is_at_relay(url: &Url) -> bool {
    url.path().starts_with(relay::PREFIX) || depot::is_path(url.path())
}

/// Without what would begin another line.
fn clean(value: &str) -> String {
    value.replace(['\r', '\n', '\0'], " ")
}

/// Whether a request of this method can be passed on.
pub(super) fn is_passed(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        Head::parse_passing(text.as_bytes()).unwrap().unwrap().0
    }

    const URL: &str = "https://data.example.org:444/a%2Fb?x=1";

    #[test]
    fn what_is_for_both_ends_goes_on_and_nothing_else() {
        let head = head(
            "GET /relay/x HTTP/1.1\r\nHost: r1\r\nRange: bytes=0-9\r\nIf-Match: \"a\"\r\n\
             Authorization: Bearer secret\r\nCookie: c\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\n\
             Proxy-Authorization: Bearer p\r\nVia: 1.1 r0\r\nWant-Digest: md5\r\nTE: trailers\r\n\r\n",
        );
        let url = Url::parse(URL).unwrap();
        let text = |form| String::from_utf8(request(&head, &url, form, "swath-1", &[])).unwrap();
        assert_eq!(
            text(Form::Path),
            "GET /a%2Fb?x=1 HTTP/1.1\r\nHost: data.example.org:444\r\nrange: bytes=0-9\r\n\
             if-match: \"a\"\r\nwant-digest: md5\r\nVia: 1.1 r0, 1.1 swath-1\r\n\r\n"
        );
        assert!(text(Form::Proxy).contains("authorization: Bearer secret\r\n"));
        assert!(!text(Form::Proxy).contains("Bearer p"));
    }

    #[test]
    fn what_was_sealed_takes_the_place_of_what_is_shown() {
        let head = head(
            "GET /relay/x HTTP/1.1\r\nHost: r1\r\nAccept: */*\r\nswath-sealed: a\r\nswath-pass: b\r\n\r\n",
        );
        let more = lines(b"Authorization: Bearer s\r\naccept: text/x\r\n").unwrap();
        let url = Url::parse(URL).unwrap();
        let text = String::from_utf8(request(&head, &url, Form::Path, "v", &more)).unwrap();
        assert!(text.contains("\r\nAuthorization: Bearer s\r\naccept: text/x\r\n"), "{text}");
        assert!(!text.contains("*/*") && !text.contains("swath-"), "{text}");
        // On the way to another relay both pass as they are.
        let url = Url::parse("https://r2/relay/https://a/f").unwrap();
        let text = String::from_utf8(request(&head, &url, Form::Path, "v", &[])).unwrap();
        assert!(text.contains("swath-sealed: a\r\n") && text.contains("swath-pass: b\r\n"));
        for wrong in [
            "a",
            "Host: b\r\n",
            "Range: bytes=0-\r\n",
            "a b: c\r\n",
            ": c",
            "a: b\nc: d",
            "Content-Length: 5",
        ] {
            assert_eq!(lines(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(lines(b""), Some(Vec::new()));
    }

    fn back(answer_head: &AnswerHead, form: Form, framing: Framing) -> String {
        let url = Url::parse(URL).unwrap();
        let marks =
            HopInfo { via: "swath-1", timing: "hop", framing, keeps_alive: true, url: &url, form };
        String::from_utf8(answer(answer_head, &marks)).unwrap()
    }

    fn answer_head(status: u16, fields: &[(&str, &str)]) -> AnswerHead {
        let fields = fields.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        AnswerHead {
            status,
            reason: "Fine".to_owned(),
            fields: fields.collect(),
            length: None,
            is_bodiless: false,
        }
    }

    #[test]
    fn answers_come_back_with_what_the_relay_tells() {
        let head = answer_head(
            206,
            &[
                ("etag", "\"a\""),
                ("set-cookie", "a=b"),
                ("connection", "x-own"),
                ("x-own", "1"),
                ("server-timing", "hop;desc=\"far\""),
                ("content-length", "9"),
                ("via", "1.1 swath-2"),
                ("proxy-status", "cdn; error=connection_refused"),
            ],
        );
        assert_eq!(
            back(&head, Form::Path, Framing::Length(9)),
            "HTTP/1.1 206 Fine\r\netag: \"a\"\r\nserver-timing: hop;desc=\"far\"\r\n\
             via: 1.1 swath-2, 1.1 swath-1\r\nserver-timing: hop\r\ncontent-length: 9\r\n\
             connection: keep-alive\r\n\r\n"
        );
        assert!(back(&head, Form::Path, Framing::Close).ends_with("connection: close\r\n\r\n"));
    }

    #[test]
    fn fields_that_came_in_several_lines_go_back_in_one() {
        let head = answer_head(200, &[("via", "1.1 a\r\n b"), ("x", "1\r\n 2")]);
        let url = Url::parse(URL).unwrap();
        let framing = Framing::Length(0);
        // A cache tells what servers behind it told of their hops.
        let timing = "hop;dur=1\r\n\tx";
        let form = Form::Path;
        let marks = HopInfo { via: "v", timing, framing, keeps_alive: true, url: &url, form };
        let text = String::from_utf8(answer(&head, &marks)).unwrap();
        assert!(text.split("\r\n").all(|line| !line.starts_with([' ', '\t'])), "{text}");
    }

    #[test]
    fn redirects_lead_through_the_relay_again() {
        for (location, expected) in [
            ("/b?c=d", "/relay/https://data.example.org:444/b?c=d"),
            ("http://other.example/x", "/relay/http://other.example/x"),
            ("/relay/https://third/x", "/relay/https://data.example.org:444/relay/https://third/x"),
        ] {
            let head = answer_head(302, &[("location", location)]);
            let text = back(&head, Form::Path, Framing::Length(0));
            assert!(text.contains(&format!("location: {expected}\r\n")), "{text}");
        }
        let head = answer_head(302, &[("location", "/b")]);
        let text = back(&head, Form::Proxy, Framing::Length(0));
        assert!(text.contains("location: https://data.example.org:444/b\r\n"), "{text}");
    }
}
