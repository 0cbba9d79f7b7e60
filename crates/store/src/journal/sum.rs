//! The kinds of content that a journal can have.

/// One record of a journal.
pub(crate) trait Entry: Sized {
    /// Returns the number of this kind in a frame.
    fn kind(&self) -> u8;
    /// Appends the payload.
    fn encode(&self, out: &mut Vec<u8>);
    /// Decodes a payload; `None` unless the bytes are exactly one record of that kind.
    fn decode(kind: u8, payload: &[u8]) -> Option<Self>;
}

/// The combined effect of the records of one kind of journal.
pub(crate) trait Sum: Default {
    /// The type of its records.
    type Record: Entry;
    /// Name and version; another version of the format is another magic.
    const MAGIC: &'static [u8; 16];
    /// Applies another record.
    fn apply(&mut self, record: &Self::Record);
    /// Returns the fewest records that lead here from nothing.
    fn records(&self) -> impl Iterator<Item = Self::Record> + '_;
    /// Returns how many bytes to reserve for a new journal to grow.
    fn room_bytes(&self) -> u64;
}
