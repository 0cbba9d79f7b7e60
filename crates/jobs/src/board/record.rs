//! What happened in a job, as lines that any number of readers follow.
//!
//! A record is bounded: of some kinds only the newest line is kept, of all others the last ones. So a
//! reader who comes late, or is slow, sees the present state and the last events.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// What is kept of a line once there are newer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing: the next line with this number takes its place.
    Newest(u64),
    /// The line stays while there is room.
    Last,
}

/// The record of one job; clones are the same.
#[derive(Clone, Debug)]
pub struct Record {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    lines: Mutex<Lines>,
    /// How many lines there were, and whether the last one is among them.
    count: watch::Sender<(u64, bool)>,
}

#[derive(Debug, Default)]
struct Lines {
    all: VecDeque<(u64, Keep, Arc<str>)>,
    count: u64,
    is_over: bool,
}

impl Default for Record {
    fn default() -> Record {
        let count = watch::Sender::new((0, false));
        Record { shared: Arc::new(Shared { lines: Mutex::default(), count }) }
    }
}

impl Record {
    /// Adds a line. After the last one there are no more.
    pub fn add(&self, keep: Keep, line: impl Into<Arc<str>>) {
        self.push(keep, line.into(), false);
    }

    /// Adds the last line.
    pub fn end(&self, line: impl Into<Arc<str>>) {
        self.push(Keep::Last, line.into(), true);
    }

    /// Returns a reader of all lines that are kept, and of those that come.
    pub fn reader(&self) -> RecordReader {
        RecordReader { record: self.clone(), seen: 0, count: self.shared.count.subscribe() }
    }

    fn push(&self, keep: Keep, line: Arc<str>, is_last: bool) {
        let mut lines = self.lines();
        if lines.is_over {
            return;
        }
        if let Keep::Newest(_) = keep {
            lines.all.retain(|(_, other, _)| *other != keep);
        }
        lines.count += 1;
        lines.is_over = is_last;
        let count = lines.count;
        lines.all.push_back((count, keep, line));
        if lines.all.len() > LINES_MAX {
            let oldest = lines.all.iter().position(|(_, keep, _)| *keep == Keep::Last);
            lines.all.remove(oldest.unwrap_or(0));
        }
        drop(lines);
        self.shared.count.send_replace((count, is_last));
    }

    /// Returns the first line that is kept behind number `seen`, with its own number.
    fn behind(&self, seen: u64) -> Option<(u64, Arc<str>)> {
        let lines = self.lines();
        let behind = lines.all.partition_point(|(at, ..)| *at <= seen);
        lines.all.get(behind).map(|(at, _, line)| (*at, Arc::clone(line)))
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.shared.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows a record.
#[derive(Debug)]
pub struct RecordReader {
    record: Record,
    seen: u64,
    count: watch::Receiver<(u64, bool)>,
}

impl RecordReader {
    /// Waits for the next line; `None` after the last one.
    pub async fn next(&mut self) -> Option<Arc<str>> {
        loop {
            let (_, is_over) = *self.count.borrow_and_update();
            if let Some((at, line)) = self.record.behind(self.seen) {
                self.seen = at;
                return Some(line);
            }
            // The record holds the sender, so this does not fail.
            if is_over || self.count.changed().await.is_err() {
                return None;
            }
        }
    }
}

/// Enough for a chart of a transfer; some hundred kilobytes.
const LINES_MAX: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(reader: &mut RecordReader) -> Vec<String> {
        let mut read = Vec::new();
        while let Some(line) = reader.next().await {
            read.push(line.to_string());
        }
        read
    }

    #[tokio::test]
    async fn a_late_reader_sees_the_newest_of_each_kind_and_the_end() {
        let record = Record::default();
        let mut early = record.reader();
        record.add(Keep::Last, "begun");
        assert_eq!(early.next().await.as_deref(), Some("begun"));
        for number in 0..5 {
            record.add(Keep::Newest(1), format!("progress {number}"));
            record.add(Keep::Newest(2), format!("source {number}"));
        }
        record.add(Keep::Last, "note");
        record.end("done");
        record.add(Keep::Last, "too late");
        assert_eq!(all(&mut early).await, ["progress 4", "source 4", "note", "done"]);
        assert_eq!(
            all(&mut record.reader()).await,
            ["begun", "progress 4", "source 4", "note", "done"]
        );
    }

    #[tokio::test]
    async fn a_reader_waits_for_what_comes() {
        let record = Record::default();
        let mut reader = record.reader();
        let reading = tokio::spawn(async move { all(&mut reader).await });
        for line in ["a", "b"] {
            tokio::task::yield_now().await;
            record.add(Keep::Last, line);
        }
        record.end("c");
        assert_eq!(reading.await.unwrap(), ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn old_lines_make_room_and_the_newest_of_a_kind_do_not() {
        let record = Record::default();
        record.add(Keep::Newest(7), "state");
        for number in 0..3 * LINES_MAX {
            record.add(Keep::Last, number.to_string());
        }
        record.end("done");
        let read = all(&mut record.reader()).await;
        assert_eq!(read.len(), LINES_MAX);
        assert_eq!((read[0].as_str(), read[LINES_MAX - 1].as_str()), ("state", "done"));
    }
}
