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
    #[error("{shown}: unsupported scheme {scheme} (supported: http, https, dav, davs)")]
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
    let without = without_zone(text);
    let without = without.map_err(|error| AddressError::Zone { shown: shown(), error })?;
    mirror_url(without.as_deref().unwrap_or(text), None).map_err(|error| match error {
        MirrorUrlError::Scheme { scheme } => AddressError::Scheme { shown: shown(), scheme },
        MirrorUrlError::Parse(error) => AddressError::Parse { shown: shown(), error },
        error => AddressError::Url { shown: shown(), error },
    })
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
