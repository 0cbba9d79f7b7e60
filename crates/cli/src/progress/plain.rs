//! Lines for logs and pipes: at the start, after a second, then at growing intervals of at most ten
//! seconds or at each tenth of the size; every note; the summary.

use std::collections::BTreeMap;
use std::io::Write;

use swath_transfer::observe::{Event, FORECAST_FROM_S, Observer, Phase, Snapshot, SourceState};

use super::frame::{name_of, phase_word};
use super::look::Look;
use super::{already, stopped_summary, summary, text, units};

/// Decides when a progress line is due.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    last_s: Option<f64>,
    interval_s: f64,
    tenth: u64,
}

impl Pace {
    /// Whether a line is due; the first after a second.
    pub(super) fn is_due(&mut self, at_s: f64, done: u64, size: Option<u64>) -> bool {
        let tenth = size
            .filter(|s| *s > 0)
            .map_or(0, |size| (u128::from(done) * 10 / u128::from(size)) as u64);
        let since_s = at_s - self.last_s.unwrap_or(0.0);
        let wait_s = self.interval_s.max(1.0);
        if since_s < 1.0 || (since_s < wait_s && tenth <= self.tenth) {
            return false;
        }
        self.interval_s = (wait_s * 1.6).min(10.0);
        self.last_s = Some(at_s);
        self.tenth = tenth;
        true
    }
}

/// The plain display.
pub struct Plain {
    out: Box<dyn Write + Send>,
    look: Look,
    pace: Pace,
    phase: Option<Phase>,
    sources: usize,
    /// The first line that was printed.
    begins: Option<String>,
    is_staging: bool,
    /// Whether data has arrived.
    has_come: bool,
    /// What each source had delivered at the last line, by its number.
    delivered: BTreeMap<u32, u64>,
}

impl Plain {
    /// Writes to `out`, usually standard error.
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self::with_look(out, Look::of_lines())
    }

    /// Writes with a given look.
    pub fn with_look(out: Box<dyn Write + Send>, look: Look) -> Self {
        let pace = Pace::default();
        Self {
            out,
            look,
            pace,
            phase: None,
            sources: 0,
            begins: None,
            is_staging: false,
            has_come: false,
            delivered: BTreeMap::new(),
        }
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.out, "{}", text::safe(&self.look.plain_words(line), self.look));
        let _ = self.out.flush();
    }

    fn block(&mut self, lines: &str) {
        let _ = write!(self.out, "{lines}");
        let _ = self.out.flush();
    }
}

impl Observer for Plain {
    fn observe(&mut self, event: &Event) {
        match event {
            Event::Started { path, sources } => {
                self.sources = sources.len();
                let name = name_of(path, self.look);
                let line = match sources.as_slice() {
                    [] => name,
                    [source] => format!("{name} from {source}"),
                    all => format!("{name} from {} sources", all.len()),
                };
                // A transfer may start again, for example when a server sends a digest.
                if self.begins.as_ref() != Some(&line) {
                    self.line(&line);
                    self.begins = Some(line);
                }
            }
            Event::Staging { path, depots } => {
                self.sources = depots.len();
                self.is_staging = true;
                let name = name_of(path, self.look);
                let line = match depots.as_slice() {
                    [depot] => format!("{name} to {depot}"),
                    all => format!("{name} to {} depots", all.len()),
                };
                self.line(&line);
            }
            Event::Opened { size_bytes, resumed_bytes, kept_bytes, verification } => {
                let mut line = size_bytes.map_or("unknown size".to_owned(), units::bytes);
                if *resumed_bytes > 0 {
                    line.push_str(&format!(
                        ", {} of it from an earlier run",
                        units::bytes(*resumed_bytes)
                    ));
                }
                if *kept_bytes > 0 {
                    let kept = units::bytes(*kept_bytes);
                    line.push_str(&format!(", {kept} of it in files that already exist"));
                }
                let is_all_kept = *resumed_bytes == 0 && *size_bytes == Some(*kept_bytes);
                if !verification.is_empty() && !is_all_kept {
                    line.push_str(&format!(", verifying by {verification}"));
                }
                self.line(&line);
            }
            Event::Forecast { takes, .. } if takes.likely_s >= FORECAST_FROM_S => {
                self.line(&format!("forecast: {takes}"));
            }
            Event::Forecast { .. } => {}
            // The error of the only source is printed at the end.
            Event::Source { state: SourceState::Bad, .. }
                if self.sources == 1 && !self.has_come => {}
            Event::Source { source, name, state: SourceState::Bad, reason, .. } => {
                let why = reason.as_deref().map_or(String::new(), |r| format!(": {r}"));
                let kind = text::kind(name, self.is_staging);
                self.line(&format!("not using {kind} {} ({name}){why}", u64::from(*source) + 1));
            }
            Event::Progress(snapshot) => {
                let phase_is_new =
                    self.phase.is_some_and(|phase| phase != snapshot.phase) && snapshot.at_s >= 1.0;
                self.phase = Some(snapshot.phase);
                self.has_come |= snapshot.done_bytes > 0;
                self.sources = snapshot.sources.len();
                if self.pace.is_due(snapshot.at_s, snapshot.done_bytes, snapshot.size_bytes)
                    || phase_is_new
                {
                    self.line(&progress_line(snapshot, &self.delivered));
                    let delivered = snapshot.sources.iter().map(|it| (it.source, it.bytes));
                    self.delivered = delivered.collect();
                }
            }
            Event::Note { text, warning, .. } => {
                let line = if *warning { format!("warning: {text}") } else { text.clone() };
                self.line(&line);
            }
            // Its content is reported when it has been read.
            Event::Metalink { .. } => {}
            Event::Present { path, size_bytes, same, .. } => {
                let line = already(path, *size_bytes, *same, self.look);
                self.line(&line);
            }
            Event::Finished(end) => self.block(&summary(end, self.look)),
            Event::Failed { summary: end, .. } => {
                if let Some(text) = stopped_summary(end, self.look) {
                    self.block(&text);
                }
            }
            // The summary reports it.
            Event::Unverified { .. } => {}
            Event::Source { .. } | Event::Swath(_) | Event::Routes { .. } => {}
        }
    }
}

/// `12 s  61 %  640 MB of 1.05 GB  412 MB/s  ETA 12 s (10–19)  6 of 6 sources`. `before` is what each
/// source had delivered at the last line.
fn progress_line(snapshot: &Snapshot, before: &BTreeMap<u32, u64>) -> String {
    let (done, verb) = match snapshot.phase {
        Phase::Verifying => (snapshot.verified_bytes, "verifying "),
        Phase::Disputing => (snapshot.verified_bytes, "comparing "),
        phase @ (Phase::Finishing | Phase::Probing) => {
            return format!("{:.0} s: {}", snapshot.at_s, phase_word(phase));
        }
        Phase::Fetching | Phase::Staging => (snapshot.done_bytes, ""),
    };
    let mut line = match snapshot.size_bytes {
        Some(size) => format!(
            "{:.0} s: {verb}{}, {} of {}",
            snapshot.at_s,
            units::percent_done(done, size),
            units::bytes(done),
            units::bytes(size)
        ),
        None => format!("{:.0} s: {verb}{}", snapshot.at_s, units::bytes(done)),
    };
    let peers = match snapshot.phase {
        Phase::Fetching | Phase::Disputing => Some(("from", "sources")),
        Phase::Staging => Some(("to", "depots")),
        _ => None,
    };
    if let Some((from, peers)) = peers {
        line.push_str(&format!(", {}", units::rate(snapshot.rate_bytes_per_s)));
        let running = snapshot
            .sources
            .iter()
            .filter(|s| {
                let is_running = matches!(s.state, SourceState::Running | SourceState::Slow);
                // Machines of a cluster answer little by little, and are idle whenever one looks.
                let before = before.get(&s.source).copied().unwrap_or(0);
                is_running || s.state != SourceState::Bad && s.bytes > before
            })
            .count();
        let all = snapshot.sources.len();
        if all > 1 {
            line.push_str(&format!(" {from} {running} of {all} {peers}"));
        }
    }
    if let Some(eta) = snapshot.eta {
        line.push_str(&format!(", ETA {}", units::eta(eta.likely_s, eta.low_s, eta.high_s, "–")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_rarer_and_at_each_tenth() {
        let mut pace = Pace::default();
        let due: Vec<u64> =
            (0..480).filter(|i| pace.is_due(*i as f64 * 0.125, 0, Some(1_000))).collect();
        assert_eq!(due, [8, 21, 42, 75, 128, 208, 288, 368, 448]);
        let mut pace = Pace::default();
        let due: Vec<u64> =
            (0..200).filter(|i| pace.is_due(*i as f64, *i, Some(100))).take(6).collect();
        assert_eq!(due, [1, 3, 6, 10, 17, 20]);
    }

    #[test]
    fn a_fast_transfer_prints_no_flood() {
        let mut pace = Pace::default();
        assert_eq!((0..100).filter(|i| pace.is_due(*i as f64 * 0.009, *i, Some(100))).count(), 0);
    }
}
