//! Errors of an index.

/// Why bytes or entries are not a valid index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// It does not begin like an index.
    #[error("this is not a swath index")]
    NotAnIndex,
    /// Its version is newer than this program.
    #[error("the index has version {0}, and this program knows {known}", known = super::FORMAT_VERSION)]
    Version(u8),
    /// An entry breaks a rule.
    #[error("entry {number} of the index {what}")]
    Entry {
        /// Its number, from zero.
        number: u64,
        /// The broken rule, to be read after "entry 7 of the index".
        what: &'static str,
    },
    /// The end contradicts the content before it.
    #[error("the index was damaged in transit: its {what} differs from what its end says")]
    Damaged {
        /// The part that differs.
        what: &'static str,
    },
    /// Bytes follow the end.
    #[error("something follows the end of the index")]
    Trailing,
    /// It ended too early.
    #[error("the index is cut off after {entries} entries")]
    CutOff {
        /// Complete entries.
        entries: u64,
    },
    /// Larger than the reader accepts.
    #[error("the index is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The reader's limit.
        limit_bytes: u64,
    },
    /// It is complete; nothing can be added.
    #[error("the index is complete already")]
    Complete,
}
