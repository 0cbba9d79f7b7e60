//! Addresses as users write them, kept as text until a job runs.

use std::fmt;

use serde::{Deserialize, Serialize};
use swath_formats::mirror_url::{MirrorUrlError, mirror_url};
use swath_source::{ZoneError, without_zone};
use url::Url;

/// The address of a source or a destination, as a user wrote it.
///
/// It may hold a password or a signature, so `Debug` shows it without user, password and query.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(String);

impl Address {
    /// Keeps an address; it is checked when the job runs.
    pub fn new(text: impl Into<String>) -> Address {
        Address(text.into())
    }

    /// Returns whether its path ends in `/`.
    pub fn is_folder(&self) -> bool {
        self.0.split(['?', '#']).next().is_some_and(|path| path.ends_with('/'))
    }

    /// Returns whether its scheme is that of WebDAV.
    pub fn is_webdav(&self) -> bool {
        let scheme = self.0.trim().split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|it| ["dav", "davs"].iter().any(|dav| it.eq_ignore_ascii_case(dav)))
    }

    /// Returns the address of a server.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn url(&self) -> Result<Url, AddressError> {
        parse_url(&self.0)
    }

    /// Returns the address of a source: a server's, or `file:///PATH`.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn source(&self) -> Result<Url, AddressError> {
        match Url::parse(&self.0) {
            Ok(url) if url.scheme() == "file" => match url.to_file_path() {
                Ok(_) => Ok(url),
                Err(()) => Err(AddressError::File(shown_text(&self.0))),
            },
            _ => self.url(),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", shown_text(&self.0))
    }
}

/// Why a text is not an address. Messages contain no password and no query.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Invalid IPv6 zone.
    #[error("{shown}: {error}")]
    Zone {
        /// The text.
        shown: String,
        /// The error.
        error: ZoneError,
    },
    /// Unsupported scheme.
    #[error("{shown}: unsupported scheme {scheme} (supported: {SUPPORTED})")]
    Scheme {
        /// The text.
        shown: String,
        /// Its scheme.
        scheme: String,
    },
    /// Invalid `file:` URL.
    #[error("{0}: use file:///PATH for a local file")]
    File(String),
    /// Not a URL.
    #[error("'{shown}' is not a URL: {error}")]
    Url {
        /// The text.
        shown: String,
        /// The error.
        error: MirrorUrlError,
    },
    /// Not a URL.
    #[error("'{shown}' is not a URL: {error}")]
    Parse {
        /// The text.
        shown: String,
        /// The error.
        error: url::ParseError,
    },
}

/// Reads the address of a server.
///
/// # Errors
/// [`AddressError`].
pub fn parse_url(text: &str) -> Result<Url, AddressError> {
    let shown = || shown_text(text);
    let mapped = xrootd_over_http(text);
    let text = mapped.as_deref().unwrap_or(text);
    let without = without_zone(text);
    let without = without.map_err(|error| AddressError::Zone { shown: shown(), error })?;
    mirror_url(without.as_deref().unwrap_or(text), None).map_err(|error| match error {
        MirrorUrlError::Scheme { scheme } => AddressError::Scheme { shown: shown(), scheme },
        MirrorUrlError::Parse(error) => AddressError::Parse { shown: shown(), error },
        error => AddressError::Url { shown: shown(), error },
    })
}

/// Returns the address at which XRootD servers speak HTTP: usually at the same port, with TLS.
fn xrootd_over_http(text: &str) -> Option<String> {
    let (scheme, rest) = text.trim().split_once("://")?;
    if !XROOTD_SCHEMES.iter().any(|own| scheme.eq_ignore_ascii_case(own)) {
        return None;
    }
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let has_port = host.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok())
        && !host.ends_with(']');
    let port = if has_port { String::new() } else { format!(":{XROOTD_PORT}") };
    Some(format!("https://{host}{port}/{}", path.trim_start_matches('/')))
}

/// Returns a text without the possible secrets of an address: user, password, query and fragment.
pub fn shown_text(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match text.split_once("://") {
        Some((scheme, rest)) => {
            let bare = rest.rsplit_once('@').map_or(rest, |(_, bare)| bare);
            format!("{scheme}://{bare}")
        }
        None => text.rsplit_once('@').map_or(text, |(_, bare)| bare).to_owned(),
    }
}

/// All schemes of sources: links and magnet links are read before an address is.
const SUPPORTED: &str = "http, https, dav, davs, root, roots, xroot, xroots, swath, file, magnet";
const XROOTD_SCHEMES: [&str; 4] = ["root", "roots", "xroot", "xroots"];
/// The port of XRootD servers.
const XROOTD_PORT: u16 = 1094;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_xrootd_become_those_of_its_http() {
        for (text, expected) in [
            ("root://x.example//a/b", "https://x.example:1094/a/b"),
            ("roots://x.example:2094//a/", "https://x.example:2094/a/"),
            ("XROOT://[::1]//a", "https://[::1]:1094/a"),
            ("root://[::1]:99/a?b", "https://[::1]:99/a?b"),
            ("root://x.example", "https://x.example:1094/"),
            ("davs://x.example//a", "https://x.example//a"),
        ] {
            assert_eq!(parse_url(text).unwrap().as_str(), expected, "{text}");
        }
        assert!(parse_url("rooted://x.example//a").is_err());
        for scheme in SUPPORTED.split(", ").filter(|it| !["swath", "magnet"].contains(it)) {
            let host = if scheme == "file" { "" } else { "x.example" };
            Address::new(format!("{scheme}://{host}/a")).source().expect(scheme);
        }
        let is_webdav = |text: &str| Address::new(text).is_webdav();
        assert!(is_webdav("dav://h/") && is_webdav("DAVS://h/") && !is_webdav("https://dav/"));
    }
}
