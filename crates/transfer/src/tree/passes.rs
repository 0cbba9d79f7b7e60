//! Adds up several passes over a tree.
//!
//! A tree needs another pass if files changed meanwhile or its server forgot the walk. The bytes,
//! waste and time of each pass count.

use swath_model::index::{Index, Lack};

use crate::observe::{Event, SourceSummary, Summary};
use swath_model::units;

/// The passes so far.
#[derive(Debug, Default)]
pub(super) struct Passes(Option<Summary>);

impl Passes {
    /// Returns the useful bytes that they fetched.
    pub fn fetched_bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |before| before.fetched_bytes)
    }

    /// Returns how long they took.
    pub fn elapsed_s(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |before| before.elapsed_s)
    }

    /// Returns their sum.
    pub fn summary(&self) -> Option<&Summary> {
        self.0.as_ref()
    }

    /// Adds a pass, of which `thrown_bytes` were useless.
    pub fn add(&mut self, pass: Summary, thrown_bytes: u64) {
        let mut all = self.with(pass);
        let thrown_bytes = thrown_bytes.min(all.fetched_bytes);
        all.fetched_bytes -= thrown_bytes;
        all.wasted_bytes += thrown_bytes;
        self.0 = Some(all);
    }

    /// Returns their sum with the last pass, whose texts count.
    pub fn with(&self, mut last: Summary) -> Summary {
        let Some(before) = &self.0 else { return last };
        if before.fetched_bytes > last.fetched_bytes {
            last.limited_by.clone_from(&before.limited_by);
        }
        last.efficiency = match (before.efficiency, last.efficiency) {
            (Some(one), Some(other)) => {
                let (a, b) = (before.fetched_bytes as f64, last.fetched_bytes as f64);
                Some((one * a + other * b) / (a + b).max(1.0))
            }
            (one, other) => other.or(one),
        };
        last.fetched_bytes += before.fetched_bytes;
        last.wasted_bytes += before.wasted_bytes;
        last.elapsed_s += before.elapsed_s;
        last.rate_bytes_per_s = last.fetched_bytes as f64 / last.elapsed_s.max(1e-6);
        for earlier in &before.sources {
            match last.sources.iter_mut().find(|source| source.name == earlier.name) {
                Some(source) => together(source, earlier),
                None => {
                    let source = last.sources.len() as u32;
                    last.sources.push(SourceSummary { source, ..earlier.clone() });
                }
            }
        }
        let all: u64 = last.sources.iter().map(|source| source.bytes).sum();
        for source in &mut last.sources {
            source.share = if all == 0 { 0.0 } else { source.bytes as f64 / all as f64 };
        }
        last
    }
}

/// Adds an earlier pass to the figures of a source.
fn together(source: &mut SourceSummary, earlier: &SourceSummary) {
    let busy_s = |one: &SourceSummary| match one.rate_bytes_per_s > 0.0 {
        true => one.bytes as f64 / one.rate_bytes_per_s,
        false => 0.0,
    };
    let busy_s = busy_s(source) + busy_s(earlier);
    source.bytes += earlier.bytes;
    source.rate_bytes_per_s = if busy_s > 0.0 { source.bytes as f64 / busy_s } else { 0.0 };
    source.capacity_bytes_per_s = source.capacity_bytes_per_s.max(earlier.capacity_bytes_per_s);
    source.requests += earlier.requests;
    source.lanes = source.lanes.max(earlier.lanes);
    source.wasted_bytes += earlier.wasted_bytes;
    source.rtt_ms = match (source.rtt_ms, earlier.rtt_ms) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
}

/// Returns the note on files that changed during the copy and are fetched once more.
pub(super) fn once_more(index: &Index, changed: &[(u64, Lack)], at_s: f64) -> Event {
    let path = |&(number, _): &(u64, Lack)| Some(index.cursor_from(number).next()?.path.to_vec());
    let first: Vec<Vec<u8>> = changed.iter().take(NAMED_MAX).filter_map(path).collect();
    let text = format!(
        "changed or gone at the source during the copy, checking once more: {}",
        names(&first, changed.len())
    );
    Event::note(at_s, text, true)
}

/// Returns the note on received files that have disappeared from the source since.
pub(super) fn no_more((count, first): (usize, &[Vec<u8>])) -> Event {
    let text =
        format!("not at the source any more, and so not in the copy: {}", names(first, count));
    Event::note(0.0, text, true)
}

/// Returns the first of these paths, and how many more there are.
fn names(paths: &[Vec<u8>], count: usize) -> String {
    let first = paths.iter().take(NAMED_MAX);
    let mut names: Vec<String> =
        first.map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    if count > names.len() {
        names.push(format!("{} more", units::count((count - names.len()) as u64)));
    }
    names.join(", ")
}

/// Most files named in a note.
const NAMED_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use swath_model::SourceName;

    use super::*;
    use crate::observe::SourceState;

    fn source(name: &str, bytes: u64, rate_bytes_per_s: f64) -> SourceSummary {
        SourceSummary {
            source: 0,
            name: SourceName::direct(name),
            state: SourceState::Idle,
            reason: None,
            bytes,
            share: 1.0,
            rate_bytes_per_s,
            capacity_bytes_per_s: rate_bytes_per_s,
            requests: 3,
            lanes: 2,
            settled_lanes: 0,
            rtt_ms: None,
            wasted_bytes: 0,
        }
    }

    fn pass(fetched_bytes: u64, elapsed_s: f64, sources: Vec<SourceSummary>) -> Summary {
        Summary {
            size_bytes: 100,
            fetched_bytes,
            elapsed_s,
            proved: true,
            sources,
            ..Summary::default()
        }
    }

    #[test]
    fn what_all_passes_brought_is_told() {
        // Of three files of 40, one of which came twice, one source was said to have brought 40 in all.
        let mut passes = Passes::default();
        passes.add(pass(120, 6.0, vec![source("a", 90, 15.0), source("b", 30, 30.0)]), 40);
        assert_eq!((passes.fetched_bytes(), passes.elapsed_s()), (80, 6.0));
        let all = passes.with(pass(40, 2.0, vec![source("a", 40, 20.0)]));
        assert_eq!((all.fetched_bytes, all.wasted_bytes, all.elapsed_s), (120, 40, 8.0));
        assert_eq!(all.rate_bytes_per_s, 15.0);
        let told: Vec<_> =
            all.sources.iter().map(|it| (&*it.name.address, it.source, it.bytes)).collect();
        assert_eq!(told, [("a", 0, 130), ("b", 1, 30)]);
        assert_eq!((all.sources[0].requests, all.sources[0].rate_bytes_per_s), (6, 16.25));
        assert!((all.sources.iter().map(|it| it.share).sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
