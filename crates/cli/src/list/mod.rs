//! `swath ls` and `swath du`: list what a server has.

pub mod args;

mod remote;
mod web;

use crate::failure::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use swath_model::path::visible;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use swath_formats::{http_date, percent};
use swath_model::index::{Index, Item, Kind, Mtime};
use swath_transfer::{GetError, Reason};
use url::Url;

use crate::cp::another_name;
use crate::exit::{self, Exit, fail};
use crate::progress::units;
use crate::{hints, say};
use args::{Du, Ls};
use remote::RemoteFolder;

/// One line of a listing.
#[derive(Debug, Deserialize, serde::Serialize)]
struct Line {
    name: String,
    /// The exact name, percent-encoded, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// `file`, `folder`, `link` or `other`.
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// The path that this is another hard link to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    same_as: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// Seconds, with all digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtime: Option<Box<RawValue>>,
}

impl Line {
    /// Returns the line of an entry of which nothing else is known.
    fn of(name: String, kind: &str, size: Option<u64>) -> Line {
        let (address, target, same_as, mode, mtime) = Default::default();
        Line { name, address, kind: kind.to_owned(), size, target, same_as, mode, mtime }
    }
}

/// Runs `swath ls`.
pub async fn ls(ls: Ls) -> Result<Exit, Failure> {
    let remote = RemoteFolder::reach(&ls.net, &ls.ssh, &ls.place).await?;
    let lines = list(&remote, &ls).await;
    let lines = lines.map_err(|failure| remote.renamed(failure))?;
    let mut out = String::new();
    let width = lines.iter().map(|line| shown_size(line).chars().count()).max().unwrap_or(0);
    for line in &lines {
        if ls.json {
            match serde_json::to_string(line) {
                Ok(json) => out.push_str(&json),
                Err(error) => return Err(Failure::new(Exit::Internal, error.to_string())),
            }
        } else {
            out.push_str(&row(line, ls.long.then_some(width)));
        }
        out.push('\n');
    }
    Ok(say::out(out.as_bytes(), Exit::Done))
}

/// What a folder takes.
#[derive(Default)]
struct Usage {
    /// Each entry of the folder, with the bytes below it if they are known.
    rows: Vec<(String, Option<u64>)>,
    bytes: u64,
    files: u64,
    folders: u64,
    /// Entries that could not be read.
    unread: u64,
}

/// Runs `swath du`.
pub async fn du(du: Du) -> Result<Exit, Failure> {
    let remote = RemoteFolder::reach(&du.net, &du.ssh, &du.place).await?;
    let usage = match remote.engine.index(&remote.folder).await {
        Ok(index) => Usage::of_index(&index.read().unwrap_or_else(PoisonError::into_inner)),
        Err(error) => match file(&remote).await {
            Some(line) => Usage::of_files(&[line]),
            None => match web::all_files(&remote, &du.net).await? {
                Some(files) => Usage::of_files(&files),
                None => return Err(remote.renamed(failed(&remote.folder.url, &error))),
            },
        },
    };
    let exit = match usage.unread {
        0 => Exit::Done,
        1 => fail(Exit::Some, "1 entry could not be read and is not counted"),
        many => {
            let many = units::count(many);
            fail(Exit::Some, &format!("{many} entries could not be read and are not counted"))
        }
    };
    let text = if du.json { usage.json() } else { usage.text() };
    Ok(say::out(text.as_bytes(), exit))
}

impl Usage {
    fn of_index(index: &Index) -> Usage {
        let counts = index.counts();
        Usage {
            rows: below(index),
            bytes: counts.file_bytes,
            files: counts.files,
            folders: counts.folders,
            unread: counts.absent - counts.special,
        }
    }

    /// Adds up files that are named by their paths.
    fn of_files(files: &[Line]) -> Usage {
        let mut sums: BTreeMap<String, Option<u64>> = BTreeMap::new();
        let mut folders = BTreeSet::new();
        let mut usage = Usage { files: files.len() as u64, ..Usage::default() };
        for line in files {
            let size = line.size.unwrap_or(0);
            let name = match line.name.split_once('/') {
                Some((folder, _)) => visible(folder) + "/",
                None => shown_name(line),
            };
            let sum = sums.entry(name).or_insert(Some(0));
            *sum = sum.map(|sum| sum.saturating_add(size));
            usage.bytes = usage.bytes.saturating_add(size);
            folders.extend(line.name.match_indices('/').map(|(end, _)| &line.name[..end]));
        }
        usage.folders = folders.len() as u64;
        usage.rows = sums.into_iter().collect();
        usage
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for (name, bytes) in &self.rows {
            out.push_str(&size_row(&bytes.map_or_else(|| "-".to_owned(), units::bytes), name));
        }
        let (files, folders) =
            (units::counted(self.files, "file"), units::counted(self.folders, "folder"));
        out.push_str(&size_row(&units::bytes(self.bytes), &format!("in {files} and {folders}")));
        out
    }

    /// Returns an object a line; the last one has the sums.
    fn json(&self) -> String {
        let row = |(name, size): &(String, Option<u64>)| json!({"name": name, "size": size});
        let Usage { bytes, files, folders, unread, .. } = self;
        let sum = json!({"size": bytes, "files": files, "folders": folders, "unread": unread});
        self.rows.iter().map(row).chain([sum]).map(|line| format!("{line}\n")).collect()
    }
}

fn size_row(size: &str, name: &str) -> String {
    format!("{size:>9}  {name}\n")
}

fn failed(url: &Url, error: &GetError) -> Failure {
    let (shown, exit) = (swath_source::display_name(url), exit::of(error, 0));
    // With a single source its name would appear twice.
    if let [Reason { why, .. }] = error.reasons() {
        let hints = why.lane_error().map(hints::of_server).unwrap_or_default();
        return Failure::new(exit, format!("{shown}: {why}")).hints(hints);
    }
    Failure::new(exit, exit::about(&shown, &exit::words_of_all(error)))
}

/// Lists a folder, or a single file.
async fn list(remote: &RemoteFolder, ls: &Ls) -> Result<Vec<Line>, Failure> {
    let listed = if ls.recursive || remote.is_file {
        match remote.engine.index(&remote.folder).await {
            Ok(index) => Ok(recursive(&index.read().unwrap_or_else(PoisonError::into_inner))),
            Err(error) => Err(failed(&remote.folder.url, &error)),
        }
    } else {
        one_folder(remote, &remote.folder.url).await
    };
    match listed {
        Err(failed) => {
            if let Some(line) = file(remote).await {
                return Ok(vec![line]);
            }
            let listed = match ls.recursive {
                true => web::all_files(remote, &ls.net).await?,
                false => web::one_folder(remote).await,
            };
            listed.ok_or(failed)
        }
        listed => listed,
    }
}

/// Returns the line of a file from the listing of its folder; `None` if there is no such file.
async fn file(remote: &RemoteFolder) -> Option<Line> {
    let url = remote.file.as_ref()?;
    let name = percent::decode(url.path_segments()?.next_back()?);
    let lines = one_folder(remote, &url.join(".").ok()?).await.ok()?;
    let exact = |line: &Line| match &line.address {
        Some(address) => percent::decode(address),
        None => line.name.clone().into_bytes(),
    };
    lines.into_iter().find(|line| line.kind != "folder" && exact(line) == name)
}

/// Returns the server's listing of one folder.
async fn one_folder(remote: &RemoteFolder, folder: &Url) -> Result<Vec<Line>, Failure> {
    let mut url = folder.clone();
    url.set_query(Some("format=json"));
    let shown = swath_source::display_name(&url);
    let failed = |what: String| Failure::sources(format!("{shown}: {what}"));
    let (net, trust, kind) = (remote.engine.net(), remote.folder.trust, "application/json");
    let listing = swath_source::fetch_small(net, &url, trust, kind, LISTING_BYTES_MAX)
        .await
        .map_err(|error| failed(format!("{error}")).hints(hints::of_server(&error)))?;
    if listing.content_type.as_deref() != Some(kind) {
        return Err(failed("not a folder on a swath server".to_owned()));
    }
    serde_json::from_slice(&listing.bytes)
        .map_err(|error| failed(format!("cannot read its listing: {error}")))
}

fn recursive(index: &Index) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        lines.push(line_of(index, &item));
    }
    lines
}

fn line_of(index: &Index, item: &Item<'_>) -> Line {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // For a hard link the index has only the number of the file.
    let mut cursor = match item.entry.kind {
        Kind::HardLink(of) => Some(index.cursor_from(of)),
        _ => None,
    };
    let file = cursor.as_mut().and_then(|cursor| cursor.next());
    let same_as = file.as_ref().map(|file| text(file.path));
    let entry = file.as_ref().map_or(&item.entry, |file| &file.entry);
    let (kind, size, target) = match &entry.kind {
        Kind::File { size_bytes, .. } => ("file", Some(*size_bytes), None),
        Kind::HardLink(_) => ("file", None, None),
        Kind::Folder => ("folder", None, None),
        Kind::Symlink(target) => ("link", None, Some(text(target))),
        Kind::Absent(_) => ("other", None, None),
    };
    // Unknown for entries that could not be read.
    let is_known = !matches!(entry.kind, Kind::Absent(_));
    let is_text = std::str::from_utf8(item.path).is_ok();
    Line {
        name: text(item.path),
        address: (!is_text).then(|| percent::encode(item.path)),
        kind: kind.to_owned(),
        size,
        target,
        same_as,
        mode: is_known.then(|| format!("{:04o}", entry.mode)),
        mtime: is_known.then(|| number(entry.mtime)).flatten(),
    }
}

/// Returns seconds as a JSON number; a floating-point number would lose digits.
fn number(mtime: Mtime) -> Option<Box<RawValue>> {
    let (seconds, nanoseconds) = (mtime.seconds, mtime.nanoseconds);
    let text = match (seconds < 0, nanoseconds) {
        (true, 1..) => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds),
        _ => format!("{seconds}.{nanoseconds:09}"),
    };
    RawValue::from_string(text).ok()
}

/// Returns a line for people; with `width`, which is that of the sizes, also mode, size and time.
fn row(line: &Line, width: Option<usize>) -> String {
    let name = shown_name(line);
    let Some(width) = width else { return name };
    let seconds = line.mtime.as_ref().and_then(|it| it.get().parse::<f64>().ok());
    let time = seconds.and_then(|seconds| http_date::write_plain(seconds.floor() as i64));
    let time = time.unwrap_or_else(|| "-".to_owned());
    let mode = line.mode.as_deref().unwrap_or("-");
    let target =
        line.target.as_ref().map_or(String::new(), |target| format!(" -> {}", visible(target)));
    let same_as = line.same_as.as_deref().map_or(String::new(), another_name);
    let size = shown_size(line);
    let pad = " ".repeat(width.saturating_sub(size.chars().count()));
    format!("{mode:4}  {pad}{size}  {time:19}  {name}{target}{same_as}")
}

fn shown_name(line: &Line) -> String {
    let slash = if line.kind == "folder" { "/" } else { "" };
    visible(&line.name) + slash
}

fn shown_size(line: &Line) -> String {
    line.size.map_or_else(|| "-".to_owned(), units::bytes)
}

/// Returns the bytes below each entry of the top folder, in the order of the index; `None` for entries
/// that could not be read.
fn below(index: &Index) -> Vec<(String, Option<u64>)> {
    let mut sums: BTreeMap<u64, (String, Option<u64>)> = BTreeMap::new();
    let mut top = 0;
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        if !item.path.contains(&b'/') {
            top = item.number;
            let name = shown_name(&line_of(index, &item));
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

/// A folder of some hundred thousand entries.
const LISTING_BYTES_MAX: usize = 64 << 20;
