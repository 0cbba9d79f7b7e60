//! Folders as pages and as JSON.

use std::io;

use swath_formats::percent::encode;
use swath_formats::{accept, http_date};
use swath_model::counted;
use swath_model::index::Kind;
use swath_model::path::is_treacherous;
use swath_store::tree::{Listed, Root};

use super::own::address_of_file;
use super::{Site, file};
use crate::http::{Content, Head, Made, Make, Response};

/// How somebody wants to see a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    is_json: bool,
    by: Column,
    is_descending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Size,
    Time,
}

impl Wish {
    pub fn of(head: &Head) -> Wish {
        let by = match head.target.parameter("sort") {
            Some("size") => Column::Size,
            Some("time") => Column::Time,
            _ => Column::Name,
        };
        let is_json = match head.target.parameter("format") {
            Some(format) => format == "json",
            None => accept::prefers(head.fields("accept"), "application/json", "text/html"),
        };
        Wish { is_json, by, is_descending: head.target.parameter("order") == Some("desc") }
    }
}

/// The page of a folder.
pub(super) fn folder(
    root: &Root,
    path: &[u8],
    address: &[u8],
    wish: &Wish,
    site: &str,
    follow_links: bool,
) -> Response {
    match root.list(path, follow_links) {
        Ok(entries) => page(entries, address, wish, site),
        Err(error) => file::refusal(&error),
    }
}

/// The page of several folders.
pub(super) fn top(site: &Site, head: &Head) -> Response {
    let entries = site.folders.listed().collect();
    page(entries, b"", &Wish::of(head), &site.name)
}

fn page(mut entries: Vec<Listed>, address: &[u8], wish: &Wish, site: &str) -> Response {
    sort(&mut entries, wish);
    let rows = Rows {
        start: if wish.is_json {
            "[".to_owned()
        } else {
            html_start(&entries, address, wish, site)
        },
        end: if wish.is_json { "]\n" } else { "</tbody></table></main></html>\n" },
        is_json: wish.is_json,
        is_top: address.is_empty(),
        entries: entries.into_iter(),
        state: State::Start,
    };
    let kind = if wish.is_json { "application/json" } else { "text/html; charset=utf-8" };
    let response =
        Response::empty(200).with("content-type", kind).with("cache-control", "no-cache");
    // Names are others' text: nothing in them may run.
    let response = response
        .with("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'")
        .with("vary", "accept");
    response.containing(Content::Made(Box::new(rows)))
}

fn sort(entries: &mut [Listed], wish: &Wish) {
    // Folders first; equal ones by name, as they come.
    entries.sort_by(|a, b| {
        let folders = (b.kind == Kind::Folder).cmp(&(a.kind == Kind::Folder));
        let order = match wish.by {
            Column::Name => a.name.cmp(&b.name),
            Column::Size => size_bytes(a).cmp(&size_bytes(b)),
            Column::Time => a.mtime.cmp(&b.mtime),
        };
        folders.then(if wish.is_descending { order.reverse() } else { order })
    });
}

fn size_bytes(entry: &Listed) -> Option<u64> {
    match entry.kind {
        Kind::File { size_bytes, .. } => Some(size_bytes),
        _ => None,
    }
}

/// Writes the rows while they are sent.
struct Rows {
    start: String,
    end: &'static str,
    is_json: bool,
    is_top: bool,
    entries: std::vec::IntoIter<Listed>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Rows,
    Done,
}

impl Make for Rows {
    fn length(&self) -> Option<u64> {
        None
    }

    fn next(&mut self) -> Made<'_> {
        let mut text = String::new();
        if self.state == State::Start {
            text.push_str(&self.start);
            self.state = State::Rows;
            if let Some(first) = self.entries.next() {
                self.row(&first, true, &mut text);
            }
        }
        while self.state == State::Rows && text.len() < PART_BYTES {
            match self.entries.next() {
                Some(entry) => self.row(&entry, false, &mut text),
                None => {
                    text.push_str(self.end);
                    self.state = State::Done;
                }
            }
        }
        Box::pin(std::future::ready(Ok::<_, io::Error>(text.into_bytes())))
    }
}

impl Rows {
    /// The address of an entry, as it stands behind that of its folder.
    fn address(&self, entry: &Listed) -> String {
        let is_file = matches!(entry.kind, Kind::File { .. } | Kind::HardLink(_));
        if self.is_top && is_file { address_of_file(&entry.name) } else { encode(&entry.name) }
    }

    fn row(&self, entry: &Listed, is_first: bool, out: &mut String) {
        if self.is_json {
            out.push_str(if is_first { "\n" } else { ",\n" });
            json_row(entry, &self.address(entry), out);
        } else {
            html_row(entry, &self.address(entry), out);
        }
    }
}

fn json_row(entry: &Listed, address: &str, out: &mut String) {
    let name = String::from_utf8_lossy(&entry.name);
    let kind = match &entry.kind {
        Kind::File { .. } | Kind::HardLink(_) => "file",
        Kind::Folder => "folder",
        Kind::Symlink(_) => "link",
        Kind::Absent(_) => "other",
    };
    out.push_str(&format!("{{\"name\":{},\"kind\":\"{kind}\"", json(&name)));
    if name.as_bytes() != entry.name || address.contains('?') {
        // The name does not lead there: it is no text, or the server answers there itself.
        out.push_str(&format!(",\"address\":{}", json(address)));
    }
    if let Some(bytes) = size_bytes(entry) {
        out.push_str(&format!(",\"size\":{bytes}"));
    }
    if let Kind::Symlink(target) = &entry.kind {
        out.push_str(&format!(",\"target\":{}", json(&String::from_utf8_lossy(target))));
    }
    let (seconds, nanoseconds) = (entry.mtime.seconds, entry.mtime.nanoseconds);
    out.push_str(&format!(
        ",\"mode\":\"{:04o}\",\"mtime\":{seconds}.{nanoseconds:09}}}",
        entry.mode
    ));
}

fn json(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if is_treacherous(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn html_row(entry: &Listed, address: &str, out: &mut String) {
    let shown = html(&String::from_utf8_lossy(&entry.name));
    // "./" keeps a name with a colon from being taken for a scheme.
    // What would answer 404 is not led to: programs follow all that is.
    let (class, name) = match &entry.kind {
        Kind::Folder => ("folder", format!("<a href=\"./{address}/\">{shown}/</a>")),
        Kind::File { .. } | Kind::HardLink(_) => {
            ("file", format!("<a href=\"./{address}\">{shown}</a>"))
        }
        Kind::Symlink(target) => {
            let target = html(&String::from_utf8_lossy(target));
            ("link", format!("{shown} -&gt; {target}"))
        }
        Kind::Absent(_) => ("other", shown),
    };
    let size = size_bytes(entry).map_or_else(|| "–".to_owned(), size_text);
    let exact = size_bytes(entry).map_or_else(String::new, |bytes| counted(bytes, "byte"));
    let time = http_date::write_plain(entry.mtime.seconds).unwrap_or_else(|| "–".to_owned());
    out.push_str(&format!(
        "<tr class={class}><td>{name}</td>\
         <td title=\"{exact}\">{size}</td><td>{time}</td></tr>\n"
    ));
}

fn size_text(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 9.95 => format!("{value:.1} {}", units[unit]),
        _ => format!("{value:.0} {}", units[unit]),
    }
}

fn html(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if is_treacherous(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn html_start(entries: &[Listed], address: &[u8], wish: &Wish, site: &str) -> String {
    let files = entries.iter().filter_map(size_bytes);
    let (mut count, mut bytes) = (0u64, 0u64);
    for size in files {
        count += 1;
        bytes = bytes.saturating_add(size);
    }
    let folders = entries.iter().filter(|entry| entry.kind == Kind::Folder).count();
    let sum = format!(
        "{}, {}, {}",
        counted(folders as u64, "folder"),
        counted(count, "file"),
        size_text(bytes)
    );
    let mut crumbs = "<a href=\"/\">/</a>".to_owned();
    let mut so_far = Vec::new();
    for component in address.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        so_far.extend_from_slice(component);
        so_far.push(b'/');
        let (there, name) = (encode(&so_far), html(&String::from_utf8_lossy(component)));
        crumbs.push_str(&format!("<a href=\"/{there}\">{name}</a>/"));
    }
    let head = |column: Column, name: &str, label: &str| {
        let is_current = wish.by == column;
        let order = if is_current && !wish.is_descending { "desc" } else { "asc" };
        let mark = match (is_current, wish.is_descending) {
            (false, _) => "",
            (true, false) => " ↑",
            (true, true) => " ↓",
        };
        format!("<th><a href=\"?sort={name}&amp;order={order}\">{label}{mark}</a></th>")
    };
    let (by_name, by_size, by_time) = (
        head(Column::Name, "name", "Name"),
        head(Column::Size, "size", "Size"),
        head(Column::Time, "time", "Changed (UTC)"),
    );
    let (shown, site) = (html(&String::from_utf8_lossy(address)), html(site));
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <title>/{shown} – {site}</title><style>{STYLE}</style>\
         <main><h1>{crumbs}</h1><p>{sum} · {site}</p>\
         <table><thead><tr>{by_name}{by_size}{by_time}</tr></thead><tbody>\n"
    )
}

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2329;--faint:#6b7680;--line:#e3e7ea;--link:#0b62a8;--row:#f5f8fa}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e8eb;--faint:#93a0aa;--line:#2c343b;--link:#7dbbf0;--row:#1b2127}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);margin:0}\
main{max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.3rem;font-weight:600;margin:0;word-break:break-word}p{color:var(--faint);margin:.2rem 0 1.2rem}\
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}\
table{border-collapse:collapse;width:100%}th{text-align:left;font-weight:600}\
th a{color:var(--faint)}td,th{padding:.35rem .6rem;border-bottom:1px solid var(--line)}\
td:first-child{word-break:break-all}td:not(:first-child),th:not(:first-child){text-align:right;white-space:nowrap;\
font-variant-numeric:tabular-nums}tbody tr:hover{background:var(--row)}.folder a{font-weight:600}";

/// Made in one go.
const PART_BYTES: usize = 64 << 10;
