//! One frame of the terminal display: a pure function of the state and the [`Look`].
//!
//! Lines are narrower than the terminal, so that none wraps. In narrow terminals the columns
//! connections, round trip, bar and share disappear in this order; name, state and rate stay.

use std::collections::BTreeMap;

use swath_transfer::observe::{Phase, Snapshot, SourceSnapshot, SourceState};

use super::look::{Look, Tone};
use super::{bar, text, units};

/// Most sources with their own line.
const SOURCES_MAX: usize = 12;
/// In narrower terminals the figures get their own line.
const WIDE: usize = 72;
/// The shortest readable name.
const NAME_MIN: usize = 16;

/// The state that frames show.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// Final path of the file.
    pub(super) path: String,
    /// Number of sources, or depots, at the start.
    pub(super) sources: usize,
    /// Whether they are the depots of a staged file.
    pub(super) is_staging: bool,
    /// The latest snapshot.
    pub(super) snapshot: Option<Snapshot>,
    /// Reasons of the states of sources, by number.
    pub(super) reasons: BTreeMap<u32, String>,
    /// The sources in the last frame, which keep their lines unless others are clearly busier.
    pub(super) shown: Vec<u32>,
}

/// Returns the lines of a frame; remembers which sources it shows.
pub(super) fn frame(view: &mut View, look: Look) -> Vec<String> {
    let Some(snapshot) = view.snapshot.clone() else {
        let what = match (view.sources, view.is_staging) {
            (1, false) => "querying the source".to_owned(),
            (count, false) => {
                format!("querying {count} {}", plural(count, "source", "sources"))
            }
            (_, true) => "querying the source and the depots".to_owned(),
        };
        let name = text::cut_middle(
            &name_of(&view.path, look),
            look.width.saturating_sub(width_of(&what) + 4),
            look,
        );
        let line = format!("{}  {}", look.tone(Tone::Bold, &name), look.tone(Tone::Dim, &what));
        return vec![line];
    };
    let mut lines = head(&view.path, &snapshot, look);
    let room = look.height.saturating_sub(lines.len() + 2).clamp(1, SOURCES_MAX);
    view.shown = busiest(&snapshot.sources, room, &view.shown);
    let shown: Vec<&SourceSnapshot> =
        snapshot.sources.iter().filter(|s| view.shown.contains(&s.source)).collect();
    let columns = Columns::of(&shown, look);
    for source in &shown {
        let reason = view.reasons.get(&source.source).map_or("", String::as_str);
        lines.push(columns.line(source, reason, look));
    }
    if snapshot.sources.len() > shown.len() {
        let hidden: Vec<&SourceSnapshot> =
            snapshot.sources.iter().filter(|s| !view.shown.contains(&s.source)).collect();
        let more = text::cut_end(&more_line(&hidden), look.width.saturating_sub(5), look);
        lines.push(format!("    {}", look.tone(Tone::Dim, &more)));
    }
    lines
}

/// Returns the last part of a path, safe to show.
pub(super) fn name_of(path: &str, look: Look) -> String {
    if path == "-" {
        return "standard output".to_owned();
    }
    text::safe(path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path), look)
}

/// Returns the word for a phase.
pub(super) fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Probing => "probing",
        Phase::Fetching => "fetching",
        Phase::Staging => "staging",
        Phase::Verifying => "verifying",
        Phase::Disputing => "comparing",
        Phase::Finishing => "finishing",
    }
}

/// Returns the first lines: phase, name, bytes, rate, forecast, bar.
fn head(path: &str, snapshot: &Snapshot, look: Look) -> Vec<String> {
    let phase = phase_word(snapshot.phase);
    let done = match snapshot.phase {
        Phase::Verifying | Phase::Disputing => snapshot.verified_bytes,
        _ => snapshot.done_bytes,
    };
    let amount = match snapshot.size_bytes {
        Some(size) => format!("{} of {}", units::bytes(done), units::bytes(size)),
        None => units::bytes(done),
    };
    let mut figures = vec![amount];
    let flows = matches!(snapshot.phase, Phase::Fetching | Phase::Staging);
    if flows || snapshot.rate_bytes_per_s > 0.0 {
        figures.push(units::rate(snapshot.rate_bytes_per_s));
    }
    let dash = look.either("–", "-");
    let left = match snapshot.eta {
        Some(eta) => {
            format!(", ETA {}", units::eta(eta.likely_s, eta.low_s, eta.high_s, dash))
        }
        None if flows => format!(", ETA {dash}"),
        None => String::new(),
    };
    let elapsed = match snapshot.at_s {
        seconds if seconds < 60.0 => format!("{} s", seconds.floor()),
        seconds => units::duration(seconds),
    };
    figures.push(format!("{elapsed}{left}"));
    let mut out = title(phase, &name_of(path, look), &figures, look);
    if let Some(size) = snapshot.size_bytes {
        out.push(bar_line(done, size, look));
    }
    out
}

/// Returns a title with figures at its right, or below it if both do not fit.
pub(super) fn title(phase: &str, name: &str, figures: &[String], look: Look) -> Vec<String> {
    let usable = look.width.saturating_sub(1);
    let joined = figures.join("   ");
    let left_max = usable.saturating_sub(width_of(phase) + 1);
    if look.width >= WIDE && width_of(&joined) + 2 + NAME_MIN.min(width_of(name)) <= left_max {
        let room = left_max - width_of(&joined) - 2;
        let name = text::cut_middle(name, room, look);
        let fill = " ".repeat(room - width_of(&name) + 2);
        return vec![format!(
            "{} {}{fill}{joined}",
            look.tone(Tone::Busy, phase),
            look.tone(Tone::Bold, &name)
        )];
    }
    let name = text::cut_middle(name, left_max, look);
    let mut lines =
        vec![format!("{} {}", look.tone(Tone::Busy, phase), look.tone(Tone::Bold, &name))];
    // Wrap the figures.
    let mut line = String::new();
    for figure in figures {
        if !line.is_empty() && width_of(&line) + 2 + width_of(figure) > usable {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push_str("  ");
        }
        line.push_str(&text::cut_end(figure, usable, look));
    }
    lines.push(line);
    lines
}

/// Returns the wide bar with its percentage.
pub(super) fn bar_line(done: u64, size: u64, look: Look) -> String {
    let part = if size == 0 { 1.0 } else { done as f64 / size as f64 };
    let columns = look.width.saturating_sub(7);
    format!(
        "{} {}",
        bar::line(part, columns, look),
        text::right(&units::percent_done(done, size), 5)
    )
}

/// Returns the numbers of the `room` busiest sources. A source keeps its line unless another one is a
/// quarter faster, so that lines do not jump.
fn busiest(sources: &[SourceSnapshot], room: usize, before: &[u32]) -> Vec<u32> {
    let weight = |s: &SourceSnapshot| {
        let state = match s.state {
            SourceState::Running | SourceState::Slow => 3.0,
            SourceState::Silent | SourceState::Probing => 2.0,
            SourceState::Idle | SourceState::Waiting => 1.0,
            SourceState::Bad => 0.0,
        };
        let kept = if before.contains(&s.source) { 1.25 } else { 1.0 };
        let rate = if s.rate_bytes_per_s.is_finite() { s.rate_bytes_per_s.max(0.0) } else { 0.0 };
        (state, (rate + s.bytes as f64 * 1e-3 + 1.0) * kept)
    };
    let mut order: Vec<(f64, f64, u32)> =
        sources.iter().map(|s| (weight(s).0, weight(s).1, s.source)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    // One line fewer where "and N more" needs one.
    let room = if sources.len() > room { room.saturating_sub(1).max(1) } else { room };
    order.into_iter().take(room).map(|(_, _, source)| source).collect()
}

/// Returns `and 18 more: 15 running, 2 slow, 1 bad`.
fn more_line(hidden: &[&SourceSnapshot]) -> String {
    const STATES: [SourceState; 7] = [
        SourceState::Running,
        SourceState::Slow,
        SourceState::Silent,
        SourceState::Probing,
        SourceState::Idle,
        SourceState::Waiting,
        SourceState::Bad,
    ];
    let parts: Vec<String> = STATES
        .into_iter()
        .map(|state| (state, hidden.iter().filter(|s| s.state == state).count()))
        .filter(|(_, n)| *n > 0)
        .map(|(state, n)| format!("{n} {}", state_word(state).0))
        .collect();
    format!("and {} more: {}", hidden.len(), parts.join(", "))
}

/// Returns the word and the tone of a state.
pub(super) fn state_word(state: SourceState) -> (&'static str, Tone) {
    match state {
        SourceState::Waiting => ("waiting", Tone::Dim),
        SourceState::Probing => ("probing", Tone::Busy),
        SourceState::Running => ("running", Tone::Good),
        SourceState::Slow => ("slow", Tone::Warn),
        SourceState::Silent => ("silent", Tone::Warn),
        SourceState::Idle => ("idle", Tone::Dim),
        SourceState::Bad => ("bad", Tone::Bad),
    }
}

/// The widths of the columns; 0 if a column does not fit.
struct Columns {
    number: usize,
    name: usize,
    bar: usize,
    share: usize,
    rtt: usize,
    lanes: usize,
    share_max: f64,
}

const STATE: usize = 7;
const RATE: usize = 9;

impl Columns {
    fn of(shown: &[&SourceSnapshot], look: Look) -> Self {
        let number = shown
            .iter()
            .map(|s| (u64::from(s.source) + 1).to_string().len())
            .max()
            .unwrap_or(1)
            .max(2);
        let longest = shown.iter().map(|s| text::width_of_name(&s.name)).max().unwrap_or(0);
        let share_max =
            shown.iter().map(|s| s.share).filter(|s| s.is_finite()).fold(1e-9, f64::max);
        let (mut bar, mut share, mut rtt) = (8, 5, 7);
        let mut lanes = if look.details { 8 } else { 0 };
        let usable = look.width.saturating_sub(1);
        let fixed = |columns: &[usize]| -> usize {
            columns.iter().filter(|c| **c > 0).map(|c| c + 2).sum()
        };
        let base = number + 1 + STATE + 2 + RATE + 2;
        let wanted = NAME_MIN.min(longest);
        let room =
            |bar, share, rtt, lanes| usable.saturating_sub(base + fixed(&[bar, share, rtt, lanes]));
        if room(bar, share, rtt, lanes) < wanted {
            lanes = 0;
        }
        if room(bar, share, rtt, lanes) < wanted {
            rtt = 0;
        }
        if room(bar, share, rtt, lanes) < wanted {
            bar = 0;
        }
        if room(bar, share, rtt, lanes) < wanted {
            share = 0;
        }
        let name = room(bar, share, rtt, lanes).min(longest).max(1);
        if bar > 0 {
            // Bars get the space that names do not need.
            bar += (room(bar, share, rtt, lanes).saturating_sub(name)).min(16);
        }
        Self { number, name, bar, share, rtt, lanes, share_max }
    }

    fn line(&self, source: &SourceSnapshot, reason: &str, look: Look) -> String {
        let (word, tone) = state_word(source.state);
        let name = text::cut_name(&source.name, self.name, look);
        let mut out = format!(
            "{} {} {}",
            look.tone(
                Tone::Dim,
                &text::right(&(u64::from(source.source) + 1).to_string(), self.number)
            ),
            look.tone(tone, &text::left(word, STATE, look)),
            text::left(&name, self.name, look),
        );
        if source.state == SourceState::Bad
            || source.state == SourceState::Probing && !reason.is_empty()
        {
            let usable = look.width.saturating_sub(1);
            let room = usable.saturating_sub(text::width_painted(&out) + 2);
            let reason = text::cut_end(&text::safe(reason, look), room, look);
            return format!("{out}  {}", look.tone(tone, &reason)).trim_end().to_owned();
        }
        if self.bar > 0 {
            let bar = bar::block(source.share / self.share_max, self.bar, look);
            out.push_str(&format!("  {}", look.tone(Tone::Busy, &bar)));
        }
        let idle = matches!(source.state, SourceState::Waiting | SourceState::Probing);
        let rate = if idle { String::new() } else { units::rate(source.rate_bytes_per_s) };
        out.push_str(&format!("  {}", text::right(&rate, RATE)));
        if self.share > 0 {
            let share = if idle { String::new() } else { units::percent(source.share) };
            out.push_str(&format!("  {}", text::right(&share, self.share)));
        }
        if self.rtt > 0 {
            let rtt = source.rtt_ms.map_or(String::new(), rtt);
            out.push_str(&format!("  {}", look.tone(Tone::Dim, &text::right(&rtt, self.rtt))));
        }
        if self.lanes > 0 && source.lanes > 0 {
            let lanes =
                format!("{} {}", source.lanes, plural(source.lanes as usize, "lane", "lanes"));
            out.push_str(&format!("  {}", look.tone(Tone::Dim, &text::right(&lanes, self.lanes))));
        }
        out.trim_end().to_owned()
    }
}

/// Formats a round trip: `0.21 ms`, `11 ms`.
pub(super) fn rtt(ms: f64) -> String {
    if ms < 0.995 {
        format!("{ms:.2} ms")
    } else if ms < 9.95 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.0} ms")
    }
}

/// Chooses the singular or the plural.
pub(super) fn plural(n: usize, one: &'static str, many: &'static str) -> &'static str {
    if n == 1 { one } else { many }
}

fn width_of(text: &str) -> usize {
    text::width(text)
}
