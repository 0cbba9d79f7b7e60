//! What may come between an index and the reading of its files.

use super::entry::Absence;

/// Why a file, when it is read, is not what its index promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lack {
    /// It is another version: its size or its time is not that of the index, or became another one
    /// while it was read.
    Changed,
    /// It may not be read.
    Forbidden,
    /// It is not there any more.
    Vanished,
    /// It could not be read for another reason.
    Unreadable,
}

impl Lack {
    /// The word for it on the wire (`docs/protocol.md`).
    pub fn word(self) -> &'static str {
        match self {
            Lack::Changed => "changed",
            Lack::Forbidden => "forbidden",
            Lack::Vanished => "vanished",
            Lack::Unreadable => "unreadable",
        }
    }

    /// What a word stands for. One that is not known, or none, says no more than that the file is
    /// not as it was.
    pub fn of_word(word: &str) -> Lack {
        [Lack::Forbidden, Lack::Vanished, Lack::Unreadable]
            .into_iter()
            .find(|lack| lack.word() == word)
            .unwrap_or(Lack::Changed)
    }

    /// What the walk would have called it; `None` for a file that is there.
    pub fn absence(self) -> Option<Absence> {
        match self {
            Lack::Changed => None,
            Lack::Forbidden => Some(Absence::Forbidden),
            Lack::Vanished => Some(Absence::Vanished),
            Lack::Unreadable => Some(Absence::Unreadable),
        }
    }

    /// Whether a later look may find more.
    pub fn may_pass(self) -> bool {
        matches!(self, Lack::Changed | Lack::Vanished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for lack in [Lack::Changed, Lack::Forbidden, Lack::Vanished, Lack::Unreadable] {
            assert_eq!(Lack::of_word(lack.word()), lack);
        }
        assert_eq!(Lack::of_word("of another time"), Lack::Changed);
        assert_eq!(Lack::of_word(""), Lack::Changed);
    }
}
