//! The reasons why a source, a relay or a depot is not used (any more).
//!
//! Code decides by the type of a reason; the words are for people.

use std::fmt;

use swath_model::SourceName;
use swath_source::{AboutRelay, DepotError, LaneError};

/// A party of a transfer, and why it is not used any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// The party.
    pub of: Party,
    /// Why.
    pub why: Why,
}

/// A party of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Party {
    /// A source.
    Source(SourceName),
    /// A relay, as `host:port`.
    Relay(String),
    /// A depot, by its address.
    Depot(String),
}

/// Why something is not used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Why {
    /// The error of a request.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// The error of a request to a depot.
    #[error(transparent)]
    Depot(#[from] DepotError),
    /// A relay did not report about itself.
    #[error("{}", AboutRelay::why_not(*names_port, error))]
    NoRelay {
        /// Whether its address names a port.
        names_port: bool,
        /// The error of the request.
        error: Box<LaneError>,
    },
    /// A reason, and a second one in words.
    #[error("{0}, {1}")]
    And(Box<Why>, String),
    /// A finding of the transfer itself, in words.
    #[error("{0}")]
    Found(String),
}

impl Reason {
    /// Returns the reason why a source is out.
    pub fn of_source(name: SourceName, why: impl Into<Why>) -> Reason {
        Reason { of: Party::Source(name), why: why.into() }
    }

    /// Returns the reason why a depot is out.
    pub fn of_depot(address: &str, why: impl Into<Why>) -> Reason {
        Reason { of: Party::Depot(address.to_owned()), why: why.into() }
    }
}

impl Party {
    /// Returns the relays that this party is, or that lead to it.
    pub fn relays(&self) -> &[String] {
        match self {
            Party::Source(name) => &name.relays,
            Party::Relay(site) => std::slice::from_ref(site),
            Party::Depot(_) => &[],
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Source(name) => name.fmt(f),
            Party::Relay(site) => write!(f, "the relay {site}"),
            Party::Depot(address) => f.write_str(address),
        }
    }
}

impl Why {
    /// Returns the error of the request, of whatever kind it was.
    pub fn lane_error(&self) -> Option<&LaneError> {
        match self {
            Why::Lane(error) | Why::Depot(DepotError::Lane(error)) => Some(error.last()),
            Why::NoRelay { error, .. } => Some(error.last()),
            Why::And(first, _) => first.lane_error(),
            Why::Depot(_) | Why::Found(_) => None,
        }
    }
}

impl From<String> for Why {
    fn from(words: String) -> Why {
        Why::Found(words)
    }
}

impl From<&str> for Why {
    fn from(words: &str) -> Why {
        Why::Found(words.to_owned())
    }
}
