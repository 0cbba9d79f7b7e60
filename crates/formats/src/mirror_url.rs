//! Turns a replica's address, as others write it, into one that swath can fetch.
//!
//! Grid catalogues write `davs://` for HTTPS and `dav://` for HTTP; both are mapped. Other schemes
//! are refused with a reason that users understand, so that the address is listed as skipped
//! instead of being dropped silently.

use url::Url;

/// Parses `text` as the address of a replica; a relative one is resolved against `base`.
///
/// # Errors
/// [`MirrorUrlError`] if the text is not a URL or its scheme is not supported.
pub fn mirror_url(text: &str, base: Option<&Url>) -> Result<Url, MirrorUrlError> {
    let text = text.trim();
    if text.len() > URL_BYTES_MAX {
        return Err(MirrorUrlError::TooLong { bytes: text.len() });
    }
    // The standard parser drops tabs and line ends silently; here they are an error.
    if text.contains(|c: char| c.is_control()) {
        return Err(MirrorUrlError::ControlCharacter);
    }
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.rsplit('@').next().is_some_and(|host| host.starts_with('[') && host.contains('%'))
    {
        return Err(MirrorUrlError::Zone);
    }
    let mapped = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("davs") => format!("https://{rest}"),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("dav") => format!("http://{rest}"),
        _ => text.to_owned(),
    };
    let url = match (Url::parse(&mapped), base) {
        (Err(url::ParseError::RelativeUrlWithoutBase), Some(base)) => base.join(&mapped)?,
        (parsed, _) => parsed?,
    };
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => {
            let scheme = scheme.chars().take(SCHEME_CHARS_SHOWN).collect();
            Err(MirrorUrlError::Scheme { scheme })
        }
    }
}

/// Why an address cannot be a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorUrlError {
    /// The scheme is not HTTP or HTTPS.
    #[error("'{scheme}' is not supported (use http, https, dav or davs)")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// It is not a URL.
    #[error("it is not a URL: {0}")]
    Parse(#[from] url::ParseError),
    /// It names a network interface of another machine, or of this one.
    #[error("a zone ('%eth0') is allowed only in addresses on the command line")]
    Zone,
    /// It contains a tab, a line end or the like.
    #[error("it contains a control character")]
    ControlCharacter,
    /// It is longer than any server accepts.
    #[error("it has {bytes} bytes where {URL_BYTES_MAX} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

/// Signed URLs reach 4 KiB; no common server accepts more than 16.
const URL_BYTES_MAX: usize = 16 * 1024;
const SCHEME_CHARS_SHOWN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_schemes_are_mapped() {
        for (text, expected) in [
            ("davs://se.example:8443/a//b", "https://se.example:8443/a//b"),
            ("DAV://se.example/a", "http://se.example/a"),
            (" https://x.example/a?b=1&c=%20 ", "https://x.example/a?b=1&c=%20"),
            ("http://[::1]:80/a", "http://[::1]/a"),
        ] {
            assert_eq!(mirror_url(text, None).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn others_are_refused_with_words() {
        for (text, why) in [
            ("root://xrd.example:1094//a", "'root' is not supported"),
            ("gsiftp://x.example/a", "'gsiftp'"),
            ("file:///etc/passwd", "'file'"),
            ("javascript:alert(1)", "'javascript'"),
            ("a/b", "not a URL"),
            ("https://", "not a URL"),
            ("davs://", "not a URL"),
            ("http://x/a\nb", "control character"),
        ] {
            let error = mirror_url(text, None).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(mirror_url(&format!("http://x/{}", "a".repeat(17_000)), None).is_err());
    }

    #[test]
    fn relative_addresses_need_a_base() {
        let base = Url::parse("https://x.example/dir/list.meta4").unwrap();
        assert_eq!(mirror_url("a b", Some(&base)).unwrap().as_str(), "https://x.example/dir/a%20b");
        assert!(mirror_url("root:/x", Some(&base)).is_err());
    }
}
