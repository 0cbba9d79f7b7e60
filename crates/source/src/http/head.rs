//! Response heads: parsed from however many bytes have come so far.
//!
//! A head is at most [`HEAD_LIMIT_BYTES`] long and has at most [`HEADER_LIMIT`] fields.

use swath_formats::field_text;

/// A head longer than this is refused; the largest that well-known servers send is 32 KiB.
pub(crate) const HEAD_LIMIT_BYTES: usize = 64 * 1024;
/// More header fields than this are refused.
const HEADER_LIMIT: usize = 128;

/// A parsed response head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub minor_version: u8,
    pub status: u16,
    pub reason: String,
    /// Names in lower case, in the order of arrival.
    fields: Vec<(String, String)>,
}

/// Why the bytes are not a response head.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadError {
    #[error("the head of the answer is longer than {HEAD_LIMIT_BYTES} bytes")]
    TooLong,
    #[error("the answer has more than {HEADER_LIMIT} header fields")]
    TooManyFields,
    #[error("the answer does not begin like HTTP ({0})")]
    Malformed(String),
    #[error("the answer names two different lengths")]
    TwoLengths,
    #[error("the length {0:?} is no number")]
    BadLength(String),
    #[error("the transfer coding {0:?} is unknown")]
    UnknownCoding(String),
}

impl Head {
    /// The head at the start of `input` and its length in bytes; `None` while it is incomplete.
    pub fn parse(input: &[u8]) -> Result<Option<(Head, usize)>, HeadError> {
        let mut fields = [httparse::EMPTY_HEADER; HEADER_LIMIT];
        let mut response = httparse::Response::new(&mut fields);
        let mut config = httparse::ParserConfig::default();
        config.allow_obsolete_multiline_headers_in_responses(true);
        config.allow_spaces_after_header_name_in_responses(true);
        match config.parse_response(&mut response, input) {
            Ok(httparse::Status::Complete(bytes)) if bytes <= HEAD_LIMIT_BYTES => {
                Ok(Some((Head::from_parsed(&response), bytes)))
            }
            Ok(httparse::Status::Partial) if input.len() < HEAD_LIMIT_BYTES => Ok(None),
            Ok(_) => Err(HeadError::TooLong),
            Err(httparse::Error::TooManyHeaders) => Err(HeadError::TooManyFields),
            Err(error) => Err(HeadError::Malformed(error.to_string())),
        }
    }

    fn from_parsed(response: &httparse::Response<'_, '_>) -> Head {
        let fields = response
            .headers
            .iter()
            .map(|field| (field.name.to_ascii_lowercase(), field_text(field.value)))
            .collect();
        Head {
            minor_version: response.version.unwrap_or(0),
            status: response.code.unwrap_or(0),
            reason: response.reason.unwrap_or("").to_owned(),
            fields,
        }
    }

    /// The first field of this (lower-case) name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// All fields of this (lower-case) name.
    pub fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Every field: name in lower case, value.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The announced length of the body.
    pub fn content_length(&self) -> Result<Option<u64>, HeadError> {
        let mut length = None;
        for value in self.fields("content-length").flat_map(|value| value.split(',')).map(str::trim)
        {
            // `parse` alone would take a leading '+'.
            if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(HeadError::BadLength(shortened(value)));
            }
            let parsed: u64 = value.parse().map_err(|_| HeadError::BadLength(shortened(value)))?;
            if length.is_some_and(|other| other != parsed) {
                return Err(HeadError::TwoLengths);
            }
            length = Some(parsed);
        }
        Ok(length)
    }

    /// Whether the body comes in chunks; codings other than that are not spoken.
    pub fn is_chunked(&self) -> Result<bool, HeadError> {
        let mut chunked = false;
        for coding in
            self.fields("transfer-encoding").flat_map(|value| value.split(',')).map(str::trim)
        {
            if chunked
                || !(coding.eq_ignore_ascii_case("chunked")
                    || coding.eq_ignore_ascii_case("identity"))
            {
                return Err(HeadError::UnknownCoding(shortened(coding)));
            }
            chunked = coding.eq_ignore_ascii_case("chunked");
        }
        Ok(chunked)
    }

    /// Whether the connection stays open after this answer.
    pub fn keeps_alive(&self) -> bool {
        let mut says_close = false;
        let mut says_keep = false;
        for token in self.fields("connection").flat_map(|value| value.split(',')).map(str::trim) {
            says_close |= token.eq_ignore_ascii_case("close");
            says_keep |= token.eq_ignore_ascii_case("keep-alive");
        }
        !says_close && (self.minor_version >= 1 || says_keep)
    }
}

/// At most 40 characters of something foreign, for a message.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(40).filter(|character| !character.is_control()).collect()
}

/// The words of a relay or a depot, whole as far as they are some.
pub(crate) fn words(text: &str) -> String {
    let shown = text.trim().chars().filter(|&c| !c.is_control() && !turns_around(c));
    shown.take(WORDS_CHARS_MAX).collect()
}

/// Longer than anything that swath says there.
const WORDS_CHARS_MAX: usize = 200;

/// The words of a refusal: what its status line says, and the first line of what follows where that
/// is text for people, or else what a challenge says of the credentials (RFC 6750, section 3).
/// Nothing in it can disturb a screen.
pub(crate) fn explained(head: &Head, body: &[u8]) -> String {
    let reason = shortened(&head.reason);
    let is_text = head.field("content-type").is_some_and(|kind| {
        kind.trim_start().get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case("text/plain"))
    });
    let body = &body[..body.len().min(EXPLANATION_BYTES_MAX)];
    let text = String::from_utf8_lossy(if is_text { body } else { &[] });
    let line: String = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .or_else(|| head.fields("www-authenticate").find_map(described))
        .unwrap_or_default()
        .chars()
        .filter(|&c| !c.is_control() && !turns_around(c))
        .take(EXPLANATION_CHARS_MAX)
        .collect();
    match (reason.is_empty(), line.is_empty() || line == reason) {
        (_, true) => reason,
        (true, false) => line,
        (false, false) => format!("{reason}: {line}"),
    }
}

/// What a challenge says in words for people.
fn described(challenge: &str) -> Option<&str> {
    let (_, text) = challenge.split_once("error_description=\"")?;
    text.split_once('"').map(|(text, _)| text)
}

/// Characters that change the order in which others are shown.
fn turns_around(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// So much of a refusal is read …
pub(crate) const EXPLANATION_BYTES_MAX: usize = 1000;
/// … and so much of it told.
const EXPLANATION_CHARS_MAX: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Head {
        Head::parse(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn a_refusal_is_told_in_one_line_that_harms_no_screen() {
        let of = |kind: &str, body: &str| {
            let head = format!("HTTP/1.1 403 Forbidden\r\ncontent-type: {kind}\r\n\r\n");
            explained(&parsed(&head), body.as_bytes())
        };
        assert_eq!(
            of("text/plain", "nothing is taken here\nmore"),
            "Forbidden: nothing is taken here"
        );
        assert_eq!(
            of("text/plain; charset=utf-8", "\n\n  why \u{1b}[2J\u{202e}x\r\n"),
            "Forbidden: why [2Jx"
        );
        assert_eq!(of("text/html", "<h1>no</h1>"), "Forbidden");
        assert_eq!(of("text/plain", ""), "Forbidden");
        assert!(of("Text/Plain", &"x".repeat(100_000)).len() < 200);
        // A lane does not read what follows.
        let challenged = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"x\"\r\n\
             www-authenticate: Bearer error=\"invalid_token\", error_description=\"it is \u{202e}over\"\r\n\r\n";
        assert_eq!(explained(&parsed(challenged), b""), "Unauthorized: it is over");
    }

    #[test]
    fn a_head_is_complete_only_at_its_empty_line() {
        let text = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\nhello";
        for cut in 0..text.len() - 5 {
            assert_eq!(Head::parse(&text[..cut]), Ok(None), "cut at {cut}");
        }
        let (head, bytes) = Head::parse(text).unwrap().unwrap();
        assert_eq!((head.status, bytes), (206, text.len() - 5));
        assert_eq!(head.content_length(), Ok(Some(5)));
        assert!(head.keeps_alive());
    }

    #[test]
    fn lengths_must_agree_and_be_numbers() {
        assert_eq!(
            parsed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n")
                .content_length(),
            Ok(Some(5))
        );
        assert_eq!(
            parsed("HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n").content_length(),
            Err(HeadError::TwoLengths)
        );
        for bad in ["-1", "+1", "0x10", "", "99999999999999999999"] {
            let head = parsed(&format!("HTTP/1.1 200 OK\r\nContent-Length: {bad}\r\n\r\n"));
            assert!(matches!(head.content_length(), Err(HeadError::BadLength(_))), "{bad}");
        }
    }

    #[test]
    fn connections_are_kept_as_the_version_and_the_server_say() {
        assert!(!parsed("HTTP/1.0 200 OK\r\n\r\n").keeps_alive());
        assert!(parsed("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n").keeps_alive());
        assert!(!parsed("HTTP/1.1 200 OK\r\nConnection: foo, CLOSE\r\n\r\n").keeps_alive());
    }

    #[test]
    fn endless_heads_and_garbage_are_refused() {
        let mut endless = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
        endless.resize(HEAD_LIMIT_BYTES, b'a');
        assert_eq!(Head::parse(&endless), Err(HeadError::TooLong));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(HEADER_LIMIT + 1));
        assert_eq!(Head::parse(many.as_bytes()), Err(HeadError::TooManyFields));
        assert!(matches!(Head::parse(b"SSH-2.0-OpenSSH\r\n"), Err(HeadError::Malformed(_))));
    }
}
