//! One recording of a whole list of files, end to end in the order in which they opened.
//!
//! The sources of a list are hosts and their routes, because every file has its own addresses; the rate
//! of a host is the growth of its bytes between two samples. Files that run at the same time have
//! separate lanes. The limits are those of a [`Recording`]; only active files are kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use swath_model::observe::{
    DigestFrom, Event, Observer, SameBy, SourceState, SourceSummary, Summary, SwathRecord, Verified,
};
use swath_model::{SourceName, units};

use crate::rates::Sample;
use crate::recording::{Content, Ending, Recording};

/// Time between two samples of the rates.
const SAMPLE_S: f64 = 0.2;
/// Hosts with their own number; further ones share the last.
const HOSTS_MAX: usize = 256;
/// Lanes with their own number for each host.
const LANES_MAX: u32 = 32;

/// Records the transfers of a list, each through its own observer; clones share the recording.
#[derive(Clone)]
pub struct ListRecorder {
    shared: Arc<Mutex<List>>,
}

struct List {
    begun: Instant,
    recording: Recording,
    hosts: Hosts,
    /// The time of the last sample, in seconds.
    sampled_s: f64,
    /// Active files.
    active: BTreeMap<u64, Active>,
    ended: Ended,
    /// The sums over all files so far.
    sums: Summary,
    /// What proved the files so far.
    proofs: Proofs,
    /// Unverified files that relays forwarded, and their bytes.
    unproved: (u64, u64),
}

/// How many files were proved by whose digests, and how many by none.
#[derive(Default)]
struct Proofs {
    by: BTreeMap<Option<DigestFrom>, u64>,
    without: u64,
}

impl Proofs {
    fn add(&mut self, is_proved: bool, from: Option<DigestFrom>) {
        match is_proved {
            true => *self.by.entry(from).or_default() += 1,
            false => self.without += 1,
        }
    }

    /// Returns them in words that follow "verified by" or "not verified".
    fn words(&self) -> String {
        let proved: u64 = self.by.values().sum();
        if self.without > 0 {
            let all = units::count(self.without + proved);
            return format!("no digest of {} of {all} files is known", units::count(self.without));
        }
        let words = |from: &Option<DigestFrom>| match from {
            Some(DigestFrom::User) => "digests that you gave",
            Some(DigestFrom::Metalink) => "digests from Metalinks",
            Some(DigestFrom::Torrent) => "digests from torrents",
            Some(DigestFrom::Server) => "digests from their servers",
            None => "digests",
        };
        let is_one = self.by.len() == 1;
        let each = self.by.iter().map(|(from, files)| match is_one {
            true => words(from).to_owned(),
            false => format!("{} ({})", words(from), units::count(*files)),
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

/// Counts of ended files.
#[derive(Default)]
struct Ended {
    complete: u64,
    failed: u64,
    stopped: u64,
}

/// The hosts of a list, by number.
#[derive(Default)]
struct Hosts {
    numbers: HashMap<SourceName, u32>,
    hosts: Vec<Host>,
}

/// A host.
struct Host {
    total: SourceSummary,
    /// Its bytes at the last sample.
    sampled_bytes: u64,
    /// Its lanes in the recording, by slot and lane.
    lanes: HashMap<(u32, u32), u32>,
}

/// An active file.
struct Active {
    path: String,
    begun_s: f64,
    /// Its offset in the recording.
    offset: u64,
    size_bytes: Option<u64>,
    /// The slot among active files, for separate lanes.
    slot: u32,
    /// The host of each source, and the bytes that the source has delivered.
    sources: Vec<(u32, u64)>,
}

/// Returns the host and route of a source, which a list counts as one source.
pub fn host_of(name: &SourceName) -> SourceName {
    SourceName { address: name.host().to_owned(), relays: name.relays.clone() }
}

/// Describes unverified files of a list that relays forwarded.
fn verified_by_relays(files: u64, bytes: u64) -> String {
    let files = format!("{} {}", units::count(files), if files == 1 { "file" } else { "files" });
    let bytes = units::bytes(bytes);
    format!(
        "no digest of {files} came without relays, which could have changed the {bytes} that they delivered"
    )
}

/// Returns the warning about them, with advice.
pub fn warning_of_relays(files: u64, bytes: u64) -> String {
    let words = verified_by_relays(files, bytes);
    format!(
        "NOT VERIFIED: {words}; to verify them, put digests in the list, or use --end-to-end (https:// sources) or --route direct"
    )
}

impl ListRecorder {
    /// Returns a recorder for the list called `title` (its file name).
    pub fn new(title: &str) -> Self {
        let mut recording = Recording::begun();
        recording.heading.content = Content::List;
        recording.heading.path = title.to_owned();
        let list = List {
            begun: Instant::now(),
            recording,
            hosts: Hosts::default(),
            sampled_s: 0.0,
            active: BTreeMap::new(),
            ended: Ended::default(),
            sums: Summary::of_nothing(title.to_owned()),
            proofs: Proofs::default(),
            unproved: (0, 0),
        };
        Self { shared: Arc::new(Mutex::new(list)) }
    }

    /// Returns the observer of the `file`th file of the list.
    pub fn observer(&self, file: u64) -> Box<dyn Observer> {
        let list = self.clone();
        Box::new(move |event: &Event| {
            let mut list = list.lock();
            let now_s = list.begun.elapsed().as_secs_f64();
            list.add(file, event, now_s);
        })
    }

    /// Records a file that failed before its transfer began.
    pub fn failed(&self, path: &str, error: &str) {
        let mut list = self.lock();
        let now_s = list.begun.elapsed().as_secs_f64();
        list.ended.failed += 1;
        list.recording.add(&Event::note(now_s, format!("{path}: {error}"), true));
    }

    /// Returns the recording so far, with final figures as if the list ended now.
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
                let sources =
                    sources.iter().map(|name| (self.host(&SourceName::direct(name)), 0)).collect();
                let slot =
                    (0..).find(|slot| self.active.values().all(|a| a.slot != *slot)).unwrap_or(0);
                let active = Active {
                    path: path.clone(),
                    begun_s: now_s,
                    offset: self.sums.size_bytes,
                    size_bytes: None,
                    slot,
                    sources,
                };
                self.active.insert(file, active);
            }
            Event::Opened { size_bytes, resumed_bytes, .. } => {
                let sums = &mut self.sums;
                sums.resumed_bytes = sums.resumed_bytes.saturating_add(*resumed_bytes);
                if let Some(active) = self.active.get_mut(&file) {
                    active.offset = sums.size_bytes;
                    active.size_bytes = *size_bytes;
                    sums.size_bytes = sums.size_bytes.saturating_add(size_bytes.unwrap_or(0));
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
                let host = self.host_of(file, *source).map(|host| host.total.name.to_string());
                let host = host.unwrap_or_default();
                let why = reason.as_deref().map_or(String::new(), |r| format!(": {r}"));
                self.note(file, &format!("{host} is not used{why}"), true, now_s);
            }
            Event::Finished(end) => {
                self.ended.complete += 1;
                self.proofs.add(end.proved, end.digest_from);
                self.end(file, end);
            }
            Event::Failed { error, stopped, summary, .. } => {
                // A stop by the user is no failure.
                if *stopped {
                    self.ended.stopped += 1;
                } else {
                    self.ended.failed += 1;
                    self.note(file, error, true, now_s);
                }
                self.end(file, summary);
            }
            // A file of a list is never retried.
            Event::Present { same, .. } => {
                self.ended.complete += 1;
                let from = (*same == SameBy::ServersDigest).then_some(DigestFrom::Server);
                let is_proved = !matches!(same, SameBy::SizeAndTime | SameBy::Name);
                self.proofs.add(is_proved, from);
            }
            Event::Metalink { .. } => {
                self.active.remove(&file);
            }
            Event::Forecast { .. }
            | Event::Source { .. }
            | Event::Routes { .. }
            | Event::Unverified { .. } => {}
        }
        if now_s - self.sampled_s >= SAMPLE_S {
            self.sample(now_s);
        }
    }

    fn add_swath(&mut self, file: u64, swath: &SwathRecord) {
        let Some(active) = self.active.get(&file) else { return };
        let Some(&(number, _)) = active.sources.get(swath.source as usize) else { return };
        let Some(host) = self.hosts.hosts.get_mut(number as usize) else { return };
        let next = host.lanes.len() as u32 % LANES_MAX;
        let lane = *host.lanes.entry((active.slot, swath.lane)).or_insert(next);
        let place = |offset: u64| active.offset.saturating_add(offset);
        let placed = SwathRecord {
            source: number,
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

    /// Records that a source of a file has delivered `bytes` in total.
    fn grow(&mut self, file: u64, source: u32, name: &SourceName, bytes: u64) {
        let at = source as usize;
        if self.active.get(&file).is_some_and(|active| active.sources.len() == at) {
            // Discovered during the transfer.
            let host = self.host(name);
            if let Some(active) = self.active.get_mut(&file) {
                active.sources.push((host, 0));
            }
        }
        let sources = self.active.get_mut(&file).map(|active| &mut active.sources);
        let Some((host, before)) = sources.and_then(|all| all.get_mut(at)) else { return };
        if let Some(host) = self.hosts.hosts.get_mut(*host as usize) {
            let more = bytes.saturating_sub(*before);
            host.total.bytes = host.total.bytes.saturating_add(more);
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
            if let Some(Host { total, .. }) = self.host_of(file, source.source) {
                total.requests = total.requests.saturating_add(source.requests);
                total.wasted_bytes = total.wasted_bytes.saturating_add(source.wasted_bytes);
                total.lanes = total.lanes.max(source.lanes);
                total.rtt_ms = match (total.rtt_ms, source.rtt_ms) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        let sums = &mut self.sums;
        sums.fetched_bytes = sums.fetched_bytes.saturating_add(end.fetched_bytes);
        if let Some(active) = self.active.remove(&file)
            && active.size_bytes.is_none()
        {
            let end = active.offset.saturating_add(end.size_bytes);
            sums.size_bytes = sums.size_bytes.max(end);
        }
    }

    fn sample(&mut self, now_s: f64) {
        let over_s = (now_s - self.sampled_s).max(1e-3);
        self.sampled_s = now_s;
        let rates = self.hosts.hosts.iter_mut().map(|Host { total, sampled_bytes, .. }| {
            let rate = total.bytes.saturating_sub(*sampled_bytes) as f64 / over_s;
            *sampled_bytes = total.bytes;
            total.capacity_bytes_per_s = total.capacity_bytes_per_s.max(rate);
            rate as f32
        });
        let rates_bytes_per_s = rates.collect();
        self.recording.add_sample(Sample { at_s: now_s - over_s / 2.0, rates_bytes_per_s });
    }

    /// The number of a source's host.
    fn host(&mut self, name: &SourceName) -> u32 {
        let name = host_of(name);
        let Hosts { numbers, hosts } = &mut self.hosts;
        if let Some(&number) = numbers.get(&name) {
            return number;
        }
        if hosts.len() >= HOSTS_MAX {
            return HOSTS_MAX as u32 - 1;
        }
        let source = hosts.len() as u32;
        numbers.insert(name.clone(), source);
        self.recording.sources.push(name.clone());
        let state = SourceState::Idle;
        let total = SourceSummary { source, name, state, ..SourceSummary::default() };
        hosts.push(Host { total, sampled_bytes: 0, lanes: HashMap::new() });
        source
    }

    /// The host of a source of a file.
    fn host_of(&mut self, file: u64, source: u32) -> Option<&mut Host> {
        let (host, _) = *self.active.get(&file)?.sources.get(source as usize)?;
        self.hosts.hosts.get_mut(host as usize)
    }

    fn recording(&mut self, now_s: f64) -> Recording {
        self.sample(now_s);
        let mut recording = self.recording.clone();
        let mut summary = self.sums.clone();
        summary.verified_by = self.proofs.words();
        summary.proved = self.proofs.without == 0;
        if let (files @ 1.., bytes) = self.unproved {
            recording.add(&Event::note(now_s, warning_of_relays(files, bytes), true));
            summary.verified_by = verified_by_relays(files, bytes);
        }
        recording.rates.flush();
        let totals = self.hosts.hosts.iter().map(|host| &host.total);
        let all: u64 = totals.clone().map(|total| total.bytes).sum();
        let sources = totals.map(|total| SourceSummary {
            share: total.bytes as f64 / all.max(1) as f64,
            rate_bytes_per_s: total.bytes as f64 / now_s.max(1e-3),
            ..total.clone()
        });
        summary.sources = sources.collect();
        summary.elapsed_s = now_s;
        summary.rate_bytes_per_s = summary.fetched_bytes as f64 / now_s.max(1e-3);
        summary.wasted_bytes = summary.sources.iter().map(|s| s.wasted_bytes).sum();
        summary.verified = if summary.proved { Verified::Digest } else { Verified::None };
        let Ended { complete, failed, stopped } = self.ended;
        let files = complete + failed + stopped;
        recording.heading.files = Some(files);
        recording.size_bytes = Some(summary.size_bytes);
        recording.resumed_bytes = summary.resumed_bytes;
        recording.end_s = recording.end_s.max(now_s);
        recording.ending = match (failed, stopped) {
            (0, _) if !self.active.is_empty() => None,
            (0, 0) => Some(Ending::Finished),
            (0, _) => Some(Ending::Failed(format!("{stopped} of {files} files were stopped"))),
            _ => Some(Ending::Failed(format!("{failed} of {files} files failed"))),
        };
        recording.summary = Some(summary);
        recording
    }
}

#[cfg(test)]
mod tests {
    use swath_netlab::events::{Scenario, play};

    use super::*;
    use crate::render;

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
        assert_eq!(recording.heading.files, Some(40));
        let covered: Vec<_> = recording.swaths.map.iter().map(|(range, _)| range).collect();
        assert_eq!(covered.iter().map(|r| r.len()).sum::<u64>(), 120_000_000);
        assert_eq!(covered.last().map(|r| r.end), Some(120_000_000));
        let summary = recording.summary.clone().expect("a summary");
        assert_eq!(summary.fetched_bytes, 120_000_000);
        // Fractions of bytes are lost in the made-up sources' sums.
        assert!(summary.sources.iter().map(|s| s.bytes).sum::<u64>() > 119_999_000);
        assert!(recording.rates.samples.len() > 10);
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
        let moments = recording.moments.kept.iter();
        let told: Vec<&str> = moments.map(|moment| moment.text.as_str()).collect();
        assert_eq!(told, ["f1: verified by nothing", &*warning_of_relays(2, 4_000_000)]);
        let verified_by = recording.summary.as_ref().map(|end| end.verified_by.as_str());
        assert_eq!(verified_by, Some(&*verified_by_relays(2, 4_000_000)));
        assert!(render(&recording).contains("could have changed the 4.00 MB that they delivered;"));
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
