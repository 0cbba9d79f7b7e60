//! Relays as callers report and request them.

use crate::clock::Wall;

/// News of a relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayNote {
    /// Its address, such as `https://r1.example`.
    pub url: String,
    /// Its public key, where it told one.
    pub public_key: Option<String>,
    /// What went wrong with it just now; without it, it answered just now.
    pub error: Option<String>,
}

/// What is remembered of a relay.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownRelay {
    /// Its address, such as `https://r1.example`.
    pub url: String,
    /// The public key that it told last.
    pub public_key: Option<String>,
    /// Seconds since it last answered, if it ever did.
    pub seen_age_s: Option<f64>,
    /// What went wrong with it last, and how many seconds ago.
    pub error: Option<(String, f64)>,
}

/// All that is kept of a relay.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RelayRow {
    pub(crate) public_key: Option<String>,
    pub(crate) seen_at: Option<Wall>,
    pub(crate) error: Option<(String, Wall)>,
}

impl RelayRow {
    /// News as a row; `None` for an address that cannot be one.
    pub(crate) fn of(note: RelayNote, now: Wall) -> Option<(String, RelayRow)> {
        let row = RelayRow {
            public_key: note.public_key,
            seen_at: note.error.is_none().then_some(now),
            error: note.error.map(|error| (error, now)),
        };
        is_plausible(&note.url).then(|| (note.url, row.plausible()))
    }

    /// Texts within bounds; the file may hold anything.
    pub(crate) fn plausible(self) -> RelayRow {
        RelayRow {
            public_key: self.public_key.filter(|key| key.len() <= KEY_BYTES_MAX),
            error: self
                .error
                .map(|(error, at)| (error.chars().take(ERROR_CHARS_MAX).collect(), at)),
            ..self
        }
    }

    /// Two pieces of news about one relay.
    pub(crate) fn merged(self, newer: RelayRow, now: Wall) -> RelayRow {
        let (old, new) = (self.clamped(now), newer.clamped(now));
        let time = |row: &RelayRow| row.error.as_ref().map(|(_, at)| *at);
        let is_new_error = time(&new) >= time(&old);
        let is_new_key = new.public_key.is_some() && new.worth() >= old.worth();
        RelayRow {
            public_key: if is_new_key || old.public_key.is_none() {
                new.public_key
            } else {
                old.public_key
            },
            seen_at: old.seen_at.max(new.seen_at),
            error: if is_new_error { new.error } else { old.error },
        }
    }

    /// With no time in the future.
    pub(crate) fn clamped(mut self, now: Wall) -> RelayRow {
        self.seen_at = self.seen_at.map(|at| at.clamped(now));
        self.error = self.error.map(|(error, at)| (error, at.clamped(now)));
        self
    }

    /// The time of its last news.
    pub(crate) fn worth(&self) -> Wall {
        self.seen_at.max(self.error.as_ref().map(|(_, at)| *at)).unwrap_or(Wall(0))
    }

    /// As callers are told of it.
    pub(crate) fn known(&self, url: &str, now: Wall) -> KnownRelay {
        KnownRelay {
            url: url.to_owned(),
            public_key: self.public_key.clone(),
            seen_age_s: self.seen_at.map(|at| at.age_s(now)),
            error: self.error.as_ref().map(|(error, at)| (error.clone(), at.age_s(now))),
        }
    }
}

/// Whether a relay may have this address.
pub(crate) fn is_plausible(url: &str) -> bool {
    (1..=URL_BYTES_MAX).contains(&url.len()) && !url.chars().any(char::is_control)
}

/// A host's longest name with a scheme and a port, and some room.
const URL_BYTES_MAX: usize = 300;
/// Keys are 32 bytes in some spelling; this is room for longer kinds.
const KEY_BYTES_MAX: usize = 500;
/// Enough for a sentence.
const ERROR_CHARS_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_after_an_error_keeps_both_and_the_key() {
        let at = |seconds: i64| Wall(1_800_000_000_000 + seconds * 1000);
        let note = |key: Option<&str>, error: Option<&str>, now| {
            let note = RelayNote {
                url: "https://r".into(),
                public_key: key.map(Into::into),
                error: error.map(Into::into),
            };
            RelayRow::of(note, now).unwrap().1
        };
        let first = note(Some("k1"), None, at(0));
        let row = first.merged(note(None, Some("refused"), at(5)), at(5));
        let row = row.merged(note(None, None, at(9)), at(9));
        let known = row.known("https://r", at(10));
        assert_eq!(known.public_key.as_deref(), Some("k1"));
        assert_eq!((known.seen_age_s, known.error), (Some(1.0), Some(("refused".into(), 5.0))));
        let changed = row.clone().merged(note(Some("k2"), None, at(12)), at(12));
        assert_eq!(changed.public_key.as_deref(), Some("k2"));
        // News that comes late changes nothing that is younger.
        let late = changed.clone().merged(note(Some("k1"), Some("old"), at(3)), at(13));
        assert_eq!(late, changed);
    }
}
