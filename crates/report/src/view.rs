//! A recording with the common data of the page: the time axis, the sources with a row, their shares
//! and names.

use std::collections::BTreeMap;

use maud::{Markup, html};
use swath_model::SourceName;
use swath_model::observe::SourceSummary;

use crate::recording::{Ending, Recording};
use crate::swaths::Bar;
use crate::{axis, lines, routes};

/// Width of every chart in its own units; the page stretches it to the window.
pub(crate) const X_MAX: i64 = 10_000;
/// Most sources with a row of their own; the table shows the others too.
const ROWS_MAX: usize = 60;

/// A recording with the common data of the page.
pub(crate) struct View<'a> {
    /// The recording.
    pub(crate) recording: &'a Recording,
    /// The swaths, with their line in the row of the source instead of the lane.
    pub(crate) bars: Vec<Bar>,
    /// The length of the time axis, in seconds; never zero.
    pub(crate) end_s: f64,
    /// Sources with a row, by number.
    pub(crate) rows: Vec<usize>,
    /// Bytes of each source in this run.
    pub(crate) bytes: Vec<u64>,
    /// Short names of relays, by `host:port`.
    relays: BTreeMap<String, String>,
}

impl<'a> View<'a> {
    /// Looks at a recording.
    pub(crate) fn new(recording: &'a Recording) -> Self {
        let n = recording.sources.len();
        let mut bytes = vec![0_u64; n];
        let mut add = |source: u32, more: u64| {
            if let Some(sum) = bytes.get_mut(source as usize) {
                *sum += more;
            }
        };
        match &recording.summary {
            Some(summary) => summary.sources.iter().for_each(|it| add(it.source, it.bytes)),
            None => recording.swaths.map.iter().for_each(|(range, it)| add(it.source, range.len())),
        }
        let mut rows: Vec<usize> = (0..n).collect();
        if n > ROWS_MAX {
            rows.sort_by_key(|&i| (std::cmp::Reverse(bytes[i]), i));
            rows.truncate(ROWS_MAX);
            rows.sort_unstable();
        }
        Self {
            recording,
            bars: lines::numbered(&recording.swaths.bars),
            end_s: recording.end_s.max(1e-3),
            rows,
            bytes,
            relays: routes::short_names(&recording.sources),
        }
    }

    /// A time in chart units.
    pub(crate) fn x(&self, at_s: f64) -> i64 {
        (at_s / self.end_s * X_MAX as f64).round().clamp(0.0, X_MAX as f64) as i64
    }

    /// Returns a time in per cent of the axis, for CSS.
    pub(crate) fn percent(&self, at_s: f64) -> String {
        format!("{:.2}%", (at_s / self.end_s * 100.0).clamp(0.0, 100.0))
    }

    /// A chart over the time axis, `height` units high.
    pub(crate) fn chart(&self, class: &str, height: i64, title: &str, drawn: Markup) -> Markup {
        html! {
            svg class=(class) viewBox={ "0 0 " (X_MAX) " " (height) } data-h=(height)
                preserveAspectRatio="none" role="img" { title { (title) } (drawn) }
        }
    }

    /// The vertical lines of the time axis through a chart of this height.
    pub(crate) fn grid(&self, height: i64) -> Markup {
        let lines = self.time_marks().into_iter().map(|t| format!("M{} 0v{height}", self.x(t)));
        html! { path.grid d=(lines.collect::<String>()) {} }
    }

    /// The labels of the time axis.
    pub(crate) fn axis(&self) -> Markup {
        html! {
            div class="lab axl" { "time" }
            div class="plot axis" aria-hidden="true" {
                @for t in self.time_marks() {
                    span style={ "left:" (self.percent(t)) } { (axis::time_label(t)) }
                }
            }
        }
    }

    fn time_marks(&self) -> Vec<f64> {
        axis::time_marks(self.end_s, 10)
    }

    /// A source's part of the bytes of this run, 0 to 1.
    pub(crate) fn share(&self, source: usize) -> f64 {
        let total: u64 = self.bytes.iter().sum();
        self.bytes.get(source).map_or(0.0, |b| *b as f64 / total.max(1) as f64)
    }

    /// The end figures of a source.
    pub(crate) fn summary_of(&self, source: usize) -> Option<&'a SourceSummary> {
        self.recording.summary.as_ref()?.sources.iter().find(|s| s.source as usize == source)
    }

    fn source(&self, source: usize) -> Option<&'a SourceName> {
        self.recording.sources.get(source).filter(|name| !name.address.is_empty())
    }

    /// Returns a source's name as HTML: its relays, the host, and the path in a quieter tone.
    pub(crate) fn label(&self, source: usize) -> Markup {
        let bare = self.source(source).map_or("", SourceName::bare_address);
        let host = self.source(source).map_or("", SourceName::host);
        html! {
            @if let Some(by) = self.route(source) {
                b { (by) } " " span { (bare) }
            } @else if host.len() < bare.len() {
                b { (host) } span { (&bare[host.len()..]) }
            } @else {
                b { (self.name(source)) }
            }
        }
    }

    /// The relays to a source, the nearest first: "by denver, atlanta".
    fn route(&self, source: usize) -> Option<String> {
        let name = self.recording.sources.get(source).filter(|name| name.is_relayed())?;
        let short = |site: &String| self.relays.get(site).unwrap_or(site).clone();
        Some(format!("by {}", name.relays.iter().map(short).collect::<Vec<_>>().join(", ")))
    }

    /// Returns the short name of a source: its host, or its relays.
    pub(crate) fn called(&self, source: usize) -> String {
        let host = || match self.source(source) {
            Some(name) => name.host().to_owned(),
            None => self.name(source),
        };
        self.route(source).unwrap_or_else(host)
    }

    /// A source's name without its scheme.
    pub(crate) fn name(&self, source: usize) -> String {
        let Some(name) = self.source(source) else {
            return format!("source {}", source + 1);
        };
        let address = name.bare_address().to_owned();
        SourceName { address, relays: name.relays.clone() }.to_string()
    }

    /// Whether the transfer is complete.
    pub(crate) fn finished(&self) -> bool {
        matches!(self.recording.ending, Some(Ending::Finished | Ending::Present))
    }
}
