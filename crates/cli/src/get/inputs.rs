//! What the user gave becomes requests: URLs or a Metalink; lists are read beside (`list`).

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::Failure;
use swath_formats::{depot, metalink, percent};
use swath_model::path::SafePath;
use swath_source::{Class, Document, LaneError, fetch_small};
use swath_transfer::{Destination, Engine, Lanes, Mirror, Overwrite, PlanConfig, Request, Trust};
use tokio::sync::mpsc;
use tokio::time::timeout;
use url::Url;

use super::list;
use crate::args::{self, Get};
use crate::engine::CONNECTIONS_PER_HOST;
use crate::exit::{Exit, chain};
use crate::net::{parse_url, shown_text};
use crate::progress::{Progress, units};

/// What there is to fetch.
pub enum Inputs {
    /// One file.
    One(Box<Request>),
    /// Several.
    Many(Many),
}

/// Several files.
pub struct Many {
    /// What the list is called.
    pub title: String,
    /// How many files it has, where that is known beforehand.
    pub count: Option<u64>,
    /// The files; the next one may be long in coming.
    pub entries: Entries,
}

/// Files one by one.
pub type Entries = mpsc::Receiver<Entry>;

/// The files of a list. Reading it may block for as long as it likes (a pipe, a terminal), so it has a
/// thread of its own, which the end of the program does not wait for.
pub fn read_ahead(list: impl Iterator<Item = Entry> + Send + 'static) -> Entries {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    std::thread::spawn(move || {
        for entry in list {
            if sender.blocking_send(entry).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Files of a list that are read before their turn.
pub const READ_AHEAD: usize = 64;

/// One file of several.
pub struct Entry {
    /// What to fetch; or its name, and why that is not possible.
    pub request: Result<Request, (String, String)>,
    /// Headers for its own mirrors.
    pub headers: Vec<(String, String)>,
    /// What is passed over, in sentences.
    pub warnings: Vec<String>,
}

/// What can be refused before anything is read or contacted.
pub fn check(get: &Get) -> Result<(), Failure> {
    let usage = |message: String| Err(Failure::usage(message));
    args::one_value_each(&get.digest)?;
    match &get.output {
        Some(_) if get.input.is_some() => {
            usage("a list may hold several files: use -d DIR in place of -o".to_owned())
        }
        Some(path) if is_a_folder(path) => {
            let path = path.display();
            usage(format!("-o {path} names a folder, no file: -d {path} writes into a folder"))
        }
        _ => Ok(()),
    }
}

fn is_a_folder(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir()
}

/// What somebody means who leaves out `http://`.
fn hint_of_scheme(text: &str) -> Option<String> {
    let (site, _) = text.split_once('/').unwrap_or((text, ""));
    let (host, port) = site.rsplit_once(':').unwrap_or((site, ""));
    let is_port = !port.is_empty() && port.parse::<u16>().is_ok();
    let is_host = host == "localhost" || host.contains('.') && text.contains('/');
    let fits = (is_port || is_host) && !host.starts_with('.') && !host.is_empty();
    let scheme = if port == "443" || port == "8470" { "https" } else { "http" };
    fits.then(|| format!("is {scheme}://{text} meant?"))
}

/// Read whatever the command line names.
pub async fn read(get: &Get, engine: &Engine, progress: &Progress) -> Result<Inputs, Failure> {
    if let Some(path) = &get.input {
        return list::read(Template::of(get), path).await.map(Inputs::Many);
    }
    if let Some(text) = get.sources.iter().find(|text| !text.contains("://")) {
        return read_file(get, text, progress);
    }
    let urls = get
        .sources
        .iter()
        .map(|text| source(text).map_err(Failure::usage))
        .collect::<Result<Vec<Url>, Failure>>()?;
    let metalinks = urls.iter().filter(|url| metalink::is_file_name(url.path())).count();
    if metalinks == urls.len() {
        return any_metalink_of(get, engine, progress, &urls).await;
    }
    if let Some(url) = urls.iter().find(|url| metalink::is_file_name(url.path())) {
        return Err(Failure::usage(format!(
            "{} is a Metalink: it is given alone, for it names the mirrors",
            shown(url)
        )));
    }
    let name = match &get.output {
        Some(_) => None,
        None => Some(
            urls.iter().find_map(name_of).ok_or_else(|| Failure::usage(why_no_name(&urls[0])))?,
        ),
    };
    let mut request = request(get, destination(get, name.as_ref()));
    request.mirrors = urls
        .into_iter()
        .map(|url| Mirror { url, priority: 1, trust: Trust::Named, holds: None })
        .collect();
    request.digests.clone_from(&get.digest);
    request.metalinks = !get.no_discover;
    Ok(Inputs::One(Box::new(request)))
}

/// The address of a source as typed: of a server's file, or of one of this machine.
fn source(text: &str) -> Result<Url, String> {
    match Url::parse(text) {
        Ok(url) if url.scheme() == "file" => match url.to_file_path() {
            Ok(_) => Ok(url),
            Err(()) => Err(format!("{}: a file of this machine is file:///PATH", shown_text(text))),
        },
        _ => parse_url(text),
    }
}

/// A Metalink on the disk.
fn read_file(get: &Get, text: &str, progress: &Progress) -> Result<Inputs, Failure> {
    let shown = shown_text(text);
    if !Path::new(text).is_file() {
        let text = format!("{shown} is neither a URL nor a file");
        return Err(Failure::new(Exit::Input, text).hints(hint_of_scheme(&shown)));
    }
    if get.sources.len() > 1 {
        return Err(Failure::usage(format!(
            "{shown} is a file, so a Metalink: it is given alone, one for each command"
        )));
    }
    let file = File::open(text)
        .map_err(|error| Failure::new(Exit::Input, format!("cannot read {shown}: {error}")))?;
    from_metalink(get, progress, &shown, BufReader::new(file), None)
}

/// Several addresses of one Metalink: the first that can be had.
async fn any_metalink_of(
    get: &Get,
    engine: &Engine,
    progress: &Progress,
    urls: &[Url],
) -> Result<Inputs, Failure> {
    let mut last = None;
    for url in urls {
        match metalink_of(get, engine, progress, url, Place::Named).await {
            Err(failure) if failure.exit == Exit::Sources => {
                if let Some(before) = last.replace(failure) {
                    progress.note(&before.to_string(), true);
                }
            }
            other => return other,
        }
    }
    Err(last.unwrap_or_else(|| Failure::usage("no source was given")))
}

/// Where a Metalink that is fetched comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The user named it.
    Named,
    /// A server answered with it in place of a file.
    Instead,
    /// A server named it in its answer with a file.
    Beside,
}

/// Fetch a Metalink and read it.
pub async fn metalink_of(
    get: &Get,
    engine: &Engine,
    progress: &Progress,
    url: &Url,
    place: Place,
) -> Result<Inputs, Failure> {
    let trust = match place {
        Place::Named => Trust::Named,
        Place::Instead | Place::Beside => Trust::Discovered,
    };
    if place == Place::Beside {
        // Nobody asked for it, and the file waits.
        let document = timeout(BESIDE_WITHIN, document_of(engine, url, trust, 1)).await;
        let document = document.unwrap_or_else(|_| {
            let (shown, limit_s) = (shown(url), BESIDE_WITHIN.as_secs());
            let words = format!("the Metalink {shown} has not come within {limit_s} s");
            Err(Failure::sources(words))
        })?;
        let found = Some((document.final_url, place));
        return from_metalink(get, progress, &shown(url), Cursor::new(document.bytes), found);
    }
    let mut coming = std::pin::pin!(document_of(engine, url, trust, METALINK_TRIES));
    let document = match timeout(SILENCE_MAX, &mut coming).await {
        Ok(document) => document?,
        Err(_) => {
            progress.note(&format!("waiting for the Metalink {}", shown(url)), false);
            coming.await?
        }
    };
    let found = Some((document.final_url, place));
    from_metalink(get, progress, &shown(url), Cursor::new(document.bytes), found)
}

async fn document_of(
    engine: &Engine,
    url: &Url,
    trust: Trust,
    tries_max: u32,
) -> Result<Document, Failure> {
    let refused = |error: &LaneError| {
        Failure::sources(format!("cannot fetch the Metalink {}: {error}", shown(url)))
    };
    let most = match trust {
        Trust::Discovered => METALINK_FOUND_BYTES_MAX,
        _ => METALINK_BYTES_MAX,
    };
    let mut tries = 0;
    loop {
        tries += 1;
        let wait = match fetch_small(engine.net(), url, trust, METALINK_WISHES, most).await {
            Ok(document) => return Ok(document),
            Err(error) => match error.class() {
                _ if tries >= tries_max => return Err(refused(&error)),
                Class::Transient => Duration::from_millis(250) * tries,
                Class::Busy(wait) if wait <= BUSY_AT_MOST => wait,
                _ => return Err(refused(&error)),
            },
        };
        tokio::time::sleep(wait).await;
    }
}

fn from_metalink(
    get: &Get,
    progress: &Progress,
    name: &str,
    input: impl BufRead + Send + 'static,
    found: Option<(Url, Place)>,
) -> Result<Inputs, Failure> {
    let (base, place) = found.unzip();
    let options = metalink::Options { base: base.clone(), ..metalink::Options::default() };
    let trust = if base.is_some() { Trust::Discovered } else { Trust::Listed };
    let metalink = metalink::parse_with(input, options)
        .map_err(|error| Failure::new(Exit::Input, format!("{name}: {}", chain(&error))))?;
    for (reason, count) in metalink.skipped_summary() {
        let what = counted(count as u64, "entry", "entries");
        progress.note(&format!("{name}: left out {what}: {reason}"), false);
    }
    let base_path = base.as_ref().map(shown);
    let mut files = metalink.files;
    let unusable: Vec<_> = files.iter().filter_map(metalink::File::unusable_pieces).collect();
    if let Some(first) = unusable.first() {
        let what = counted(unusable.len() as u64, "file", "files");
        let text = format!("{name}: the piece digests of {what} cannot be used ({first})");
        progress.note(&text, true);
    }
    let mut refused = metalink.refused.into_iter().map(|it| match it.name.as_str() {
        "" => (format!("the file of line {}", it.line), it.why.to_string()),
        _ => (it.name, it.why.to_string()),
    });
    if files.is_empty() {
        let why = match refused.next() {
            Some((file, why)) => format!("{name}: no file of it can be fetched: {file:?}: {why}"),
            None => format!("{name} names no file"),
        };
        return Err(Failure::new(Exit::Input, why));
    }
    let count = files.len() + refused.len();
    let mirrors: usize = files.iter().map(|file| file.mirrors.len()).sum();
    let what = match place {
        Some(Place::Named | Place::Instead) => Some(format!("{name} is a Metalink")),
        // One that a server has beside each of its files is a digest and no news.
        Some(Place::Beside) if files.len() > 1 || mirrors > 1 => {
            Some("its server names a Metalink of it".to_owned())
        }
        Some(Place::Beside) | None => None,
    };
    if let Some(what) = what {
        let files = counted(count as u64, "file", "files");
        let mirrors = counted(mirrors as u64, "mirror", "mirrors");
        progress.note(&format!("{what}: {files}, {mirrors}"), false);
    }
    if count == 1 {
        let file = files.remove(0);
        let request = of_metalink_file(get, file, trust).map_err(|(file, error)| {
            Failure::new(
                Exit::Input,
                format!("{}: {file}: {error}", base_path.as_deref().unwrap_or(name)),
            )
        })?;
        return Ok(Inputs::One(Box::new(request)));
    }
    let several = |way: &str| format!("{name} names {count} files: {way}");
    if get.output.is_some() {
        return Err(Failure::usage(several("use -d DIR in place of -o")));
    }
    if !get.digest.is_empty() {
        return Err(Failure::usage(several("--digest is for one")));
    }
    let title = name.to_owned();
    let template = Template::of(get);
    let entry = |request| Entry { request, headers: Vec::new(), warnings: Vec::new() };
    let entries = files.into_iter().map(move |file| entry(template.metalink_file(file, trust)));
    let refused: Vec<_> = refused.collect();
    let entries = entries.chain(refused.into_iter().map(move |refused| entry(Err(refused))));
    Ok(Inputs::Many(Many { title, count: Some(count as u64), entries: read_ahead(entries) }))
}

fn of_metalink_file(
    get: &Get,
    file: metalink::File,
    trust: Trust,
) -> Result<Request, (String, String)> {
    let mut request = Template::of(get).metalink_file(file, trust)?;
    if get.output.is_some() {
        request.destination = destination(get, None);
        request.beneath = None;
    }
    request.plan.eager = true;
    request.ask_if_present = true;
    request.digests.clone_from(&get.digest);
    Ok(request)
}

/// What all requests of one command have in common.
#[derive(Clone)]
pub struct Template {
    /// The folder that names are below.
    pub dir: PathBuf,
    overwrite: Overwrite,
    resume: bool,
    sparse: bool,
    require_digest: bool,
    discover: bool,
    plan: PlanConfig,
    stall_s: f64,
}

impl Template {
    /// Of a command.
    pub fn of(get: &Get) -> Self {
        Self {
            dir: get.dir.clone().unwrap_or_default(),
            overwrite: if get.overwrite { Overwrite::Always } else { Overwrite::Never },
            resume: get.resume || !get.no_resume,
            sparse: get.sparse,
            require_digest: get.require_digest,
            discover: !get.no_discover,
            plan: PlanConfig {
                eager: false,
                ..get.plan.config_within(auto_within(get.plan.lanes))
            },
            stall_s: get.net.timeout.as_secs_f64(),
        }
    }

    /// A request without mirrors.
    pub fn request(&self, destination: Destination) -> Request {
        let mut request = Request::to_file("");
        request.destination = destination;
        request.overwrite = self.overwrite;
        // A list that is worked off a second time asks nobody about what is there.
        request.ask_if_present = false;
        request.require_digest = self.require_digest;
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
        if file.mirrors.is_empty() && file.held.is_empty() {
            let why = file
                .skipped
                .first()
                .map_or(String::new(), |skipped| format!(" ({})", skipped.reason));
            return Err((name, format!("no mirror of it can be used{why}")));
        }
        if let Some(why) = file.unusable_pieces().filter(|_| file.digests.is_empty()) {
            let words = "its piece digests cannot be used, and nothing else would prove the file";
            return Err((name, format!("{words}: {why}")));
        }
        if let Some(why) = file.unusable_digest().filter(|_| file.pieces.is_none()) {
            let words = "its digest cannot be used, and nothing else would prove the file";
            return Err((name, format!("{words}: {why}")));
        }
        if file.has_unusable_size() && file.digests.is_empty() && file.pieces.is_none() {
            let words = "its size cannot be read, and nothing else would prove the file";
            return Err((name, words.to_owned()));
        }
        let mut request = self.request(Destination::File(self.dir.join(file.name.as_path())));
        request.beneath = Some(self.dir.clone());
        request.mirrors = file
            .mirrors
            .into_iter()
            .map(|it| Mirror { url: it.url, priority: it.priority, trust, holds: None })
            .collect();
        request.mirrors.extend(file.held.into_iter().map(|it| Mirror {
            url: it.url,
            priority: it.priority,
            trust,
            holds: Some(it.ranges),
        }));
        request.told_digests = file.digests;
        request.pieces = file.pieces;
        request.size_bytes = file.size_bytes;
        Ok(request)
    }
}

/// Most lanes that are found by trial: no more than a host is to have.
fn auto_within(lanes: Lanes) -> Option<u32> {
    matches!(lanes, Lanes::Auto { .. }).then_some(CONNECTIONS_PER_HOST)
}

fn request(get: &Get, destination: Destination) -> Request {
    let mut request = Template::of(get).request(destination);
    if let Some(split) = get.usual.split {
        // aria2 counts the connections of all servers together.
        let sources = u32::try_from(get.sources.len()).unwrap_or(u32::MAX).max(1);
        let each = split.div_ceil(sources);
        request.plan.lanes = match request.plan.lanes {
            Lanes::Auto { .. } => Lanes::Fixed(each),
            Lanes::Fixed(count) => Lanes::Fixed(count.min(each)),
        };
    }
    request.plan.eager = true;
    request.ask_if_present = true;
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

/// The last part of a URL's path as a file name; of what lies in a depot, which is read by whoever
/// knows that part, no more than others may see.
pub fn name_of(url: &Url) -> Option<SafePath> {
    if let Some(brief) = depot::brief(url.path()) {
        return SafePath::new(&format!("depot-{brief}")).ok();
    }
    let last = url.path_segments()?.next_back()?;
    let decoded = percent::decode_text(last);
    SafePath::new(&decoded).ok().filter(|name| !name.as_str().contains('/'))
}

/// Why a URL gives a file no name, and what to do.
fn why_no_name(url: &Url) -> String {
    let last = url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
    let why = match SafePath::new(&percent::decode_text(last)) {
        _ if last.is_empty() => "does not name a file".to_owned(),
        Ok(_) => "ends in a name with '/' in it, which is refused".to_owned(),
        Err(error) => format!("ends in a name that is refused: {error}"),
    };
    format!("{} {why}; say where to write with -o FILE", shown(url))
}

/// `1 file`, `2 files`.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", units::count(count), if count == 1 { one } else { many })
}

/// A URL as it may be shown: without credentials, query and fragment.
pub fn shown(url: &Url) -> String {
    swath_source::display_name(url)
}

/// A wait that needs no word.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// A Metalink that is fetched is kept in memory while it is read.
const METALINK_BYTES_MAX: usize = 64_000_000;
/// One that nobody asked for by name. What it lists may take ten times as much memory.
const METALINK_FOUND_BYTES_MAX: usize = 16_000_000;
const METALINK_WISHES: &str =
    "application/metalink4+xml, application/metalink+xml;q=0.9, */*;q=0.5";
/// Tries for a Metalink before it is given up.
const METALINK_TRIES: u32 = 3;
/// One that nobody asked for is not waited for longer: the file is one request away.
const BESIDE_WITHIN: Duration = Duration::from_secs(2);
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
        // The name of the file was what opens it, in whatever told of it.
        let secret = "0123456789abcdef".repeat(4);
        for path in ["depot/", "relay/http://r2/depot/", "%64epot/", "depot%2F"] {
            let named = name(&format!("http://a/{path}{secret}?etag=%22x%22"));
            assert_eq!(named.as_deref(), Some("depot-01234567"), "{path}");
        }
        assert_eq!(
            name("http://a/depot/0123456789abcdef.h5").as_deref(),
            Some("0123456789abcdef.h5")
        );
    }
}
