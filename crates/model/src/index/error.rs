//! What can be wrong with an index.

/// Why bytes, or entries, are no index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// It does not begin as an index does.
    #[error("this is not a swath index")]
    NotAnIndex,
    /// A later form than this program knows.
    #[error("the index has version {0}, and this program knows {known}", known = super::FORMAT_VERSION)]
    Version(u8),
    /// An entry breaks a rule.
    #[error("entry {number} of the index {what}")]
    Entry {
        /// Its number, from zero.
        number: u64,
        /// Which rule, to be read after "entry 7 of the index".
        what: &'static str,
    },
    /// The end does not agree with what came before it.
    #[error("the index was damaged in transit: its {what} differs from what its end says")]
    Damaged {
        /// What does not agree.
        what: &'static str,
    },
    /// Bytes follow the end.
    #[error("something follows the end of the index")]
    Trailing,
    /// It ended before its end.
    #[error("the index is cut off after {entries} entries")]
    CutOff {
        /// Entries that came whole.
        entries: u64,
    },
    /// More than the reader is ready to keep.
    #[error("the index is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The most that the reader takes.
        limit_bytes: u64,
    },
    /// It has ended; nothing can be added.
    #[error("the index is complete already")]
    Complete,
}
