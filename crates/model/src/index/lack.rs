//! What may happen to files between making an index and reading them.

use super::entry::Absence;

/// Why a file, when read, differs from its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lack {
    /// It is another version: its size or time differs from the index, or changed while it was
    /// read.
    Changed,
    /// It may not be read.
    Forbidden,
    /// It no longer exists.
    Vanished,
    /// It could not be read for another reason.
    Unreadable,
}

impl Lack {
    /// Returns its word in the protocol (`docs/protocol.md`).
    pub fn word(self) -> &'static str {
        match self {
            Lack::Changed => "changed",
            Lack::Forbidden => "forbidden",
            Lack::Vanished => "vanished",
            Lack::Unreadable => "unreadable",
        }
    }

    /// Returns the meaning of a word. An unknown or missing one only means that the file has
    /// changed.
    pub fn of_word(word: &str) -> Lack {
        [Lack::Forbidden, Lack::Vanished, Lack::Unreadable]
            .into_iter()
            .find(|lack| lack.word() == word)
            .unwrap_or(Lack::Changed)
    }

    /// Returns the reason that a walk would give; `None` for a file that exists.
    pub fn absence(self) -> Option<Absence> {
        match self {
            Lack::Changed => None,
            Lack::Forbidden => Some(Absence::Forbidden),
            Lack::Vanished => Some(Absence::Vanished),
            Lack::Unreadable => Some(Absence::Unreadable),
        }
    }

    /// Returns whether a later attempt may succeed.
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
