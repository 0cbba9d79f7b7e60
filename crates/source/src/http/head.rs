//! Response heads: parsed from however many bytes have come so far.
//!
//! A head is at most [`HEAD_LIMIT_BYTES`] long and has at most [`HEADER_LIMIT`] fields.
//!
//! Two readers: a client takes what scripts print ([`Head::parse`]): a line may end with a lone line
//! feed (RFC 9112, section 2.2), and a line that is no field is passed over and remembered, unless it
//! names a field that says where the body is or what it holds. A relay hands answers on, so that
//! others read them after it, and takes neither ([`Head::parse_strictly`]). Around a value only spaces
//! and tabs are blank.

use crate::error::Said;
use swath_formats::{field_text, trim_blanks};
use swath_model::path::is_treacherous;

/// A head longer than this is refused. The longest that well-known servers send list mirrors, hundreds of them,
/// in a `Link` field of some 200 bytes each (RFC 6249).
pub(crate) const HEAD_LIMIT_BYTES: usize = 128 * 1024;
/// More header fields than this are refused.
pub(crate) const HEADER_LIMIT: usize = 1024;
/// Nearly every head has fewer.
const HEADERS_USUAL: usize = 96;
/// Interim answers beyond this number are nonsense.
pub(crate) const INTERIM_LIMIT: u32 = 32;
/// The one status below 200 that is final, and that nobody asked for.
pub(crate) const SWITCHING_PROTOCOLS: u16 = 101;

/// A parsed response head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub minor_version: u8,
    pub status: u16,
    pub reason: String,
    /// Names in lower case, in the order of arrival.
    fields: Vec<(String, String)>,
    /// The first line that is no header field, shortened, where there is one.
    odd_line: Option<String>,
}

/// Why the bytes are not a response head.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadError {
    #[error("the head of the answer is longer than {HEAD_LIMIT_BYTES} bytes")]
    TooLong,
    #[error("the answer has more than {HEADER_LIMIT} header fields")]
    TooManyFields,
    #[error("the answer begins with {0:?}, which is no HTTP")]
    NoHttp(String),
    #[error("the header line {0:?} is malformed")]
    BadLine(String),
    #[error("interim answers without end")]
    EndlessInterim,
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
        match Head::read(input, false) {
            Err(HeadError::NoHttp(_) | HeadError::BadLine(_)) => {}
            other => return other,
        }
        let Some((mut head, bytes)) = Head::read(input, true)? else { return Ok(None) };
        for line in odd_lines(&input[..bytes]) {
            let name = line.to_ascii_lowercase();
            if DECISIVE.iter().any(|decisive| name.trim_start().starts_with(decisive)) {
                return Err(HeadError::BadLine(shortened(&line)));
            }
            head.odd_line.get_or_insert_with(|| shortened(&line));
        }
        Ok(Some((head, bytes)))
    }

    /// The same for a relay, which hands on what it reads: every line must be one for all readers.
    pub fn parse_strictly(input: &[u8]) -> Result<Option<(Head, usize)>, HeadError> {
        let read = Head::read(input, false)?;
        if let Some((_, bytes)) = &read {
            let mut lines = input[..*bytes].split_inclusive(|&byte| byte == b'\n');
            if let Some(line) = lines.find(|line| !line.ends_with(b"\r\n")) {
                return Err(HeadError::BadLine(shortened(&String::from_utf8_lossy(line))));
            }
        }
        Ok(read)
    }

    fn read(input: &[u8], passes_over: bool) -> Result<Option<(Head, usize)>, HeadError> {
        let mut usual = [httparse::EMPTY_HEADER; HEADERS_USUAL];
        match Head::read_into(&mut usual, input, passes_over) {
            Err(HeadError::TooManyFields) => {
                let mut fields = vec![httparse::EMPTY_HEADER; HEADER_LIMIT];
                Head::read_into(&mut fields, input, passes_over)
            }
            read => read,
        }
    }

    fn read_into<'i>(
        fields: &mut [httparse::Header<'i>],
        input: &'i [u8],
        passes_over: bool,
    ) -> Result<Option<(Head, usize)>, HeadError> {
        let mut response = httparse::Response::new(fields);
        let mut config = httparse::ParserConfig::default();
        config.allow_obsolete_multiline_headers_in_responses(true);
        config.allow_spaces_after_header_name_in_responses(true);
        config.ignore_invalid_headers_in_responses(passes_over);
        match config.parse_response(&mut response, input) {
            Ok(httparse::Status::Complete(bytes)) if bytes <= HEAD_LIMIT_BYTES => {
                Ok(Some((Head::from_parsed(&response), bytes)))
            }
            Ok(httparse::Status::Partial) if input.len() < HEAD_LIMIT_BYTES => Ok(None),
            Ok(_) => Err(HeadError::TooLong),
            Err(httparse::Error::TooManyHeaders) => Err(HeadError::TooManyFields),
            Err(_) if response.code.is_none() => {
                let first = input.split(|&byte| byte == b'\n').next().unwrap_or_default();
                Err(HeadError::NoHttp(shortened(&String::from_utf8_lossy(first))))
            }
            Err(_) => {
                let line = odd_lines(input).next().unwrap_or_default();
                Err(HeadError::BadLine(shortened(&line)))
            }
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
            odd_line: None,
        }
    }

    /// One that the library has read; names are in lower case.
    pub fn made(
        status: u16,
        reason: &str,
        fields: Vec<(String, String)>,
    ) -> Result<Head, HeadError> {
        let bytes: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > HEAD_LIMIT_BYTES {
            return Err(HeadError::TooLong);
        }
        if fields.len() > HEADER_LIMIT {
            return Err(HeadError::TooManyFields);
        }
        let reason = reason.to_owned();
        Ok(Head { minor_version: 1, status, reason, fields, odd_line: None })
    }

    /// Returns the first line that is no header field and was passed over, shortened.
    pub fn odd_line(&self) -> Option<&str> {
        self.odd_line.as_deref()
    }

    /// Returns the first field of this (lower-case) name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns all fields of this (lower-case) name.
    pub fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Every field: name in lower case, value.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the announced length of the body.
    pub fn content_length(&self) -> Result<Option<u64>, HeadError> {
        let mut length = None;
        for value in
            self.fields("content-length").flat_map(|value| value.split(',')).map(trim_blanks)
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
            self.fields("transfer-encoding").flat_map(|value| value.split(',')).map(trim_blanks)
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

    /// Whether the real answer follows (RFC 9110, section 15.2).
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != SWITCHING_PROTOCOLS
    }

    /// Whether the connection stays open after this answer.
    pub fn keeps_alive(&self) -> bool {
        let mut says_close = false;
        let mut says_keep = false;
        for token in self.fields("connection").flat_map(|value| value.split(',')).map(trim_blanks) {
            says_close |= token.eq_ignore_ascii_case("close");
            says_keep |= token.eq_ignore_ascii_case("keep-alive");
        }
        !says_close && (self.minor_version >= 1 || says_keep)
    }
}

/// Returns the lines behind the status line that are neither a field nor the continuation of one.
fn odd_lines(head: &[u8]) -> impl Iterator<Item = String> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_control = |&byte: &u8| byte < b' ' && byte != b'\t' || byte == 0x7f;
    let lines = head.split(|&byte| byte == b'\n').skip(1);
    lines
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(move |line| {
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
            let has_colon = name.len() < line.len();
            let name = name.trim_ascii_end();
            let is_field = has_colon && !name.is_empty() && name.iter().all(is_token);
            let continues = line.first().is_none_or(|byte| b" \t".contains(byte));
            line.iter().any(is_control) || !is_field && !continues
        })
        .map(|line| String::from_utf8_lossy(line).into_owned())
}

/// Fields that say where the body is, what it holds or where it is: a line that begins like one of
/// them and cannot be read must not count as not said.
const DECISIVE: [&str; 9] = [
    "content-length",
    "content-range",
    "content-encoding",
    "transfer-encoding",
    "location",
    "connection",
    "etag",
    "last-modified",
    "repr-digest",
];

/// At most 40 characters of something foreign, for a message.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(40).filter(|character| !is_treacherous(*character)).collect()
}

/// Returns the words of a relay or a depot, whole as far as they are some.
pub(crate) fn words(text: &str) -> String {
    let shown = text.trim().chars().filter(|&c| !is_treacherous(c));
    shown.take(WORDS_CHARS_MAX).collect()
}

/// Longer than anything that swath says there.
const WORDS_CHARS_MAX: usize = 200;

/// The words of a refusal: what its status line says, and the first line of what follows where that
/// is text for people, or else what a challenge says of the credentials (RFC 6750, section 3).
/// Nothing in it can disturb a screen.
pub(crate) fn explained(head: &Head, body: &[u8]) -> Said {
    let phrase = shortened(&head.reason);
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
        .filter(|&c| !is_treacherous(c))
        .take(EXPLANATION_CHARS_MAX)
        .collect();
    let mut said = Said { why: (!line.is_empty() && line != phrase).then_some(line), phrase };
    if let Some(asked_for) = asked_for(head) {
        said.why.as_mut().unwrap_or(&mut said.phrase).push_str(&format!("; {asked_for}"));
    }
    said
}

/// Which credentials a refusal asks for, where swath speaks none of these schemes, or where it is a
/// proxy that asks: `Digest (realm "archive")`.
fn asked_for(head: &Head) -> Option<String> {
    let field = match head.status {
        401 => "www-authenticate",
        407 => "proxy-authenticate",
        _ => return None,
    };
    let challenges: Vec<(&str, Option<&str>)> = head.fields(field).filter_map(challenge).collect();
    let speaks = |scheme: &str| ["basic", "bearer"].contains(&&*scheme.to_ascii_lowercase());
    if challenges.is_empty() || head.status == 401 && challenges.iter().any(|it| speaks(it.0)) {
        return None;
    }
    let words: Vec<String> = challenges
        .iter()
        .take(CHALLENGES_TOLD)
        .map(|(scheme, realm)| match realm {
            Some(realm) => format!("{} (realm {:?})", shortened(scheme), shortened(realm)),
            None => shortened(scheme),
        })
        .collect();
    let words = words.join(" or ");
    let hint = match challenges.iter().any(|it| speaks(it.0)) {
        true => "",
        false => ", which swath does not speak",
    };
    Some(format!("it asks for {words}{hint}"))
}

/// Returns the scheme and the realm of the first challenge in a field (RFC 9110, section 11.6.1).
fn challenge(value: &str) -> Option<(&str, Option<&str>)> {
    let scheme = trim_blanks(value).split([' ', '\t', ',']).next()?;
    let realm = value.split_once("realm=\"").and_then(|(_, rest)| rest.split_once('"'));
    (!scheme.is_empty()).then_some((scheme, realm.map(|(realm, _)| realm)))
}

/// More challenges of one refusal are not told.
const CHALLENGES_TOLD: usize = 3;

/// Returns what a challenge says in words for people.
fn described(challenge: &str) -> Option<&str> {
    let (_, text) = challenge.split_once("error_description=\"")?;
    text.split_once('"').map(|(text, _)| text)
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
            explained(&parsed(&head), body.as_bytes()).to_string()
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
        // What would be taken is told where it is not what swath sends.
        let digest = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Digest realm=\"archive\", nonce=\"x\"\r\n\r\n";
        assert_eq!(
            explained(&parsed(digest), b"").to_string(),
            "Unauthorized; it asks for Digest (realm \"archive\"), which swath does not speak"
        );
        let proxy = "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"campus\"\r\n\r\n";
        assert_eq!(
            explained(&parsed(proxy), b"").to_string(),
            "No; it asks for Basic (realm \"campus\")"
        );
        // A lane does not read what follows.
        let challenged = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"x\"\r\n\
             www-authenticate: Bearer error=\"invalid_token\", error_description=\"it is \u{202e}over\"\r\n\r\n";
        assert_eq!(explained(&parsed(challenged), b"").to_string(), "Unauthorized: it is over");
    }

    /// PHP prints its warnings where it stands: nginx and browsers pass over them, and so did nobody
    /// who used swath. What decides where the body ends is never passed over.
    #[test]
    fn a_line_that_is_no_field_spoils_only_itself() {
        for line in
            ["PHP Warning:  mcrypt.so in Unknown on line 0", "X Powered By: x", "debug", "\u{1}: x"]
        {
            let text = format!("HTTP/1.1 200 OK\r\n{line}\r\nContent-Length: 3\r\n\r\nabc");
            let (head, bytes) = Head::parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!(head.content_length(), Ok(Some(3)), "{line}");
            assert_eq!(text.len() - bytes, 3);
            assert!(head.odd_line().is_some());
            assert!(Head::parse_strictly(text.as_bytes()).is_err(), "{line}");
            for cut in 0..bytes {
                assert_eq!(Head::parse(&text.as_bytes()[..cut]), Ok(None), "{line} cut at {cut}");
            }
        }
        for line in
            ["Content-Length: 3\u{1}", "Content-Length 3", "content-range\u{b}: bytes 0-1/2"]
        {
            let text = format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n");
            assert!(matches!(Head::parse(text.as_bytes()), Err(HeadError::BadLine(_))), "{line}");
        }
        assert_eq!(
            Head::parse(b"SSH-2.0-OpenSSH_9.6\r\n"),
            Err(HeadError::NoHttp("SSH-2.0-OpenSSH_9.6".to_owned()))
        );
    }

    /// RFC 9112, section 2.2, lets a recipient take a lone line feed for the end of a line, which
    /// scripts send; a relay hands heads on to readers that may not.
    #[test]
    fn a_lone_line_feed_ends_a_line_for_us_and_not_for_a_relay() {
        let text = b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc";
        let (head, bytes) = Head::parse(text).unwrap().unwrap();
        assert_eq!((head.content_length(), bytes), (Ok(Some(3)), text.len() - 3));
        assert!(Head::parse_strictly(text).is_err());
        assert!(Head::parse_strictly(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n").unwrap().is_some());
    }

    /// A no-break space is no blank: read as one, the length would be one to us and none to others.
    #[test]
    fn only_blanks_of_http_are_trimmed() {
        let of = |value: &str| {
            let mut text = b"HTTP/1.1 200 OK\r\nContent-Length: ".to_vec();
            text.extend(value.chars().map(|c| c as u8));
            text.extend_from_slice(b"\r\n\r\n");
            Head::parse(&text).unwrap().unwrap().0.content_length()
        };
        assert_eq!(of(" \t5 \t"), Ok(Some(5)));
        assert!(matches!(of("5\u{a0}"), Err(HeadError::BadLength(_))));
        assert!(matches!(of("\u{85}5"), Err(HeadError::BadLength(_))));
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
        let most = many.replacen("a: b\r\n", "", 1);
        let head = Head::parse(most.as_bytes()).unwrap().unwrap().0;
        assert_eq!(head.fields("a").count(), HEADER_LIMIT);
        assert!(Head::parse_strictly(most.as_bytes()).unwrap().is_some());
        assert!(matches!(Head::parse(b"SSH-2.0-OpenSSH\r\n"), Err(HeadError::NoHttp(_))));
    }
}
