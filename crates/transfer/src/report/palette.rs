//! The colours of sources: twelve that stay apart with the common kinds of colour blindness
//! (found by a search over simulated protanopia and deuteranopia, keeping clear of the red that
//! means failure), then the same twelve again under a pattern.

/// How many colours there are before patterns start.
pub(super) const COLOURS: usize = 12;

/// On a light page.
pub(super) const LIGHT: [&str; COLOURS] = [
    "#3c7fdf", "#e67e05", "#45ac7b", "#b35e9f", "#6ac4f1", "#ebc729", "#6952b5", "#aa5f2c",
    "#007e76", "#eea1bf", "#92c068", "#595886",
];

/// On a dark page: the same hues, the darkest lifted.
pub(super) const DARK: [&str; COLOURS] = [
    "#4d8fee", "#f08a1c", "#4fb986", "#c26fae", "#76cdf7", "#ebc729", "#8a73d8", "#bb7040",
    "#17968d", "#eea1bf", "#92c068", "#8382b4",
];

/// Patterns laid over a colour: none, then three kinds.
pub(super) const PATTERNS: usize = 4;

/// The colour's number for a source.
pub(super) fn colour(source: usize) -> usize {
    source % COLOURS
}

/// The pattern's number for a source, 0 for none.
pub(super) fn pattern(source: usize) -> usize {
    source / COLOURS % PATTERNS
}

/// The CSS variables of both themes.
pub(super) fn css() -> String {
    let list = |colours: &[&str]| -> String {
        colours.iter().enumerate().map(|(i, c)| format!("--c{i}:{c};")).collect()
    };
    let classes: String = (0..COLOURS).map(|i| format!(".c{i}{{--c:var(--c{i})}}")).collect();
    format!(
        ":root{{{}}}@media(prefers-color-scheme:dark){{:root{{{}}}}}{classes}",
        list(&LIGHT),
        list(&DARK)
    )
}

/// A small square with the source's colour and pattern.
pub(super) fn swatch(source: usize) -> String {
    format!("<i class=\"sw c{} p{}\"></i>", colour(source), pattern(source))
}

/// The pattern definitions, once for each family of charts (their scripts scale them apart).
pub(super) fn pattern_defs(family: &str) -> String {
    // One unit of x is a thousandth of the width by default; the script makes it exact.
    let scale = "patternTransform=\"scale(10 1)\" patternUnits=\"userSpaceOnUse\"";
    let over = "class=\"over\"";
    format!(
        "<pattern id=\"{family}1\" {scale} width=\"7\" height=\"7\"><path {over} d=\"M-2 2l4-4M0 7l7-7M5 9l4-4\"/></pattern>\
         <pattern id=\"{family}2\" {scale} width=\"6\" height=\"6\"><circle class=\"overf\" cx=\"3\" cy=\"3\" r=\"1.3\"/></pattern>\
         <pattern id=\"{family}3\" {scale} width=\"6\" height=\"6\"><path {over} d=\"M0 3h6M3 0v6\"/></pattern>\
         <pattern id=\"{family}lost\" {scale} width=\"6\" height=\"6\"><path class=\"ink\" d=\"M-2 4l4 4M0 0l6 6M4-2l4 4\"/></pattern>\
         <pattern id=\"{family}fail\" {scale} width=\"7\" height=\"7\"><path class=\"red\" d=\"M0 0l7 7M7 0l-7 7\"/></pattern>\
         <pattern id=\"{family}mute\" {scale} width=\"8\" height=\"8\"><path class=\"mute\" d=\"M-2 2l4-4M0 8l8-8M6 10l4-4\"/></pattern>\
         <pattern id=\"{family}still\" {scale} width=\"8\" height=\"8\"><path class=\"amber\" d=\"M-2 2l4-4M0 8l8-8M6 10l4-4\"/></pattern>"
    )
}
