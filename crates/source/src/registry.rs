//! The kinds of sources, by the schemes of their addresses.

use std::sync::Arc;

use url::Url;

use crate::error::LaneError;
use crate::file_source::FileSource;
use crate::http_source::HttpSource;
use crate::net::Net;
use crate::sealed::SealedLength;
use crate::source::{Source, Trust};

/// What a source is opened with.
#[derive(Debug)]
pub struct Opening<'a> {
    /// What connections share.
    pub net: &'a Net,
    /// Its address.
    pub url: &'a Url,
    /// Who named it.
    pub trust: Trust,
    /// It is a sealed dataset, which is so long.
    pub sealed: Option<Arc<SealedLength>>,
}

/// Opens the source at an address: nothing is asked of it yet.
///
/// # Errors
/// [`LaneError::Scheme`] if no kind of source has the scheme, and what the kind says of the address.
pub fn open(opening: Opening<'_>) -> Result<Arc<dyn Source>, LaneError> {
    let scheme = opening.url.scheme();
    match KINDS.iter().find(|(schemes, _)| schemes.contains(&scheme)) {
        Some((_, open)) => open(opening),
        None => Err(LaneError::Scheme { scheme: scheme.to_owned() }),
    }
}

/// Returns whether some kind of source has this scheme.
pub fn is_known(scheme: &str) -> bool {
    KINDS.iter().any(|(schemes, _)| schemes.contains(&scheme))
}

type Open = fn(Opening<'_>) -> Result<Arc<dyn Source>, LaneError>;

/// A line for each kind.
const KINDS: &[(&[&str], Open)] = &[
    (&["http", "https"], |Opening { net, url, trust, sealed }| {
        Ok(match sealed {
            None => HttpSource::new(net, url.clone(), trust),
            Some(length) => HttpSource::of_sealed(net, url.clone(), trust, length),
        })
    }),
    (&["file"], |Opening { url, trust, sealed, .. }| match sealed {
        None => Ok(FileSource::at(url, trust)?),
        // Datasets are served.
        Some(_) => Err(LaneError::Scheme { scheme: url.scheme().to_owned() }),
    }),
];
