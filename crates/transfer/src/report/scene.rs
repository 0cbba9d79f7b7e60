//! A recording with what every part of the page asks of it: the time axis, which sources have a
//! row, who has which share.

use std::collections::BTreeMap;

use swath_model::SourceName;

use super::axis;
use super::escape::html;
use super::recording::{Ending, Recording};
use super::ways;
use crate::observe::SourceSummary;

/// Width of every chart in its own units; the page stretches it to the window.
pub(super) const X_MAX: f64 = 10_000.0;
/// Most sources with a row of their own; the table shows the others too.
const ROWS_MAX: usize = 60;

/// See the module.
pub(super) struct Scene<'a> {
    /// What was recorded.
    pub(super) recording: &'a Recording,
    /// The length of the time axis, in seconds; never zero.
    pub(super) end_s: f64,
    /// Sources with a row, by number.
    pub(super) rows: Vec<usize>,
    /// Bytes of each source in this run.
    pub(super) bytes: Vec<u64>,
    /// Short names of relays, by `host:port`.
    relays: BTreeMap<String, String>,
}

impl<'a> Scene<'a> {
    /// Look at a recording.
    pub(super) fn new(recording: &'a Recording) -> Self {
        let n = recording.sources.len();
        let mut bytes = vec![0_u64; n];
        match &recording.summary {
            Some(summary) => {
                for source in &summary.sources {
                    if let Some(slot) = bytes.get_mut(source.source as usize) {
                        *slot = source.bytes;
                    }
                }
            }
            None => {
                for (range, delivery) in recording.map.iter() {
                    if let Some(slot) = bytes.get_mut(delivery.source as usize) {
                        *slot += range.len();
                    }
                }
            }
        }
        let mut rows: Vec<usize> = (0..n).collect();
        if n > ROWS_MAX {
            rows.sort_by_key(|&i| (std::cmp::Reverse(bytes[i]), i));
            rows.truncate(ROWS_MAX);
            rows.sort_unstable();
        }
        Self {
            recording,
            end_s: recording.end_s.max(1e-3),
            rows,
            bytes,
            relays: ways::short_names(recording),
        }
    }

    /// A time in chart units.
    pub(super) fn x(&self, at_s: f64) -> i64 {
        (at_s / self.end_s * X_MAX).round().clamp(0.0, X_MAX) as i64
    }

    /// A time as per cent of the axis, for what is placed by CSS.
    pub(super) fn percent(&self, at_s: f64) -> String {
        format!("{:.2}%", (at_s / self.end_s * 100.0).clamp(0.0, 100.0))
    }

    /// The vertical lines of the time axis through a chart of this height.
    pub(super) fn grid(&self, height: i64) -> String {
        let lines: String =
            self.time_marks().iter().map(|t| format!("M{} 0v{height}", self.x(*t))).collect();
        format!("<path class=\"grid\" d=\"{lines}\"/>")
    }

    /// The labels of the time axis.
    pub(super) fn axis(&self) -> String {
        let labels: String = self
            .time_marks()
            .iter()
            .map(|t| {
                format!("<span style=\"left:{}\">{}</span>", self.percent(*t), axis::time_label(*t))
            })
            .collect();
        format!(
            "<div class=\"lab axl\">time</div><div class=\"plot axis\" aria-hidden=\"true\">{labels}</div>"
        )
    }

    fn time_marks(&self) -> Vec<f64> {
        axis::time_marks(self.end_s, 10)
    }

    /// A source's part of the bytes of this run, 0 to 1.
    pub(super) fn share(&self, source: usize) -> f64 {
        let total: u64 = self.bytes.iter().sum();
        self.bytes.get(source).map_or(0.0, |b| *b as f64 / total.max(1) as f64)
    }

    /// The end figures of a source.
    pub(super) fn summary_of(&self, source: usize) -> Option<&'a SourceSummary> {
        self.recording.summary.as_ref()?.sources.iter().find(|s| s.source as usize == source)
    }

    /// A source's name as HTML: the host, then its path in a quieter tone; where relays lead to it,
    /// these first.
    pub(super) fn name_html(&self, source: usize) -> String {
        let bare = self.bare(source);
        if let Some(by) = self.way(source) {
            return format!("<b>{}</b> <span>{}</span>", html(&by), html(bare));
        }
        match bare.find('/') {
            Some(at) => format!("<b>{}</b><span>{}</span>", html(&bare[..at]), html(&bare[at..])),
            None => format!("<b>{}</b>", html(&self.name(source))),
        }
    }

    /// The relays to a source, the nearest first: "by denver, atlanta".
    fn way(&self, source: usize) -> Option<String> {
        let name = self.recording.sources.get(source).filter(|name| name.is_relayed())?;
        let short = |site: &String| self.relays.get(site).unwrap_or(site).clone();
        Some(format!("by {}", name.relays.iter().map(short).collect::<Vec<_>>().join(", ")))
    }

    /// What a source is called in a sentence: its host, or the relays to it.
    pub(super) fn called(&self, source: usize) -> String {
        let host = || self.name(source).split('/').next().unwrap_or_default().to_owned();
        self.way(source).unwrap_or_else(host)
    }

    fn bare(&self, source: usize) -> &str {
        self.recording.sources.get(source).map_or("", SourceName::bare_address)
    }

    /// A source's name without its scheme.
    pub(super) fn name(&self, source: usize) -> String {
        let Some(name) = self.recording.sources.get(source).filter(|it| !it.address.is_empty())
        else {
            return format!("source {}", source + 1);
        };
        let address = name.bare_address().to_owned();
        SourceName { address, relays: name.relays.clone() }.to_string()
    }

    /// Whether it ended well.
    pub(super) fn finished(&self) -> bool {
        matches!(self.recording.ending, Some(Ending::Finished | Ending::Present))
    }
}
