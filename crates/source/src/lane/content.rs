//! What a lane is asked for: a file, or several files that are read as one.
//!
//! Asks and deliveries count in bytes of the whole, requests and answers in bytes of one file; a
//! [`Part`] has what leads from one to the other.

use std::sync::Arc;

use swath_model::Range;

use crate::error::LaneError;
use crate::facts::Facts;
use crate::http_source::HttpSource;
use crate::joined_source::JoinedSource;
use crate::source::Source;

/// What the offsets of a lane's swaths belong to.
#[derive(Clone)]
pub(crate) enum Content {
    /// One file.
    File(Arc<HttpSource>),
    /// Several, end to end.
    Joined(Arc<JoinedSource>),
}

/// A file, and where it lies in the whole.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub file: Arc<HttpSource>,
    pub range: Range,
    /// Where the file's first byte would lie in the whole: before all of it if the whole begins with the
    /// end of a file.
    pub base: i64,
    /// The size of the file in bytes.
    pub file_bytes: u64,
}

impl Content {
    /// Returns what lies at this offset.
    ///
    /// # Errors
    /// [`LaneError`] if the whole cannot be what is expected.
    pub fn at(&self, offset: u64) -> Result<At, LaneError> {
        match self {
            Content::File(file) => {
                let range = Range::new(0, u64::MAX);
                let part = Part { file: Arc::clone(file), range, base: 0, file_bytes: range.len() };
                Ok(match file.known_size() {
                    Some(size_bytes) if offset >= size_bytes => At::End { size_bytes },
                    _ => At::Part(part),
                })
            }
            Content::Joined(whole) => whole.at(offset),
        }
    }

    /// Returns the source whose server the lane connects to at first.
    pub fn home(&self) -> &Arc<HttpSource> {
        match self {
            Content::File(file) => file,
            Content::Joined(whole) => whole.home(),
        }
    }

    /// Returns the whole, if it is of several files.
    pub fn joined(&self) -> Option<&Arc<JoinedSource>> {
        match self {
            Content::File(_) => None,
            Content::Joined(whole) => Some(whole),
        }
    }
}

/// What lies at an offset.
pub(crate) enum At {
    /// Bytes of this file.
    Part(Part),
    /// Nothing: the whole ends before it.
    End {
        /// Its size.
        size_bytes: u64,
    },
}

/// Returns where an offset in the whole lies in a file whose first byte would lie at `base` there.
pub(super) fn to_file(offset: u64, base: i64) -> u64 {
    offset.saturating_add_signed(base.saturating_neg())
}

impl Part {
    /// Returns this range of the whole in bytes of the file.
    pub fn in_file(&self, range: Range) -> Range {
        Range::new(to_file(range.start, self.base), to_file(range.end, self.base))
    }

    /// Returns this range of the file in bytes of the whole.
    pub fn in_whole(&self, range: Range) -> Range {
        let at = |at: u64| at.saturating_add_signed(self.base);
        Range::new(at(range.start), at(range.end))
    }

    /// Holds what is told of the file against the size that it must have.
    ///
    /// # Errors
    /// [`LaneError::SizeMismatch`], within the file's name.
    pub fn check(&self, facts: &Facts) -> Result<(), LaneError> {
        let expected = self.file_bytes;
        match facts.size_bytes.filter(|&actual| actual != expected) {
            Some(actual) => Err(self.name(LaneError::SizeMismatch { expected, actual })),
            None => Ok(()),
        }
    }

    /// Says of which file of several this is told, in the offsets of the whole.
    pub fn name(&self, error: LaneError) -> LaneError {
        match error {
            LaneError::NotHeld { range, lacking } => LaneError::NotHeld {
                range: self.in_whole(range),
                lacking: lacking.into_iter().map(|range| self.in_whole(range)).collect(),
            },
            error => LaneError::InFile {
                file: crate::shown::display_name(self.file.url()),
                range: self.range,
                error: Box::new(error),
            },
        }
    }
}
