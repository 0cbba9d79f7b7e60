//! Parses the head of a request from the bytes received so far.
//!
//! It is strict where two readers could see two different requests (request smuggling): one length
//! only, no length beside chunks, no folded lines, no space before colons.

use http::{Method, Version};
use swath_formats::conditions::Conditions;
use swath_formats::{field_text, number};
use swath_model::digest::Digest;

use super::target::{Target, TargetError};

/// A longer head is refused.
pub const HEAD_LIMIT_BYTES: usize = 16 * 1024;
/// More header fields than this are refused.
const FIELDS_MAX: usize = 96;

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// What is to be done.
    pub method: Method,
    /// To what.
    pub target: Target,
    /// The target as it was written, for the log.
    pub raw_target: String,
    /// In which version of HTTP it came.
    pub version: Version,
    /// What follows it.
    pub body: Body,
    /// The connection stays open after the answer.
    pub keeps_alive: bool,
    /// SHA-256 of the certificate that the client has shown on this connection.
    pub client_key: Option<Digest>,
    /// Names in lower case, in the order of arrival.
    fields: Vec<(String, String)>,
}

/// What follows the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    None,
    /// So many bytes.
    Bytes(u64),
    /// Chunks, until the last one.
    Chunked,
}

/// Why bytes are no request that can be answered as such. All but those of the target leave
/// nothing to go on with: the connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("the head of the request is longer than {HEAD_LIMIT_BYTES} bytes")]
    TooLong,
    #[error("the request has more than {FIELDS_MAX} header fields")]
    TooManyFields,
    #[error("this is not HTTP/1: {0}")]
    Malformed(String),
    #[error("the request has no Host field, or more than one")]
    Host,
    #[error("the length of the request's body is missing or contradictory")]
    Length,
    #[error("transfer codings other than 'chunked' are not supported")]
    Coding,
    #[error(transparent)]
    Target(#[from] TargetError),
}

impl HeadError {
    /// The status to answer with.
    pub fn status(&self) -> u16 {
        match self {
            HeadError::TooLong | HeadError::TooManyFields => 431,
            HeadError::Coding => 501,
            _ => 400,
        }
    }
}

fn has_bare_line_feed(head: &[u8]) -> bool {
    head.first() == Some(&b'\n') || head.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r')
}

impl Head {
    /// The head at the start of `input` and its length in bytes; `None` while it is incomplete.
    pub fn parse(input: &[u8]) -> Result<Option<(Head, usize)>, HeadError> {
        Head::parse_with(input, Target::parse)
    }

    /// The same for somebody who passes requests on: what the target means is for others to judge, and
    /// one that means nothing here names nothing here.
    pub fn parse_passing(input: &[u8]) -> Result<Option<(Head, usize)>, HeadError> {
        Head::parse_with(input, |target| Ok(Target::parse(target).unwrap_or_default()))
    }

    fn parse_with(
        input: &[u8],
        read_target: impl Fn(&str) -> Result<Target, TargetError>,
    ) -> Result<Option<(Head, usize)>, HeadError> {
        // Empty lines before a request are left over from the body of the one before.
        let blank = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        if blank > BLANK_BYTES_MAX {
            return Err(HeadError::Malformed("empty lines".to_owned()));
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&input[blank..]) {
            // A line may end in LF alone (RFC 9112, section 2.2) and need not: readers that differ there
            // see different requests.
            Ok(httparse::Status::Complete(bytes))
                if has_bare_line_feed(&input[blank..blank + bytes]) =>
            {
                Err(HeadError::Malformed("a line ends without a carriage return".to_owned()))
            }
            Ok(httparse::Status::Complete(bytes)) if bytes <= HEAD_LIMIT_BYTES => {
                Ok(Some((Head::from_parsed(&request, read_target)?, blank + bytes)))
            }
            Ok(httparse::Status::Partial) if input.len() < HEAD_LIMIT_BYTES => Ok(None),
            Ok(_) => Err(HeadError::TooLong),
            Err(httparse::Error::TooManyHeaders) => Err(HeadError::TooManyFields),
            Err(error) => Err(HeadError::Malformed(error.to_string())),
        }
    }

    fn from_parsed(
        request: &httparse::Request<'_, '_>,
        read_target: impl Fn(&str) -> Result<Target, TargetError>,
    ) -> Result<Head, HeadError> {
        let fields: Vec<(String, String)> = request
            .headers
            .iter()
            .map(|field| {
                let value = field_text(field.value).trim_matches(BLANKS).to_owned();
                (field.name.to_ascii_lowercase(), value)
            })
            .collect();
        let version = if request.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
        let all = |name: &'static str| {
            fields.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
        };
        let hosts = all("host").count();
        if hosts > 1 || (hosts == 0 && version > Version::HTTP_10) {
            return Err(HeadError::Host);
        }
        let says = |what: &str| {
            let mut tokens = all("connection").flat_map(|value| value.split(','));
            tokens.any(|token| token.trim_matches(BLANKS).eq_ignore_ascii_case(what))
        };
        let keeps_alive =
            if version == Version::HTTP_10 { says("keep-alive") } else { !says("close") };
        let body = body(all("content-length"), all("transfer-encoding"), version)?;
        let raw_target = request.path.unwrap_or_default().to_owned();
        let method = request.method.unwrap_or_default().parse::<Method>();
        let method = method.map_err(|error| HeadError::Malformed(error.to_string()))?;
        let target = read_target(&raw_target)?;
        let client_key = None;
        Ok(Head { method, target, raw_target, version, body, keeps_alive, client_key, fields })
    }

    /// The head of a request that came by HTTP/2, whose framing was looked after already.
    pub fn of_two(parts: &http::request::Parts) -> Result<Head, HeadError> {
        let mut fields: Vec<(String, String)> = parts
            .headers
            .iter()
            .map(|(name, value)| {
                let value = field_text(value.as_bytes()).trim_matches(BLANKS).to_owned();
                (name.as_str().to_owned(), value)
            })
            .collect();
        if fields.len() > FIELDS_MAX {
            return Err(HeadError::TooManyFields);
        }
        if let Some(authority) = parts.uri.authority() {
            fields.retain(|(name, _)| name != "host");
            fields.push(("host".to_owned(), authority.as_str().to_owned()));
        }
        let raw_target = parts.uri.path_and_query().map_or("/", |it| it.as_str()).to_owned();
        Ok(Head {
            method: parts.method.clone(),
            target: Target::parse(&raw_target)?,
            raw_target,
            version: Version::HTTP_2,
            body: Body::None,
            keeps_alive: true,
            client_key: None,
            fields,
        })
    }

    /// The query of the target with its `?`, as it was written; empty if there is none.
    pub fn query(&self) -> String {
        let target = self.raw_target.split('#').next().unwrap_or_default();
        target.find('?').map_or_else(String::new, |at| target[at..].to_owned())
    }

    /// The only field of this (lower-case) name; the first of several.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The conditions of the request (RFC 9110, section 13.1).
    pub fn conditions(&self) -> Conditions<'_> {
        Conditions {
            if_match: self.field("if-match"),
            if_none_match: self.field("if-none-match"),
            if_modified_since: self.field("if-modified-since"),
            if_unmodified_since: self.field("if-unmodified-since"),
            if_range: self.field("if-range"),
        }
    }

    /// Every field: name in lower case, value.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// All fields of this (lower-case) name.
    pub fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

fn body<'a>(
    mut lengths: impl Iterator<Item = &'a str>,
    codings: impl Iterator<Item = &'a str>,
    version: Version,
) -> Result<Body, HeadError> {
    let codings: Vec<&str> = codings.flat_map(|value| value.split(',')).map(str::trim).collect();
    match (lengths.next(), codings.as_slice()) {
        (None, []) => Ok(Body::None),
        (None, [coding])
            if coding.eq_ignore_ascii_case("chunked") && version > Version::HTTP_10 =>
        {
            Ok(Body::Chunked)
        }
        (None, [_, ..]) => Err(HeadError::Coding),
        (Some(length), []) if lengths.next().is_none() => {
            match number(length).ok_or(HeadError::Length)? {
                0 => Ok(Body::None),
                bytes => Ok(Body::Bytes(bytes)),
            }
        }
        _ => Err(HeadError::Length),
    }
}

/// Some clients send an empty line after a body.
const BLANK_BYTES_MAX: usize = 4;

/// Understands `bytes` as requests, one behind the other, as far as they can be.
#[cfg(feature = "fuzzing")]
pub fn fuzz_requests(mut bytes: &[u8]) {
    while let Ok(Some((head, length))) = Head::parse(bytes) {
        assert!(length > 0 && length <= bytes.len());
        let _ = (head.field("range"), head.fields("accept").count());
        bytes = &bytes[length..];
    }
}

/// White space around values (RFC 9110, section 5.6.3), and nothing else that Unicode calls so.
const BLANKS: [char; 2] = [' ', '\t'];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Option<(Head, usize)>, HeadError> {
        Head::parse(text.as_bytes())
    }

    fn head(text: &str) -> Head {
        let (head, length) = parse(text).unwrap().unwrap();
        assert_eq!(length, text.len());
        head
    }

    #[test]
    fn a_request_is_read_whole_or_not_at_all() {
        let text = "GET /a/b?x=1 HTTP/1.1\r\nHost: h\r\nRange:  bytes=0-9 \r\nX: 1\r\nx: 2\r\n\r\n";
        let read = head(text);
        assert_eq!((read.method.clone(), read.version), (Method::GET, Version::HTTP_11));
        assert_eq!((read.target.path.as_slice(), read.body), (&b"a/b"[..], Body::None));
        assert_eq!(read.field("range"), Some("bytes=0-9"));
        assert_eq!(read.fields("x").collect::<Vec<_>>(), ["1", "2"]);
        assert!(read.keeps_alive);
        for end in 0..text.len() {
            assert_eq!(parse(&text[..end]), Ok(None), "{end}");
        }
        let (_, length) = parse(&format!("\r\n{text}GET")).unwrap().unwrap();
        assert_eq!(length, 2 + text.len());
    }

    #[test]
    fn connections_are_kept_as_the_version_says() {
        let keeps = |version, field| {
            head(&format!("GET / HTTP/1.{version}\r\nHost: h\r\n{field}\r\n")).keeps_alive
        };
        assert!(keeps(1, ""));
        assert!(keeps(1, "Connection: keep-alive\r\n"));
        assert!(!keeps(1, "Connection: te, Close\r\n"));
        assert!(!keeps(0, ""));
        assert!(keeps(0, "Connection: Keep-Alive\r\n"));
    }

    #[test]
    fn a_body_has_one_length() {
        let body = |fields: &str| {
            parse(&format!("PUT /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n"))
                .map(|read| read.unwrap().0.body)
        };
        assert_eq!(body(""), Ok(Body::None));
        assert_eq!(body("Content-Length: 0\r\n"), Ok(Body::None));
        assert_eq!(body("Content-Length: 17\r\n"), Ok(Body::Bytes(17)));
        assert_eq!(body("Transfer-Encoding: Chunked\r\n"), Ok(Body::Chunked));
        for (fields, error) in [
            ("Content-Length: 1\r\nContent-Length: 1\r\n", HeadError::Length),
            ("Content-Length: 1, 1\r\n", HeadError::Length),
            ("Content-Length: +1\r\n", HeadError::Length),
            ("Content-Length: -1\r\n", HeadError::Length),
            ("Content-Length: 0x1\r\n", HeadError::Length),
            ("Content-Length:\r\n", HeadError::Length),
            ("Content-Length: 99999999999999999999\r\n", HeadError::Length),
            ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", HeadError::Length),
            ("Transfer-Encoding: gzip, chunked\r\n", HeadError::Coding),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", HeadError::Coding),
            ("Transfer-Encoding: identity\r\n", HeadError::Coding),
        ] {
            assert_eq!(body(fields), Err(error), "{fields:?}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(HEAD_LIMIT_BYTES));
        assert_eq!(parse(&long), Err(HeadError::TooLong));
        assert_eq!(parse(&long[..HEAD_LIMIT_BYTES]), Err(HeadError::TooLong));
        let many = "X: y\r\n".repeat(FIELDS_MAX);
        let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{many}\r\n");
        assert_eq!(parse(&many), Err(HeadError::TooManyFields));
        for (text, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 400),
            ("\x16\x03\x01\x02\x00\x01\x00\x01", 400),
            ("GET /.. HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("\n\n\n\n\n\n\n\n", 400),
        ] {
            assert_eq!(parse(text).unwrap_err().status(), status, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_can_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "\\PC*") {
            let _ = Head::parse(&bytes);
            let _ = parse(&format!("GET {text} HTTP/1.1\r\nHost: h\r\n\r\n"));
            let _ = parse(&format!("GET / HTTP/1.1\r\nHost: h\r\nX: {text}\r\n\r\n"));
        }
    }
}
