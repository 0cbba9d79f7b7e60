//! Why a source, a relay or a depot is not used (any more), and whose fault that is.
//!
//! Whoever decides by a reason looks at its type; the words are for people.

use std::fmt;

use swath_model::SourceName;
use swath_source::{AboutRelay, DepotError, LaneError};

/// Something that a transfer uses, and why it does not use it any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// What it is.
    pub of: Party,
    /// Why.
    pub why: Why,
}

/// What a transfer uses.
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
    /// A request came to this.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// A request to a depot came to this.
    #[error(transparent)]
    Depot(#[from] DepotError),
    /// A relay has told nothing of itself.
    #[error("{}", AboutRelay::why_not(*names_port, error))]
    NoRelay {
        /// Its address names a port.
        names_port: bool,
        /// What asking it came to.
        error: Box<LaneError>,
    },
    /// For this reason, and because of what is said behind it.
    #[error("{0}, {1}")]
    And(Box<Why>, String),
    /// What the transfer found out itself; the words are all there is to know.
    #[error("{0}")]
    Found(String),
}

impl Reason {
    /// The reason why a source is out.
    pub fn of_source(name: SourceName, why: impl Into<Why>) -> Reason {
        Reason { of: Party::Source(name), why: why.into() }
    }

    /// The reason why a depot is out.
    pub fn of_depot(address: &str, why: impl Into<Why>) -> Reason {
        Reason { of: Party::Depot(address.to_owned()), why: why.into() }
    }
}

impl Party {
    /// The relays that are, or lead to, what is meant.
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
    /// What a request came to, of whatever kind it was.
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
