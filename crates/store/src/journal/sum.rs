//! The kinds of content that a journal can have.

/// One record of a journal.
pub(crate) trait Entry: Sized {
    /// The number that stands for this kind in a frame.
    fn kind(&self) -> u8;
    /// Appends the payload.
    fn encode(&self, out: &mut Vec<u8>);
    /// The record of a payload; `None` if the bytes are not exactly one record of that kind.
    fn decode(kind: u8, payload: &[u8]) -> Option<Self>;
}

/// What the records of one kind of journal come to when all are taken together.
pub(crate) trait Sum: Default {
    /// What the journal consists of.
    type Record: Entry;
    /// Name and version; another version of the format is another magic.
    const MAGIC: &'static [u8; 16];
    /// Takes one more record into account.
    fn apply(&mut self, record: &Self::Record);
    /// The fewest records that lead here from nothing.
    fn records(&self) -> impl Iterator<Item = Self::Record> + '_;
    /// How many bytes are kept free for a new journal to grow in.
    fn room_bytes(&self) -> u64;
}
