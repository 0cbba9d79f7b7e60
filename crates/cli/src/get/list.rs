//! Lists of files (`-i`): opening them, and each file's part of them as a request.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek as _};
use std::path::{Component, Path, PathBuf};

use crate::failure::Failure;
use swath_formats::list::{Item, List};
use swath_transfer::{Destination, Mirror, Overwrite, Request, Trust};

use super::inputs::{Entry, Many, Template, name_of, read_ahead, shown};
use crate::exit::{Exit, chain};

/// Open a list. Its files are read later, one by one.
pub async fn read(template: Template, path: &Path) -> Result<Many, Failure> {
    let owned = path.to_owned();
    // Opening a named pipe waits for whoever writes into it.
    let opened = tokio::task::spawn_blocking(move || open(&owned)).await;
    let unreadable =
        |error| Failure::new(Exit::Input, format!("cannot read {}: {error}", path.display()));
    let (input, count) =
        opened.map_err(io::Error::other).and_then(|opened| opened).map_err(unreadable)?;
    let mut said = HashSet::new();
    let entries = List::new(input).map(move |item| match item {
        Ok(item) => {
            let warnings = warnings(&item, &mut said);
            let headers = item.headers.clone();
            Entry { request: request(&template, item), headers, warnings }
        }
        Err(error) => Entry {
            request: Err(("the list".to_owned(), chain(&error))),
            headers: Vec::new(),
            warnings: Vec::new(),
        },
    });
    let title =
        if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() };
    Ok(Many { title, count, entries: read_ahead(entries) })
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

type Opened = (Box<dyn BufRead + Send>, Option<u64>);

/// The list, and how many files it names where that can be found out beforehand: what comes through
/// a pipe can be read only once.
fn open(path: &Path) -> io::Result<Opened> {
    if is_stdin(path) {
        return Ok((Box::new(BufReader::new(io::stdin())), None));
    }
    let mut file = File::open(path)?;
    let kind = file.metadata()?;
    if kind.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
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

/// What of a file's entry is passed over; each kind is told once, at the first file that has it.
fn warnings(item: &Item, said: &mut HashSet<String>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut say = |kind: String, sentence: String| {
        if said.len() < KINDS_MAX && said.insert(kind) {
            warnings.push(sentence);
        }
    };
    for option in &item.unknown_options {
        say(
            format!("option {option}"),
            format!(
                "the list: the option '{option}' is not known here and is passed over (first for the file of line {})",
                item.line
            ),
        );
    }
    for (mirror, reason) in &item.skipped {
        say(
            format!("mirror {reason}"),
            format!(
                "the list: line {}: the mirror {mirror} is passed over, as others like it are: {reason}",
                item.line
            ),
        );
    }
    warnings
}

fn request(template: &Template, item: Item) -> Result<Request, (String, String)> {
    let name = match &item.out {
        Some(out) => out.clone(),
        None => item.mirrors.iter().find_map(name_of).ok_or_else(|| {
            let shown_name =
                item.mirrors.first().map_or_else(|| format!("line {}", item.line), shown);
            let why = "it does not name a file: add a line '  out=NAME' below it";
            (shown_name, why.to_owned())
        })?,
    };
    let (dir, beneath) = folders(template, item.dir.as_deref());
    let mut request = template.request(Destination::File(dir.join(name.as_path())));
    request.beneath = Some(beneath);
    request.mirrors = item
        .mirrors
        .into_iter()
        .map(|url| Mirror { url, priority: 1, trust: Trust::Named, holds: None })
        .collect();
    request.digests = item.digests;
    if item.overwrite {
        request.overwrite = Overwrite::Always;
    }
    Ok(request)
}

/// The folder of a list's file, and the one below which no link is followed: the user's `-d`, or
/// what the list names in its place (`/data`, `../data`).
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

/// Kinds of what is passed over that are told apart.
const KINDS_MAX: usize = 100;
