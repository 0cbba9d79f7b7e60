//! The same figures as text: sources, events, and rates over time, for those who cannot or would
//! rather not read charts.

use std::fmt::Write as _;

use super::escape::html;
use super::palette::swatch;
use super::scene::Scene;
use super::timeline::{axis_time, drawn_samples, marked, sentence};
use super::units;
use crate::observe::{Outcome, SourceState};

/// Rows of the table of rates.
const RATE_ROWS: usize = 60;
/// Columns of the table of rates, besides time and total.
const RATE_COLUMNS: usize = 24;
/// Events listed.
const EVENTS_MAX: usize = 400;

/// The table of sources.
pub(super) fn sources(scene: &Scene<'_>) -> String {
    let mut counts = vec![[0_u64; 4]; scene.recording.sources.len()];
    for bar in &scene.recording.bars {
        if let Some(count) = counts.get_mut(bar.source as usize) {
            let at = match bar.outcome {
                Outcome::Done => 0,
                Outcome::Trimmed => 1,
                Outcome::Lost => 2,
                Outcome::Failed => 3,
            };
            count[at] += u64::from(bar.swaths);
        }
    }
    let top = (0..counts.len()).map(|i| scene.share(i)).fold(1e-9, f64::max);
    let mut rows = String::new();
    for (i, count) in counts.iter().enumerate() {
        let share = scene.share(i);
        let figures = match scene.summary_of(i) {
            Some(s) => format!(
                "<td data-l=\"mean rate\">{}</td><td data-l=\"capacity\">{}</td>\
                 <td data-l=\"round trip\">{}</td><td data-l=\"lanes\">{}</td>\
                 <td data-l=\"requests\">{}</td><td data-l=\"wasted\">{}</td>",
                units::rate(s.rate_bytes_per_s),
                units::rate(s.capacity_bytes_per_s),
                s.rtt_ms.map_or("–".to_owned(), rtt),
                s.lanes,
                units::count(s.requests),
                units::bytes(s.wasted_bytes),
            ),
            None => "<td class=\"none\">–</td>".repeat(6),
        };
        let state = match scene
            .summary_of(i)
            .map(|s| (s.state, s.reason.as_deref().unwrap_or(""), s.bytes))
        {
            Some((SourceState::Bad, why, _)) => remark("bad", "left out", why),
            Some((SourceState::Silent, why, _)) => remark("silent", "silent", why),
            Some((SourceState::Slow, why, _)) => remark("silent", "slow", why),
            Some((SourceState::Probing, why, 1..)) => remark("silent", "lost", why),
            Some((_, why, 0)) => remark("none", "not used", why),
            Some((_, why, _)) if !why.is_empty() => remark("none", "note", why),
            _ => String::new(),
        };
        let _ = write!(
            rows,
            "<tr><th scope=\"row\"><div class=\"src\">{}<em>{}</em><div class=\"nm\" title=\"{}\">{}</div></div>{state}</th>\
             <td data-l=\"bytes\">{}</td><td class=\"share\" data-l=\"share\"><span class=\"bar c{}\" style=\"--w:{:.1}%\"></span>{}</td>{figures}\
             <td data-l=\"delivered\">{}</td><td data-l=\"trimmed\">{}</td>\
             <td data-l=\"lost\">{}</td><td data-l=\"failed\">{}</td></tr>",
            swatch(i),
            i + 1,
            html(&scene.recording.sources.get(i).map_or_else(String::new, ToString::to_string)),
            scene.name_html(i),
            units::bytes(scene.bytes[i]),
            super::palette::colour(i),
            share / top * 100.0,
            units::percent(share),
            units::count(count[0]),
            units::count(count[1]),
            units::count(count[2]),
            units::count(count[3]),
        );
    }
    format!(
        "<details class=\"card fold\" open><summary><h2>Sources</h2></summary><div class=\"scroll\" tabindex=\"0\">\
         <table class=\"stack\"><thead><tr><th scope=\"col\">source</th><th scope=\"col\">bytes</th><th scope=\"col\">share</th>\
         <th scope=\"col\">mean rate</th><th scope=\"col\">capacity</th><th scope=\"col\">round trip</th>\
         <th scope=\"col\">lanes</th><th scope=\"col\">requests</th><th scope=\"col\">wasted</th>\
         <th scope=\"col\">delivered</th><th scope=\"col\">trimmed</th><th scope=\"col\">lost</th>\
         <th scope=\"col\">failed</th></tr></thead><tbody>{rows}</tbody></table></div>\
         <p class=\"hint\">Mean rate is over the time that the source was busy, capacity the highest rate it held for a \
         second. The last figures count swaths by how they ended.</p></details>"
    )
}

/// What is to be said about a source's end, under its name.
fn remark(class: &str, word: &str, why: &str) -> String {
    format!("<div class=\"remark\"><span class=\"pill {class}\">{word}</span> {}</div>", html(why))
}

/// A round trip in words.
pub(super) fn rtt(ms: f64) -> String {
    if ms < 1.0 {
        format!("{ms:.2} ms")
    } else if ms < 10.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.0} ms")
    }
}

/// The list of events; empty where nothing happened.
pub(super) fn events(scene: &Scene<'_>) -> String {
    let marked = marked(scene);
    if marked.is_empty() {
        return String::new();
    }
    let mut items = String::new();
    for (mark, moment) in marked.iter().take(EVENTS_MAX) {
        let (class, sign) = (mark.class(), mark.sign());
        let _ = write!(
            items,
            "<li><time>{}</time><span class=\"mark {class}\" aria-hidden=\"true\">{sign}</span><span>{}</span></li>",
            axis_time(moment.at_s),
            html(&sentence(scene, moment))
        );
    }
    let more = marked.len().saturating_sub(EVENTS_MAX) as u64 + scene.recording.moments_dropped;
    if more > 0 {
        let _ = write!(
            items,
            "<li><time></time><span></span><span>and {} more</span></li>",
            units::count(more)
        );
    }
    format!(
        "<details class=\"card fold\" open><summary><h2>Events</h2></summary><ol class=\"events\">{items}</ol></details>"
    )
}

/// Rates over time as a table, folded away.
pub(super) fn rates(scene: &Scene<'_>) -> String {
    let samples = drawn_samples(scene);
    if samples.is_empty() {
        return String::new();
    }
    let columns: Vec<usize> = scene.rows.iter().copied().take(RATE_COLUMNS).collect();
    let head: String =
        columns.iter().map(|s| format!("<th scope=\"col\">{}{}</th>", swatch(*s), s + 1)).collect();
    let mut rows = String::new();
    for sample in samples.chunks(samples.len().div_ceil(RATE_ROWS)).map(super::bound::mean_sample) {
        let rates = &sample.rates_bytes_per_s;
        let total: f64 = rates.iter().map(|r| f64::from(*r)).sum();
        let cells: String = columns
            .iter()
            .map(|s| {
                format!(
                    "<td>{}</td>",
                    units::rate(f64::from(rates.get(*s).copied().unwrap_or(0.0)))
                )
            })
            .collect();
        let _ = write!(
            rows,
            "<tr><th scope=\"row\">{}</th><td><b>{}</b></td>{cells}</tr>",
            axis_time(sample.at_s),
            units::rate(total)
        );
    }
    format!(
        "<details class=\"card\"><summary>Rates over time as a table</summary><div class=\"scroll\" tabindex=\"0\">\
         <table><thead><tr><th scope=\"col\">time</th><th scope=\"col\">all</th>{head}</tr></thead>\
         <tbody>{rows}</tbody></table></div></details>"
    )
}
