//! Parses the head of a request to a depot into an operation.
//!
//! `/depot` is the depot, `/depot/CAPABILITY` one allocation, with the rights of that capability.
//! Unknown parameters are refused, so that a misspelt one is noticed.

use std::time::Duration;
use swath_model::path::is_treacherous;

use swath_formats::{Etag, content_range, http_date, number};
use swath_model::Range;
use swath_store::depot::{Capability, Medium, Space};
use url::Url;

use swath_serve::http::{Head, Method, Response};

/// Something that is asked of a depot.
#[derive(Debug)]
pub(super) enum Operation {
    /// What it has to give.
    Usage,
    /// Room for so many bytes for so long.
    Allocate {
        size_bytes: u64,
        length: Duration,
        medium: Option<Medium>,
        space: Space,
    },
    /// To store the body: at this range of so many bytes, or as the whole.
    Store {
        write: Capability,
        range: Option<Range>,
        size_bytes: Option<u64>,
    },
    /// To store what another server has.
    Fetch {
        write: Capability,
        from: Url,
        range: Range,
    },
    /// To read, as the head says further.
    Read {
        read: Capability,
        version: Option<Version>,
    },
    /// What an allocation is like now.
    Status {
        any: Capability,
    },
    Extend {
        manage: Capability,
        length: Duration,
    },
    Release {
        manage: Capability,
    },
}

/// What the version that is stored is called where it came from, by whoever reads: a depot does not
/// know that. Without a word of it the depot has a tag of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub etag: Option<Etag>,
    /// As `Last-Modified` has it.
    pub modified: Option<String>,
}

/// Why a request asks for nothing that a depot does.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AskError {
    #[error("no allocation has this address")]
    NoCapability,
    #[error("this is done by {allowed}")]
    Method { allowed: &'static str },
    #[error("{name}= is missing: {what}")]
    Missing { name: &'static str, what: &'static str },
    #[error("{name}= is {what}")]
    Value { name: &'static str, what: &'static str },
    #[error("a depot knows no parameter '{name}' here")]
    Parameter { name: String },
    #[error("the parameter '{name}' comes twice")]
    Twice { name: String },
    #[error("Content-Range is that of the body: bytes FIRST-LAST/SIZE")]
    ContentRange,
    #[error("what is stored is taken as it is, without a content coding")]
    Coding,
}

impl AskError {
    pub fn response(&self) -> Response {
        let status = match self {
            AskError::NoCapability => 404,
            AskError::Method { .. } => 405,
            AskError::Coding => 415,
            _ => 400,
        };
        let response = Response::text(status, self.to_string());
        match self {
            AskError::Method { allowed } => response.with("allow", *allowed),
            _ => response,
        }
    }
}

/// Whether a request is for a depot.
pub(in super::super) fn is_for_depot(head: &Head) -> bool {
    let path = head.target.path.as_slice();
    path == b"depot" || path.starts_with(b"depot/")
}

impl Operation {
    /// What a request for a depot asks for.
    pub fn read(head: &Head) -> Result<Operation, AskError> {
        let path = head.target.path.as_slice();
        let Some(name) = path.strip_prefix(b"depot/") else { return Operation::of_depot(head) };
        let name = std::str::from_utf8(name).map_err(|_| AskError::NoCapability)?;
        let capability: Capability = name.parse().map_err(|_| AskError::NoCapability)?;
        let given = |name: &str| head.target.parameter(name).is_some();
        match head.method {
            Method::GET | Method::HEAD if given("status") => {
                only(head, &["status"])?;
                Ok(Operation::Status { any: capability })
            }
            Method::GET | Method::HEAD => {
                only(head, &["etag", "modified"])?;
                Ok(Operation::Read { read: capability, version: version(head)? })
            }
            Method::PUT => {
                only(head, &[])?;
                Operation::store(head, capability)
            }
            Method::POST if given("extend") => {
                only(head, &["extend"])?;
                Ok(Operation::Extend { manage: capability, length: seconds(head, "extend")? })
            }
            Method::POST => {
                only(head, &["from", "range"])?;
                let from = url(required(head, "from", FROM)?)?;
                let range = range(required(head, "range", RANGE)?)?;
                Ok(Operation::Fetch { write: capability, from, range })
            }
            Method::DELETE => {
                only(head, &[])?;
                Ok(Operation::Release { manage: capability })
            }
            _ => Err(AskError::Method { allowed: "GET, HEAD, PUT, POST, DELETE" }),
        }
    }

    fn of_depot(head: &Head) -> Result<Operation, AskError> {
        match head.method {
            Method::GET | Method::HEAD => only(head, &[]).map(|()| Operation::Usage),
            Method::POST => {
                only(head, &["size", "lease", "medium", "reserve"])?;
                let size_bytes = number(required(head, "size", BYTES)?)
                    .ok_or(AskError::Value { name: "size", what: BYTES })?;
                let length = seconds(head, "lease")?;
                let medium = match head.target.parameter("medium") {
                    None => None,
                    Some("disk") => Some(Medium::Disk),
                    Some("memory") => Some(Medium::Memory),
                    Some(_) => {
                        let what = "'disk' or 'memory'";
                        return Err(AskError::Value { name: "medium", what });
                    }
                };
                let space = match head.target.parameter("reserve") {
                    None | Some("yes") => Space::Reserved,
                    Some("no") => Space::AsStored,
                    Some(_) => {
                        return Err(AskError::Value { name: "reserve", what: "'yes' or 'no'" });
                    }
                };
                Ok(Operation::Allocate { size_bytes, length, medium, space })
            }
            _ => Err(AskError::Method { allowed: "GET, HEAD, POST" }),
        }
    }

    fn store(head: &Head, write: Capability) -> Result<Operation, AskError> {
        let coding = head.field("content-encoding");
        if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
            return Err(AskError::Coding);
        }
        let Some(value) = head.field("content-range") else {
            return Ok(Operation::Store { write, range: None, size_bytes: None });
        };
        let told = content_range::parse(value).map_err(|_| AskError::ContentRange)?;
        let range = told.range.ok_or(AskError::ContentRange)?;
        Ok(Operation::Store { write, range: Some(range), size_bytes: told.size_bytes })
    }
}

/// What a reader calls the version that is stored, if it does. An empty tag: it has none.
fn version(head: &Head) -> Result<Option<Version>, AskError> {
    let (etag, modified) = (head.target.parameter("etag"), head.target.parameter("modified"));
    if etag.is_none() && modified.is_none() {
        return Ok(None);
    }
    let etag = match etag.filter(|etag| !etag.is_empty()) {
        Some(text) => Some(Etag::parse(text).ok_or(AskError::Value { name: "etag", what: ETAG })?),
        None => None,
    };
    let is_date = |date: &str| http_date::parse(date).is_some() && !date.contains(char::is_control);
    if modified.is_some_and(|date| !is_date(date)) {
        return Err(AskError::Value { name: "modified", what: DATE });
    }
    Ok(Some(Version { etag, modified: modified.map(str::to_owned) }))
}

/// Nothing else is asked for, and nothing twice.
fn only(head: &Head, known: &[&str]) -> Result<(), AskError> {
    let names: Vec<&str> = head.target.query.iter().map(|(name, _)| name.as_str()).collect();
    for (at, name) in names.iter().enumerate() {
        if !known.contains(name) {
            let shown = name.chars().filter(|it| !is_treacherous(*it)).take(SHOWN_CHARS);
            return Err(AskError::Parameter { name: shown.collect() });
        }
        if names[..at].contains(name) {
            return Err(AskError::Twice { name: (*name).to_owned() });
        }
    }
    Ok(())
}

fn required<'a>(
    head: &'a Head,
    name: &'static str,
    what: &'static str,
) -> Result<&'a str, AskError> {
    head.target.parameter(name).ok_or(AskError::Missing { name, what })
}

fn seconds(head: &Head, name: &'static str) -> Result<Duration, AskError> {
    let seconds = number(required(head, name, SECONDS)?).filter(|&seconds| seconds > 0);
    seconds.map(Duration::from_secs).ok_or(AskError::Value { name, what: SECONDS })
}

/// An address that can be asked, as those behind `/relay/` are written.
fn url(text: &str) -> Result<Url, AskError> {
    let wrong = AskError::Value { name: "from", what: FROM };
    match swath_formats::relay::upstream(&format!("{}{text}", swath_formats::relay::PREFIX)) {
        Some(Ok(url)) => Ok(url),
        _ => Err(wrong),
    }
}

/// `FIRST-LAST`, both included, as HTTP has them.
fn range(text: &str) -> Result<Range, AskError> {
    let read = || {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        let end = last.checked_add(1)?;
        (first < end).then(|| Range::new(first, end))
    };
    read().ok_or(AskError::Value { name: "range", what: RANGE })
}

/// Reads `bytes` as a request for a depot: what is understood is within what the words say.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(Some((head, _))) = Head::parse_passing(bytes) else { return };
    if !is_for_depot(&head) {
        return;
    }
    match Operation::read(&head) {
        Ok(Operation::Store { range: Some(range), size_bytes, .. }) => {
            assert!(!range.is_empty() && size_bytes.is_none_or(|size| range.end <= size));
        }
        Ok(Operation::Fetch { from, range, .. }) => {
            assert!(!range.is_empty() && matches!(from.scheme(), "http" | "https"));
            assert!(from.username().is_empty() && from.password().is_none());
        }
        Ok(Operation::Allocate { length, .. } | Operation::Extend { length, .. }) => {
            assert!(!length.is_zero());
        }
        Ok(Operation::Read { version: Some(Version { etag, modified }), .. }) => {
            let shown = etag.iter().map(Etag::as_str).chain(modified.as_deref());
            shown.for_each(|text| assert!(!text.contains(char::is_control)));
        }
        Ok(_) => {}
        Err(error) => {
            let response = error.response();
            assert!((400..500).contains(&response.status));
        }
    }
}

const ETAG: &str = "an entity tag, percent-encoded";
const DATE: &str = "a date as HTTP has them, percent-encoded";
const BYTES: &str = "how many bytes, in digits";
const SECONDS: &str = "how many seconds from now on, in digits, at least 1";
const FROM: &str = "a whole address of HTTP without credentials, percent-encoded";
const RANGE: &str = "FIRST-LAST, both included, in digits";
/// Of what others wrote so much is shown to them.
const SHOWN_CHARS: usize = 40;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ask(method: &str, target: &str, fields: &str) -> Result<Operation, AskError> {
        let text = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let (head, _) = Head::parse_passing(text.as_bytes()).unwrap().unwrap();
        assert!(is_for_depot(&head), "{target}");
        Operation::read(&head)
    }

    fn capability() -> String {
        "0123456789abcdef".repeat(4)
    }

    #[test]
    fn whatever_is_taken_for_a_capability_is_blacked_out() {
        // The log held capabilities whole that were asked for in another spelling than ours.
        let one = capability();
        for path in [
            format!("/depot/{one}"),
            format!("/depot//{one}"),
            format!("//depot/{one}/"),
            format!("/depot/./{one}"),
            format!("/depot/x/../{one}"),
            format!("/%64epot/{one}"),
            format!("/d%65po%74/%2e/{one}"),
            format!("/depot/%30{}", &one[1..]),
            format!("/depot/x/../{}%66", &one[..63]),
        ] {
            assert!(matches!(ask("DELETE", &path, ""), Ok(Operation::Release { .. })), "{path}");
            for before in ["", "/relay/http://r2", "/relay/http%3A%2F%2Fr2"] {
                let shown = swath_formats::depot::redacted(&format!("{before}{path}"));
                assert!(shown.starts_with(before) && shown.len() < before.len() + 40, "{shown}");
                let encoded = format!("{before}{}", path.replace('%', "%25").replace('/', "%2F"));
                let shown = swath_formats::depot::redacted(&encoded);
                assert!(shown.contains("...") && shown.len() < before.len() + 50, "{shown}");
            }
        }
    }

    #[test]
    fn what_is_asked_is_understood() {
        let one = format!("/depot/{}", capability());
        assert!(matches!(ask("GET", "/depot", ""), Ok(Operation::Usage)));
        assert!(matches!(
            ask("POST", "/depot?size=10&lease=60&medium=memory", ""),
            Ok(Operation::Allocate { size_bytes: 10, medium: Some(Medium::Memory), .. })
        ));
        assert!(matches!(
            ask("POST", "/depot?size=10&lease=60&reserve=no", ""),
            Ok(Operation::Allocate { space: Space::AsStored, .. })
        ));
        assert!(matches!(ask("HEAD", &one, ""), Ok(Operation::Read { version: None, .. })));
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let named = format!("{one}?etag=%22a%22&modified={}", date.replace(' ', "%20"));
        let Ok(Operation::Read { version: Some(version), .. }) = ask("GET", &named, "") else {
            panic!("the version is called by its names");
        };
        assert_eq!((version.etag, version.modified.as_deref()), (Etag::parse("\"a\""), Some(date)));
        let Ok(Operation::Read { version: Some(version), .. }) =
            ask("GET", &format!("{one}?etag="), "")
        else {
            panic!("it has no tag");
        };
        assert_eq!(version, Version { etag: None, modified: None });
        assert!(matches!(ask("GET", &format!("{one}?status"), ""), Ok(Operation::Status { .. })));
        assert!(matches!(ask("DELETE", &one, ""), Ok(Operation::Release { .. })));
        let Ok(Operation::Store { range, size_bytes, .. }) =
            ask("PUT", &one, "Content-Range: bytes 5-9/20\r\n")
        else {
            panic!("a part is stored");
        };
        assert_eq!((range, size_bytes), (Some(Range::new(5, 10)), Some(20)));
        let target = format!("{one}?from=https%3A%2F%2Fa.example%2Ff%3Fx%3D1%26y&range=0-9");
        let Ok(Operation::Fetch { from, range, .. }) = ask("POST", &target, "") else {
            panic!("it is fetched");
        };
        assert_eq!((from.as_str(), range), ("https://a.example/f?x=1&y", Range::new(0, 10)));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let one = format!("/depot/{}", capability());
        for (method, target, fields, status) in [
            ("GET", "/depot/abc", "", 404),
            ("GET", "/depot/../depot/%00", "", 404),
            ("GET", "/depot?lease=1", "", 400),
            ("PUT", "/depot", "", 405),
            ("PATCH", &*one, "", 405),
            ("POST", "/depot", "", 400),
            ("POST", "/depot?size=1", "", 400),
            ("POST", "/depot?size=1&lease=0", "", 400),
            ("POST", "/depot?size=-1&lease=1", "", 400),
            ("POST", "/depot?size=1&lease=1d", "", 400),
            ("POST", "/depot?size=1&lease=1&medium=tape", "", 400),
            ("POST", "/depot?size=1&size=2&lease=1", "", 400),
            ("POST", "/depot?size=1&leese=1&lease=1", "", 400),
            ("POST", "/depot?size=1&lease=1&reserve=maybe", "", 400),
            ("GET", &*format!("{one}?etag=%01"), "", 400),
            ("GET", &*format!("{one}?etag=%22a%0d%22"), "", 400),
            ("GET", &*format!("{one}?modified=now"), "", 400),
            ("POST", &*format!("{one}?extend=0"), "", 400),
            ("POST", &*one, "", 400),
            ("POST", &*format!("{one}?from=ftp://a/b&range=0-1"), "", 400),
            ("POST", &*format!("{one}?from=http://u:p@a/b&range=0-1"), "", 400),
            ("POST", &*format!("{one}?from=http://a/b&range=5-4"), "", 400),
            ("POST", &*format!("{one}?from=http://a/b&range=-5"), "", 400),
            ("POST", &*format!("{one}?from=http://a/b&range=0-18446744073709551615"), "", 400),
            ("PUT", &*one, "Content-Range: bytes */5\r\n", 400),
            ("PUT", &*one, "Content-Range: bytes 5-9/8\r\n", 400),
            ("PUT", &*one, "Content-Encoding: gzip\r\n", 415),
        ] {
            // `/depot/../depot/%00` is no target at all.
            let text = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let (head, _) = Head::parse_passing(text.as_bytes()).unwrap().unwrap();
            if !is_for_depot(&head) {
                assert!(target.contains("%00"), "{target}");
                continue;
            }
            let error = Operation::read(&head).expect_err(target);
            assert_eq!(error.response().status, status, "{method} {target}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_request_can_do_harm(
            method in "GET|PUT|POST|DELETE|HEAD",
            rest in "(/[0-9a-f]{64})?(\\?((size|lease|from|range|extend|status|medium|reserve|etag|modified)=[a-z0-9:/%-]{0,12}&?){0,3})?",
            value in "bytes [0-9]{0,20}-[0-9]{0,20}/[0-9*]{1,20}",
        ) {
            let text = format!("{method} /depot{rest} HTTP/1.1\r\nHost: a\r\nContent-Range: {value}\r\n\r\n");
            fuzz(text.as_bytes());
        }
    }
}
