//! The look of all pages, and error pages.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use swath_formats::accept;
use swath_model::path::visible;

use crate::http::{Content, Head, Method, Response};

/// The beginning of a page, up to its first element.
pub(super) fn start(title: &str) -> Markup {
    html! {
        (DOCTYPE)
        (PreEscaped("<html lang=\"en\">"))
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { (title) }
            link rel="icon" href={ "data:image/svg+xml," (ICON) };
            style { (PreEscaped(STYLE)) }
        }
        (PreEscaped("<body><main>"))
    }
}

/// The end of a page.
pub(super) const END: &str = "</main></body></html>\n";

/// What is sent of a page: names come from anybody, and what would hide in them is shown as a sign.
pub(super) fn shown(markup: &Markup) -> String {
    visible(&markup.0)
}

/// What a page may do: names are others' text, and nothing in them may run.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Returns a page in the look of all pages of servers; `body` is what is below its title.
pub fn page(title: &str, body: &Markup) -> Response {
    let page = html! { (start(title)) h1 { (title) } (body) };
    Response::empty(200)
        .with("content-type", "text/html; charset=utf-8")
        .with("content-security-policy", POLICY)
        .with("referrer-policy", "no-referrer")
        .containing(Content::Bytes((shown(&page) + END).into_bytes()))
}

/// A refusal in words as a page, where a browser shows it to somebody.
pub(super) fn refusal(response: Response, head: &Head, site: &str) -> Response {
    let is_refusal = matches!(response.status, 400..=599);
    let is_shown = matches!(head.method, Method::GET)
        && accept::prefers(head.fields("accept"), "text/html", "text/plain");
    let Content::Bytes(text) = &response.body else { return response };
    if !is_refusal || !is_shown {
        return response;
    }
    let words = String::from_utf8_lossy(text);
    let status = response.status;
    let page = html! {
        (start(&format!("{status} – {site}")))
        h1 { (status) }
        p.says { (words.trim_end()) }
        @match status {
            401 => p {
                "When the browser asks for a name and a password, the password is the token, and \
                 the name may be anything. A program shows it as "
                code { "Authorization: Bearer TOKEN" } "; swath does with "
                code { "--token TOKEN" } " or, where other users of the machine are not to see it, "
                code { "--token @FILE" } "."
            },
            403 => p {
                "Whoever runs this server decides who may have what. " a href="/" { "To the top" }
            },
            404 => p {
                "It may have been moved or removed. " a href="./" { "To the folder" } ", "
                a href="/" { "to the top" }
            },
            _ => {},
        }
        p { (site) }
    };
    let page = shown(&page) + END;
    let fields = response.fields.iter().filter(|(name, _)| *name != "content-type").cloned();
    let fields = fields.chain([
        ("content-type", "text/html; charset=utf-8".to_owned()),
        ("content-security-policy", POLICY.to_owned()),
        ("vary", "accept".to_owned()),
    ]);
    Response { fields: fields.collect(), ..response }.containing(Content::Bytes(page.into_bytes()))
}

/// Three swaths, each as wide as its source is fast.
const ICON: &str = "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 26 26'%3E\
                    %3Cpath fill='%230b62a8' d='M0 4h26v5H0z'/%3E%3Cpath fill='%23d9822b' d='M0 11h17v5H0z'/%3E\
                    %3Cpath fill='%2317794a' d='M0 18h10v5H0z'/%3E%3C/svg%3E";

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2329;--faint:#5d6872;--line:#e3e7ea;--link:#0b62a8;--row:#f5f8fa;--back:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e8eb;--faint:#93a0aa;--line:#2c343b;--link:#7dbbf0;--row:#1b2127;--back:#12171c}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:0}\
main{max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.3rem;font-weight:600;margin:0;word-break:break-word}p{color:var(--faint);margin:.2rem 0 1.2rem}\
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}\
code{font:13px/1.5 ui-monospace,monospace;background:var(--row);border:1px solid var(--line);border-radius:5px;\
padding:.1rem .4rem;color:var(--ink);overflow-wrap:anywhere;-webkit-box-decoration-break:clone;box-decoration-break:clone}\
.copy code{user-select:all;-webkit-user-select:all}.says{color:var(--ink);font-size:1.1rem}\
table{border-collapse:collapse;width:100%}th{text-align:left;font-weight:600}\
th a{color:var(--faint)}td,th{padding:.35rem .6rem;border-bottom:1px solid var(--line)}\
td:first-child{word-break:break-all}td:not(:first-child),th:not(:first-child){text-align:right;white-space:nowrap;\
font-variant-numeric:tabular-nums}tbody tr:hover{background:var(--row)}.folder a{font-weight:600}\
@media(max-width:34rem){td:nth-child(3),th:nth-child(3){display:none}main{margin:1rem auto}}";
