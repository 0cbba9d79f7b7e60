//! What the report page needs of a transfer, collected within bounded memory.
//!
//! However long the transfer is, each part of a [`Recording`] keeps at most as much as its own
//! limit says: [`Swaths`], [`Rates`] and [`Moments`]. A recorder hears one file or one tree.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use swath_model::SourceName;
use swath_model::observe::{Event, Observer, Snapshot, Summary};

use crate::moments::{MomentKind, Moments};
use crate::rates::{Rates, Sample};
use crate::swaths::Swaths;

/// A transfer as the page shows it.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What it is of.
    pub heading: Heading,
    /// Names of the sources by number.
    pub(crate) sources: Vec<SourceName>,
    /// Size of the file where known.
    pub(crate) size_bytes: Option<u64>,
    /// Bytes that an earlier run left.
    pub(crate) resumed_bytes: u64,
    /// How the result was to be verified.
    pub(crate) verification: String,
    /// Who delivered what, and when.
    pub(crate) swaths: Swaths,
    /// Rates over time.
    pub(crate) rates: Rates,
    /// Notes and changes of state.
    pub(crate) moments: Moments,
    /// How it ended; `None` where the recording stops before the end.
    pub(crate) ending: Option<Ending>,
    /// The figures of the end, once it ended.
    pub(crate) summary: Option<Summary>,
    /// The latest time heard of, in seconds.
    pub(crate) end_s: f64,
}

/// What a recording is of.
#[derive(Clone, Debug, Default)]
pub struct Heading {
    /// The kind of thing that was transferred.
    pub content: Content,
    /// Final path of the file.
    pub path: String,
    /// Where it went: a whole path, or an address; empty where it is not known.
    pub destination: String,
    /// The command line, without what is secret; empty where it is not known.
    pub command: String,
    /// When it began, by the clock on the wall.
    pub begun: Option<SystemTime>,
    /// The number of files of a list.
    pub files: Option<u64>,
}

/// The kinds of things that are transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// A file.
    #[default]
    File,
    /// A tree, as one virtual file.
    Tree,
    /// The files of a list, one behind the other.
    List,
}

/// How the transfer ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ending {
    /// Complete, verified and named.
    Finished,
    /// The file was there already; nothing was fetched.
    Present,
    /// Stopped, with the reason.
    Failed(String),
}

/// Listens to one transfer; clones share what they hear.
#[derive(Clone, Debug)]
pub struct Recorder {
    recording: Arc<Mutex<Recording>>,
}

impl Recorder {
    /// Returns a recorder that has heard nothing.
    pub fn new() -> Self {
        Self { recording: Arc::new(Mutex::new(Recording::begun())) }
    }

    /// Returns what it heard so far.
    pub fn recording(&self) -> Recording {
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner).clone();
        recording.rates.flush();
        recording
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Recorder {
    fn observe(&mut self, event: &Event) {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner).add(event);
    }
}

impl Recording {
    /// A recording that begins now.
    pub(crate) fn begun() -> Recording {
        let heading = Heading { begun: Some(SystemTime::now()), ..Heading::default() };
        Recording { heading, ..Recording::default() }
    }

    /// Takes in one event.
    pub(crate) fn add(&mut self, event: &Event) {
        match event {
            Event::Started { path, sources } | Event::Staging { path, depots: sources } => {
                self.heading.path.clone_from(path);
                self.sources = sources.iter().map(SourceName::direct).collect();
            }
            Event::Opened { size_bytes, resumed_bytes, verification, .. } => {
                self.size_bytes = *size_bytes;
                self.resumed_bytes = *resumed_bytes;
                self.verification.clone_from(verification);
            }
            Event::Source { at_s, source, name, state, reason } => {
                self.name(*source, name);
                let kind = MomentKind::State { source: *source, state: *state };
                self.add_moment(*at_s, kind, reason.as_deref().unwrap_or_default());
            }
            Event::Swath(swath) => {
                self.hear(swath.ended_at_s);
                self.swaths.add(swath, self.end_s);
            }
            Event::Progress(snapshot) => self.add_snapshot(snapshot),
            Event::Note { at_s, text, warning, .. } => {
                let kind = if *warning { MomentKind::Warning } else { MomentKind::Note };
                self.add_moment(*at_s, kind, text);
            }
            Event::Routes { at_s, sources } => {
                self.hear(*at_s);
                let sources = sources.iter().take(SOURCES_MAX).copied().collect();
                self.moments.add_routes(drawable(*at_s), sources);
            }
            // The verdict says it.
            Event::Unverified { at_s, .. } | Event::Metalink { at_s, .. } => self.hear(*at_s),
            Event::Present { path, at_s, size_bytes, .. } => {
                let kept = Summary {
                    size_bytes: *size_bytes,
                    kept_bytes: *size_bytes,
                    elapsed_s: *at_s,
                    ..Summary::of_nothing(path.clone())
                };
                self.size_bytes = Some(*size_bytes);
                self.end(Ending::Present, &kept);
            }
            Event::Finished(summary) => self.end(Ending::Finished, summary),
            Event::Failed { at_s, error, summary, .. } => {
                self.hear(*at_s);
                self.end(Ending::Failed(error.clone()), summary);
            }
        }
    }

    fn add_moment(&mut self, at_s: f64, kind: MomentKind, text: &str) {
        self.hear(at_s);
        self.moments.add(drawable(at_s), kind, text);
    }

    fn add_snapshot(&mut self, snapshot: &Snapshot) {
        self.hear(snapshot.at_s);
        self.size_bytes = snapshot.size_bytes.or(self.size_bytes);
        let mut rates_bytes_per_s = Vec::new();
        for source in &snapshot.sources {
            self.name(source.source, &source.name);
            let at = source.source as usize;
            if at < SOURCES_MAX {
                if rates_bytes_per_s.len() <= at {
                    rates_bytes_per_s.resize(at + 1, 0.0);
                }
                rates_bytes_per_s[at] = drawable(source.rate_bytes_per_s) as f32;
            }
        }
        self.add_sample(Sample { at_s: drawable(snapshot.at_s), rates_bytes_per_s });
    }

    pub(crate) fn add_sample(&mut self, sample: Sample) {
        self.rates.add(sample, self.sources.len());
    }

    fn end(&mut self, ending: Ending, summary: &Summary) {
        self.hear(summary.elapsed_s);
        self.heading.path.clone_from(&summary.path);
        for source in &summary.sources {
            self.name(source.source, &source.name);
        }
        self.rates.end(summary, self.sources.len());
        self.ending = Some(ending);
        self.summary = Some(summary.clone());
    }

    /// Remembers the name of a source; sources are found on the way too.
    fn name(&mut self, source: u32, name: &SourceName) {
        let at = source as usize;
        if at >= SOURCES_MAX {
            return;
        }
        if self.sources.len() <= at {
            self.sources.resize(at + 1, SourceName::default());
        }
        if self.sources[at] != *name {
            self.sources[at].clone_from(name);
        }
    }

    fn hear(&mut self, at_s: f64) {
        self.end_s = self.end_s.max(drawable(at_s));
    }
}

/// Most sources that are told apart; a transfer uses far fewer.
const SOURCES_MAX: usize = 4_096;

/// A time or rate that can be drawn.
pub(crate) fn drawable(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}
