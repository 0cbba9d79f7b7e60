//! The local disk: direct I/O, the journal, atomic final names.
