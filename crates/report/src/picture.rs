//! Pictures that are files of their own: SVG without script, for light and dark pages.

use maud::{Markup, PreEscaped, html};
use swath_model::path::visible;

/// Makes a file of a picture of this size. `css` is added to what all pictures share.
pub(crate) fn page(title: &str, css: &str, [width, height]: [f64; 2], inner: &Markup) -> String {
    let (width, height) = (width.round(), height.round());
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) }
            width=(width) height=(height) role="img" {
            title { (title) }
            style { (PreEscaped(CSS)) (PreEscaped(css)) }
            rect.page width="100%" height="100%" {}
            (inner)
        }
    };
    // Names come from anybody: whatever would hide in them is shown as a sign.
    visible(&picture.0) + "\n"
}

/// A picture that only says that there is nothing to show.
pub(crate) fn empty(title: &str, text: &str) -> String {
    page(title, "", [360.0, 80.0], &html! { text.none x="180" y="45" { (text) } })
}

/// A length with one digit after the point.
pub(crate) fn tenth(length: f64) -> String {
    format!("{length:.1}")
}

const CSS: &str = "\
svg{max-width:100%;height:auto;--page:#fff;--ink:#1d2733;--soft:#5c6a7a;--line:#8d9bab;--way:#2f6fd0;--bad:#c2410c;--box:#f4f7fa;--edge:#c5cfda;--src:#b45309;--rel:#2f6fd0;font:13px/1.2 system-ui,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}\
@media(prefers-color-scheme:dark){svg{--page:#12171d;--ink:#e8edf3;--soft:#9aa8b8;--line:#6d7c8d;--way:#5b9bf5;--bad:#fb923c;--box:#1c242d;--edge:#3a4754;--src:#f0a04b;--rel:#5b9bf5}}\
.page{fill:var(--page)}text{fill:var(--ink)}.none{text-anchor:middle;fill:var(--soft)}";
