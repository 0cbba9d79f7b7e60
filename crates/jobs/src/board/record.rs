//! What happened in a job, as lines that any number of readers follow.
//!
//! A record is bounded: of some kinds only the newest line is kept, of all others the last ones. So a
//! reader who comes late, or is slow, sees the present state and the last events. Readers may have a pace:
//! of what only refines the picture they get no more than it allows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

/// What is kept of a line once there are newer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing: the next line with this number takes its place.
    Newest(u64),
    /// The line stays while there is room.
    Last,
    /// Nothing, and readers with a pace may miss it: there is soon a newer one.
    Passing,
    /// The line stays while there is room, and readers with a pace may miss it.
    Detail,
}

/// What a reader may get of lines that it may miss: [`Keep::Passing`] and [`Keep::Detail`] so much each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// In the long run.
    pub bytes_per_s: f64,
    /// At once, after a while without any.
    pub at_once_bytes: f64,
    /// What sending a line costs beyond its length.
    pub line_bytes: f64,
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

    /// Ends it without a last line: the job goes on elsewhere.
    pub fn close(&self) {
        let mut lines = self.lines();
        lines.is_over = true;
        let count = lines.count;
        drop(lines);
        self.shared.count.send_replace((count, true));
    }

    /// Returns the newest line of what is [passing](Keep::Passing).
    pub fn passing(&self) -> Option<Arc<str>> {
        let lines = self.lines();
        let newest = lines.all.iter().rev().find(|(_, keep, _)| *keep == Keep::Passing);
        newest.map(|(.., line)| Arc::clone(line))
    }

    /// Returns a reader of all lines that are kept, and of those that come.
    pub fn reader(&self) -> RecordReader {
        RecordReader {
            record: self.clone(),
            seen: 0,
            count: self.shared.count.subscribe(),
            rooms: None,
        }
    }

    fn push(&self, keep: Keep, line: Arc<str>, is_last: bool) {
        let mut lines = self.lines();
        if lines.is_over {
            return;
        }
        if let Keep::Newest(_) | Keep::Passing = keep {
            lines.all.retain(|(_, other, _)| *other != keep);
        }
        lines.count += 1;
        lines.is_over = is_last;
        let count = lines.count;
        lines.all.push_back((count, keep, line));
        if lines.all.len() > LINES_MAX {
            let may_go = |keep: &Keep| matches!(keep, Keep::Last | Keep::Detail);
            let oldest = lines.all.iter().position(|(_, keep, _)| may_go(keep));
            lines.all.remove(oldest.unwrap_or(0));
        }
        drop(lines);
        self.shared.count.send_replace((count, is_last));
    }

    /// Returns the first line that is kept behind number `seen`, with its own number.
    fn behind(&self, seen: u64) -> Option<(u64, Keep, Arc<str>)> {
        let lines = self.lines();
        let behind = lines.all.partition_point(|(at, ..)| *at <= seen);
        lines.all.get(behind).map(|(at, keep, line)| (*at, *keep, Arc::clone(line)))
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
    /// For [`Keep::Passing`] and [`Keep::Detail`]; without a pace there is no limit.
    rooms: Option<[Room; 2]>,
}

/// What a reader may still get.
#[derive(Clone, Copy, Debug)]
struct Room {
    pace: Pace,
    bytes: f64,
    filled_at: Instant,
}

impl Room {
    fn of(pace: Pace) -> Room {
        Room { pace, bytes: pace.at_once_bytes, filled_at: Instant::now() }
    }

    /// Counts a line and returns true if the rate permits it now. A line larger than the whole allowance is
    /// permitted when nothing of that is used.
    fn takes(&mut self, line: &str) -> bool {
        let now = Instant::now();
        let Pace { bytes_per_s, at_once_bytes, line_bytes } = self.pace;
        let more = bytes_per_s * (now - self.filled_at).as_secs_f64();
        (self.bytes, self.filled_at) = ((self.bytes + more).min(at_once_bytes), now);
        let cost = line.len() as f64 + line_bytes;
        let has_room = self.bytes >= cost.min(at_once_bytes);
        if has_room {
            self.bytes -= cost;
        }
        has_room
    }
}

impl RecordReader {
    /// Gives the reader a pace.
    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> RecordReader {
        self.rooms = Some([Room::of(pace); 2]);
        self
    }

    /// Waits for the next line; `None` after the last one.
    pub async fn next(&mut self) -> Option<Arc<str>> {
        loop {
            let (_, is_over) = *self.count.borrow_and_update();
            if let Some((at, keep, line)) = self.record.behind(self.seen) {
                self.seen = at;
                if self.has_room(keep, &line) {
                    return Some(line);
                }
                continue;
            }
            // The record holds the sender, so this does not fail.
            if is_over || self.count.changed().await.is_err() {
                return None;
            }
        }
    }

    fn has_room(&mut self, keep: Keep, line: &str) -> bool {
        let Some([passing, detail]) = &mut self.rooms else { return true };
        match keep {
            Keep::Newest(_) | Keep::Last => true,
            Keep::Passing => passing.takes(line),
            Keep::Detail => detail.takes(line),
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

    #[tokio::test(start_paused = true)]
    async fn a_reader_with_a_pace_misses_what_it_may_miss_and_nothing_else() {
        let record = Record::default();
        let pace = Pace { bytes_per_s: 100.0, at_once_bytes: 300.0, line_bytes: 40.0 };
        let (mut all_of_it, mut some) = (record.reader(), record.reader().with_pace(pace));
        let (mut seen, mut paced_bytes) = (0, 0.0);
        let mut needed = 0;
        for step in 0..600 {
            record.add(Keep::Passing, format!("progress {step:051}"));
            record.add(Keep::Detail, format!("detail {step:053}"));
            if step % 100 == 0 {
                record.add(Keep::Last, "note");
                record.add(Keep::Newest(1), "state");
            }
            for (reader, is_paced) in [(&mut all_of_it, false), (&mut some, true)] {
                while let Ok(Some(line)) =
                    tokio::time::timeout(std::time::Duration::ZERO, reader.next()).await
                {
                    match (is_paced, line.len() > 50) {
                        (false, _) => seen += 1,
                        (true, true) => paced_bytes += line.len() as f64 + 40.0,
                        (true, false) => needed += 1,
                    }
                }
            }
            tokio::time::advance(std::time::Duration::from_millis(100)).await;
        }
        assert_eq!((seen, needed), (1212, 12));
        // Of each kind what comes in a minute and what is there at once.
        assert!((12_000.0..=12_600.0).contains(&paced_bytes), "{paced_bytes}");
        // Who comes late does not get it all, but the newest of everything.
        record.end("done");
        let late = all(&mut record.reader().with_pace(pace)).await;
        assert_eq!(late.last().unwrap(), "done");
        assert!((late.len() as f64) < 6.0 + 1.0 + 3.0 + 2.0 + 1.0, "{late:?}");
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
