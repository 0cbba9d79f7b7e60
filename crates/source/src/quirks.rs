//! How a server behaves, learnt from its answers and forgotten when later ones show otherwise: with
//! one file ([`FileQuirks`]), and on any connection ([`HostQuirks`], kept for the run in `host_table`).
//!
//! One odd answer proves nothing: a restart closes connections, and a network that breaks takes
//! several with it at once. What counts must happen again, on a connection opened after the last
//! time, with nothing in between that speaks against it.

use std::time::Duration;

use tokio::time::Instant;

/// How a server was seen to behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// Whether ranges are honoured; `None` before the first answer.
    pub ranges: Option<bool>,
    /// Whether requests may be sent ahead of answers.
    pub pipelines: bool,
    /// Requests that one connection serves before the server closes it, where that is known.
    pub requests_per_connection: Option<u64>,
    /// Our own lane cannot speak with it; the library is used.
    pub fallback: bool,
}

/// How it keeps connections, whatever is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostQuirks {
    pub fallback: bool,
    /// It mixed up pipelined answers, or is known to leave requests lying: never again.
    pub confused: bool,
    /// Times in a row that pipelined requests stayed unanswered, and when that was last.
    breaks: u32,
    last_break: Option<Instant>,
    /// Connections in a row that it closed, after how many answers at least, and whether it
    /// announced the last one.
    closes: u32,
    closes_at: u64,
    announced: bool,
}

/// How it answers for one file.
#[derive(Debug, Default)]
pub(crate) struct FileQuirks {
    pub ranges: Option<bool>,
    /// Answers in a row that held next to nothing of what was asked for.
    meagre: u32,
    /// It refuses ranges, or answers with others: it is asked for the whole file.
    pub whole: bool,
    /// It refuses the wish for a digest: it is asked without.
    pub no_digests: bool,
    /// What is thought of the end that it told.
    pub end: End,
    /// Each answer is a version of its own.
    pub one_answer: bool,
    /// Answers in a row that could not be the file, after others that could.
    pub strays: u32,
    /// Times that it was refused while its host served others.
    crowded: u32,
    /// Times that it failed when asked for a range at first.
    failures: u32,
}

/// What is thought of the end of the file, as the first part told it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing speaks against it.
    #[default]
    Told,
    /// It is where the part was asked to end: the whole file is asked for.
    Doubted,
    /// That was refused, so there is nothing else to go by.
    Believed,
}

impl HostQuirks {
    /// The same with what one file has shown of ranges.
    pub fn quirks(&self, ranges: Option<bool>) -> Quirks {
        let requests_per_connection = (self.closes >= TIMES_TO_BELIEVE).then_some(self.closes_at);
        Quirks {
            ranges,
            pipelines: !self.confused
                && self.breaks < TIMES_TO_BELIEVE
                && requests_per_connection != Some(1),
            requests_per_connection,
            fallback: self.fallback,
        }
    }

    /// Pipelined requests stayed unanswered on a connection that was opened at `opened`.
    pub fn pipeline_broken(&mut self, opened: Instant, now: Instant) {
        // What befell several connections at once happened once.
        if self.last_break.is_none_or(|last| opened > last) {
            self.breaks += 1;
            self.last_break = Some(now);
        }
    }

    /// A pipelined request was answered as it should be.
    pub fn pipeline_works(&mut self) {
        self.breaks = 0;
    }

    /// A connection was closed by the server after so many answers; the last one `announced` it.
    pub fn closed_after(&mut self, answers: u64, announced: bool) {
        let answers = answers.max(1);
        self.closes_at = if self.closes == 0 { answers } else { self.closes_at.min(answers) };
        self.closes = self.closes.saturating_add(1);
        self.announced = announced;
    }

    /// A connection stays open after so many answers.
    pub fn kept_after(&mut self, answers: u64) {
        // Who closes without a word shows only by the next answer that it does not.
        if answers > self.closes_at || (self.announced && answers == self.closes_at) {
            self.closes = 0;
        }
    }
}

impl FileQuirks {
    /// An answer held `bytes` of a range that is longer. `true` if that is how it always is.
    pub fn gave_less(&mut self, bytes: u64) -> bool {
        self.meagre = if bytes < MEAGRE_BYTES { self.meagre + 1 } else { 0 };
        self.meagre >= MEAGRE_TIMES
    }

    /// An answer could not be the file, though others could: whether one more is borne.
    pub fn strays(&mut self) -> bool {
        self.strays = self.strays.saturating_add(1);
        self.strays <= STRAYS_BORNE
    }

    /// It was refused where that is borne so many times; how long to wait, if it is once more.
    pub fn crowded(&mut self, borne: u32) -> Option<Duration> {
        let wait = CROWDED_WAIT * (1 << self.crowded.min(4));
        self.crowded = self.crowded.saturating_add(1);
        (self.crowded <= borne).then(|| {
            // By then the host may be known to honour ranges.
            self.whole = false;
            wait
        })
    }

    /// It failed when asked for a range; whether it has done so before.
    pub fn failed_again(&mut self) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.failures >= TIMES_TO_BELIEVE
    }

    /// An answer held all that was asked for.
    pub fn gave_all(&mut self) {
        self.meagre = 0;
    }
}

/// Times that something must happen in a row before it counts as the server's nature.
pub(crate) const TIMES_TO_BELIEVE: u32 = 2;
/// So many answers in a row may be an error's page or cut off before the source is given up.
const STRAYS_BORNE: u32 = 7;
/// A file that is refused while its host serves others is asked for again after this time, and then
/// after twice as long each, up to sixteen times.
const CROWDED_WAIT: Duration = Duration::from_secs(1);
/// Answers may be cut to a server's own maximum, but not to less than this …
const MEAGRE_BYTES: u64 = 64 * 1024;
/// … so often in a row.
const MEAGRE_TIMES: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_befell_two_connections_at_once_happened_once() {
        let mut file_quirks = HostQuirks::default();
        let opened = Instant::now();
        let later = opened + Duration::from_secs(1);
        file_quirks.pipeline_broken(opened, later);
        file_quirks.pipeline_broken(opened, later);
        assert!(file_quirks.quirks(None).pipelines);
        let reopened = later + Duration::from_secs(1);
        file_quirks.pipeline_broken(reopened, reopened);
        assert!(!file_quirks.quirks(None).pipelines);
        file_quirks.pipeline_works();
        assert!(file_quirks.quirks(None).pipelines);
    }

    #[test]
    fn a_limit_of_requests_is_forgotten_when_it_is_none() {
        let mut file_quirks = HostQuirks::default();
        file_quirks.closed_after(1, true);
        file_quirks.kept_after(1);
        file_quirks.closed_after(1, true);
        assert_eq!(file_quirks.quirks(None).requests_per_connection, None, "not in a row");
        file_quirks.closed_after(1, true);
        let quirks = file_quirks.quirks(None);
        assert_eq!((quirks.requests_per_connection, quirks.pipelines), (Some(1), false));
        file_quirks.kept_after(1);
        let quirks = file_quirks.quirks(None);
        assert_eq!((quirks.requests_per_connection, quirks.pipelines), (None, true));
        // One that closes without a word says at each answer that it will not.
        for _ in 0..2 {
            file_quirks.kept_after(1);
            file_quirks.closed_after(1, false);
        }
        assert_eq!(file_quirks.quirks(None).requests_per_connection, Some(1));
        file_quirks.kept_after(1);
        assert_eq!(file_quirks.quirks(None).requests_per_connection, Some(1));
        // An ordinary limit stands while answers below it keep the connection.
        let mut ordinary = HostQuirks::default();
        for _ in 0..2 {
            (1..100).for_each(|answer| ordinary.kept_after(answer));
            ordinary.closed_after(100, true);
        }
        assert_eq!(ordinary.quirks(None).requests_per_connection, Some(100));
    }

    #[test]
    fn a_byte_at_a_time_is_too_little() {
        let mut file_quirks = FileQuirks::default();
        assert!((1..MEAGRE_TIMES).all(|_| !file_quirks.gave_less(1)));
        assert!(!file_quirks.gave_less(MEAGRE_BYTES), "a server's own maximum");
        assert!((1..MEAGRE_TIMES).all(|_| !file_quirks.gave_less(1)));
        assert!(file_quirks.gave_less(1));
    }
}
