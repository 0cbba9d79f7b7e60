//! Identifiers, each its own type so that a lane can never be passed where a source is meant.
//!
//! They are small integers, assigned by the creator of the thing and never reused within one
//! transfer.

use std::fmt;

/// A source of one transfer, numbered from 0 in the order given by the user (or a Metalink).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u32);

/// A lane (one connection to a source), numbered from 0 in the order of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub u32);

/// A swath (one range given to one lane), numbered from 0 in the order of assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SwathId(pub u64);

impl SourceId {
    /// Returns the position of this source in a list of all sources.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "source {}", self.0)
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {}", self.0)
    }
}

impl fmt::Display for SwathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "swath {}", self.0)
    }
}
