//! Lists of files (`-i`): opens them and turns their entries into requests.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek as _};
use std::path::{Component, Path, PathBuf};

use swath_formats::list::{Item, List};
use swath_source::display_name;
use swath_transfer::{Destination, Overwrite, Request};

use super::inputs::{name_of, read_ahead};
use super::many::{FileList, ListEntry, Refused};
use super::server_name::ServerNames;
use super::template::Template;
use crate::copy::mirror;
use crate::error::{EntryError, JobError};
use crate::event::ListWarning;

/// Opens a local list. Its entries are read later, one by one.
pub async fn open_file(
    template: Template,
    server_names: ServerNames,
    path: &Path,
) -> Result<FileList, JobError> {
    let owned = path.to_owned();
    // Opening a named pipe waits for its writer.
    let opened = tokio::task::spawn_blocking(move || open(&owned)).await;
    let opened = opened.map_err(io::Error::other).and_then(|opened| opened);
    let unreadable = |error| JobError::List { path: path.to_owned(), error };
    let (input, count) = opened.map_err(unreadable)?;
    Ok(read(template, server_names, path.display().to_string(), count, input))
}

/// Reads the entries of a list as they are needed.
pub fn read(
    template: Template,
    server_names: ServerNames,
    title: String,
    count: Option<u64>,
    input: Box<dyn BufRead + Send>,
) -> FileList {
    let mut said = HashSet::new();
    let entries = List::new(input).map(move |item| match item {
        Ok(item) => {
            let warnings = warnings(&item, &mut said);
            let headers = item.headers.clone();
            let urls = item.mirrors.iter();
            let asks_name = item.out.is_none() && server_names.asks(urls);
            ListEntry { request: request(&template, item, asks_name), headers, warnings, asks_name }
        }
        Err(error) => ListEntry::refused("the list", error),
    });
    FileList { title, count, entries: read_ahead(entries) }
}

type Opened = (Box<dyn BufRead + Send>, Option<u64>);

/// Opens a list and counts its files, unless it is a pipe, which can be read only once.
fn open(path: &Path) -> io::Result<Opened> {
    let mut file = File::open(path)?;
    let kind = file.metadata()?;
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Ok((Box::new(BufReader::new(file)), None));
    }
    let count = BufReader::new(&file)
        .split(b'\n')
        .map_while(Result::ok)
        .filter(|line| {
            line.first().is_some_and(|first| !first.is_ascii_whitespace() && *first != b'#')
        })
        .count();
    file.rewind()?;
    Ok((Box::new(BufReader::new(file)), Some(count as u64)))
}

/// Returns the ignored parts of an entry; each kind is reported once.
fn warnings(item: &Item, said: &mut HashSet<String>) -> Vec<ListWarning> {
    let line = item.line;
    let mut is_new = |kind: String| said.len() < KINDS_MAX && said.insert(kind);
    let mut warnings = Vec::new();
    for name in item.unknown_options.iter().filter(|name| is_new(format!("option {name}"))) {
        warnings.push(ListWarning::Option { name: name.clone(), line });
    }
    for (mirror, reason) in item.skipped.iter().filter(|(_, it)| is_new(format!("mirror {it}"))) {
        let (mirror, reason) = (mirror.clone(), reason.clone());
        warnings.push(ListWarning::Mirror { mirror, line, reason });
    }
    warnings
}

fn request(template: &Template, item: Item, asks_name: bool) -> Result<Request, Refused> {
    let name = match &item.out {
        Some(out) => Some(out.clone()),
        None => match item.mirrors.iter().find_map(name_of) {
            Some(name) => Some(name),
            None if asks_name => None,
            None => {
                let first = item.mirrors.first();
                let name = first.map_or_else(|| format!("line {}", item.line), display_name);
                return Err(Refused { name, error: EntryError::NoName });
            }
        },
    };
    let (dir, beneath) = folders(template, item.dir.as_deref());
    let path = name.map_or_else(|| dir.join(""), |name| dir.join(name.as_path()));
    let mut request = template.request(Destination::File(path));
    request.beneath = Some(beneath);
    request.mirrors = item.mirrors.into_iter().map(mirror).collect();
    request.digests = item.digests;
    if item.overwrite {
        request.overwrite = Overwrite::Always;
    }
    Ok(request)
}

/// Returns the folder of a file, and the folder below which no link is followed: the destination, or a
/// folder of the list outside it (`/data`, `../data`).
fn folders(template: &Template, dir: Option<&str>) -> (PathBuf, PathBuf) {
    let Some(dir) = dir.map(Path::new) else {
        return (template.dir.clone(), template.dir.clone());
    };
    let is_below =
        dir.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let joined = template.dir.join(dir);
    let beneath = if is_below { template.dir.clone() } else { joined.clone() };
    (joined, beneath)
}

/// Most kinds of warnings.
const KINDS_MAX: usize = 100;
