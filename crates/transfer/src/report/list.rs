//! One recording of a whole list of files, laid end to end in the order in which they opened.
//!
//! The sources of a list are hosts, each by the relays that lead to it, since every file has addresses
//! of its own; a host's rate is what its bytes grew by between two samples. Files that run at the same time keep lanes apart.
//! The bounds are those of a [`Recording`]; besides, only files under way are kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use swath_model::SourceName;

use super::recording::Content;
use super::recording::{Ending, Recording, Sample};
use super::units;
use crate::observe::{Event, Observer, SourceState, SourceSummary, Summary, SwathRecord, Verified};

/// Time between two samples of the rates.
const SAMPLE_S: f64 = 0.2;
/// Hosts told apart; further ones share the last number.
const HOSTS_MAX: usize = 256;
/// Lanes told apart for each host.
const LANES_MAX: u32 = 32;

/// Listens to the transfers of a list, each through its own observer; clones share what they hear.
#[derive(Clone)]
pub struct ListRecorder {
    shared: Arc<Mutex<List>>,
}

struct List {
    begun: Instant,
    recording: Recording,
    /// Number of each host.
    hosts: HashMap<SourceName, u32>,
    totals: Vec<SourceSummary>,
    /// Bytes by host at the last sample.
    sampled: (f64, Vec<u64>),
    /// Files under way.
    active: BTreeMap<u64, Active>,
    /// The lane in the recording of each host, slot and lane.
    lanes: HashMap<(u32, u32, u32), u32>,
    lanes_of_host: HashMap<u32, u32>,
    next_offset: u64,
    complete: u64,
    failed: u64,
    stopped: u64,
    fetched_bytes: u64,
    resumed_bytes: u64,
    verified_by: Option<String>,
    /// Whether digests proved every file so far.
    proved: bool,
    /// Files of which relays passed on what nothing proves, and how many bytes.
    unproved: (u64, u64),
}

/// Whose the bytes of a source are in a list: its host's, with the relays that lead to it.
pub fn host_of(name: &SourceName) -> SourceName {
    SourceName { address: name.host().to_owned(), relays: name.relays.clone() }
}

/// Of a list: what proves so many files of which relays passed on so many bytes.
pub fn verified_by_relays(files: u64, bytes: u64) -> String {
    let files = format!("{} {}", units::count(files), if files == 1 { "file" } else { "files" });
    let bytes = units::bytes(bytes);
    format!(
        "no digest of {files} is known but from relays, and these could have changed the {bytes} that they passed on"
    )
}

/// The same as a warning, with what helps.
pub fn warning_of_relays(files: u64, bytes: u64) -> String {
    let words = verified_by_relays(files, bytes);
    format!(
        "NOT VERIFIED: {words}; digests in the list prove them, --end-to-end keeps relays from changing what comes from https://, --route direct goes without them"
    )
}

/// A file under way.
struct Active {
    path: String,
    begun_s: f64,
    /// Where it lies in the whole.
    offset: u64,
    size_bytes: Option<u64>,
    /// The place among files under way, for telling lanes apart.
    slot: u32,
    /// Host of each of its sources.
    hosts: Vec<u32>,
    /// Bytes so far of each of its sources.
    bytes: Vec<u64>,
}

impl ListRecorder {
    /// A recorder for the list called `title` (its file name).
    pub fn new(title: &str) -> Self {
        let list = List {
            begun: Instant::now(),
            recording: Recording {
                content: Content::List,
                path: title.to_owned(),
                begun: Some(SystemTime::now()),
                ..Recording::default()
            },
            hosts: HashMap::new(),
            totals: Vec::new(),
            sampled: (0.0, Vec::new()),
            active: BTreeMap::new(),
            lanes: HashMap::new(),
            lanes_of_host: HashMap::new(),
            next_offset: 0,
            complete: 0,
            failed: 0,
            stopped: 0,
            fetched_bytes: 0,
            resumed_bytes: 0,
            verified_by: None,
            proved: true,
            unproved: (0, 0),
        };
        Self { shared: Arc::new(Mutex::new(list)) }
    }

    /// The observer of the `file`th file of the list.
    pub fn observer(&self, file: u64) -> Box<dyn Observer> {
        let list = self.clone();
        Box::new(move |event: &Event| {
            let mut list = list.lock();
            let now_s = list.begun.elapsed().as_secs_f64();
            list.add(file, event, now_s);
        })
    }

    /// A file failed before its transfer began.
    pub fn failed(&self, path: &str, error: &str) {
        let mut list = self.lock();
        let now_s = list.begun.elapsed().as_secs_f64();
        list.failed += 1;
        let text = format!("{path}: {error}");
        list.recording.add(&Event::note(now_s, text, true));
    }

    /// What it heard so far, with the figures of the end as if the list ended now.
    pub fn recording(&self) -> Recording {
        let mut list = self.lock();
        let now_s = list.begun.elapsed().as_secs_f64();
        list.recording(now_s)
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    fn add(&mut self, file: u64, event: &Event, now_s: f64) {
        match event {
            Event::Started { path, sources } | Event::Staging { path, depots: sources } => {
                let hosts: Vec<u32> =
                    sources.iter().map(|name| self.host(&SourceName::direct(name))).collect();
                let slot =
                    (0..).find(|slot| self.active.values().all(|a| a.slot != *slot)).unwrap_or(0);
                let bytes = vec![0; hosts.len()];
                let active = Active {
                    path: path.clone(),
                    begun_s: now_s,
                    offset: self.next_offset,
                    size_bytes: None,
                    slot,
                    hosts,
                    bytes,
                };
                self.active.insert(file, active);
            }
            Event::Opened { size_bytes, resumed_bytes, .. } => {
                self.resumed_bytes = self.resumed_bytes.saturating_add(*resumed_bytes);
                if let Some(active) = self.active.get_mut(&file) {
                    active.offset = self.next_offset;
                    active.size_bytes = *size_bytes;
                    self.next_offset = self.next_offset.saturating_add(size_bytes.unwrap_or(0));
                }
            }
            Event::Swath(swath) => self.add_swath(file, swath),
            Event::Progress(snapshot) => {
                for source in &snapshot.sources {
                    self.grow(file, source.source, &source.name, source.bytes);
                }
            }
            Event::Note { unproved_bytes: bytes @ 1.., .. } => {
                self.unproved.0 += 1;
                self.unproved.1 = self.unproved.1.saturating_add(*bytes);
            }
            Event::Note { text, warning, .. } => self.note(file, text, *warning, now_s),
            Event::Source { source, state: SourceState::Bad, reason, .. } => {
                let host =
                    self.active.get(&file).and_then(|a| a.hosts.get(*source as usize)).copied();
                let host = host
                    .and_then(|h| self.recording.sources.get(h as usize))
                    .cloned()
                    .unwrap_or_default();
                let why = reason.as_deref().map_or(String::new(), |r| format!(": {r}"));
                self.note(file, &format!("{host} is left out{why}"), true, now_s);
            }
            Event::Finished(end) => {
                self.complete += 1;
                self.end(file, end);
            }
            Event::Failed { error, stopped, summary, .. } => {
                // What the user stopped has not failed.
                if *stopped {
                    self.stopped += 1;
                } else {
                    self.failed += 1;
                    self.note(file, error, true, now_s);
                }
                self.end(file, summary);
            }
            // One file of a list is never asked again.
            Event::Present { .. } => self.complete += 1,
            Event::Metalink { .. } => {
                self.active.remove(&file);
            }
            Event::Source { .. } | Event::Routes { .. } | Event::Unverified { .. } => {}
        }
        if now_s - self.sampled.0 >= SAMPLE_S {
            self.sample(now_s);
        }
    }

    fn add_swath(&mut self, file: u64, swath: &SwathRecord) {
        let Some(active) = self.active.get(&file) else { return };
        let Some(&host) = active.hosts.get(swath.source as usize) else { return };
        let key = (host, active.slot, swath.lane);
        let lane = *self.lanes.entry(key).or_insert_with(|| {
            let taken = self.lanes_of_host.entry(host).or_default();
            *taken += 1;
            (*taken - 1) % LANES_MAX
        });
        let place = |offset: u64| active.offset.saturating_add(offset);
        let placed = SwathRecord {
            source: host,
            lane,
            start: place(swath.start),
            end: place(swath.end),
            asked_end: place(swath.asked_end),
            asked_at_s: active.begun_s + swath.asked_at_s,
            first_byte_at_s: swath.first_byte_at_s.map(|s| active.begun_s + s),
            ended_at_s: active.begun_s + swath.ended_at_s,
            outcome: swath.outcome,
        };
        self.recording.add(&Event::Swath(placed));
    }

    /// A source of a file has delivered `bytes` in all.
    fn grow(&mut self, file: u64, source: u32, name: &SourceName, bytes: u64) {
        let at = source as usize;
        if self.active.get(&file).is_some_and(|a| a.hosts.len() == at) {
            // Found on the way.
            let host = self.host(name);
            if let Some(active) = self.active.get_mut(&file) {
                active.hosts.push(host);
                active.bytes.push(0);
            }
        }
        let Some(active) = self.active.get_mut(&file) else { return };
        let (Some(host), Some(before)) = (active.hosts.get(at), active.bytes.get_mut(at)) else {
            return;
        };
        if let Some(total) = self.totals.get_mut(*host as usize) {
            total.bytes = total.bytes.saturating_add(bytes.saturating_sub(*before));
        }
        *before = bytes.max(*before);
    }

    fn note(&mut self, file: u64, text: &str, warning: bool, now_s: f64) {
        let path = self.active.get(&file).map_or("", |a| a.path.as_str());
        let text = format!("{path}: {text}");
        self.recording.add(&Event::note(now_s, text, warning));
    }

    fn end(&mut self, file: u64, end: &Summary) {
        for source in &end.sources {
            self.grow(file, source.source, &source.name, source.bytes);
            let host =
                self.active.get(&file).and_then(|a| a.hosts.get(source.source as usize)).copied();
            if let Some(total) = host.and_then(|h| self.totals.get_mut(h as usize)) {
                total.requests = total.requests.saturating_add(source.requests);
                total.wasted_bytes = total.wasted_bytes.saturating_add(source.wasted_bytes);
                total.lanes = total.lanes.max(source.lanes);
                total.rtt_ms = match (total.rtt_ms, source.rtt_ms) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        self.fetched_bytes = self.fetched_bytes.saturating_add(end.fetched_bytes);
        self.proved &= end.proved;
        self.verified_by = match self.verified_by.take() {
            None => Some(end.verified_by.clone()),
            Some(by) if by == end.verified_by => Some(by),
            Some(_) => Some("what each file's mirrors tell of it".to_owned()),
        };
        if let Some(active) = self.active.remove(&file)
            && active.size_bytes.is_none()
        {
            self.next_offset = self.next_offset.max(active.offset.saturating_add(end.size_bytes));
        }
    }

    fn sample(&mut self, now_s: f64) {
        let (before_s, before) = std::mem::take(&mut self.sampled);
        let over_s = (now_s - before_s).max(1e-3);
        let mut rates_bytes_per_s = Vec::with_capacity(self.totals.len());
        for (host, total) in self.totals.iter_mut().enumerate() {
            let grown = total.bytes.saturating_sub(before.get(host).copied().unwrap_or(0));
            let rate = grown as f64 / over_s;
            total.capacity_bytes_per_s = total.capacity_bytes_per_s.max(rate);
            rates_bytes_per_s.push(rate as f32);
        }
        self.recording.add_sample(Sample { at_s: now_s - over_s / 2.0, rates_bytes_per_s });
        self.sampled = (now_s, self.totals.iter().map(|t| t.bytes).collect());
    }

    /// The number of a source's host.
    fn host(&mut self, name: &SourceName) -> u32 {
        let host = host_of(name);
        if let Some(&number) = self.hosts.get(&host) {
            return number;
        }
        if self.totals.len() >= HOSTS_MAX {
            return HOSTS_MAX as u32 - 1;
        }
        let number = self.totals.len() as u32;
        self.hosts.insert(host.clone(), number);
        self.recording.sources.push(host.clone());
        let state = SourceState::Idle;
        let total = SourceSummary { source: number, name: host, state, ..SourceSummary::default() };
        self.totals.push(total);
        number
    }

    fn recording(&mut self, now_s: f64) -> Recording {
        self.sample(now_s);
        let mut recording = self.recording.clone();
        let verified_by = match self.unproved {
            (0, _) => self.verified_by.clone().unwrap_or_default(),
            (files, bytes) => {
                recording.add(&Event::note(now_s, warning_of_relays(files, bytes), true));
                verified_by_relays(files, bytes)
            }
        };
        recording.flush_pending();
        let all: u64 = self.totals.iter().map(|t| t.bytes).sum();
        let sources: Vec<SourceSummary> = self
            .totals
            .iter()
            .map(|total| SourceSummary {
                share: total.bytes as f64 / all.max(1) as f64,
                rate_bytes_per_s: total.bytes as f64 / now_s.max(1e-3),
                ..total.clone()
            })
            .collect();
        let files = self.complete + self.failed + self.stopped;
        recording.files = Some(files);
        recording.size_bytes = Some(self.next_offset);
        recording.resumed_bytes = self.resumed_bytes;
        recording.end_s = recording.end_s.max(now_s);
        recording.ending = match self.failed {
            0 if !self.active.is_empty() => None,
            0 if self.stopped > 0 => {
                Some(Ending::Failed(format!("{} of {files} files were under way", self.stopped)))
            }
            0 => Some(Ending::Finished),
            failed => Some(Ending::Failed(format!("{failed} of {files} files failed"))),
        };
        recording.summary = Some(Summary {
            size_bytes: self.next_offset,
            fetched_bytes: self.fetched_bytes,
            resumed_bytes: self.resumed_bytes,
            elapsed_s: now_s,
            rate_bytes_per_s: self.fetched_bytes as f64 / now_s.max(1e-3),
            wasted_bytes: sources.iter().map(|s| s.wasted_bytes).sum(),
            verified: if self.proved { Verified::Digest } else { Verified::None },
            verified_by,
            proved: self.proved,
            sources,
            ..Summary::of_nothing(recording.path.clone())
        });
        recording
    }
}

#[cfg(test)]
mod tests {
    use super::super::render;
    use super::super::synthetic::{Scenario, play};
    use super::*;

    #[test]
    fn files_lie_end_to_end_and_hosts_are_the_sources() {
        let list = ListRecorder::new("list.txt");
        for file in 0..40_u64 {
            let scenario = Scenario::star(&format!("runs/{file}.h5"), 3_000_000, &[40.0, 60.0]);
            let mut shared = list.lock();
            for event in play(&scenario) {
                // One file after the other, a tenth of a second each.
                shared.add(file, &event, file as f64 * 0.1 + 0.05);
            }
        }
        let recording = list.lock().recording(4.0);
        let hosts = ["mirror1.cern.ch", "mirror2.desy.de"].map(SourceName::direct);
        assert_eq!(recording.sources, hosts);
        assert_eq!(recording.files, Some(40));
        let covered: Vec<_> = recording.map.iter().map(|(range, _)| range).collect();
        assert_eq!(covered.iter().map(|r| r.len()).sum::<u64>(), 120_000_000);
        assert_eq!(covered.last().map(|r| r.end), Some(120_000_000));
        let summary = recording.summary.clone().expect("a summary");
        assert_eq!(summary.fetched_bytes, 120_000_000);
        // Fractions of bytes are lost in the made-up sources' sums.
        assert!(summary.sources.iter().map(|s| s.bytes).sum::<u64>() > 119_999_000);
        assert!(recording.samples.len() > 10);
        assert!(list.lock().active.is_empty());
        let page = render(&recording);
        assert!(page.contains("list.txt") && page.contains("<dt>files</dt><dd>40"));
    }

    #[test]
    fn relays_are_told_apart_and_warned_of_once() {
        // All bytes were their origin's, and each file had a warning of its own.
        let by = |address: &str| SourceName::routed(address, ["r1.example:80", "[::1]:81"]);
        let address = "http://data.example/x/f";
        assert_eq!(host_of(&by(address)), by("data.example"));
        let list = ListRecorder::new("list.txt");
        for (file, unproved_bytes) in [(0, 3_000_000), (1, 0), (2, 1_000_000)] {
            let mut observer = list.observer(file);
            let sources = vec![address.to_owned()];
            observer.observe(&Event::Started { path: format!("f{file}"), sources });
            let source = SourceSummary { source: 1, name: by(address), ..SourceSummary::default() };
            let end = Summary { sources: vec![source], ..Summary::default() };
            let text = "verified by nothing".to_owned();
            observer.observe(&Event::Note { at_s: 1.0, text, warning: true, unproved_bytes });
            observer.observe(&Event::Finished(end));
        }
        let recording = list.recording();
        assert_eq!(recording.sources, [SourceName::direct("data.example"), by("data.example")]);
        let moments = recording.moments.iter();
        let told: Vec<&str> = moments.map(|moment| moment.text.as_str()).collect();
        assert_eq!(told, ["f1: verified by nothing", &*warning_of_relays(2, 4_000_000)]);
        let verified_by = recording.summary.as_ref().map(|end| end.verified_by.as_str());
        assert_eq!(verified_by, Some(&*verified_by_relays(2, 4_000_000)));
        assert!(render(&recording).contains("could have changed the 4.00 MB that they passed on;"));
    }

    #[test]
    fn a_failed_file_is_said() {
        let list = ListRecorder::new("list.txt");
        let mut observer = list.observer(0);
        let summary = |events: Vec<Event>| match events.last() {
            Some(Event::Finished(summary)) => Some(summary.clone()),
            _ => None,
        };
        let events = play(&Scenario::star("a", 1_000_000, &[40.0]));
        events.iter().take(3).for_each(|event| observer.observe(event));
        let summary = summary(events).expect("a summary");
        observer.observe(&Event::Failed {
            path: "a".to_owned(),
            at_s: 1.0,
            error: "404 <b>".to_owned(),
            stopped: false,
            kept_bytes: 0,
            summary,
        });
        let page = render(&list.recording());
        assert!(
            page.contains("Not complete: 1 of 1 files failed") && page.contains("a: 404 &lt;b&gt;"),
            "{page}"
        );
    }
}
