//! The figures as text: sources, events, and rates over time.

use maud::{Markup, html};
use swath_model::observe::SourceState;
use swath_model::units;

use crate::palette::{colour, swatch};
use crate::rates::Sample;
use crate::timeline::{axis_time, drawn_samples, marked, sentence};
use crate::view::View;

/// Rows of the table of rates.
const RATE_ROWS: usize = 60;
/// Columns of the table of rates, besides time and total.
const RATE_COLUMNS: usize = 24;
/// Events listed.
const EVENTS_MAX: usize = 400;

/// The table of sources.
pub(crate) fn sources(view: &View<'_>) -> Markup {
    let names = &view.recording.sources;
    // Swaths of each source by how they ended.
    let mut counts = vec![[0_u64; 4]; names.len()];
    for bar in &view.bars {
        if let Some(count) = counts.get_mut(bar.source as usize) {
            count[bar.outcome as usize] += u64::from(bar.swaths);
        }
    }
    let top = (0..counts.len()).map(|i| view.share(i)).fold(1e-9, f64::max);
    let heads = [
        "source",
        "bytes",
        "share",
        "mean rate",
        "capacity",
        "round trip",
        "lanes",
        "requests",
        "wasted",
        "delivered",
        "trimmed",
        "lost",
        "failed",
    ];
    let figures = |i: usize| {
        view.summary_of(i).map(|s| {
            [
                units::rate(s.rate_bytes_per_s),
                units::rate(s.capacity_bytes_per_s),
                s.rtt_ms.map_or("–".to_owned(), rtt),
                s.lanes.to_string(),
                units::count(s.requests),
                units::bytes(s.wasted_bytes),
            ]
        })
    };
    html! {
        details class="card fold" open {
            summary { h2 { "Sources" } }
            div.scroll tabindex="0" {
                table.stack {
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody { @for (i, count) in counts.iter().enumerate() { tr {
                        th scope="row" {
                            div.src {
                                (swatch(i)) em { (i + 1) }
                                div.nm title=(names[i]) { (view.label(i)) }
                            }
                            (remark(view, i))
                        }
                        td data-l="bytes" { (units::bytes(view.bytes[i])) }
                        td.share data-l="share" {
                            span class={ "bar c" (colour(i)) }
                                style=(format_args!("--w:{:.1}%", view.share(i) / top * 100.0)) {}
                            (units::percent(view.share(i)))
                        }
                        @if let Some(figures) = figures(i) {
                            @for (head, figure) in heads[3..9].iter().zip(figures) {
                                td data-l=(head) { (figure) }
                            }
                        } @else {
                            @for _ in 3..9 { td.none { "–" } }
                        }
                        @for (head, &count) in heads[9..].iter().zip(count) {
                            td data-l=(head) { (units::count(count)) }
                        }
                    } } }
                }
            }
            p.hint {
                "Mean rate is over the time that the source was busy, capacity the highest rate it \
                 held for a second. The last figures count swaths by how they ended."
            }
        }
    }
}

/// Returns the remark on how a source ended.
fn remark(view: &View<'_>, source: usize) -> Markup {
    let Some(summary) = view.summary_of(source) else { return html! {} };
    let why = summary.reason.as_deref();
    let (class, word) = match (summary.state, summary.bytes) {
        (SourceState::Bad, _) => ("bad", "not used"),
        (SourceState::Silent, _) => ("silent", "silent"),
        (SourceState::Slow, _) => ("silent", "slow"),
        (SourceState::Probing, 1..) => ("silent", "lost"),
        (_, 0) => ("none", "not used"),
        _ if why.is_some() => ("none", "note"),
        _ => return html! {},
    };
    html! { div.remark { span class={ "pill " (class) } { (word) } " " (why.unwrap_or_default()) } }
}

/// A round trip in words.
fn rtt(ms: f64) -> String {
    if ms < 1.0 {
        format!("{ms:.2} ms")
    } else if ms < 10.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.0} ms")
    }
}

/// Returns the list of events, which may be empty.
pub(crate) fn events(view: &View<'_>) -> Markup {
    let marked = marked(view);
    if marked.is_empty() {
        return html! {};
    }
    let more = marked.len().saturating_sub(EVENTS_MAX) as u64 + view.recording.moments.dropped;
    html! {
        details class="card fold" open {
            summary { h2 { "Events" } }
            ol.events {
                @for (mark, moment) in marked.iter().take(EVENTS_MAX) {
                    li {
                        time { (axis_time(moment.at_s)) }
                        span class={ "mark " (mark.class()) } aria-hidden="true" { (mark.sign()) }
                        span { (sentence(view, moment)) }
                    }
                }
                @if more > 0 { li { time {} span {} span { "and " (units::count(more)) " more" } } }
            }
        }
    }
}

/// Returns the collapsed table of rates over time.
pub(crate) fn rates(view: &View<'_>) -> Markup {
    let samples = drawn_samples(view);
    if samples.is_empty() {
        return html! {};
    }
    let columns = &view.rows[..view.rows.len().min(RATE_COLUMNS)];
    html! {
        details.card {
            summary { "Rates over time as a table" }
            div.scroll tabindex="0" {
                table {
                    thead { tr {
                        th scope="col" { "time" }
                        th scope="col" { "all" }
                        @for &s in columns { th scope="col" { (swatch(s)) (s + 1) } }
                    } }
                    tbody {
                        @for sample in
                            samples.chunks(samples.len().div_ceil(RATE_ROWS)).map(Sample::mean) {
                            tr {
                                th scope="row" { (axis_time(sample.at_s)) }
                                td { b { (units::rate(sample.total())) } }
                                @for &s in columns { td { (units::rate(sample.of(s))) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
