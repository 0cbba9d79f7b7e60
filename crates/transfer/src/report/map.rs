//! The file itself, drawn like a page of text: line by line, each stretch in the colour of the
//! source that delivered it, or in a tone for the moment it arrived.

use std::fmt::Write as _;

use super::palette::{colour, pattern, swatch};
use super::recording::Content;
use super::scene::{Scene, X_MAX};
use super::timeline::axis_time;
use super::units;

/// Height of a line in pixels.
const LINE_PX: i64 = 15;
/// Tones for the time of arrival.
const TONES: u64 = 8;

/// The map card; empty where the size is not known.
pub(super) fn card(scene: &Scene<'_>) -> String {
    let end = scene.recording.map.iter().map(|(range, _)| range.end).max().unwrap_or(0);
    let size = scene.recording.size_bytes.unwrap_or(end).max(end);
    if size == 0 {
        return String::new();
    }
    let lines = line_count(scene.recording.map.count());
    let height = lines as i64 * LINE_PX;
    let n = scene.recording.sources.len();
    let mut by_source = vec![String::new(); n.max(1)];
    let mut by_time = vec![String::new(); TONES as usize];
    for (range, delivery) in scene.recording.map.iter() {
        let rects = rects(range.start, range.end, size, lines);
        if let Some(d) = by_source.get_mut(delivery.source as usize) {
            d.push_str(&rects);
        }
        let part = f64::from(delivery.at_ms) / 1_000.0 / scene.end_s;
        let tone = ((part * TONES as f64) as usize).min(TONES as usize - 1);
        by_time[tone].push_str(&rects);
    }
    let mut sources = String::new();
    for (source, d) in by_source.iter().enumerate().filter(|(_, d)| !d.is_empty()) {
        let _ = write!(sources, "<path class=\"body c{}\" d=\"{d}\"/>", colour(source));
        if pattern(source) > 0 {
            let _ = write!(sources, "<path fill=\"url(#m{})\" d=\"{d}\"/>", pattern(source));
        }
    }
    let tones: String = by_time
        .iter()
        .enumerate()
        .map(|(i, d)| format!("<path class=\"tone\" style=\"fill:var(--t{i})\" d=\"{d}\"/>"))
        .collect();
    let blank = rects(0, size, size, lines);
    let fetched: u64 = scene.recording.map.iter().map(|(range, _)| range.len()).sum();
    let rest = match (fetched < size, scene.finished()) {
        (false, _) => String::new(),
        (true, true) => "<li><i class=\"key mute\"></i>from an earlier run</li>".to_owned(),
        (true, false) => "<li><i class=\"key mute\"></i>not fetched in this run</li>".to_owned(),
    };
    let names: String = scene
        .rows
        .iter()
        .filter(|&&s| by_source.get(s).is_some_and(|d| !d.is_empty()))
        .map(|&s| {
            let host = super::escape::html(&scene.called(s));
            format!("<li>{}{} {host}</li>", swatch(s), s + 1)
        })
        .collect();
    // One source's map has one colour; when its bytes came says more.
    let one = by_source.iter().filter(|d| !d.is_empty()).count() <= 1;
    let (first, second) = if one { ("", " checked") } else { (" checked", "") };
    let scale: String =
        (0..TONES).map(|i| format!("<i style=\"background:var(--t{i})\"></i>")).collect();
    let (thing, unit) = match scene.recording.content {
        Content::File => ("file", "byte"),
        Content::Tree => ("tree", "file"),
        Content::List => ("list", "file"),
    };
    format!(
        "<section class=\"card map\" aria-labelledby=\"t-map\">\
         <input type=\"radio\" name=\"by\" id=\"by-s\"{first}><input type=\"radio\" name=\"by\" id=\"by-t\"{second}>\
         <div class=\"cardhead\"><h2 id=\"t-map\">The {thing}, by who delivered it</h2>\
         <div class=\"tabs\"><label for=\"by-s\">by source</label><label for=\"by-t\">by time</label></div></div>\
         <div class=\"plot mapplot\" data-row=\"map\" data-lines=\"{lines}\" data-size=\"{size}\" style=\"height:{height}px\">\
         <svg class=\"mx\" viewBox=\"0 0 {X_MAX} {height}\" preserveAspectRatio=\"none\" role=\"img\">\
         <title>Which source delivered which part of the {thing}; the table of sources has the sums</title>\
         <path class=\"blank\" d=\"{blank}\"/><path fill=\"url(#mmute)\" d=\"{blank}\"/>\
         <g class=\"bysource\">{sources}</g><g class=\"bytime\">{tones}</g></svg></div>\
         <p class=\"hint\">Read it like text: {lines} lines of {}, from the first {unit} to the last.</p>\
         <ul class=\"legend bysource\">{names}{rest}</ul>\
         <div class=\"legend bytime\"><span>0 s</span><span class=\"scale\">{scale}</span><span>{}</span>\
         <ul class=\"legend\">{rest}</ul></div></section>",
        units::bytes(size.div_ceil(lines)),
        axis_time(scene.end_s),
    )
}

/// More lines for a busier map.
fn line_count(pieces: usize) -> u64 {
    match pieces {
        0..=4 => 4,
        5..=60 => 8,
        61..=600 => 14,
        _ => 22,
    }
}

/// The rectangles of a stretch of the file, one for each line it touches.
fn rects(start: u64, end: u64, size: u64, lines: u64) -> String {
    let mut out = String::new();
    let line_len = size.div_ceil(lines).max(1);
    let unit = |offset: u64| (offset as f64 / line_len as f64 * X_MAX).round() as i64;
    let mut at = start;
    while at < end {
        let line = at / line_len;
        let line_end = (line + 1).saturating_mul(line_len).min(end);
        let (x0, x1) = (unit(at - line * line_len), unit(line_end - line * line_len));
        let _ = write!(
            out,
            "M{x0} {}h{w}v{}h-{w}z",
            line as i64 * LINE_PX + 1,
            LINE_PX - 2,
            w = (x1 - x0).max(2)
        );
        at = line_end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_wraps_from_line_to_line() {
        assert_eq!(rects(0, 100, 100, 4).matches('M').count(), 4);
        assert_eq!(rects(20, 30, 100, 4), "M8000 1h2000v13h-2000zM0 16h2000v13h-2000z");
        assert_eq!(rects(0, 1, 1, 8), "M0 1h10000v13h-10000z");
        assert_eq!(rects(5, 5, 100, 4), "");
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        assert_eq!(rects(0, u64::MAX, u64::MAX, 22).matches('M').count(), 22);
    }
}
