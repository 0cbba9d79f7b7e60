//! What the report page needs of a transfer, collected within bounded memory.
//!
//! A [`Recorder`] listens to a transfer; [`Recorder::recording`] gives what it heard. Whatever the
//! length of the transfer: at most [`BARS_MAX`] swaths (finer ones are merged with their
//! neighbours on the lane), [`PIECES_MAX`] pieces in the file's map, [`RATES_MAX`] rates (pairs of
//! samples are averaged) and [`MOMENTS_MAX`] moments are kept. A recorder hears one file.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use swath_model::{Range, RangeMap, SourceName};

use super::bound;
use crate::observe::{Event, Observer, Outcome, Snapshot, SourceState, Summary, SwathRecord};

/// Most swaths kept one by one; 20,000 are ten to each pixel of a wide screen.
pub const BARS_MAX: usize = 20_000;
/// Most pieces in the map of who delivered what.
pub const PIECES_MAX: usize = 20_000;
/// Most rates kept, over all samples and sources.
pub const RATES_MAX: usize = 400_000;
/// Most samples kept; more cannot be told apart on a screen.
const SAMPLES_MAX: usize = 1_200;
/// Fewest samples kept, however many sources there are.
const SAMPLES_MIN: usize = 64;
/// Most notes and changes of state kept.
pub const MOMENTS_MAX: usize = 2_000;

/// One swath, or several neighbours on one lane merged into one.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Who was asked.
    pub source: u32,
    /// On which lane.
    pub lane: u32,
    /// First byte, and just after the last byte delivered; of a merged bar, the first swath's start
    /// and the start plus `bytes`.
    pub range: Range,
    /// When the request left, in seconds.
    pub asked_at_s: f64,
    /// How many bytes were asked for at first; of a merged bar, by all its swaths.
    pub asked_bytes: u64,
    /// When its first byte was here.
    pub first_byte_at_s: Option<f64>,
    /// When it ended.
    pub ended_at_s: f64,
    /// How it ended.
    pub outcome: Outcome,
    /// How many swaths it stands for.
    pub swaths: u32,
}

/// Who brought a piece of the file, and when it was complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// The source's number.
    pub source: u32,
    /// Milliseconds since the transfer began.
    pub at_ms: u32,
}

/// The rate of every source around one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since the transfer began.
    pub at_s: f64,
    /// Bytes per second by source number; sources found later have no entry yet.
    pub rates_bytes_per_s: Vec<f32>,
}

/// Something to mark on the time axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since the transfer began.
    pub at_s: f64,
    /// What it was.
    pub kind: MomentKind,
    /// The sentence.
    pub text: String,
}

/// The kinds of moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MomentKind {
    /// A source changed its state.
    State {
        /// Its number.
        source: u32,
        /// What it became.
        state: SourceState,
    },
    /// Other ways are in use; its place in [`Recording::ways`].
    Ways(u32),
    /// Information.
    Note,
    /// A warning.
    Warning,
}

/// Which sources are ways in use from a moment on.
#[derive(Clone, Debug, PartialEq)]
pub struct InUse {
    /// Seconds since the transfer began.
    pub at_s: f64,
    /// Their numbers.
    pub sources: Vec<u32>,
}

/// How the transfer ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// Complete, verified and named.
    Finished,
    /// The file was there already; nothing was fetched.
    Present,
    /// Stopped, with the reason.
    Failed(String),
}

/// What a recording is of.
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

/// A transfer as the page shows it.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What it is of.
    pub content: Content,
    /// The command line, without what is secret; empty where it is not known.
    pub command: String,
    /// Where it went: a whole path, or an address; empty where it is not known.
    pub destination: String,
    /// Final path of the file.
    pub path: String,
    /// When it began, by the clock on the wall.
    pub begun: Option<SystemTime>,
    /// Names of the sources by number.
    pub sources: Vec<SourceName>,
    /// Size of the file where known.
    pub size_bytes: Option<u64>,
    /// Bytes that an earlier run left.
    pub resumed_bytes: u64,
    /// How the result was to be proved.
    pub verification: String,
    /// Files, where it is of a list.
    pub files: Option<u64>,
    /// Swaths in the order of their ends.
    pub bars: Vec<Bar>,
    /// Swaths that ended, whether kept one by one or merged.
    pub swaths: u64,
    /// Who delivered what.
    pub map: RangeMap<Delivery>,
    /// Rates over time.
    pub samples: Vec<Sample>,
    /// Notes and changes of state in the order of time.
    pub moments: Vec<Moment>,
    /// Which ways were in use, in the order of time; at most [`MOMENTS_MAX`].
    pub ways: Vec<InUse>,
    /// Moments that were not kept.
    pub moments_dropped: u64,
    /// How it ended; `None` where the recording stops before the end.
    pub ending: Option<Ending>,
    /// The figures of the end, once it ended.
    pub summary: Option<Summary>,
    /// The latest time heard of, in seconds.
    pub end_s: f64,
    /// Samples averaged into one of the kept ones.
    pub(super) stride: usize,
    /// Those of the next sample so far.
    pub(super) pending: Vec<Sample>,
}

/// Listens to one transfer; clones share what they hear.
#[derive(Clone, Debug)]
pub struct Recorder {
    recording: Arc<Mutex<Recording>>,
}

impl Recorder {
    /// A recorder that has heard nothing.
    pub fn new() -> Self {
        let recording = Recording { begun: Some(SystemTime::now()), ..Recording::default() };
        Self { recording: Arc::new(Mutex::new(recording)) }
    }

    /// What it heard so far.
    pub fn recording(&self) -> Recording {
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner).clone();
        recording.flush_pending();
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
    /// Take in one event.
    pub(super) fn add(&mut self, event: &Event) {
        match event {
            Event::Started { path, sources } | Event::Staging { path, depots: sources } => {
                self.path.clone_from(path);
                self.sources = sources.iter().map(SourceName::direct).collect();
            }
            Event::Opened { size_bytes, resumed_bytes, verification, .. } => {
                self.size_bytes = *size_bytes;
                self.resumed_bytes = *resumed_bytes;
                self.verification.clone_from(verification);
            }
            Event::Source { at_s, source, name, state, reason } => {
                self.name(*source, name);
                let text = reason.clone().unwrap_or_default();
                self.add_moment(*at_s, MomentKind::State { source: *source, state: *state }, text);
            }
            Event::Swath(swath) => self.add_swath(swath),
            Event::Progress(snapshot) => self.add_snapshot(snapshot),
            Event::Note { at_s, text, warning, .. } => {
                let kind = if *warning { MomentKind::Warning } else { MomentKind::Note };
                self.add_moment(*at_s, kind, text.clone());
            }
            Event::Routes { at_s, sources } => {
                if self.moments.len() < MOMENTS_MAX {
                    let sources = sources.iter().take(SOURCES_MAX).copied().collect();
                    self.ways.push(InUse { at_s: clean(*at_s), sources });
                }
                let kind = MomentKind::Ways((self.ways.len() as u32).saturating_sub(1));
                self.add_moment(*at_s, kind, String::new());
            }
            // Its verdict says it.
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

    fn add_swath(&mut self, swath: &SwathRecord) {
        self.hear(swath.ended_at_s);
        self.swaths += 1;
        let range = Range::new(swath.start, swath.end);
        let at_ms = (clean(swath.ended_at_s) * 1000.0) as u32;
        let delivery = Delivery { source: swath.source, at_ms };
        if swath.outcome == Outcome::Lost {
            // Another copy counts; this one shows only where nobody else's arrived yet.
            let theirs = self.map.within(range);
            self.map.set(range, delivery);
            for (part, other) in theirs {
                self.map.set(part, other);
            }
        } else {
            self.map.set(range, delivery);
        }
        if self.map.count() > PIECES_MAX {
            self.map = bound::coarser_map(&self.map, PIECES_MAX / 4);
        }
        self.bars.push(Bar {
            source: swath.source,
            lane: swath.lane,
            range,
            asked_bytes: swath.asked_end.saturating_sub(swath.start).max(range.len()),
            asked_at_s: clean(swath.asked_at_s),
            first_byte_at_s: swath.first_byte_at_s.map(clean),
            ended_at_s: clean(swath.ended_at_s),
            outcome: swath.outcome,
            swaths: 1,
        });
        if self.bars.len() > BARS_MAX {
            self.bars = bound::fewer_bars(std::mem::take(&mut self.bars), BARS_MAX / 2, self.end_s);
        }
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
                rates_bytes_per_s[at] = clean(source.rate_bytes_per_s) as f32;
            }
        }
        self.add_sample(Sample { at_s: clean(snapshot.at_s), rates_bytes_per_s });
    }

    pub(super) fn add_sample(&mut self, sample: Sample) {
        self.pending.push(sample);
        if self.pending.len() >= self.stride.max(1) {
            self.flush_pending();
        }
        let samples_max = (RATES_MAX / self.sources.len().max(1)).clamp(SAMPLES_MIN, SAMPLES_MAX);
        if self.samples.len() > samples_max {
            self.samples = self.samples.chunks(2).map(bound::mean_sample).collect();
            self.stride = self.stride.max(1) * 2;
        }
    }

    fn add_moment(&mut self, at_s: f64, kind: MomentKind, text: String) {
        self.hear(at_s);
        if self.moments.len() >= MOMENTS_MAX {
            self.moments_dropped += 1;
            return;
        }
        self.moments.push(Moment { at_s: clean(at_s), kind, text });
    }

    fn end(&mut self, ending: Ending, summary: &Summary) {
        self.hear(summary.elapsed_s);
        self.path.clone_from(&summary.path);
        for source in &summary.sources {
            self.name(source.source, &source.name);
        }
        if self.samples.is_empty() && self.pending.is_empty() && summary.fetched_bytes > 0 {
            // It was over before the first look at the rates: their means are all there is.
            let seconds = summary.elapsed_s.max(1e-6);
            let mut rates_bytes_per_s = vec![0.0; self.sources.len()];
            for source in &summary.sources {
                if let Some(rate) = rates_bytes_per_s.get_mut(source.source as usize) {
                    *rate = clean(source.bytes as f64 / seconds) as f32;
                }
            }
            for at_s in [0.0, clean(summary.elapsed_s)] {
                let rates_bytes_per_s = rates_bytes_per_s.clone();
                self.samples.push(Sample { at_s, rates_bytes_per_s });
            }
        }
        self.ending = Some(ending);
        self.summary = Some(summary.clone());
    }

    /// Sources are found on the way too; remember every name by number.
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
        self.end_s = self.end_s.max(clean(at_s));
    }

    pub(super) fn flush_pending(&mut self) {
        if !self.pending.is_empty() {
            self.samples.push(bound::mean_sample(&self.pending));
            self.pending.clear();
        }
    }
}

/// Most sources that are told apart; a transfer uses far fewer.
const SOURCES_MAX: usize = 4_096;

/// A time or rate that can be drawn.
fn clean(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}
