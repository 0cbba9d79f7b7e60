//! Small transfers as events, and what their pages hold.

use swath_model::SourceName;
use swath_model::observe::{
    Event, Observer as _, Outcome, Phase, Snapshot, SourceSnapshot, SourceState, SourceSummary,
    Summary, SwathRecord,
};
use swath_report::{Content, Recorder, Recording, render};

pub const ONE: &str = "http://one.example/run7.h5";
pub const TWO: &str = "http://two.example/run7.h5";

pub fn recording(events: &[Event]) -> Recording {
    let mut recorder = Recorder::new();
    events.iter().for_each(|event| recorder.observe(event));
    recorder.recording()
}

pub fn page(events: &[Event]) -> String {
    render(&recording(events))
}

/// The page of what is transferred as this.
pub fn page_of(content: Content, events: &[Event]) -> String {
    let mut recording = recording(events);
    recording.heading.content = content;
    render(&recording)
}

#[track_caller]
pub fn has(page: &str, words: &[&str]) {
    for word in words {
        assert!(page.contains(word), "{word:?} is missing:\n{}", body(page));
    }
}

#[track_caller]
pub fn lacks(page: &str, words: &[&str]) {
    for word in words {
        assert!(!body(page).contains(word), "{word:?} must not be there:\n{}", body(page));
    }
}

/// The page without its style and script.
fn body(page: &str) -> &str {
    let from = page.find("<main>").unwrap_or(0);
    &page[from..page.find("</main>").unwrap_or(page.len())]
}

/// The figures for the tooltips.
pub fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("the page has data");
    let (text, _) = rest.split_once("</script>").expect("the data ends");
    serde_json::from_str(text).expect("the data is JSON")
}

pub fn started(sources: &[&str]) -> Event {
    let sources = sources.iter().map(|source| (*source).to_owned()).collect();
    Event::Started { path: "/data/run7.h5".to_owned(), sources }
}

pub fn opened(size_bytes: u64, resumed_bytes: u64) -> Event {
    let verification = "sha-256".to_owned();
    Event::Opened { size_bytes: Some(size_bytes), resumed_bytes, kept_bytes: 0, verification }
}

/// A swath that began to arrive a tenth of a second after it was asked for, and took a second.
pub fn swath(source: u32, start: u64, end: u64, asked_at_s: f64, outcome: Outcome) -> Event {
    Event::Swath(SwathRecord {
        source,
        lane: 0,
        start,
        end,
        asked_end: end,
        asked_at_s,
        first_byte_at_s: Some(asked_at_s + 0.1),
        ended_at_s: asked_at_s + 1.0,
        outcome,
    })
}

pub fn state(at_s: f64, source: u32, state: SourceState, reason: Option<&str>) -> Event {
    let address = if source == 0 { ONE } else { TWO };
    let (name, reason) = (SourceName::direct(address), reason.map(str::to_owned));
    Event::Source { at_s, source, name, state, reason }
}

/// Rates of sources at a time.
pub fn progress(at_s: f64, rates: &[f64]) -> Event {
    let source = |(source, rate): (usize, &f64)| SourceSnapshot {
        source: source as u32,
        name: SourceName::direct(if source == 0 { ONE } else { TWO }),
        state: SourceState::Running,
        rate_bytes_per_s: *rate,
        bytes: 0,
        share: 0.0,
        rtt_ms: None,
        lanes: 1,
        requests: 1,
    };
    Event::Progress(Snapshot {
        at_s,
        phase: Phase::Fetching,
        size_bytes: None,
        files: 1,
        done_bytes: 0,
        resumed_bytes: 0,
        verified_bytes: 0,
        rate_bytes_per_s: rates.iter().sum(),
        eta: None,
        sources: rates.iter().enumerate().map(source).collect(),
    })
}

/// The part of a source that delivered so many bytes.
pub fn part(source: u32, bytes: u64) -> SourceSummary {
    SourceSummary {
        source,
        name: SourceName::direct(if source == 0 { ONE } else { TWO }),
        state: SourceState::Idle,
        bytes,
        requests: 3,
        lanes: 2,
        ..SourceSummary::default()
    }
}

/// The end of a transfer of a megabyte that took ten seconds, a quarter of it from the second source.
pub fn summary() -> Summary {
    Summary {
        size_bytes: 1_000_000,
        fetched_bytes: 1_000_000,
        elapsed_s: 10.0,
        rate_bytes_per_s: 100_000.0,
        verified_by: "sha-256".to_owned(),
        proved: true,
        sources: vec![part(0, 750_000), part(1, 250_000)],
        ..Summary::of_nothing("/data/run7.h5".to_owned())
    }
}

pub fn failed(error: &str) -> Event {
    Event::Failed {
        path: "/data/run7.h5".to_owned(),
        at_s: 4.0,
        error: error.to_owned(),
        stopped: false,
        kept_bytes: 0,
        summary: Summary { proved: false, verified_by: String::new(), ..summary() },
    }
}
