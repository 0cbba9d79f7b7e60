//! A list of files in the history: one transfer, whose size is known when all of them have ended.

use std::collections::BTreeSet;
use std::time::Instant;

use swath_state::{Ended, Figures};
use swath_transfer::observe::Event;

use super::sites::add_sites;
use crate::address::Address;
use crate::event::JobEvent;

/// Watches the files of a list.
#[derive(Debug)]
pub(super) struct ListWatch {
    began: Instant,
    /// Where files came from.
    sites: BTreeSet<String>,
    files: u64,
    bytes: u64,
    is_complete: bool,
}

/// A list that has ended.
#[derive(Debug)]
pub(super) struct EndedList {
    /// Where its files came from.
    pub(super) sites: BTreeSet<String>,
    /// Files of which at least one byte was transferred.
    pub(super) files: u64,
    /// What became of it.
    pub(super) ended: Ended,
}

impl ListWatch {
    /// Begins with the list.
    pub(super) fn new() -> ListWatch {
        let (sites, began) = (BTreeSet::new(), Instant::now());
        ListWatch { began, sites, files: 0, bytes: 0, is_complete: true }
    }

    /// Returns the list once it has ended.
    pub(super) fn see(&mut self, event: &JobEvent) -> Option<EndedList> {
        match event {
            JobEvent::File { event: Event::Started { sources, .. }, .. } => {
                add_sites(&mut self.sites, &sources.iter().map(Address::new).collect::<Vec<_>>());
            }
            JobEvent::File { event: Event::Finished(end), .. } => self.add(end.fetched_bytes),
            JobEvent::File { event: Event::Failed { summary, .. }, .. } => {
                self.add(summary.fetched_bytes);
            }
            JobEvent::FileFailed { .. } | JobEvent::FileStopped(_) => self.is_complete = false,
            JobEvent::ListEnded { is_whole } => {
                let took_s = self.began.elapsed().as_secs_f64();
                let is_complete = self.is_complete && *is_whole;
                let (bytes, figures) = (self.bytes, Figures::default());
                let ended = Ended { took_s, is_complete, bytes, figures };
                let (sites, files) = (std::mem::take(&mut self.sites), self.files);
                return Some(EndedList { sites, files, ended });
            }
            _ => {}
        }
        None
    }

    fn add(&mut self, bytes: u64) {
        self.files += u64::from(bytes > 0);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use swath_transfer::observe::Summary;

    use super::*;

    fn started(file: u64, source: &str) -> JobEvent {
        let sources = vec![source.to_owned()];
        JobEvent::File { file, event: Event::Started { path: "f".to_owned(), sources } }
    }

    fn finished(file: u64, fetched_bytes: u64) -> JobEvent {
        let end = Summary { fetched_bytes, ..Summary::default() };
        JobEvent::File { file, event: Event::Finished(end) }
    }

    #[test]
    fn a_list_is_one_transfer() {
        let mut list = ListWatch::new();
        let events = [
            started(0, "https://b.example/f"),
            started(1, "https://a.example/g"),
            started(2, "https://b.example/h"),
            finished(0, 700),
            finished(1, 300),
            // It was there.
            finished(2, 0),
        ];
        assert!(events.iter().all(|event| list.see(event).is_none()));
        let end = list.see(&JobEvent::ListEnded { is_whole: true });
        let Some(EndedList { sites, files, ended }) = end else { panic!("it has ended") };
        assert_eq!(Vec::from_iter(sites), ["a.example:443", "b.example:443"]);
        assert_eq!((files, ended.bytes, ended.is_complete), (2, 1000, true));
    }

    #[test]
    fn a_list_with_a_stopped_file_is_incomplete() {
        let end = JobEvent::ListEnded { is_whole: true };
        let mut list = ListWatch::new();
        list.see(&finished(0, 10));
        list.see(&JobEvent::FileStopped(1));
        assert!(list.see(&end).is_some_and(|list| !list.ended.is_complete));
    }
}
