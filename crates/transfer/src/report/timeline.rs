//! What happened when, on one shared time axis: rates stacked by source, marks for notes and
//! changes of state, and a row of swaths for each source.

use std::fmt::Write as _;

use super::axis;
use super::bound::mean_sample;
use super::escape::html;
use super::palette::{colour, pattern, swatch};
use super::recording::{Bar, Moment, MomentKind, Sample};
use super::scene::{Scene, X_MAX};
use super::{units, ways};
use crate::observe::{Outcome, SourceState};

/// Height of the rates chart in pixels.
const RATES_PX: i64 = 220;
/// Points drawn over all sources; finer ones are averaged.
const POINTS_MAX: usize = 24_000;
/// Height that all swath rows together should not much exceed, in pixels.
const ROWS_PX: usize = 1_000;

/// The timeline card.
pub(super) fn card(scene: &Scene<'_>) -> String {
    let mut out = String::new();
    out.push_str(
        "<section class=\"card\" aria-labelledby=\"t-time\"><div class=\"cardhead\"><h2 id=\"t-time\">Timeline</h2>\
         <div class=\"zoom\" hidden><span class=\"hint\">drag to zoom</span>\
         <button type=\"button\" data-z=\"in\" aria-label=\"zoom in\">+</button>\
         <button type=\"button\" data-z=\"out\" aria-label=\"zoom out\">−</button>\
         <button type=\"button\" data-z=\"left\" aria-label=\"earlier\">‹</button>\
         <button type=\"button\" data-z=\"right\" aria-label=\"later\">›</button>\
         <button type=\"button\" data-z=\"all\">all</button></div></div><div class=\"timeline\" id=\"timeline\">",
    );
    out.push_str(&rates(scene));
    out.push_str(&marks(scene));
    out.push_str(&ways::lane(scene));
    out.push_str(&scene.axis());
    for &source in &scene.rows {
        out.push_str(&row(scene, source));
    }
    if scene.rows.len() > 8 {
        out.push_str(&scene.axis());
    }
    out.push_str("<div class=\"cross\" id=\"cross\" hidden></div></div>");
    let more = scene.recording.sources.len() - scene.rows.len();
    if more > 0 {
        let _ = write!(
            out,
            "<p class=\"hint\">{more} more sources, which delivered less, are in the table below.</p>"
        );
    }
    out.push_str(&legend(scene));
    out.push_str("</section>");
    out
}

/// What is drawn on this page, and no other state or mark.
fn legend(scene: &Scene<'_>) -> String {
    let bars = &scene.recording.bars;
    let ended = |outcome| bars.iter().any(|bar| bar.outcome == outcome);
    let waited = |bar: &Bar| bar.first_byte_at_s.unwrap_or(bar.ended_at_s) > bar.asked_at_s;
    let became = |wanted| {
        let mut moments = scene.recording.moments.iter();
        moments.any(|it| matches!(it.kind, MomentKind::State { state, .. } if state == wanted))
    };
    let keys = [
        ("wait", "waiting for the first byte", bars.iter().any(waited)),
        ("done", "delivered", ended(Outcome::Done) || ended(Outcome::Trimmed)),
        ("trim", "tail given to a faster lane", ended(Outcome::Trimmed)),
        ("lost", "another copy came first", ended(Outcome::Lost)),
        ("fail", "failed", ended(Outcome::Failed)),
        ("still", "source silent", became(SourceState::Silent)),
        ("gone", "source left out", became(SourceState::Bad)),
    ];
    let mut items: String = keys
        .into_iter()
        .filter(|(.., occurs)| *occurs)
        .map(|(class, words, _)| format!("<li><i class=\"key {class}\"></i>{words}</li>"))
        .collect();
    let all = marked(scene);
    let mut marks: Vec<Mark> = all.iter().map(|(mark, _)| *mark).collect();
    marks.sort_unstable_by_key(|mark| (mark.class(), mark.sign()));
    marks.dedup();
    for mark in marks {
        let (class, sign, words) = (mark.class(), mark.sign(), mark.meaning());
        let _ = write!(
            items,
            "<li><span class=\"mark {class}\" aria-hidden=\"true\">{sign}</span>{words}</li>"
        );
    }
    if all.len() > 1 {
        items.push_str("<li class=\"several\"><span class=\"mark note\" aria-hidden=\"true\">3</span>several at once</li>");
    }
    format!("<ul class=\"legend\" aria-label=\"What is drawn\">{items}</ul>")
}

/// The samples that are drawn: few enough for the page, never beyond its end.
pub(super) fn drawn_samples(scene: &Scene<'_>) -> Vec<Sample> {
    let samples = &scene.recording.samples;
    let points = (POINTS_MAX / scene.recording.sources.len().max(1)).clamp(60, 1_200);
    let mut drawn: Vec<Sample> =
        samples.chunks(samples.len().div_ceil(points).max(1)).map(mean_sample).collect();
    if drawn.first().is_some_and(|first| first.at_s > 0.0) {
        // Nothing has arrived when it begins; the first sample comes somewhat later.
        drawn.insert(0, Sample { at_s: 0.0, rates_bytes_per_s: Vec::new() });
    }
    drawn
}

fn rates(scene: &Scene<'_>) -> String {
    let samples = drawn_samples(scene);
    let n = scene.recording.sources.len();
    let totals: Vec<f64> =
        samples.iter().map(|s| s.rates_bytes_per_s.iter().map(|r| f64::from(*r)).sum()).collect();
    // Samples may miss what is over within one of them.
    let mean = scene.recording.summary.as_ref().map_or(0.0, |end| end.rate_bytes_per_s);
    let peak = totals.iter().copied().fold(mean, f64::max);
    let top = if peak > 0.0 { peak * 1.06 } else { 1.0 };
    let y = |rate: f64| ((1.0 - rate / top) * 1_000.0).round() as i64;
    let mut layers = String::new();
    let mut below = vec![0.0_f64; samples.len()];
    for source in 0..n {
        let above: Vec<f64> = samples
            .iter()
            .zip(&below)
            .map(|(s, b)| b + f64::from(s.rates_bytes_per_s.get(source).copied().unwrap_or(0.0)))
            .collect();
        if above.iter().zip(&below).all(|(a, b)| a <= b) {
            continue;
        }
        let mut d = String::new();
        for (i, (sample, a)) in samples.iter().zip(&above).enumerate() {
            let _ =
                write!(d, "{}{} {}", if i == 0 { "M" } else { "L" }, scene.x(sample.at_s), y(*a));
        }
        for (sample, b) in samples.iter().zip(&below).rev() {
            let _ = write!(d, "L{} {}", scene.x(sample.at_s), y(*b));
        }
        let _ = write!(layers, "<path class=\"area c{}\" d=\"{d}z\"/>", colour(source));
        if pattern(source) > 0 {
            let _ = write!(layers, "<path fill=\"url(#t{})\" d=\"{d}z\"/>", pattern(source));
        }
        below = above;
    }
    let total: String = samples
        .iter()
        .zip(&totals)
        .enumerate()
        .map(|(i, (s, rate))| {
            format!("{}{} {}", if i == 0 { "M" } else { "L" }, scene.x(s.at_s), y(*rate))
        })
        .collect();
    let levels = axis::marks(top, 4);
    let lines: String = levels.iter().map(|v| format!("M0 {}h{X_MAX}", y(*v))).collect();
    let labels: String = levels
        .iter()
        .skip(1)
        .map(|v| {
            format!(
                "<span style=\"top:{:.1}%\">{}</span>",
                (1.0 - v / top) * 100.0,
                axis::rate_label(*v)
            )
        })
        .collect();
    let mean = scene.recording.summary.as_ref().map_or(String::new(), |s| {
        format!("<small>{} on average</small>", units::rate(s.rate_bytes_per_s))
    });
    // Lines between the layers would hide thin layers.
    let many = if n > 12 { " many" } else { "" };
    format!(
        "<div class=\"lab rl\"><b>Rate</b><small>{} at its peak</small>{mean}</div>\
         <div class=\"plot rates{many}\" data-row=\"rates\" style=\"height:{RATES_PX}px\">\
         <svg class=\"tx\" viewBox=\"0 0 {X_MAX} 1000\" data-h=\"1000\" preserveAspectRatio=\"none\" role=\"img\">\
         <title>Rate of each source over time, stacked; peak {}</title>{}<path class=\"grid\" d=\"{lines}\"/>{layers}\
         <path class=\"total\" d=\"{total}\"/></svg><div class=\"ylab\" aria-hidden=\"true\">{labels}</div></div>",
        units::rate(peak),
        units::rate(peak),
        scene.grid(1_000),
    )
}

/// How a moment is marked, and whether it deserves a mark at all.
/// How a moment is marked on the time axis, the least important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
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
    /// That of a moment, if it is worth one.
    fn of(moment: &Moment) -> Option<Mark> {
        match moment.kind {
            MomentKind::Note => Some(Mark::Note),
            MomentKind::Ways(_) => Some(Mark::Routes),
            MomentKind::Warning => Some(Mark::Warning),
            MomentKind::State { state, .. } => match state {
                SourceState::Silent => Some(Mark::Silent),
                SourceState::Slow => Some(Mark::Slow),
                SourceState::Bad => Some(Mark::LeftOut),
                // Only a source that is tried again has a reason to be asked, and one that runs a
                // reason to be told of (it is back).
                SourceState::Probing if !moment.text.is_empty() => Some(Mark::Again),
                SourceState::Running if !moment.text.is_empty() => Some(Mark::Back),
                _ => None,
            },
        }
    }

    /// Its class in the style sheet.
    pub(super) fn class(self) -> &'static str {
        match self {
            Mark::Note | Mark::Routes => "note",
            Mark::Back => "back",
            Mark::Again | Mark::Slow | Mark::Silent => "still",
            Mark::Warning => "warn",
            Mark::LeftOut => "bad",
        }
    }

    /// What is drawn.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Mark::Note => "i",
            Mark::Routes => "⇄",
            Mark::Back => "✓",
            Mark::Again => "↻",
            Mark::Slow => "↓",
            Mark::Silent => "…",
            Mark::Warning => "!",
            Mark::LeftOut => "×",
        }
    }

    /// What it says.
    fn meaning(self) -> &'static str {
        match self {
            Mark::Note => "note",
            Mark::Routes => "other ways in use",
            Mark::Back => "source back",
            Mark::Again => "source tried again",
            Mark::Slow => "source slow",
            Mark::Silent => "source silent",
            Mark::Warning => "warning",
            Mark::LeftOut => "source left out",
        }
    }
}

/// A moment as a sentence.
pub(super) fn sentence(scene: &Scene<'_>, moment: &Moment) -> String {
    let (source, state) = match moment.kind {
        MomentKind::State { source, state } => (source, state),
        MomentKind::Ways(at) => return ways::change(scene, at as usize),
        MomentKind::Note | MomentKind::Warning => return moment.text.clone(),
    };
    let became = match state {
        SourceState::Waiting => "is known",
        SourceState::Probing if !moment.text.is_empty() => "is lost and tried again",
        SourceState::Probing => "is asked what it offers",
        SourceState::Running => "delivers",
        SourceState::Slow => "is slow",
        SourceState::Silent => "is silent",
        SourceState::Idle => "has nothing more to deliver",
        SourceState::Bad => "is left out",
    };
    let host = scene.called(source as usize);
    let why = if moment.text.is_empty() { String::new() } else { format!(": {}", moment.text) };
    format!("source {} ({host}) {became}{why}", u64::from(source) + 1)
}

/// The moments worth a mark, for the page's list of events too.
pub(super) fn marked<'a>(scene: &Scene<'a>) -> Vec<(Mark, &'a Moment)> {
    let moments = scene.recording.moments.iter();
    moments.filter_map(|moment| Some((Mark::of(moment)?, moment))).collect()
}

fn marks(scene: &Scene<'_>) -> String {
    let marked = marked(scene);
    if marked.is_empty() {
        return String::new();
    }
    // Marks that would lie on each other become one with a count.
    let near_s = scene.end_s * 0.018;
    let mut groups: Vec<Vec<(Mark, &Moment)>> = Vec::new();
    for mark in marked {
        match groups.last_mut() {
            Some(group) if mark.1.at_s - group[0].1.at_s < near_s => group.push(mark),
            _ => groups.push(vec![mark]),
        }
    }
    let mut out =
        String::from("<div class=\"lab el\"><b>Events</b></div><div class=\"plot marks\">");
    for group in &groups {
        let Some((mark, first)) = group.iter().max_by_key(|(mark, _)| mark) else { continue };
        let lines: Vec<String> = group
            .iter()
            .take(12)
            .map(|(.., m)| format!("{}  {}", axis_time(m.at_s), sentence(scene, m)))
            .collect();
        let text = html(&lines.join(" · "));
        let (class, sign) = (mark.class(), mark.sign());
        let sign = if group.len() > 1 { group.len().to_string() } else { sign.to_owned() };
        let _ = write!(
            out,
            "<span class=\"mark {class}\" tabindex=\"0\" role=\"img\" data-t=\"{:.3}\" data-n=\"{}\" style=\"left:{}\" \
             aria-label=\"{text}\" data-tip=\"{text}\">{sign}</span>",
            first.at_s,
            group.len(),
            scene.percent(first.at_s)
        );
    }
    out.push_str("</div>");
    out
}

/// A moment's time with its unit.
pub(super) fn axis_time(at_s: f64) -> String {
    if at_s < 60.0 { format!("{at_s:.2} s") } else { axis::time_label(at_s) }
}

/// The swaths of one source.
fn row(scene: &Scene<'_>, source: usize) -> String {
    let bars: Vec<&Bar> =
        scene.recording.bars.iter().filter(|b| b.source as usize == source).collect();
    let lanes = bars.iter().map(|b| b.lane as usize + 1).max().unwrap_or(1).min(256);
    let all_lanes: usize = scene.rows.len().max(1) * lanes;
    let lane_px = if lanes == 1 && scene.rows.len() <= 20 {
        24
    } else {
        (ROWS_PX / all_lanes)
            .clamp(if lanes == 1 { 16 } else { 4 }, if lanes == 1 { 24 } else { 16 })
    } as i64;
    let height = lane_px * lanes as i64;
    let gap = if lane_px > 6 { 1 } else { 0 };
    let rect = |from_s: f64, to_s: f64, lane: i64| {
        let (x0, x1) = (scene.x(from_s), scene.x(to_s));
        let (x0, w) = (x0.min(X_MAX as i64 - 3), (x1 - x0).max(3));
        format!("M{x0} {}h{w}v{}h-{w}z", lane * lane_px + gap, lane_px - 2 * gap)
    };
    let (mut wait, mut done, mut ends, mut lost, mut failed, mut body_px) =
        (String::new(), String::new(), String::new(), String::new(), String::new(), 0.0);
    for bar in &bars {
        let lane = i64::from(bar.lane).min(lanes as i64 - 1);
        let first_s = bar.first_byte_at_s.unwrap_or(bar.ended_at_s);
        if first_s > bar.asked_at_s {
            wait.push_str(&rect(bar.asked_at_s, first_s, lane));
        }
        body_px += (bar.ended_at_s - first_s) / scene.end_s * 1_000.0;
        if bar.first_byte_at_s.is_some() || bar.outcome == Outcome::Failed {
            let body = rect(first_s, bar.ended_at_s, lane);
            match bar.outcome {
                Outcome::Done => done.push_str(&body),
                Outcome::Trimmed => {
                    done.push_str(&body);
                    let _ = write!(
                        ends,
                        "M{} {}v{}",
                        scene.x(bar.ended_at_s),
                        lane * lane_px + gap,
                        lane_px - 2 * gap
                    );
                }
                Outcome::Lost => lost.push_str(&body),
                Outcome::Failed => {
                    // What came before it failed counts.
                    let part = bar.range.len() as f64 / bar.asked_bytes.max(1) as f64;
                    let failed_s = first_s + (bar.ended_at_s - first_s) * part.min(1.0);
                    if part > 0.0 {
                        done.push_str(&rect(first_s, failed_s, lane));
                    }
                    failed.push_str(&rect(failed_s, bar.ended_at_s, lane));
                }
            }
        }
    }
    let dense = if !bars.is_empty() && body_px / (bars.len() as f64) < 5.0 { " dense" } else { "" };
    let c = colour(source);
    let over = match pattern(source) {
        0 => String::new(),
        p => format!("<path fill=\"url(#t{p})\" d=\"{done}\"/>"),
    };
    let swaths: u64 = bars.iter().map(|b| u64::from(b.swaths)).sum();
    let figures = units::percent(scene.share(source));
    let fail_hatch = if failed.is_empty() {
        String::new()
    } else {
        format!("<path fill=\"url(#tfail)\" d=\"{failed}\"/>")
    };
    let lost_hatch = if lost.is_empty() {
        String::new()
    } else {
        format!("<path fill=\"url(#tlost)\" d=\"{lost}\"/>")
    };
    format!(
        "<div class=\"lab sl\">{}<em>{}</em><div class=\"nm\" title=\"{}\">{}</div><small>{figures}</small></div>\
         <div class=\"plot gantt{dense}\" data-row=\"{source}\" data-lane=\"{lane_px}\" style=\"height:{height}px\">\
         <svg class=\"tx c{c}\" viewBox=\"0 0 {X_MAX} {height}\" data-h=\"{height}\" preserveAspectRatio=\"none\" \
         role=\"img\"><title>{} swaths of source {}</title>{}{}<path class=\"wait\" d=\"{wait}\"/>\
         <path class=\"body\" d=\"{done}\"/>{over}<path class=\"ends\" d=\"{ends}\"/>\
         <path class=\"weak\" d=\"{lost}{failed}\"/>{lost_hatch}{fail_hatch}</svg></div>",
        swatch(source),
        source + 1,
        html(&scene.name(source)),
        scene.name_html(source),
        units::count(swaths),
        source + 1,
        spells(scene, source, height),
        scene.grid(height),
    )
}

/// When a source was silent or left out, as a tint behind its swaths.
fn spells(scene: &Scene<'_>, source: usize, height: i64) -> String {
    let mut out = String::new();
    let mut since: Option<(f64, SourceState)> = None;
    let mut draw = |from: (f64, SourceState), to_s: f64| {
        let (x, w) = (scene.x(from.0), (scene.x(to_s) - scene.x(from.0)).max(3));
        let class = match from.1 {
            SourceState::Silent => "still",
            SourceState::Bad => "gone",
            _ => return,
        };
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{x}\" y=\"0\" width=\"{w}\" height=\"{height}\"/>"
        );
    };
    for moment in &scene.recording.moments {
        if let MomentKind::State { source: who, state } = moment.kind
            && who as usize == source
        {
            if let Some(before) = since {
                draw(before, moment.at_s);
            }
            since = Some((moment.at_s, state));
        }
    }
    if let Some(before) = since {
        draw(before, scene.end_s);
    }
    out
}
