//! Records a transfer for the report page, within bounded memory.
//!
//! Each part of a [`Recording`] has its own limit: [`Swaths`], [`Rates`] and [`Moments`]. A recorder
//! records one file or one dataset.

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
    /// What was transferred.
    pub heading: Heading,
    /// Names of the sources by number.
    pub(crate) sources: Vec<SourceName>,
    /// Size, if known.
    pub(crate) size_bytes: Option<u64>,
    /// Bytes from an earlier run.
    pub(crate) resumed_bytes: u64,
    /// The planned verification.
    pub(crate) verification: String,
    /// The swaths.
    pub(crate) swaths: Swaths,
    /// Rates over time.
    pub(crate) rates: Rates,
    /// Notes and changes of state.
    pub(crate) moments: Moments,
    /// The end; `None` if the recording stops before.
    pub(crate) ending: Option<Ending>,
    /// The final figures.
    pub(crate) summary: Option<Summary>,
    /// The latest recorded time, in seconds.
    pub(crate) end_s: f64,
}

/// What was transferred.
#[derive(Clone, Debug, Default)]
pub struct Heading {
    /// The kind of thing that was transferred.
    pub content: Content,
    /// Final path of the file.
    pub path: String,
    /// The destination: an absolute path or an address; empty if unknown.
    pub destination: String,
    /// The command line without secrets; empty if unknown.
    pub command: String,
    /// The start by the system clock.
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
    /// A dataset, as one virtual file.
    Tree,
    /// The files of a list, one behind the other.
    List,
}

/// How the transfer ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ending {
    /// Complete, verified and named.
    Finished,
    /// The file already existed; nothing was fetched.
    Present,
    /// Stopped, with the reason.
    Failed(String),
}

/// Records one transfer; clones share the recording.
#[derive(Clone, Debug)]
pub struct Recorder {
    recording: Arc<Mutex<Recording>>,
}

impl Recorder {
    /// Returns an empty recorder.
    pub fn new() -> Self {
        Self { recording: Arc::new(Mutex::new(Recording::begun())) }
    }

    /// Returns the recording so far.
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
    /// Returns a recording that starts now.
    pub(crate) fn begun() -> Recording {
        let heading = Heading { begun: Some(SystemTime::now()), ..Heading::default() };
        Recording { heading, ..Recording::default() }
    }

    /// Records an event.
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
            // The summary has it.
            Event::Forecast { .. } => {}
            Event::Routes { at_s, sources } => {
                self.hear(*at_s);
                let sources = sources.iter().take(SOURCES_MAX).copied().collect();
                self.moments.add_routes(drawable(*at_s), sources);
            }
            // The verdict reports it.
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

    /// Records the name of a source; sources may be discovered during the transfer.
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

/// Most sources with their own number; a transfer uses far fewer.
const SOURCES_MAX: usize = 4_096;

/// Replaces a time or rate that cannot be drawn.
pub(crate) fn drawable(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}
