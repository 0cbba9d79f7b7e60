//! What the user gave becomes requests: URLs, a Metalink, a list.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use swath_formats::list::List;
use swath_formats::metalink;
use swath_model::path::SafePath;
use swath_source::{Class, LaneError, fetch_small};
use swath_transfer::{Destination, Engine, Mirror, PlanConfig, Request, Trust};
use url::Url;

use crate::args::Get;
use crate::exit::{Exit, chain};

/// Requests one by one; an error is (name, sentence).
pub type Requests = Box<dyn Iterator<Item = Result<Request, (String, String)>> + Send>;

/// What there is to fetch.
pub enum Inputs {
    /// One file.
    One(Box<Request>),
    /// Several.
    Many {
        /// What the list is called.
        title: String,
        /// How many files it has.
        count: u64,
        /// The files.
        requests: Requests,
    },
}

/// Why there is nothing to fetch.
pub type Refusal = (Exit, String);

/// Read whatever the command line names.
pub async fn read(get: &Get, engine: &Engine) -> Result<Inputs, Refusal> {
    if let Some(list) = &get.input {
        return read_list(get, list);
    }
    if let [only] = get.sources.as_slice() {
        let path = Path::new(only);
        if !only.contains("://") {
            if path.is_file() {
                let file = File::open(path)
                    .map_err(|error| (Exit::Input, format!("cannot read {only}: {error}")))?;
                return from_metalink(get, only, BufReader::new(file), None);
            }
            return Err((Exit::Input, format!("{only} is neither a URL nor a file")));
        }
        let url = parse_url(only)?;
        if metalink::is_file_name(url.path()) {
            return metalink_of(get, engine, &url, Trust::Named).await;
        }
    }
    let mut mirrors = Vec::new();
    for text in &get.sources {
        mirrors.push(Mirror { url: parse_url(text)?, priority: 1, trust: Trust::Named });
    }
    let name = match &get.output {
        Some(_) => None,
        None => Some(mirrors.iter().find_map(|mirror| name_of(&mirror.url)).ok_or_else(|| {
            (
                Exit::Usage,
                format!(
                    "{} does not name a file: say where to write with -o FILE",
                    shown(&mirrors[0].url)
                ),
            )
        })?),
    };
    let mut request = request(get, destination(get, name.as_ref()));
    request.mirrors = mirrors;
    request.digests.clone_from(&get.digest);
    request.metalinks = !get.net.no_discover;
    Ok(Inputs::One(Box::new(request)))
}

/// Fetch a Metalink and read it. `trust` says who named its address.
pub async fn metalink_of(
    get: &Get,
    engine: &Engine,
    url: &Url,
    trust: Trust,
) -> Result<Inputs, Refusal> {
    let refused = |error: &LaneError| {
        (Exit::Sources, format!("cannot fetch the Metalink {}: {error}", shown(url)))
    };
    let mut tries = 0;
    let document = loop {
        tries += 1;
        let wait = match fetch_small(engine.net(), url, trust, METALINK_WISHES, METALINK_BYTES_MAX)
            .await
        {
            Ok(document) => break document,
            Err(error) => match error.class() {
                _ if tries >= METALINK_TRIES => return Err(refused(&error)),
                Class::Transient => Duration::from_millis(250) * tries,
                Class::Busy(wait) if wait <= BUSY_AT_MOST => wait,
                _ => return Err(refused(&error)),
            },
        };
        tokio::time::sleep(wait).await;
    };
    from_metalink(get, &shown(url), io::Cursor::new(document.bytes), Some(document.final_url))
}

fn from_metalink(
    get: &Get,
    name: &str,
    input: impl BufRead + Send + 'static,
    base: Option<Url>,
) -> Result<Inputs, Refusal> {
    let options = metalink::Options { base: base.clone(), ..metalink::Options::default() };
    let trust = if base.is_some() { Trust::Discovered } else { Trust::Listed };
    let metalink = metalink::parse_with(input, options)
        .map_err(|error| (Exit::Input, format!("{name}: {}", chain(&error))))?;
    for (reason, count) in metalink.skipped_summary() {
        if !get.quiet {
            eprintln!("swath: {name}: left out {count} entries: {reason}");
        }
    }
    let base_path = base.as_ref().map(shown);
    let mut files = metalink.files;
    if files.is_empty() {
        return Err((Exit::Input, format!("{name} names no file")));
    }
    if files.len() == 1 {
        let file = files.remove(0);
        let request = of_metalink_file(get, file, trust).map_err(|(file, error)| {
            (Exit::Input, format!("{}: {file}: {error}", base_path.as_deref().unwrap_or(name)))
        })?;
        return Ok(Inputs::One(Box::new(request)));
    }
    if get.output.is_some() {
        return Err((
            Exit::Usage,
            format!("{name} names {} files: use -d DIR in place of -o", files.len()),
        ));
    }
    let count = files.len() as u64;
    let title = name.to_owned();
    let base_request = Template::of(get);
    let requests = files.into_iter().map(move |file| base_request.metalink_file(file, trust));
    Ok(Inputs::Many { title, count, requests: Box::new(requests) })
}

fn of_metalink_file(
    get: &Get,
    file: metalink::File,
    trust: Trust,
) -> Result<Request, (String, String)> {
    let mut request = Template::of(get).metalink_file(file, trust)?;
    if get.output.is_some() {
        request.destination = destination(get, None);
    }
    request.plan.eager = true;
    if !get.digest.is_empty() {
        request.digests.clone_from(&get.digest);
    }
    Ok(request)
}

fn read_list(get: &Get, path: &Path) -> Result<Inputs, Refusal> {
    if get.output.is_some() {
        return Err((
            Exit::Usage,
            "a list may hold several files: use -d DIR in place of -o".to_owned(),
        ));
    }
    let from_stdin = path.as_os_str() == "-";
    let open = || {
        File::open(path)
            .map_err(|error| (Exit::Input, format!("cannot read {}: {error}", path.display())))
    };
    let (input, count): (Box<dyn BufRead + Send>, u64) = if from_stdin {
        (Box::new(BufReader::new(io::stdin())), 0)
    } else {
        // Counted first, so that progress can say how many there are.
        let count = BufReader::new(open()?)
            .split(b'\n')
            .map_while(Result::ok)
            .filter(|line| {
                line.first().is_some_and(|first| !first.is_ascii_whitespace() && *first != b'#')
            })
            .count();
        (Box::new(BufReader::new(open()?)), count as u64)
    };
    let template = Template::of(get);
    let requests = List::new(input).map(move |item| match item {
        Ok(item) => template.list_item(item),
        Err(error) => Err(("the list".to_owned(), chain(&error))),
    });
    let title = if from_stdin { "standard input".to_owned() } else { path.display().to_string() };
    Ok(Inputs::Many { title, count, requests: Box::new(requests) })
}

/// What all requests of one command have in common.
#[derive(Clone)]
struct Template {
    dir: PathBuf,
    overwrite: bool,
    resume: bool,
    sparse: bool,
    discover: bool,
    plan: PlanConfig,
    stall_s: f64,
}

impl Template {
    fn of(get: &Get) -> Self {
        Self {
            dir: get.dir.clone().unwrap_or_default(),
            overwrite: get.overwrite,
            resume: !get.no_resume,
            sparse: get.sparse,
            discover: !get.net.no_discover,
            plan: PlanConfig {
                policy: get.plan.policy,
                lanes: get.plan.lanes,
                max_sources: usize::from(get.plan.max_sources),
                initial_chunk_bytes: get.plan.initial_chunk,
                large_chunk_bytes: get.plan.large_chunk,
                chunk_bytes: get.plan.chunk,
                eager: false,
                ..PlanConfig::default()
            },
            stall_s: get.net.timeout.as_secs_f64(),
        }
    }

    fn request(&self, destination: Destination) -> Request {
        let mut request = Request::to_file("");
        request.destination = destination;
        request.overwrite = self.overwrite;
        request.resume = self.resume;
        request.sparse = self.sparse;
        request.discover = self.discover;
        request.plan = self.plan.clone();
        request.stall_s = self.stall_s;
        request
    }

    fn metalink_file(
        &self,
        file: metalink::File,
        trust: Trust,
    ) -> Result<Request, (String, String)> {
        let name = file.name.as_str().to_owned();
        if file.mirrors.is_empty() {
            let why = file
                .skipped
                .first()
                .map_or(String::new(), |skipped| format!(" ({})", skipped.reason));
            return Err((name, format!("no mirror of it can be used{why}")));
        }
        let mut request = self.request(Destination::File(self.dir.join(file.name.as_path())));
        request.mirrors = file
            .mirrors
            .into_iter()
            .map(|mirror| Mirror { url: mirror.url, priority: mirror.priority, trust })
            .collect();
        request.digests = file.digests;
        request.pieces = file.pieces;
        request.size_bytes = file.size_bytes;
        Ok(request)
    }

    fn list_item(&self, item: swath_formats::list::Item) -> Result<Request, (String, String)> {
        let shown_name = item.mirrors.first().map_or_else(|| format!("line {}", item.line), shown);
        let name = match &item.out {
            Some(out) => out.clone(),
            None => item.mirrors.iter().find_map(name_of).ok_or_else(|| {
                (
                    shown_name.clone(),
                    "it does not name a file: add a line '  out=NAME' below it".to_owned(),
                )
            })?,
        };
        let dir = match &item.dir {
            Some(dir) => self.dir.join(dir),
            None => self.dir.clone(),
        };
        let mut request = self.request(Destination::File(dir.join(name.as_path())));
        request.mirrors = item
            .mirrors
            .into_iter()
            .map(|url| Mirror { url, priority: 1, trust: Trust::Named })
            .collect();
        request.digests = item.digests;
        Ok(request)
    }
}

fn request(get: &Get, destination: Destination) -> Request {
    let mut request = Template::of(get).request(destination);
    request.plan.eager = true;
    request
}

/// What the command line named by these URLs once more, Metalinks left aside.
pub fn request_again(get: &Get, mirrors: Vec<Mirror>) -> Request {
    let mut request = request(get, destination_again(get, &mirrors));
    request.mirrors = mirrors;
    request.digests.clone_from(&get.digest);
    request
}

/// Where the one file goes that the command line names by URLs.
pub fn destination_again(get: &Get, mirrors: &[Mirror]) -> Destination {
    destination(get, mirrors.iter().find_map(|mirror| name_of(&mirror.url)).as_ref())
}

/// Where one file goes.
fn destination(get: &Get, name: Option<&SafePath>) -> Destination {
    match &get.output {
        Some(path) if path.as_os_str() == "-" => Destination::Writer(Box::new(tokio::io::stdout())),
        Some(path) => {
            Destination::File(get.dir.as_ref().map_or_else(|| path.clone(), |dir| dir.join(path)))
        }
        None => {
            let name = name.map_or_else(PathBuf::new, |name| name.as_path().to_owned());
            Destination::File(get.dir.as_ref().map_or_else(|| name.clone(), |dir| dir.join(&name)))
        }
    }
}

fn parse_url(text: &str) -> Result<Url, Refusal> {
    let url = Url::parse(text).map_err(|error| {
        (Exit::Usage, format!("'{}' is not a URL: {error}", crate::net::shown_text(text)))
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err((
            Exit::Usage,
            format!(
                "{}: the scheme {} is not supported (http and https are)",
                shown(&url),
                url.scheme()
            ),
        ));
    }
    Ok(url)
}

/// The last part of a URL's path as a file name.
fn name_of(url: &Url) -> Option<SafePath> {
    let last = url.path_segments()?.next_back()?;
    let decoded = percent_decode(last);
    SafePath::new(&decoded).ok().filter(|name| !name.as_str().contains('/'))
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = |byte: u8| (byte as char).to_digit(16);
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push((hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0)) as u8);
                rest = after;
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A URL as it may be shown: without credentials, query and fragment.
fn shown(url: &Url) -> String {
    swath_source::display_name(url)
}

/// A Metalink that is fetched is kept in memory while it is read.
const METALINK_BYTES_MAX: usize = 64_000_000;
const METALINK_WISHES: &str =
    "application/metalink4+xml, application/metalink+xml;q=0.9, */*;q=0.5";
/// Tries for a Metalink before it is given up.
const METALINK_TRIES: u32 = 3;
/// A server that is busy for longer is not waited for.
const BUSY_AT_MOST: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_last_part_of_the_path_and_are_safe() {
        let name =
            |text: &str| name_of(&Url::parse(text).unwrap()).map(|name| name.as_str().to_owned());
        assert_eq!(name("http://a/b/c.h5?x=1#y").as_deref(), Some("c.h5"));
        assert_eq!(name("http://a/b/run%201.h5").as_deref(), Some("run 1.h5"));
        assert_eq!(name("http://a/b/"), None);
        assert_eq!(name("http://a"), None);
        assert_eq!(name("http://a/..%2f..%2fetc%2fpasswd"), None);
        assert_eq!(name("http://a/%2e%2e"), None);
        assert_eq!(name("http://a/x%00y"), None);
    }
}
