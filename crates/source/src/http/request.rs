//! Writing requests: the part that every request to one target shares is made once.

use std::fmt::Write as _;

use swath_model::Range;
use url::Url;

/// Everything of a GET for `url` but its range and the closing empty line. `fields` must be
/// free of control characters (see [`is_field_safe`]).
pub(crate) fn shared_part(url: &Url, absolute: bool, fields: &[(&str, &str)]) -> String {
    let mut text = String::from("GET ");
    if absolute {
        let _ = write!(text, "{}://{}", url.scheme(), authority(url));
    }
    text.push_str(url.path());
    if let Some(query) = url.query() {
        let _ = write!(text, "?{query}");
    }
    let _ = write!(text, " HTTP/1.1\r\nHost: {}\r\nAccept-Encoding: identity\r\n", authority(url));
    for (name, value) in fields {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text
}

/// Appends one request for `range` to `out`; `extra` holds further complete header lines.
pub(crate) fn append(out: &mut Vec<u8>, shared: &str, range: Range, extra: &[&str]) {
    out.extend_from_slice(shared.as_bytes());
    out.extend_from_slice(range_line(range).as_bytes());
    extra.iter().for_each(|lines| out.extend_from_slice(lines.as_bytes()));
    out.extend_from_slice(b"\r\n");
}

/// Appends one request for the whole file, without a word of ranges.
pub(crate) fn append_whole(out: &mut Vec<u8>, shared: &str, extra: &[&str]) {
    out.extend_from_slice(shared.as_bytes());
    extra.iter().for_each(|lines| out.extend_from_slice(lines.as_bytes()));
    out.extend_from_slice(b"\r\n");
}

fn range_line(range: Range) -> String {
    format!("Range: {}\r\n", range_value(range))
}

/// The value of a `Range` field; an end of `u64::MAX` is left open.
pub(crate) fn range_value(range: Range) -> String {
    match range.end {
        u64::MAX => format!("bytes={}-", range.start),
        end => format!("bytes={}-{}", range.start, end.saturating_sub(1)),
    }
}

/// Host and, if it is not the scheme's own, port.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or("");
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Whether a header can be sent as it is: a token as the name, no control characters in the value.
pub(crate) fn is_field_safe(name: &str, value: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty()
        && name.bytes().all(is_token)
        && value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_they_should() {
        let url = Url::parse("http://user:pw@[::1]:8080/a b?x=1#frag").unwrap();
        let shared = shared_part(&url, false, &[("Accept", "*/*")]);
        let mut out = Vec::new();
        append(&mut out, &shared, Range::new(5, 10), &["Want-Digest: md5\r\n"]);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "GET /a%20b?x=1 HTTP/1.1\r\nHost: [::1]:8080\r\nAccept-Encoding: identity\r\nAccept: */*\r\n\
             Range: bytes=5-9\r\nWant-Digest: md5\r\n\r\n"
        );
        assert_eq!(range_value(Range::new(7, u64::MAX)), "bytes=7-");
        assert!(
            shared_part(&url, true, &[])
                .starts_with("GET http://[::1]:8080/a%20b?x=1 HTTP/1.1\r\n")
        );
    }

    #[test]
    fn headers_cannot_smuggle_lines() {
        assert!(is_field_safe("X-A", "b c"));
        for (name, value) in
            [("X\r\n", "a"), ("", "a"), ("X Y", "a"), ("X", "a\r\nHost: b"), ("X", "a\0")]
        {
            assert!(!is_field_safe(name, value), "{name:?}: {value:?}");
        }
    }
}
