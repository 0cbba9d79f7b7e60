//! The page as a whole: head, hero figures, cards, style, script and the data for tooltips.

use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use swath_formats::http_date;

use super::escape::{html, json};
use super::palette;
use super::recording::{Ending, Recording};
use super::scene::Scene;
use super::{lines, map, tables, timeline, units};
use crate::observe::Outcome;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Nothing may be loaded, whatever slips in.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// One self-contained HTML page of the recording.
pub fn render(recording: &Recording) -> String {
    let drawn = Recording { bars: lines::numbered(&recording.bars), ..recording.clone() };
    let recording = &drawn;
    let scene = Scene::new(recording);
    let name = title(recording);
    let mut out = String::with_capacity(256 * 1024);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><meta name=\"referrer\" content=\"no-referrer\">\
         <title>{} – swath transfer report</title><link rel=\"icon\" href=\"data:,\"><style>{}{STYLE}</style></head><body>\
         <svg width=\"0\" height=\"0\" class=\"defs\" aria-hidden=\"true\"><defs>{}{}</defs></svg><main>",
        html(name),
        palette::css(),
        palette::pattern_defs("t"),
        palette::pattern_defs("m"),
    );
    out.push_str(&hero(&scene, name));
    out.push_str(&timeline::card(&scene));
    out.push_str(&map::card(&scene));
    out.push_str(&tables::sources(&scene));
    out.push_str(&tables::events(&scene));
    out.push_str(&tables::rates(&scene));
    let _ = write!(
        out,
        "<footer>Written by swath {}. Sizes and rates are decimal: 1 MB is 1,000,000 bytes.</footer></main>",
        env!("CARGO_PKG_VERSION")
    );
    out.push_str("<div id=\"tip\" role=\"tooltip\" hidden></div>");
    let _ = write!(out, "<script type=\"application/json\" id=\"data\">{}</script>", data(&scene));
    let _ = writeln!(out, "<script>{SCRIPT}</script></body></html>");
    out
}

/// The name of what was transferred.
fn title(recording: &Recording) -> &str {
    match file_name(&recording.path) {
        "." | ".." if !recording.destination.is_empty() => file_name(&recording.destination),
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

/// What one wants to know first.
fn hero(scene: &Scene<'_>, name: &str) -> String {
    let recording = scene.recording;
    let (class, sign, verdict) = verdict(recording);
    let digest = recording.summary.as_ref().and_then(|s| s.digest.as_deref());
    let digest = digest.map_or(String::new(), |d| {
        let (algorithm, hex) = d.split_once(':').unwrap_or(("digest", d));
        format!(
            "<p class=\"digest\"><span>{}</span> <code>{}</code></p>",
            html(algorithm),
            html(hex)
        )
    });
    let whole = match recording.destination.as_str() {
        "" => &recording.path,
        destination => destination,
    };
    let path = if whole == name || recording.path == "-" {
        String::new()
    } else {
        format!("<p class=\"path\">{}</p>", html(whole))
    };
    let command = match recording.command.as_str() {
        "" => String::new(),
        command => format!("<p class=\"path\"><code>{}</code></p>", html(command)),
    };
    let begun = recording.begun.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let begun = begun.map_or(String::new(), |since| {
        format!("<p class=\"path\">Begun on {}</p>", html(&http_date::write(since.as_secs())))
    });
    let limit = recording.summary.as_ref().map(|it| it.limited_by.words()).unwrap_or_default();
    let limit = if limit.is_empty() {
        String::new()
    } else {
        format!("<p class=\"limit\"><span>What limited it</span>{}</p>", html(&as_sentence(&limit)))
    };
    format!(
        "<header class=\"hero\"><p class=\"brand\"><svg viewBox=\"0 0 26 18\" aria-hidden=\"true\">\
         <path class=\"c0\" d=\"M0 0h26v4.4h-26z\"/><path class=\"c1\" d=\"M0 6.8h17v4.4h-17z\"/>\
         <path class=\"c2\" d=\"M0 13.6h9.5v4.4h-9.5z\"/></svg>swath<span>transfer report</span></p>\
         <h1>{}</h1>{path}{command}{begun}<p class=\"verdict {class}\"><i aria-hidden=\"true\">{sign}</i><span>{}</span></p>{digest}\
         <dl class=\"tiles\">{}</dl>{}{limit}</header>",
        html(name),
        html(&verdict),
        tiles(scene),
        share_bar(scene),
    )
}

/// How it ended: a class, a sign and words.
fn verdict(recording: &Recording) -> (&'static str, &'static str, String) {
    let by = recording
        .summary
        .as_ref()
        .map_or(recording.verification.as_str(), |s| s.verified_by.as_str());
    match &recording.ending {
        Some(Ending::Finished) if !recording.summary.as_ref().is_some_and(|s| s.proved) => {
            let why = if by.is_empty() { String::new() } else { format!(": {by}") };
            ("open", "–", format!("Complete, but not verified{why}"))
        }
        Some(Ending::Finished) if by.is_empty() => ("ok", "✓", "Complete".to_owned()),
        Some(Ending::Finished) => ("ok", "✓", format!("Complete, verified by {by}")),
        Some(Ending::Present) => ("ok", "✓", "Complete already; nothing was fetched".to_owned()),
        Some(Ending::Failed(error)) => ("failed", "×", format!("Not complete: {error}")),
        None => ("open", "…", "Not finished when this page was written".to_owned()),
    }
}

fn tiles(scene: &Scene<'_>) -> String {
    let recording = scene.recording;
    let mut out = String::new();
    let mut tile = |name: &str, value: &str, note: &str| {
        let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
        let note =
            if note.is_empty() { String::new() } else { format!("<small>{}</small>", html(note)) };
        let _ = write!(
            out,
            "<div><dt>{name}</dt><dd>{}<span> {}</span></dd>{note}</div>",
            html(number),
            html(unit)
        );
    };
    let resumed = match recording.resumed_bytes {
        0 => String::new(),
        n => format!("{} of it from an earlier run", units::bytes(n)),
    };
    tile("size", &recording.size_bytes.map_or("–".to_owned(), units::bytes), &resumed);
    if let Some(files) = recording.files {
        tile("files", &units::count(files), "");
    }
    let time_s = recording.summary.as_ref().map_or(recording.end_s, |s| s.elapsed_s);
    tile("time", &units::duration(time_s), "");
    if let Some(s) = &recording.summary {
        tile("mean rate", &units::rate(s.rate_bytes_per_s), "");
        if let Some(efficiency) = s.efficiency {
            tile("efficiency", &units::percent(efficiency), "of what the sources can do together");
        }
        let arrived_bytes = s.fetched_bytes.saturating_add(s.wasted_bytes);
        let part = s.wasted_bytes as f64 / arrived_bytes.max(1) as f64;
        let note = if s.wasted_bytes == 0 {
            String::new()
        } else {
            format!("{} of what arrived", percent_fine(part))
        };
        tile("wasted", &units::bytes(s.wasted_bytes), &note);
    }
    let used = scene.bytes.iter().filter(|b| **b > 0).count();
    let all = scene.bytes.len();
    let note = if used == all { String::new() } else { format!("{used} of them delivered") };
    tile("sources", &all.to_string(), &note);
    let swaths = if recording.swaths > 0 {
        let word = if recording.swaths == 1 { "swath" } else { "swaths" };
        format!("{} {word}", units::count(recording.swaths))
    } else {
        String::new()
    };
    let requests: u64 = recording.summary.iter().flat_map(|s| &s.sources).map(|s| s.requests).sum();
    if requests > 0 {
        let name = if requests == 1 { "request" } else { "requests" };
        tile(name, &units::count(requests), &swaths);
    }
    out
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

/// One bar: who delivered how much.
fn share_bar(scene: &Scene<'_>) -> String {
    let total: u64 = scene.bytes.iter().sum();
    if total == 0 {
        return String::new();
    }
    let parts: String = (0..scene.bytes.len())
        .filter(|&i| scene.bytes[i] > 0)
        .map(|i| {
            let text = format!(
                "{} {} · {} · {}",
                i + 1,
                scene.name(i),
                units::bytes(scene.bytes[i]),
                units::percent(scene.share(i))
            );
            let label = if scene.share(i) >= 0.045 { (i + 1).to_string() } else { String::new() };
            format!(
                "<span class=\"c{} p{}\" style=\"flex-grow:{:.5}\" data-tip=\"{}\"><b>{label}</b></span>",
                palette::colour(i),
                palette::pattern(i),
                scene.share(i),
                html(&text)
            )
        })
        .collect();
    format!(
        "<div class=\"sharebar\" role=\"img\" aria-label=\"Shares of the sources; figures in the table below\">{parts}</div>"
    )
}

/// A capital at the start and a point at the end.
fn as_sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{stop}", chars.as_str())
}

/// The figures behind the charts, for the tooltips: times in tenths of a millisecond.
fn data(scene: &Scene<'_>) -> String {
    let recording = scene.recording;
    let tenths = |s: f64| (s * 10_000.0).round() as i64;
    let mut out = format!("{{\"end\":{},\"src\":[", tenths(scene.end_s));
    let list = |items: Vec<String>| items.join(",");
    out.push_str(&list((0..recording.sources.len()).map(|i| json(&scene.name(i))).collect()));
    out.push_str("],\"bars\":[");
    out.push_str(&list(
        recording
            .bars
            .iter()
            .map(|b| {
                let outcome = match b.outcome {
                    Outcome::Done => 0,
                    Outcome::Trimmed => 1,
                    Outcome::Lost => 2,
                    Outcome::Failed => 3,
                };
                format!(
                    "[{},{},{},{},{},{},{},{outcome},{}]",
                    b.source,
                    b.lane,
                    tenths(b.asked_at_s),
                    b.first_byte_at_s.map_or(-1, tenths),
                    tenths(b.ended_at_s),
                    b.range.start,
                    b.range.len(),
                    b.swaths
                )
            })
            .collect(),
    ));
    out.push_str("],\"rates\":[");
    out.push_str(&list(
        timeline::drawn_samples(scene)
            .iter()
            .map(|s| {
                let rates: Vec<String> =
                    s.rates_bytes_per_s.iter().map(|r| format!("{:.0}", r / 1e3)).collect();
                format!("[{},[{}]]", tenths(s.at_s), rates.join(","))
            })
            .collect(),
    ));
    out.push_str("],\"map\":[");
    out.push_str(&list(
        recording
            .map
            .iter()
            .map(|(r, d)| format!("[{},{},{},{}]", r.start, r.end, d.source, d.at_ms))
            .collect(),
    ));
    out.push_str("]}");
    out
}
