//! Writing the heads of requests. Every field is checked where it is written, whoever made it.

use swath_model::Range;
use url::Url;

use crate::error::LaneError;

/// Header lines, or the head of a request in the making. A field that could end its line, and so begin
/// another field or another request, makes the whole head one that cannot be sent.
///
/// It holds credentials, so it is never shown.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    text: String,
    /// The name of a field that cannot be sent.
    unsafe_field: Option<String>,
}

impl Lines {
    /// No field.
    pub const NONE: &'static Lines = &Lines { text: String::new(), unsafe_field: None };

    /// Begins a request.
    pub fn request(method: &str, target: &str, host: &str) -> Lines {
        let is_safe = |word: &str| word.bytes().all(|byte| byte > b' ' && byte != 0x7f);
        let unsafe_field = (!is_safe(method) || !is_safe(target)).then(|| "its address".to_owned());
        let lines = Lines { text: format!("{method} {target} HTTP/1.1\r\n"), unsafe_field };
        lines.with("Host", host)
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Lines {
        self.add(name, value);
        self
    }

    /// The same, if there is a value.
    #[must_use]
    pub fn with_any(self, name: &str, value: Option<&str>) -> Lines {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a field.
    pub fn add(&mut self, name: &str, value: &str) {
        if is_field_safe(name, value) {
            self.text.extend([name, ": ", value, "\r\n"]);
        } else if self.unsafe_field.is_none() {
            self.unsafe_field = Some(name.chars().filter(|c| !c.is_control()).collect());
        }
    }

    /// Adds all fields of another one.
    #[must_use]
    pub fn and(mut self, other: &Lines) -> Lines {
        self.text.push_str(&other.text);
        self.unsafe_field = self.unsafe_field.or_else(|| other.unsafe_field.clone());
        self
    }

    /// Returns whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.unsafe_field.is_none()
    }

    /// Returns the lines as they are sent.
    ///
    /// # Errors
    /// [`LaneError::UnsafeField`].
    pub fn text(&self) -> Result<&str, LaneError> {
        match &self.unsafe_field {
            None => Ok(&self.text),
            Some(name) => Err(LaneError::UnsafeField { name: name.clone() }),
        }
    }

    /// Returns a whole head.
    ///
    /// # Errors
    /// [`LaneError::UnsafeField`].
    pub fn end(mut self) -> Result<Vec<u8>, LaneError> {
        self.text()?;
        self.text.push_str("\r\n");
        Ok(self.text.into_bytes())
    }
}

/// How a request for `url` begins, with the fields that all requests to it share.
pub(crate) fn begin(method: &str, url: &Url, absolute: bool) -> Lines {
    let mut target = String::new();
    if absolute {
        target.extend([url.scheme(), "://", &authority(url)]);
    }
    target.push_str(url.path());
    if let Some(query) = url.query() {
        target.extend(["?", query]);
    }
    Lines::request(method, &target, &authority(url)).with("Accept-Encoding", "identity")
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
        let lines = begin("GET", &url, false).with("Accept", "*/*");
        let lines = lines.with("Range", &range_value(Range::new(5, 10)));
        let wishes = Lines::default().with("Want-Digest", "md5");
        assert_eq!(
            String::from_utf8(lines.and(&wishes).end().unwrap()).unwrap(),
            "GET /a%20b?x=1 HTTP/1.1\r\nHost: [::1]:8080\r\nAccept-Encoding: identity\r\nAccept: */*\r\n\
             Range: bytes=5-9\r\nWant-Digest: md5\r\n\r\n"
        );
        assert_eq!(range_value(Range::new(7, u64::MAX)), "bytes=7-");
        let asked = begin("HEAD", &url, true);
        let asked = asked.text().unwrap();
        assert!(asked.starts_with("HEAD http://[::1]:8080/a%20b?x=1 HTTP/1.1\r\n"), "{asked}");
    }

    #[test]
    fn headers_cannot_smuggle_lines() {
        assert!(is_field_safe("X-A", "b c"));
        for (name, value) in
            [("X\r\n", "a"), ("", "a"), ("X Y", "a"), ("X", "a\r\nHost: b"), ("X", "a\0")]
        {
            assert!(!is_field_safe(name, value), "{name:?}: {value:?}");
            let lines = Lines::default().with("A", "b").with(name, value).with("C", "d");
            let error = Lines::request("GET", "/", "h").and(&lines).end().unwrap_err();
            assert!(matches!(error, LaneError::UnsafeField { .. }), "{error}");
        }
        let error = Lines::request("GET", "/ HTTP/1.1\r\nX: ", "h").end().unwrap_err();
        assert!(matches!(error, LaneError::UnsafeField { .. }), "{error}");
    }
}
