//! The map of the file, drawn line by line: each part has the colour of its source, or a tone for its time
//! of arrival.

use std::fmt::Write as _;

use maud::{Markup, html};
use swath_model::units;

use crate::palette::{area, swatch};
use crate::recording::Content;
use crate::timeline::axis_time;
use crate::view::{View, X_MAX};

/// Height of a line in pixels.
const LINE_PX: i64 = 15;
/// Tones for the time of arrival.
const TONES: usize = 8;

/// Returns the map card; empty if the size is unknown.
pub(crate) fn card(view: &View<'_>) -> Markup {
    let map = &view.recording.swaths.map;
    let end = map.iter().map(|(range, _)| range.end).max().unwrap_or(0);
    let size = view.recording.size_bytes.unwrap_or(end).max(end);
    if size == 0 {
        return html! {};
    }
    let lines = line_count(map.count());
    let height = lines as i64 * LINE_PX;
    let mut by_source = vec![String::new(); view.recording.sources.len()];
    let mut by_time = vec![String::new(); TONES];
    for (range, delivery) in map.iter() {
        let rects = rects(range.start, range.end, size, lines);
        if let Some(path) = by_source.get_mut(delivery.source as usize) {
            path.push_str(&rects);
        }
        let part = f64::from(delivery.at_ms) / 1_000.0 / view.end_s;
        by_time[((part * TONES as f64) as usize).min(TONES - 1)].push_str(&rects);
    }
    let delivered = |source: usize| !by_source[source].is_empty();
    let delivering = (0..by_source.len()).filter(|&source| delivered(source));
    // With one source the time of arrival says more.
    let one = delivering.clone().count() <= 1;
    let blank = rects(0, size, size, lines);
    let fetched: u64 = map.iter().map(|(range, _)| range.len()).sum();
    let rest = html! {
        @if fetched < size {
            li {
                i class="key mute" {}
                @if view.finished() { "from an earlier run" } @else { "not fetched in this run" }
            }
        }
    };
    let (thing, unit) = match view.recording.heading.content {
        Content::File => ("file", "byte"),
        Content::Tree => ("tree", "file"),
        Content::List => ("list", "file"),
    };
    html! {
        section class="card map" aria-labelledby="t-map" {
            input type="radio" name="by" id="by-s" checked[!one];
            input type="radio" name="by" id="by-t" checked[one];
            div.cardhead {
                h2 id="t-map" { "The " (thing) ", by source" }
                div.tabs { label for="by-s" { "by source" } label for="by-t" { "by time" } }
            }
            div class="plot mapplot" data-row="map" data-lines=(lines) data-size=(size)
                style={ "height:" (height) "px" } {
                svg.mx viewBox={ "0 0 " (X_MAX) " " (height) } preserveAspectRatio="none" role="img" {
                    title {
                        "Which source delivered which part of the " (thing)
                        "; the table of sources has the sums"
                    }
                    path.blank d=(blank) {}
                    path fill="url(#mmute)" d=(blank) {}
                    g.bysource { @for source in delivering { (area("body", "m", source, &by_source[source])) } }
                    g.bytime {
                        @for (tone, path) in by_time.iter().enumerate() {
                            path.tone style={ "fill:var(--t" (tone) ")" } d=(path) {}
                        }
                    }
                }
            }
            p.hint {
                "Read it like text: " (lines) " lines of " (units::bytes(size.div_ceil(lines)))
                ", from the first " (unit) " to the last."
            }
            ul class="legend bysource" {
                @for &source in view.rows.iter().filter(|&&source| delivered(source)) {
                    li { (swatch(source)) (source + 1) " " (view.called(source)) }
                }
                (rest)
            }
            div class="legend bytime" {
                span { "0 s" }
                span.scale {
                    @for tone in 0..TONES { i style={ "background:var(--t" (tone) ")" } {} }
                }
                span { (axis_time(view.end_s)) }
                ul.legend { (rest) }
            }
        }
    }
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
    let unit = |offset: u64| (offset as f64 / line_len as f64 * X_MAX as f64).round() as i64;
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
