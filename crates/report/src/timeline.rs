//! The timeline: rates stacked by source, marks for notes and changes of state, and a row of swaths for
//! each source.

use std::fmt::Write as _;

use maud::{Markup, html};
use swath_model::observe::{Outcome, SourceState};
use swath_model::units;

use crate::moments::{Moment, MomentKind};
use crate::palette::{area, colour, over, swatch};
use crate::rates::Sample;
use crate::swaths::Bar;
use crate::view::{View, X_MAX};
use crate::{axis, routes};

/// Height of the rates chart in pixels.
const RATES_PX: i64 = 220;
/// Points drawn over all sources; finer ones are averaged.
const POINTS_MAX: usize = 24_000;
/// Approximate maximum height of all swath rows, in pixels.
const ROWS_PX: usize = 1_000;

/// The timeline card.
pub(crate) fn card(view: &View<'_>) -> Markup {
    let more = view.recording.sources.len() - view.rows.len();
    let buttons = [
        ("in", Some("zoom in"), "+"),
        ("out", Some("zoom out"), "−"),
        ("left", Some("earlier"), "‹"),
        ("right", Some("later"), "›"),
        ("all", None, "all"),
    ];
    html! {
        section.card aria-labelledby="t-time" {
            div.cardhead {
                h2 id="t-time" { "Timeline" }
                div.zoom hidden {
                    span.hint { "drag to zoom" }
                    @for (zoom, label, sign) in buttons {
                        button type="button" data-z=(zoom) aria-label=[label] { (sign) }
                    }
                }
            }
            div.timeline id="timeline" {
                (rates(view)) (marks(view)) (routes::row(view)) (view.axis())
                @for &source in &view.rows { (row(view, source)) }
                @if view.rows.len() > 8 { (view.axis()) }
                div.cross id="cross" hidden {}
            }
            @if more > 0 {
                p.hint { (more) " more sources, which delivered less, are in the table below." }
            }
            (legend(view))
        }
    }
}

/// Returns the legend of the states and marks on this page.
fn legend(view: &View<'_>) -> Markup {
    let bars = &view.bars;
    let ended = |outcome| bars.iter().any(|bar| bar.outcome == outcome);
    let waited = |bar: &Bar| bar.first_byte_at_s.unwrap_or(bar.ended_at_s) > bar.asked_at_s;
    let became = |wanted| {
        let mut moments = view.recording.moments.kept.iter();
        moments.any(|it| matches!(it.kind, MomentKind::State { state, .. } if state == wanted))
    };
    let keys = [
        ("wait", "waiting for the first byte", bars.iter().any(waited)),
        ("done", "delivered", ended(Outcome::Done) || ended(Outcome::Trimmed)),
        ("trim", "tail given to a faster lane", ended(Outcome::Trimmed)),
        ("lost", "another copy came first", ended(Outcome::Lost)),
        ("fail", "failed", ended(Outcome::Failed)),
        ("still", "source silent", became(SourceState::Silent)),
        ("gone", "source not used", became(SourceState::Bad)),
    ];
    let all = marked(view);
    let mut marks: Vec<Mark> = all.iter().map(|(mark, _)| *mark).collect();
    marks.sort_unstable_by_key(|mark| (mark.class(), mark.sign()));
    marks.dedup();
    html! {
        ul.legend aria-label="What is drawn" {
            @for (class, words, _) in keys.iter().filter(|(.., occurs)| *occurs) {
                li { i class={ "key " (class) } {} (words) }
            }
            @for mark in marks {
                li {
                    span class={ "mark " (mark.class()) } aria-hidden="true" { (mark.sign()) }
                    (mark.meaning())
                }
            }
            @if all.len() > 1 {
                li.several { span class="mark note" aria-hidden="true" { "3" } "several at once" }
            }
        }
    }
}

/// Returns the drawn samples: few enough for the page, and not beyond its end.
pub(crate) fn drawn_samples(view: &View<'_>) -> Vec<Sample> {
    let samples = &view.recording.rates.samples;
    let points = (POINTS_MAX / view.recording.sources.len().max(1)).clamp(60, 1_200);
    let mut drawn: Vec<Sample> =
        samples.chunks(samples.len().div_ceil(points).max(1)).map(Sample::mean).collect();
    if drawn.first().is_some_and(|first| first.at_s > 0.0) {
        // The rate starts at zero; the first sample is later.
        drawn.insert(0, Sample::default());
    }
    drawn
}

fn rates(view: &View<'_>) -> Markup {
    let samples = drawn_samples(view);
    let n = view.recording.sources.len();
    let totals: Vec<f64> = samples.iter().map(Sample::total).collect();
    // Samples may miss short peaks.
    let mean = view.recording.summary.as_ref().map(|end| end.rate_bytes_per_s);
    let peak = totals.iter().copied().fold(mean.unwrap_or(0.0), f64::max);
    let top = if peak > 0.0 { peak * 1.06 } else { 1.0 };
    let y = |rate: f64| ((1.0 - rate / top) * 1_000.0).round() as i64;
    let points = |rates: &[f64]| -> Vec<String> {
        samples
            .iter()
            .zip(rates)
            .map(|(s, rate)| format!("{} {}", view.x(s.at_s), y(*rate)))
            .collect()
    };
    let mut layers = Vec::new();
    let mut below = vec![0.0_f64; samples.len()];
    for source in 0..n {
        let above: Vec<f64> =
            samples.iter().zip(&below).map(|(sample, b)| b + sample.of(source)).collect();
        if above.iter().zip(&below).any(|(a, b)| a > b) {
            let mut outline = points(&above);
            outline.extend(points(&below).into_iter().rev());
            layers.push(area("area", "t", source, &format!("M{}z", outline.join("L"))));
            below = above;
        }
    }
    let levels = axis::marks(top, 4);
    let lines: String = levels.iter().map(|v| format!("M0 {}h{X_MAX}", y(*v))).collect();
    let total = points(&totals);
    let total = if total.is_empty() { String::new() } else { format!("M{}", total.join("L")) };
    let drawn = html! {
        (view.grid(1_000))
        path.grid d=(lines) {}
        @for layer in layers { (layer) }
        path.total d=(total) {}
    };
    let title = format!("Rate of each source over time, stacked; peak {}", units::rate(peak));
    // Lines between the layers would hide thin ones.
    let many = n > 12;
    html! {
        div class="lab rl" {
            b { "Rate" }
            small { (units::rate(peak)) " at its peak" }
            @if let Some(mean) = mean { small { (units::rate(mean)) " on average" } }
        }
        div.plot.rates.many[many] data-row="rates" style={ "height:" (RATES_PX) "px" } {
            (view.chart("tx", 1_000, &title, drawn))
            div.ylab aria-hidden="true" {
                @for &level in levels.iter().skip(1) {
                    span style=(format_args!("top:{:.1}%", (1.0 - level / top) * 100.0)) {
                        (axis::rate_label(level))
                    }
                }
            }
        }
    }
}

/// Marks on the time axis, the least important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    Note,
    Routes,
    Back,
    Again,
    Slow,
    Silent,
    Warning,
    LeftOut,
}

impl Mark {
    /// Returns the mark of a moment, if it has one.
    fn of(moment: &Moment) -> Option<Mark> {
        match moment.kind {
            MomentKind::Note => Some(Mark::Note),
            MomentKind::Routes(_) => Some(Mark::Routes),
            MomentKind::Warning => Some(Mark::Warning),
            MomentKind::State { state, .. } => match state {
                SourceState::Silent => Some(Mark::Silent),
                SourceState::Slow => Some(Mark::Slow),
                SourceState::Bad => Some(Mark::LeftOut),
                // Only a source that is retried, or back, has a reason.
                SourceState::Probing if !moment.text.is_empty() => Some(Mark::Again),
                SourceState::Running if !moment.text.is_empty() => Some(Mark::Back),
                _ => None,
            },
        }
    }

    /// Returns its class in the style sheet, its sign and its meaning.
    fn look(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Mark::Note => ("note", "i", "note"),
            Mark::Routes => ("note", "⇄", "other routes in use"),
            Mark::Back => ("back", "✓", "source back"),
            Mark::Again => ("still", "↻", "source retried"),
            Mark::Slow => ("still", "↓", "source slow"),
            Mark::Silent => ("still", "…", "source silent"),
            Mark::Warning => ("warn", "!", "warning"),
            Mark::LeftOut => ("bad", "×", "source not used"),
        }
    }

    pub(crate) fn class(self) -> &'static str {
        self.look().0
    }

    pub(crate) fn sign(self) -> &'static str {
        self.look().1
    }

    fn meaning(self) -> &'static str {
        self.look().2
    }
}

/// Describes a moment.
pub(crate) fn sentence(view: &View<'_>, moment: &Moment) -> String {
    let (source, state) = match moment.kind {
        MomentKind::State { source, state } => (source, state),
        MomentKind::Routes(at) => return routes::change(view, at as usize),
        MomentKind::Note | MomentKind::Warning => return moment.text.clone(),
    };
    let became = match state {
        SourceState::Waiting => "is known",
        SourceState::Probing if !moment.text.is_empty() => "lost its connection and is retried",
        SourceState::Probing => "is queried",
        SourceState::Running => "delivers",
        SourceState::Slow => "is slow",
        SourceState::Silent => "is silent",
        SourceState::Idle => "has nothing more to deliver",
        SourceState::Bad => "is not used",
    };
    let host = view.called(source as usize);
    let why = if moment.text.is_empty() { String::new() } else { format!(": {}", moment.text) };
    format!("source {} ({host}) {became}{why}", u64::from(source) + 1)
}

/// Returns the moments with a mark, which are also listed as events.
pub(crate) fn marked<'a>(view: &View<'a>) -> Vec<(Mark, &'a Moment)> {
    let moments = view.recording.moments.kept.iter();
    moments.filter_map(|moment| Some((Mark::of(moment)?, moment))).collect()
}

fn marks(view: &View<'_>) -> Markup {
    // Overlapping marks become one with a count.
    let near_s = view.end_s * 0.018;
    let mut groups: Vec<Vec<(Mark, &Moment)>> = Vec::new();
    for mark in marked(view) {
        match groups.last_mut() {
            Some(group) if mark.1.at_s - group[0].1.at_s < near_s => group.push(mark),
            _ => groups.push(vec![mark]),
        }
    }
    if groups.is_empty() {
        return html! {};
    }
    let one = |group: &[(Mark, &Moment)]| {
        let (mark, first) = group.iter().max_by_key(|(mark, _)| mark)?;
        let line = |m: &Moment| format!("{}  {}", axis_time(m.at_s), sentence(view, m));
        let lines: Vec<String> = group.iter().take(12).map(|(_, moment)| line(moment)).collect();
        let text = lines.join(" · ");
        let sign = if group.len() > 1 { group.len().to_string() } else { mark.sign().to_owned() };
        Some(html! {
            span class={ "mark " (mark.class()) } tabindex="0" role="img"
                data-t=(format_args!("{:.3}", first.at_s)) data-n=(group.len())
                style={ "left:" (view.percent(first.at_s)) } aria-label=(text) data-tip=(text) {
                (sign)
            }
        })
    };
    html! {
        div class="lab el" { b { "Events" } }
        div class="plot marks" { @for mark in groups.iter().filter_map(|group| one(group)) { (mark) } }
    }
}

/// Formats the time of a moment.
pub(crate) fn axis_time(at_s: f64) -> String {
    if at_s < 60.0 { format!("{at_s:.2} s") } else { axis::time_label(at_s) }
}

/// The drawn swaths of one source: the paths of each kind.
#[derive(Default)]
struct Paths {
    wait: String,
    done: String,
    ends: String,
    lost: String,
    failed: String,
}

/// The swaths of one source.
fn row(view: &View<'_>, source: usize) -> Markup {
    let bars: Vec<&Bar> = view.bars.iter().filter(|b| b.source as usize == source).collect();
    let lanes = bars.iter().map(|b| b.lane as usize + 1).max().unwrap_or(1).min(256);
    let all_lanes: usize = view.rows.len().max(1) * lanes;
    let lane_px = match lanes {
        1 if view.rows.len() <= 20 => 24,
        1 => (ROWS_PX / all_lanes).clamp(16, 24),
        _ => (ROWS_PX / all_lanes).clamp(4, 16),
    } as i64;
    let height = lane_px * lanes as i64;
    let gap = if lane_px > 6 { 1 } else { 0 };
    let rect = |from_s: f64, to_s: f64, lane: i64| {
        let (x0, x1) = (view.x(from_s), view.x(to_s));
        let (x0, w) = (x0.min(X_MAX - 3), (x1 - x0).max(3));
        format!("M{x0} {}h{w}v{}h-{w}z", lane * lane_px + gap, lane_px - 2 * gap)
    };
    let mut paths = Paths::default();
    let mut body_px = 0.0;
    for bar in &bars {
        let lane = i64::from(bar.lane).min(lanes as i64 - 1);
        let first_s = bar.first_byte_at_s.unwrap_or(bar.ended_at_s);
        if first_s > bar.asked_at_s {
            paths.wait += &rect(bar.asked_at_s, first_s, lane);
        }
        body_px += (bar.ended_at_s - first_s) / view.end_s * 1_000.0;
        if bar.first_byte_at_s.is_none() && bar.outcome != Outcome::Failed {
            continue;
        }
        let body = rect(first_s, bar.ended_at_s, lane);
        match bar.outcome {
            Outcome::Done => paths.done += &body,
            Outcome::Trimmed => {
                paths.done += &body;
                let (x, y) = (view.x(bar.ended_at_s), lane * lane_px + gap);
                let _ = write!(paths.ends, "M{x} {y}v{}", lane_px - 2 * gap);
            }
            Outcome::Lost => paths.lost += &body,
            Outcome::Failed => {
                // The part before the failure counts.
                let part = bar.range.len() as f64 / bar.asked_bytes.max(1) as f64;
                let failed_s = first_s + (bar.ended_at_s - first_s) * part.min(1.0);
                if part > 0.0 {
                    paths.done += &rect(first_s, failed_s, lane);
                }
                paths.failed += &rect(failed_s, bar.ended_at_s, lane);
            }
        }
    }
    let dense = !bars.is_empty() && body_px / (bars.len() as f64) < 5.0;
    let swaths: u64 = bars.iter().map(|b| u64::from(b.swaths)).sum();
    let title = format!("{} swaths of source {}", units::count(swaths), source + 1);
    let drawn = html! {
        (spells(view, source, height))
        (view.grid(height))
        path.wait d=(paths.wait) {}
        path.body d=(paths.done) {}
        (over("t", source, &paths.done))
        path.ends d=(paths.ends) {}
        path.weak d={ (paths.lost) (paths.failed) } {}
        @if !paths.lost.is_empty() { path fill="url(#tlost)" d=(paths.lost) {} }
        @if !paths.failed.is_empty() { path fill="url(#tfail)" d=(paths.failed) {} }
    };
    html! {
        div class="lab sl" {
            (swatch(source)) em { (source + 1) }
            div.nm title=(view.name(source)) { (view.label(source)) }
            small { (units::percent(view.share(source))) }
        }
        div.plot.gantt.dense[dense] data-row=(source) data-lane=(lane_px)
            style={ "height:" (height) "px" } {
            (view.chart(&format!("tx c{}", colour(source)), height, &title, drawn))
        }
    }
}

/// Returns the tint behind the swaths while a source was silent or unused.
fn spells(view: &View<'_>, source: usize, height: i64) -> Markup {
    let changes = view.recording.moments.kept.iter().filter_map(|moment| match moment.kind {
        MomentKind::State { source: who, state } if who as usize == source => {
            Some((moment.at_s, state))
        }
        _ => None,
    });
    let ends = changes.clone().map(|(at_s, _)| at_s).skip(1).chain([view.end_s]);
    let spells = changes.zip(ends).filter_map(|((from_s, state), to_s)| {
        let class = match state {
            SourceState::Silent => "still",
            SourceState::Bad => "gone",
            _ => return None,
        };
        let x = view.x(from_s);
        Some((class, x, (view.x(to_s) - x).max(3)))
    });
    html! {
        @for (class, x, width) in spells {
            rect class=(class) x=(x) y="0" width=(width) height=(height) {}
        }
    }
}
