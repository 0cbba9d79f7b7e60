//! The page as a whole: head, hero figures, cards, style, script and the data for tooltips.

use std::time::UNIX_EPOCH;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::json;
use swath_formats::http_date;
use swath_model::observe::Summary;
use swath_model::path::visible;
use swath_model::units;

use crate::recording::{Ending, Heading, Recording};
use crate::view::View;
use crate::{map, palette, tables, timeline};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Forbids loading anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Makes one self-contained HTML page of the recording.
pub fn render(recording: &Recording) -> String {
    let view = View::new(recording);
    let name = title(&recording.heading);
    let body = html! {
        svg.defs width="0" height="0" aria-hidden="true" {
            defs { (palette::pattern_defs("t")) (palette::pattern_defs("m")) }
        }
        main {
            (hero(&view, name))
            (timeline::card(&view))
            (map::card(&view))
            (tables::sources(&view))
            (tables::events(&view))
            (tables::rates(&view))
            footer {
                "Written by swath " (env!("CARGO_PKG_VERSION"))
                ". Sizes and rates are decimal: 1 MB is 1,000,000 bytes."
            }
        }
        div id="tip" role="tooltip" hidden {}
        script type="application/json" id="data" { (data(&view)) }
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (visible(name)) " – swath transfer report" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                // Names may come from anybody: hidden characters are shown.
                (PreEscaped(visible(&body.0)))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// The name of what was transferred.
fn title(heading: &Heading) -> &str {
    match file_name(&heading.path) {
        "." | ".." if !heading.destination.is_empty() => file_name(&heading.destination),
        name => name,
    }
}

/// The last part of a path; `-` is standard output.
fn file_name(path: &str) -> &str {
    match path {
        "-" => "standard output",
        "" => "transfer",
        path => path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path),
    }
}

/// Returns the head of the page: name, verdict and main figures.
fn hero(view: &View<'_>, name: &str) -> Markup {
    let Recording { heading, summary, .. } = view.recording;
    let (class, sign, verdict) = verdict(view.recording);
    let whole = match heading.destination.as_str() {
        "" => &heading.path,
        destination => destination,
    };
    let begun = heading.begun.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let limit = summary.as_ref().map(|it| it.limited_by.words()).unwrap_or_default();
    html! {
        header.hero {
            p.brand {
                svg viewBox="0 0 26 18" aria-hidden="true" {
                    path.c0 d="M0 0h26v4.4h-26z" {}
                    path.c1 d="M0 6.8h17v4.4h-17z" {}
                    path.c2 d="M0 13.6h9.5v4.4h-9.5z" {}
                }
                "swath" span { "transfer report" }
            }
            h1 { (name) }
            @if whole != name && heading.path != "-" { p.path { (whole) } }
            @if !heading.command.is_empty() { p.path { code { (heading.command) } } }
            @if let Some(since) = begun {
                p.path { "Started on " (http_date::write(since.as_secs())) }
            }
            p class={ "verdict " (class) } { i aria-hidden="true" { (sign) } span { (verdict) } }
            @if let Some(digest) = summary.as_ref().and_then(|it| it.digest) {
                p.digest { span { (digest.algorithm()) } " " code { (digest.to_hex()) } }
            }
            dl.tiles {
                @for Tile { name, value, note } in tiles(view) {
                    div {
                        dt { (name) }
                        @let (number, unit) = value.split_once(' ').unwrap_or((&value, ""));
                        dd { (number) span { " " (unit) } }
                        @if !note.is_empty() { small { (note) } }
                    }
                }
            }
            (share_bar(view))
            @if !limit.is_empty() {
                p.limit { span { "What limited it" } (as_sentence(&limit)) }
            }
        }
    }
}

/// Returns the verdict: a class, a sign and text.
fn verdict(recording: &Recording) -> (&'static str, &'static str, String) {
    let summary = recording.summary.as_ref();
    let by = summary.map_or_else(|| recording.verification.clone(), Summary::proof);
    match &recording.ending {
        Some(Ending::Finished) if !summary.is_some_and(|it| it.proved) => {
            let why = if by.is_empty() { String::new() } else { format!(": {by}") };
            ("open", "–", format!("Complete, but not verified{why}"))
        }
        Some(Ending::Finished) if by.is_empty() => ("ok", "✓", "Complete".to_owned()),
        Some(Ending::Finished) => ("ok", "✓", format!("Complete, verified by {by}")),
        Some(Ending::Present) => ("ok", "✓", "Already complete; nothing was fetched".to_owned()),
        Some(Ending::Failed(error)) => ("failed", "×", format!("Not complete: {error}")),
        None => ("open", "…", "Not finished when this page was written".to_owned()),
    }
}

/// A figure in large letters.
struct Tile {
    name: &'static str,
    /// The number, and its unit behind a space.
    value: String,
    note: String,
}

fn tiles(view: &View<'_>) -> Vec<Tile> {
    let recording = view.recording;
    let summary = recording.summary.as_ref();
    let mut tiles = Vec::new();
    let mut tile = |name, value, note: Option<String>| {
        tiles.push(Tile { name, value, note: note.unwrap_or_default() });
    };
    let resumed = recording.resumed_bytes;
    let resumed =
        (resumed > 0).then(|| format!("{} of it from an earlier run", units::bytes(resumed)));
    tile("size", recording.size_bytes.map_or("–".to_owned(), units::bytes), resumed);
    if let Some(files) = recording.heading.files {
        tile("files", units::count(files), None);
    }
    let forecast =
        summary.and_then(Summary::shown_forecast).map(|takes| format!("predicted {takes}"));
    tile("time", units::duration(summary.map_or(recording.end_s, |it| it.elapsed_s)), forecast);
    if let Some(it) = summary {
        tile("mean rate", units::rate(it.rate_bytes_per_s), None);
        if let Some(efficiency) = it.efficiency {
            let note = "of what the sources can do together".to_owned();
            tile("efficiency", units::percent(efficiency), Some(note));
        }
        let arrived_bytes = it.fetched_bytes.saturating_add(it.wasted_bytes);
        let part = it.wasted_bytes as f64 / arrived_bytes.max(1) as f64;
        let note = (it.wasted_bytes > 0).then(|| format!("{} of what arrived", percent_fine(part)));
        tile("wasted", units::bytes(it.wasted_bytes), note);
    }
    let used = view.bytes.iter().filter(|b| **b > 0).count();
    let all = view.bytes.len();
    tile("sources", all.to_string(), (used < all).then(|| format!("{used} of them delivered")));
    let requests: u64 = summary.iter().flat_map(|s| &s.sources).map(|s| s.requests).sum();
    if requests > 0 {
        let swaths = recording.swaths.count;
        let word = if swaths == 1 { "swath" } else { "swaths" };
        let note = (swaths > 0).then(|| format!("{} {word}", units::count(swaths)));
        tile(if requests == 1 { "request" } else { "requests" }, units::count(requests), note);
    }
    tiles
}

/// Small parts with a digit after the point.
fn percent_fine(part: f64) -> String {
    if part > 0.0 && part < 0.0005 {
        "<0.1 %".to_owned()
    } else if part < 0.095 {
        format!("{:.1} %", part * 100.0)
    } else {
        units::percent(part)
    }
}

/// Returns the bar of the sources' shares.
fn share_bar(view: &View<'_>) -> Markup {
    if view.bytes.iter().all(|&bytes| bytes == 0) {
        return html! {};
    }
    html! {
        div.sharebar role="img"
            aria-label="Shares of the sources; figures in the table below" {
            @for (i, &bytes) in view.bytes.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
                @let share = view.share(i);
                span class={ "c" (palette::colour(i)) " p" (palette::pattern(i)) }
                    style=(format_args!("flex-grow:{share:.5}"))
                    data-tip={
                        (i + 1) " " (view.name(i)) " · " (units::bytes(bytes)) " · "
                        (units::percent(share))
                    } {
                    b { @if share >= 0.045 { (i + 1) } }
                }
            }
        }
    }
}

/// A capital at the start and a point at the end.
fn as_sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{stop}", chars.as_str())
}

/// The figures behind the charts, for the tooltips, as JSON that cannot end the script element
/// around it; times are in tenths of a millisecond.
fn data(view: &View<'_>) -> PreEscaped<String> {
    let tenths = |s: f64| (s * 10_000.0).round() as i64;
    let names = (0..view.recording.sources.len()).map(|i| visible(&view.name(i)));
    let bars = view.bars.iter().map(|b| {
        let first = b.first_byte_at_s.map_or(-1, tenths);
        let (asked, ended) = (tenths(b.asked_at_s), tenths(b.ended_at_s));
        let (start, length) = (b.range.start, b.range.len());
        (b.source, b.lane, asked, first, ended, start, length, b.outcome as u8, b.swaths)
    });
    let rates = timeline::drawn_samples(view).into_iter().map(|sample| {
        let kilobytes = |rate: &f32| (rate / 1e3).round() as i64;
        (tenths(sample.at_s), sample.rates_bytes_per_s.iter().map(kilobytes).collect::<Vec<_>>())
    });
    let map = view.recording.swaths.map.iter().map(|(r, d)| (r.start, r.end, d.source, d.at_ms));
    let data = json!({
        "end": tenths(view.end_s),
        "src": names.collect::<Vec<_>>(),
        "bars": bars.collect::<Vec<_>>(),
        "rates": rates.collect::<Vec<_>>(),
        "map": map.collect::<Vec<_>>(),
    });
    PreEscaped(data.to_string().replace('<', "\\u003c").replace('>', "\\u003e"))
}
