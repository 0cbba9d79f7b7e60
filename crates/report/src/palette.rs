//! The colours of sources: twelve, then the same twelve again under a pattern.

use maud::{Markup, html};

/// How many colours there are before patterns start; they are in the style sheet.
const COLOURS: usize = 12;

/// Patterns laid over a colour: none, then three kinds.
const PATTERNS: usize = 4;

/// The colour's number for a source.
pub(crate) fn colour(source: usize) -> usize {
    source % COLOURS
}

/// The pattern's number for a source, 0 for none.
pub(crate) fn pattern(source: usize) -> usize {
    source / COLOURS % PATTERNS
}

/// A small square with the source's colour and pattern.
pub(crate) fn swatch(source: usize) -> Markup {
    html! { i class={ "sw c" (colour(source)) " p" (pattern(source)) } {} }
}

/// An area in the colour and the pattern of a source.
pub(crate) fn area(class: &str, family: &str, source: usize, path: &str) -> Markup {
    html! {
        path class={ (class) " c" (colour(source)) } d=(path) {}
        (over(family, source, path))
    }
}

/// The pattern of a source over an area, if it has one; `family` is that of [`pattern_defs`].
pub(crate) fn over(family: &str, source: usize, path: &str) -> Markup {
    html! {
        @if pattern(source) > 0 { path fill={ "url(#" (family) (pattern(source)) ")" } d=(path) {} }
    }
}

/// The pattern definitions, once for each family of charts (the script scales them apart).
pub(crate) fn pattern_defs(family: &str) -> Markup {
    let stripes = "M-2 2l4-4M0 8l8-8M6 10l4-4";
    let patterns = [
        ("1", 7, "over", "M-2 2l4-4M0 7l7-7M5 9l4-4"),
        ("2", 6, "overf", "M1.7 3a1.3 1.3 0 1 0 2.6 0a1.3 1.3 0 1 0-2.6 0"),
        ("3", 6, "over", "M0 3h6M3 0v6"),
        ("lost", 6, "ink", "M-2 4l4 4M0 0l6 6M4-2l4 4"),
        ("fail", 7, "red", "M0 0l7 7M7 0l-7 7"),
        ("mute", 8, "mute", stripes),
        ("still", 8, "amber", stripes),
    ];
    html! {
        @for (name, size, class, path) in patterns {
            // One unit of x is a thousandth of the width by default; the script makes it exact.
            pattern id={ (family) (name) } patternTransform="scale(10 1)"
                patternUnits="userSpaceOnUse" width=(size) height=(size) {
                path class=(class) d=(path) {}
            }
        }
    }
}
