//! `swath ls` and `swath du`: what a server has, without fetching it.

pub mod args;

use std::collections::BTreeMap;
use std::sync::PoisonError;

use serde::Deserialize;
use swath_formats::http_date;
use swath_model::index::{Index, Item, Kind};
use swath_transfer::{Engine, GetError, Mirror, Trust};
use url::Url;

use crate::engine::{self, Wishes};
use crate::exit::{self, Exit, fail};
use crate::progress::units;
use crate::say;
use args::{Du, Ls};

/// One line of a listing.
#[derive(Debug, Deserialize, serde::Serialize)]
struct Line {
    name: String,
    /// `file`, `folder`, `link` or `other`.
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    mtime: f64,
}

/// Run `swath ls`.
pub async fn ls(ls: Ls) -> Exit {
    let (engine, folder) = match ready(&ls.net, &ls.folder) {
        Ok(ready) => ready,
        Err((exit, message)) => return fail(exit, &message),
    };
    let lines = if ls.recursive {
        match engine.index(&folder).await {
            Ok(index) => recursive(&index.read().unwrap_or_else(PoisonError::into_inner)),
            Err(error) => return complain(&folder.url, &error),
        }
    } else {
        match one_folder(&engine, &folder).await {
            Ok(lines) => lines,
            Err(message) => return fail(Exit::Sources, &message),
        }
    };
    let mut out = String::new();
    let width = lines.iter().map(|line| shown_size(line).chars().count()).max().unwrap_or(0);
    for line in &lines {
        if ls.json {
            match serde_json::to_string(line) {
                Ok(json) => out.push_str(&json),
                Err(error) => return fail(Exit::Internal, &error.to_string()),
            }
        } else {
            out.push_str(&row(line, ls.long.then_some(width)));
        }
        out.push('\n');
    }
    say::out(out.as_bytes(), Exit::Done)
}

/// Run `swath du`.
pub async fn du(du: Du) -> Exit {
    let (engine, folder) = match ready(&du.net, &du.folder) {
        Ok(ready) => ready,
        Err((exit, message)) => return fail(exit, &message),
    };
    let index = match engine.index(&folder).await {
        Ok(index) => index,
        Err(error) => return complain(&folder.url, &error),
    };
    let index = index.read().unwrap_or_else(PoisonError::into_inner);
    let mut out = String::new();
    for (name, bytes) in below(&index) {
        let bytes = bytes.map_or_else(|| "-".to_owned(), units::bytes);
        out.push_str(&format!("{bytes:>9}  {name}\n"));
    }
    let counts = index.counts();
    let files = if counts.files == 1 { "file" } else { "files" };
    let folders = if counts.folders == 1 { "folder" } else { "folders" };
    out.push_str(&format!(
        "{:>9}  in {} {files} and {} {folders}\n",
        units::bytes(counts.file_bytes),
        units::count(counts.files),
        units::count(counts.folders),
    ));
    let exit = match counts.absent - counts.special {
        0 => Exit::Done,
        1 => fail(Exit::Some, "1 entry could not be read there and is not counted"),
        many => {
            let many = units::count(many);
            fail(Exit::Some, &format!("{many} entries could not be read there and are not counted"))
        }
    };
    say::out(out.as_bytes(), exit)
}

fn ready(net: &crate::args::Net, folder: &str) -> Result<(Engine, Mirror), (Exit, String)> {
    let mut url = crate::net::parse_url(folder).map_err(|error| (Exit::Usage, error))?;
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    let wishes = Wishes {
        net,
        limit_rate: None,
        metalinks: false,
        io: swath_transfer::IoMode::Buffered,
        memory: MEMORY_BYTES,
        to_stdout: false,
        own_server: None,
    };
    let engine = engine::start(&wishes)?;
    Ok((engine, Mirror { url, priority: 1, trust: Trust::Named }))
}

fn complain(url: &Url, error: &GetError) -> Exit {
    let shown = swath_source::display_name(url);
    fail(exit::of(error, 0), &exit::about(&shown, &exit::words_of_all(error)))
}

/// What lies in one folder, as its server lists it. The error is a sentence.
async fn one_folder(engine: &Engine, folder: &Mirror) -> Result<Vec<Line>, String> {
    let mut url = folder.url.clone();
    url.set_query(Some("format=json"));
    let shown = swath_source::display_name(&url);
    let kind = "application/json";
    let listing =
        swath_source::fetch_small(engine.net(), &url, folder.trust, kind, LISTING_BYTES_MAX)
            .await
            .map_err(|error| format!("{shown}: {error}"))?;
    if listing.content_type.as_deref() != Some(kind) {
        return Err(format!("{shown}: it is no folder of a swath server"));
    }
    serde_json::from_slice(&listing.bytes)
        .map_err(|error| format!("{shown}: its listing cannot be read: {error}"))
}

fn recursive(index: &Index) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        lines.push(line_of(&item));
    }
    lines
}

fn line_of(item: &Item<'_>) -> Line {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (kind, size, target) = match &item.entry.kind {
        Kind::File { size_bytes, .. } => ("file", Some(*size_bytes), None),
        Kind::HardLink(_) => ("file", None, None),
        Kind::Folder => ("folder", None, None),
        Kind::Symlink(target) => ("link", None, Some(text(target))),
        Kind::Absent(_) => ("other", None, None),
    };
    let mtime = item.entry.mtime;
    Line {
        name: text(item.path),
        kind: kind.to_owned(),
        size,
        target,
        mode: format!("{:04o}", item.entry.mode),
        mtime: mtime.seconds as f64 + f64::from(mtime.nanoseconds) * 1e-9,
    }
}

/// A line for people; with mode, size and time if they are wanted, sizes in so many columns.
fn row(line: &Line, width: Option<usize>) -> String {
    let mut name: String =
        line.name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if line.kind == "folder" {
        name.push('/');
    }
    let Some(width) = width else { return name };
    // What could not be looked at has neither.
    let is_unknown = line.kind == "other" && line.mtime == 0.0;
    let time = http_date::write_plain(line.mtime.floor() as i64).filter(|_| !is_unknown);
    let time = time.unwrap_or_else(|| "-".to_owned());
    let mode = if is_unknown { "-" } else { &line.mode };
    let target = line.target.as_ref().map_or(String::new(), |target| {
        let target: String = target.chars().filter(|c| !c.is_control()).collect();
        format!(" -> {target}")
    });
    let size = shown_size(line);
    let pad = " ".repeat(width.saturating_sub(size.chars().count()));
    format!("{mode:4}  {pad}{size}  {time:19}  {name}{target}")
}

fn shown_size(line: &Line) -> String {
    line.size.map_or_else(|| "-".to_owned(), units::bytes)
}

/// Bytes of files below each entry of the top folder, in the index's order; `None` of those that
/// could not be looked at.
fn below(index: &Index) -> Vec<(String, Option<u64>)> {
    let mut sums: BTreeMap<u64, (String, Option<u64>)> = BTreeMap::new();
    let mut top = 0;
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        if !item.path.contains(&b'/') {
            top = item.number;
            let mut name = line_of(&item).name;
            name.retain(|c| !c.is_control());
            if item.entry.kind == Kind::Folder {
                name.push('/');
            }
            let is_known = !matches!(item.entry.kind, Kind::Absent(_));
            sums.insert(top, (name, is_known.then_some(0)));
        }
        if let (Kind::File { size_bytes, .. }, Some((_, Some(sum)))) =
            (&item.entry.kind, sums.get_mut(&top))
        {
            *sum = sum.saturating_add(*size_bytes);
        }
    }
    sums.into_values().collect()
}

/// Nothing is written: the least that an engine works with is enough.
const MEMORY_BYTES: u64 = 8 << 20;
/// A folder of some hundred thousand entries.
const LISTING_BYTES_MAX: usize = 64 << 20;
