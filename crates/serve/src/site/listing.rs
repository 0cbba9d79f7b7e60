//! Folders as HTML pages and as JSON.

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use maud::{Markup, PreEscaped, html};
use swath_formats::percent::encode;
use swath_formats::{accept, http_date};
use swath_model::counted;
use swath_model::digest::Digest;
use swath_model::index::Kind;
use swath_model::path::is_treacherous;
use swath_store::tree::Listed;

use super::Site;
use super::built_in::address_of_file;
use super::lists::{Taking, Turn};
use super::page::{self, POLICY};
use super::sizes::{Below, Sizes};
use crate::client::Client;
use crate::http::{Content, Head, Made, Make, Response};

/// How somebody wants to see a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
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

impl View {
    pub fn of(head: &Head) -> View {
        let by = match head.target.parameter("sort") {
            Some("size") => Column::Size,
            Some("time") => Column::Time,
            _ => Column::Name,
        };
        let is_json = match head.target.parameter("format") {
            Some(format) => format == "json",
            None => accept::prefers(head.fields("accept"), "application/json", "text/html"),
        };
        View { is_json, by, is_descending: head.target.parameter("order") == Some("desc") }
    }
}

/// The page of several folders.
pub(super) async fn top(site: &Site, head: &Head, client: Client) -> Response {
    let entries = site.folders.listed().collect();
    match site.memory.lists.turn(client).await {
        Ok(turn) => {
            View::of(head).page(entries, b"", &ServerInfo::of(site, head), &site.sizes, &turn)
        }
        Err(crowded) => crowded.response(),
    }
}

/// What a page of a folder says of its server.
#[derive(Clone, Debug)]
pub(super) struct ServerInfo {
    /// How it calls itself.
    name: String,
    /// Its address, as whoever asks has it.
    base: String,
    /// It asks for a token.
    asks: bool,
    /// What its certificate is known by, where no authority vouches for it.
    fingerprint: Option<Digest>,
}

impl ServerInfo {
    pub fn of(site: &Site, head: &Head) -> ServerInfo {
        ServerInfo {
            name: site.name.clone(),
            base: format!("{}://{}", site.scheme, head.field("host").unwrap_or_default()),
            asks: !site.access.asks_for_nothing(),
            fingerprint: site.fingerprint(),
        }
    }
}

impl View {
    /// The page of a folder with these entries.
    pub fn page(
        &self,
        mut entries: Vec<Listed>,
        address: &[u8],
        server: &ServerInfo,
        sizes: &Sizes,
        turn: &Turn,
    ) -> Response {
        entries.shrink_to_fit();
        let memory = match turn.take(entries.iter().map(Listed::memory_bytes).sum()) {
            Ok(memory) => memory,
            Err(crowded) => return crowded.response(),
        };
        sort(&mut entries, self);
        let rows = Rows {
            start: match self.is_json {
                true => "[".to_owned(),
                false => html_start(&entries, address, self, server),
            },
            end: match self.is_json {
                true => "]\n".to_owned(),
                false => format!("</tbody></table>{}", page::END),
            },
            is_json: self.is_json,
            is_top: address.is_empty(),
            sizes: if self.is_json { Arc::default() } else { sizes.below(address) },
            entries: entries.into_iter(),
            state: State::Start,
            _memory: memory,
        };
        let kind = if self.is_json { "application/json" } else { "text/html; charset=utf-8" };
        let response =
            Response::empty(200).with("content-type", kind).with("cache-control", "no-cache");
        let response = response.with("content-security-policy", POLICY).with("vary", "accept");
        response.containing(Content::Made(Box::new(rows)))
    }
}

fn sort(entries: &mut [Listed], view: &View) {
    // Folders first; equal ones by name, as they come.
    entries.sort_by(|a, b| {
        let folders = (b.kind == Kind::Folder).cmp(&(a.kind == Kind::Folder));
        let order = match view.by {
            Column::Name if view.is_json => a.name.cmp(&b.name),
            Column::Name => natural(&a.name, &b.name),
            Column::Size => size_bytes(a).cmp(&size_bytes(b)),
            Column::Time => a.mtime.cmp(&b.mtime),
        };
        folders.then(if view.is_descending { order.reverse() } else { order })
    });
}

/// As people count: `run9` before `run10`.
fn natural(a: &[u8], b: &[u8]) -> Ordering {
    let (mut left, mut right) = (a, b);
    while let (Some(x), Some(y)) = (left.first(), right.first()) {
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let ((one, rest), (other, other_rest)) = (number(left), number(right));
            (left, right) = (rest, other_rest);
            one.len().cmp(&other.len()).then(one.cmp(other))
        } else {
            (left, right) = (&left[1..], &right[1..]);
            x.cmp(y)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len()).then(a.cmp(b))
}

/// The number that a name begins with, without zeros before it, and what follows.
fn number(name: &[u8]) -> (&[u8], &[u8]) {
    let end = name.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(name.len());
    let (digits, rest) = name.split_at(end);
    let zeros = digits.iter().position(|&digit| digit != b'0').unwrap_or(digits.len());
    (&digits[zeros..], rest)
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
    end: String,
    is_json: bool,
    is_top: bool,
    /// What is known of folders.
    sizes: Arc<Below>,
    entries: std::vec::IntoIter<Listed>,
    state: State,
    _memory: Taking,
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
                    text.push_str(&self.end);
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
            html_row(entry, &self.address(entry), self.sizes.get(&entry.name).copied(), out);
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

fn html_row(entry: &Listed, address: &str, known: Option<u64>, out: &mut String) {
    let name = String::from_utf8_lossy(&entry.name);
    let class = match entry.kind {
        Kind::Folder => "folder",
        Kind::File { .. } | Kind::HardLink(_) => "file",
        Kind::Symlink(_) => "link",
        Kind::Absent(_) => "other",
    };
    let (size, exact) = match (size_bytes(entry), known.filter(|_| entry.kind == Kind::Folder)) {
        (Some(bytes), _) => (size_text(bytes), counted(bytes, "byte")),
        (None, Some(bytes)) => (size_text(bytes), "when it was last copied".to_owned()),
        (None, None) => ("–".to_owned(), String::new()),
    };
    let time = http_date::write_plain(entry.mtime.seconds);
    let row = html! {
        tr class=(class) {
            td {
                // "./" keeps a name with a colon from being taken for a scheme.
                // What would answer 404 is not led to: programs follow all that is.
                @match &entry.kind {
                    Kind::Folder => a href={ "./" (address) "/" } { (name) "/" },
                    Kind::File { .. } | Kind::HardLink(_) => a href={ "./" (address) } { (name) },
                    Kind::Symlink(to) => { (name) " -> " (String::from_utf8_lossy(to)) },
                    Kind::Absent(_) => (name),
                }
            }
            td title=(exact) { (size) }
            td { (time.as_deref().unwrap_or("–")) }
        }
    };
    out.push_str(&page::shown(&row));
    out.push('\n');
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

fn html_start(entries: &[Listed], address: &[u8], view: &View, server: &ServerInfo) -> String {
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
    // Each folder on the way, with its address.
    let mut crumbs = Vec::new();
    let mut so_far = Vec::new();
    for component in address.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        so_far.extend_from_slice(component);
        so_far.push(b'/');
        crumbs.push((encode(&so_far), String::from_utf8_lossy(component)));
    }
    let columns = [
        (Column::Name, "name", "Name"),
        (Column::Size, "size", "Size"),
        (Column::Time, "time", "Changed (UTC)"),
    ];
    let head = |column: Column| match (view.by == column, view.is_descending) {
        (false, _) => ("asc", ""),
        (true, false) => ("desc", " ↑"),
        (true, true) => ("asc", " ↓"),
    };
    let start = html! {
        (page::start(&format!("/{} – {}", String::from_utf8_lossy(address), server.name)))
        h1 {
            a href="/" { "/" }
            @for (there, name) in &crumbs { a href={ "/" (there) } { (name) } "/" }
        }
        p { (sum) " · " (server.name) }
        (copy_box(address, server))
        (PreEscaped("<table>"))
        thead {
            tr {
                @for (column, name, label) in columns {
                    @let (order, mark) = head(column);
                    th { a href={ "?sort=" (name) "&order=" (order) } { (label) (mark) } }
                }
            }
        }
        (PreEscaped("<tbody>"))
        @if !address.is_empty() { tr.folder { td { a href="../" { ".." } } td {} td {} } }
    };
    page::shown(&start) + "\n"
}

/// What copies a folder, to be pasted.
fn copy_box(address: &[u8], server: &ServerInfo) -> Markup {
    let name = address.split(|&byte| byte == b'/').rfind(|name| !name.is_empty());
    let name = name.map_or("copy".to_owned(), |name| String::from_utf8_lossy(name).into_owned());
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name = match name.chars().all(plain) && !name.starts_with('-') {
        true => name,
        false => "copy".to_owned(),
    };
    let path = address.split(|&byte| byte == b'/').map(encode).collect::<Vec<_>>().join("/");
    let slash = if path.is_empty() || path.ends_with('/') { "" } else { "/" };
    let token = if server.asks { " --token @FILE" } else { "" };
    let print = server.fingerprint.map(|it| format!(" --fingerprint {it}")).unwrap_or_default();
    let command = format!("swath cp '{}/{path}{slash}' ./{name}/{print}{token}", server.base);
    let hint = if server.asks { " (FILE holds your token)" } else { "" };
    html! { p.copy { "Copy this folder" (hint) ": " code { (command) } } }
}

/// Made in one go.
const PART_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use swath_model::digest::{Algorithm, Hasher};

    use super::*;

    #[test]
    fn names_are_in_the_order_in_which_people_count() {
        let mut names =
            ["run10", "run9", "run010", "a", "run9b", "run", "b2", "b12", "b1x", "10", "9"];
        names.sort_by(|a, b| natural(a.as_bytes(), b.as_bytes()));
        let wanted =
            ["9", "10", "a", "b1x", "b2", "b12", "run", "run9", "run9b", "run010", "run10"];
        assert_eq!(names, wanted);
    }

    #[test]
    fn what_copies_a_folder_can_be_pasted_whatever_its_name() {
        let (name, base) = ("s".into(), "https://h:8470".into());
        let server = ServerInfo { name, base, asks: false, fingerprint: None };
        for (address, command) in [
            (&b""[..], "swath cp 'https://h:8470/' ./copy/"),
            (b"run7/", "swath cp 'https://h:8470/run7/' ./run7/"),
            (b"a/it's; rm -rf ~/", "swath cp 'https://h:8470/a/it%27s%3B%20rm%20-rf%20~/' ./copy/"),
        ] {
            let found = copy_box(address, &server).0;
            assert!(found.contains(&html! { (command) }.0), "{found}");
        }
        let digest = Hasher::digest(Algorithm::Sha256, b"certificate");
        let options = format!("./x/ --fingerprint {digest} --token @FILE");
        let fingerprint = Some(digest);
        let found = copy_box(b"x/", &ServerInfo { asks: true, fingerprint, ..server }).0;
        assert!(found.contains(&options), "{found}");
    }
}
