//! What the events of a transfer say of it: when it begins, with how much, and what became of it.

use swath_state::{Ended, Figures};
use swath_transfer::observe::{Event, LimitedBy, Phase, Snapshot, SourceSummary, Summary};

use crate::address::parse_url;

/// What an event shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sight {
    /// The transfer begins to move so many bytes of so many files.
    Begins {
        /// Seconds since its start.
        at_s: f64,
        /// The addresses of the sources, as users see them.
        sources: Vec<String>,
        /// Bytes.
        bytes: u64,
        /// Files.
        files: u64,
    },
    /// It has ended.
    Ends(Ended),
}

/// Watches one transfer.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    sources: Vec<String>,
    has_begun: bool,
    has_ended: bool,
    /// Bytes that were there before.
    there_bytes: u64,
    first_byte_s: Option<f64>,
    last_byte_s: Option<f64>,
}

impl Watch {
    /// Returns what an event shows.
    pub(super) fn see(&mut self, event: &Event) -> Option<Sight> {
        match event {
            Event::Started { sources, .. } => {
                self.sources.clone_from(sources);
                None
            }
            Event::Opened { resumed_bytes, kept_bytes, .. } => {
                self.there_bytes = resumed_bytes.saturating_add(*kept_bytes);
                None
            }
            Event::Progress(now) => self.see_progress(now),
            Event::Finished(end) => self.see_end(end, true),
            Event::Failed { summary, .. } => self.see_end(summary, false),
            _ => None,
        }
    }

    fn see_progress(&mut self, now: &Snapshot) -> Option<Sight> {
        if self.first_byte_s.is_none() && now.done_bytes > self.there_bytes {
            self.first_byte_s = Some(now.at_s);
        }
        let is_over = matches!(now.phase, Phase::Verifying | Phase::Disputing | Phase::Finishing);
        if self.last_byte_s.is_none() && is_over {
            self.last_byte_s = Some(now.at_s);
        }
        if self.has_begun {
            return None;
        }
        let bytes = now.size_bytes?.saturating_sub(self.there_bytes);
        self.has_begun = true;
        let sources = std::mem::take(&mut self.sources);
        Some(Sight::Begins { at_s: now.at_s, sources, bytes, files: now.files.max(1) })
    }

    fn see_end(&mut self, end: &Summary, is_complete: bool) -> Option<Sight> {
        // What moved nothing teaches nothing.
        if std::mem::replace(&mut self.has_ended, true) || !self.has_begun {
            return None;
        }
        let delivering = || end.sources.iter().filter(|source| source.bytes > 0);
        let most: Option<&SourceSummary> = delivering().max_by_key(|source| source.bytes);
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let figures = Figures {
            start_up_s: self.first_byte_s,
            tail_s: self.last_byte_s.map(|last_s| (end.elapsed_s - last_s).max(0.0)),
            rtt_s: most.and_then(|source| source.rtt_ms).map(|ms| ms / 1e3),
            lanes: Some(delivering().map(|source| source.settled_lanes).sum()),
            sources: Some(count(delivering().count())),
            routed: Some(count(delivering().filter(|source| source.name.is_relayed()).count())),
            limited_by: serde_json::to_string(&without_paths(&end.limited_by)).ok(),
        };
        let (took_s, bytes) = (end.elapsed_s, end.fetched_bytes);
        Some(Sight::Ends(Ended { took_s, is_complete, bytes, figures }))
    }
}

/// Returns what limited a transfer, with sites in place of addresses: the history has no paths.
fn without_paths(limited_by: &LimitedBy) -> LimitedBy {
    match limited_by.clone() {
        LimitedBy::LostSources { names } => {
            LimitedBy::LostSources { names: names.iter().map(|name| site_in(name)).collect() }
        }
        LimitedBy::OneSource { name } => LimitedBy::OneSource { name: site_in(&name) },
        other => other,
    }
}

/// Returns the site that a source's name begins with.
fn site_in(name: &str) -> String {
    let address = name.split(' ').next().unwrap_or_default();
    let known = parse_url(address).ok().and_then(|url| swath_formats::relay::site(&url));
    // Others, such as peers, have no paths.
    known.unwrap_or_else(|| address.split('/').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_sources_become_sites() {
        for (name, site) in [
            ("https://a.example/secret/run7.h5", "a.example:443"),
            ("http://a.example:81/f via relay r.example:8471", "a.example:81"),
            ("10.0.0.7:6881", "10.0.0.7:6881"),
            ("file:///home/me/f", "file:"),
        ] {
            let limited = without_paths(&LimitedBy::OneSource { name: name.to_owned() });
            assert_eq!(limited, LimitedBy::OneSource { name: site.to_owned() });
        }
    }

    use super::*;

    fn progress(at_s: f64, done_bytes: u64, phase: Phase) -> Event {
        Event::Progress(Snapshot {
            at_s,
            phase,
            size_bytes: Some(1000),
            files: 3,
            done_bytes,
            resumed_bytes: 100,
            verified_bytes: 0,
            rate_bytes_per_s: 0.0,
            eta: None,
            sources: Vec::new(),
        })
    }

    fn opened() -> Event {
        let verification = String::new();
        Event::Opened { size_bytes: None, resumed_bytes: 100, kept_bytes: 200, verification }
    }

    #[test]
    fn a_transfer_begins_once_its_size_is_known_and_ends_once() {
        let mut watch = Watch::default();
        let sources = vec!["https://a.example/f".to_owned()];
        let started = Event::Started { path: "f".to_owned(), sources: sources.clone() };
        assert_eq!((watch.see(&started), watch.see(&opened())), (None, None));
        let begins = Sight::Begins { at_s: 0.5, sources, bytes: 700, files: 3 };
        assert_eq!(watch.see(&progress(0.5, 300, Phase::Fetching)), Some(begins));
        assert_eq!(watch.see(&progress(2.0, 500, Phase::Fetching)), None);
        watch.see(&progress(7.0, 1000, Phase::Finishing));
        let end = Summary { elapsed_s: 7.5, fetched_bytes: 700, ..Summary::default() };
        let Some(Sight::Ends(ended)) = watch.see(&Event::Finished(end.clone())) else {
            panic!("it has ended")
        };
        assert_eq!((ended.took_s, ended.is_complete, ended.bytes), (7.5, true, 700));
        let Figures { start_up_s, tail_s, sources, .. } = ended.figures;
        assert_eq!((start_up_s, tail_s, sources), (Some(2.0), Some(0.5), Some(0)));
        assert_eq!(watch.see(&Event::Finished(end)), None);
    }

    #[test]
    fn what_never_began_teaches_nothing() {
        let mut watch = Watch::default();
        watch.see(&opened());
        assert_eq!(watch.see(&Event::Finished(Summary::default())), None);
    }
}
