//! The display of a list of files.
//!
//! The transfers of all files feed one tally. It grows with the active files and the hosts, not with the
//! length of the list: finished files are only summed up, and at most [`FAILED_MAX`] failed ones listed.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use swath_model::SourceName;
use swath_report as report;
use swath_transfer::observe::{Event, SameBy, Snapshot, Summary};

use super::batch_view::{frame, plain_line, summary};
use super::eta::Forecast;
use super::json::{Json, OfFile};
use super::look::{Look, Tone};
use super::plain::Pace;
use super::{Mode, Terminal, text};

/// Failed files that are listed at the end.
pub(super) const FAILED_MAX: usize = 20;
/// Hosts that are counted separately.
const HOSTS_MAX: usize = 256;
/// The beginning of notes about a relay instead of a file.
const OF_A_RELAY: &str = "the relay ";
/// Most warnings that are shown.
const NOTES_MAX: u64 = 1_000;

/// The display of a list; clones share it.
#[derive(Clone)]
pub struct ListProgress {
    shared: Arc<Mutex<Shared>>,
}

/// Counts of the whole list.
#[derive(Default)]
pub(super) struct Tally {
    /// The name of the list.
    pub(super) title: String,
    /// Number of files, if known.
    pub(super) count: Option<u64>,
    /// Complete files.
    pub(super) complete: u64,
    /// Complete files that existed before.
    pub(super) present: u64,
    /// Of those, the ones whose digest was compared.
    pub(super) compared: u64,
    /// Of those, the ones whose name alone was compared.
    pub(super) by_name: u64,
    /// Files that the user stopped.
    pub(super) stopped: u64,
    /// Failed files.
    pub(super) failed: u64,
    /// Paths and errors of the first failed files.
    pub(super) failures: Vec<(String, String)>,
    /// Bytes of ended files from this run.
    pub(super) fetched_bytes: u64,
    /// Bytes of ended files from an earlier run.
    pub(super) resumed_bytes: u64,
    /// Wasted bytes.
    pub(super) wasted_bytes: u64,
    /// Active files.
    pub(super) active: BTreeMap<u64, Active>,
    /// Unverified files that relays forwarded …
    pub(super) unproved: u64,
    /// … and their bytes.
    pub(super) unproved_bytes: u64,
    /// Unverified files that no relay forwarded.
    pub(super) unverified: u64,
    /// Bytes and requests by host and route.
    pub(super) hosts: BTreeMap<SourceName, (u64, u64)>,
    /// Rate of bytes.
    pub(super) bytes: Forecast,
    /// Rate of files.
    pub(super) files: Forecast,
    /// Seconds since the start.
    pub(super) at_s: f64,
}

/// An active file.
#[derive(Default)]
pub(super) struct Active {
    pub(super) path: String,
    pub(super) snapshot: Option<Snapshot>,
}

struct Shared {
    mode: Mode,
    terminal: Terminal,
    json: Json,
    begun: Instant,
    pace: Pace,
    notes: u64,
    tally: Tally,
}

/// The JSON event of a file whose transfer did not begin.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum NotBegun<'a> {
    /// It failed.
    Failed { file: u64, path: &'a str, at_s: f64, error: &'a str, kept_bytes: u64 },
}

/// The JSON event at the end of a list.
#[derive(Serialize)]
struct ListFinished<'a> {
    event: &'static str,
    files: u64,
    complete: u64,
    present: u64,
    failed: u64,
    stopped: u64,
    unverified: u64,
    fetched_bytes: u64,
    resumed_bytes: u64,
    wasted_bytes: u64,
    elapsed_s: f64,
    sources: Vec<ListSource<'a>>,
}

/// The part of one host and route.
#[derive(Serialize)]
struct ListSource<'a> {
    #[serde(flatten)]
    name: &'a SourceName,
    bytes: u64,
    share: f64,
    requests: u64,
}

impl ListProgress {
    pub(super) fn new(mode: Mode, terminal: Terminal, title: &str, count: Option<u64>) -> Self {
        let tally = Tally { title: title.to_owned(), count, ..Tally::default() };
        let json = Json::new(Box::new(io::stdout()));
        let shared = Shared {
            mode,
            terminal,
            json,
            begun: Instant::now(),
            pace: Pace::default(),
            notes: 0,
            tally,
        };
        let files = Self { shared: Arc::new(Mutex::new(shared)) };
        if mode == Mode::Plain {
            let shared = files.lock();
            shared.print(&match count {
                Some(count) => format!("{}: {}", shared.tally.title, files_of(count)),
                None => format!("{}: fetching files as they are found", shared.tally.title),
            });
        }
        files
    }

    /// Takes an event of the `file`th transfer.
    pub fn observe(&self, file: u64, event: &Event) {
        let mut shared = self.lock();
        if shared.mode == Mode::Json {
            shared.json.line(&OfFile { file, event });
        }
        if let Event::Note { text, warning, unproved_bytes, .. } = event {
            let path = shared.tally.active.get(&file).map_or("", |a| a.path.as_str());
            let line = format!("{path}: {text}");
            // Unverified forwarded bytes are reported once, at the end.
            if *warning && *unproved_bytes == 0 {
                shared.warn(&line);
            } else if !*warning && text.starts_with(OF_A_RELAY) {
                // It concerns all files.
                shared.say(text);
            }
        }
        shared.tally.add(file, event);
        if !matches!(event, Event::Swath(_) | Event::Source { .. }) {
            shared.show();
        }
    }

    /// Counts a failed file; `is_reported` says that an event of its transfer reported it.
    pub fn failed(&self, file: u64, path: &str, error: &str, is_reported: bool) {
        let mut shared = self.lock();
        shared.tally.fail(path, error);
        let at_s = shared.begun.elapsed().as_secs_f64();
        if shared.mode == Mode::Json && !is_reported {
            shared.json.line(&NotBegun::Failed { file, path, at_s, error, kept_bytes: 0 });
        }
        shared.warn(&about(path, error));
        shared.show();
    }

    /// Counts a stopped file.
    pub fn stopped(&self) {
        self.lock().tally.stopped += 1;
    }

    /// Prints a warning about a file.
    pub fn warn(&self, file: u64, text: &str) {
        let mut shared = self.lock();
        let at_s = shared.begun.elapsed().as_secs_f64();
        if shared.mode == Mode::Json {
            let event = Event::note(at_s, text.to_owned(), true);
            shared.json.line(&OfFile { file, event: &event });
        }
        shared.warn(text);
    }

    /// Removes the bars and prints the summary; `is_through` says that no file was left out.
    pub fn end(&self, is_through: bool) {
        let mut shared = self.lock();
        shared.tick();
        if is_through {
            shared.tally.count = Some(shared.tally.ended());
        }
        if let (files @ 1.., bytes) = (shared.tally.unproved, shared.tally.unproved_bytes) {
            shared.tell(&report::warning_of_relays(files, bytes));
        }
        if shared.mode == Mode::Quiet
            && let Some(words) = super::batch_view::unverified(&shared.tally)
        {
            shared.tell(&words);
        }
        let Shared { mode, terminal, json, tally, .. } = &mut *shared;
        match mode {
            Mode::Terminal => {
                let mut screen = terminal.lock();
                let text = summary(tally, screen.look());
                screen.end(&text);
            }
            Mode::Plain => {
                let _ = io::stderr().write_all(summary(tally, Look::of_lines()).as_bytes());
            }
            Mode::Json => {
                let line = ListFinished {
                    event: "list_finished",
                    files: tally.count.unwrap_or(tally.ended()),
                    complete: tally.complete,
                    present: tally.present,
                    failed: tally.failed,
                    stopped: tally.stopped,
                    unverified: tally.unverified + tally.unproved,
                    fetched_bytes: tally.fetched_bytes,
                    resumed_bytes: tally.resumed_bytes,
                    wasted_bytes: tally.wasted_bytes,
                    elapsed_s: tally.at_s,
                    sources: tally.sources(),
                };
                json.line(&line);
            }
            Mode::Quiet => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn tick(&mut self) {
        let at_s = self.begun.elapsed().as_secs_f64();
        self.tally.tick(at_s);
    }

    /// Shows the state if it is due.
    fn show(&mut self) {
        match self.mode {
            Mode::Terminal => {
                if self.terminal.lock().is_due() {
                    self.tick();
                    let mut screen = self.terminal.lock();
                    let lines = frame(&self.tally, screen.look());
                    screen.draw(lines);
                }
            }
            Mode::Plain => {
                let at_s = self.begun.elapsed().as_secs_f64();
                if self.pace.is_due(at_s, self.tally.ended(), self.tally.count) {
                    self.tick();
                    self.print(&plain_line(&self.tally));
                }
            }
            Mode::Json | Mode::Quiet => {}
        }
    }

    /// Prints a warning about a file, up to a limit.
    fn warn(&mut self, line: &str) {
        self.notes += 1;
        let line = match self.notes {
            NOTES_MAX => "further warnings are not shown",
            n if n > NOTES_MAX => return,
            _ => line,
        };
        self.tell(line);
    }

    fn tell(&self, line: &str) {
        match self.mode {
            Mode::Terminal => self.terminal.lock().note(line, Tone::Warn),
            Mode::Plain | Mode::Quiet => self.print(&format!("warning: {line}")),
            Mode::Json => {}
        }
    }

    fn say(&self, line: &str) {
        match self.mode {
            Mode::Terminal => self.terminal.lock().note(line, Tone::Plain),
            Mode::Plain => self.print(line),
            Mode::Quiet | Mode::Json => {}
        }
    }

    fn print(&self, line: &str) {
        let look = Look::of_lines();
        let _ = writeln!(io::stderr(), "{}", text::safe(&look.plain_words(line), look));
    }
}

/// `1 file`, `1,204 files`.
pub(super) fn files_of(count: u64) -> String {
    let word = if count == 1 { "file" } else { "files" };
    format!("{} {word}", super::units::count(count))
}

/// Puts a name before a sentence that does not begin with it.
pub fn about(name: &str, sentence: &str) -> String {
    match sentence.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')) {
        true => sentence.to_owned(),
        false => format!("{name}: {sentence}"),
    }
}

impl Tally {
    /// Takes an event of a file.
    pub(super) fn add(&mut self, file: u64, event: &Event) {
        match event {
            Event::Started { path, .. } | Event::Staging { path, .. } => {
                self.active.insert(file, Active { path: path.clone(), snapshot: None });
            }
            Event::Progress(snapshot) => {
                self.active.entry(file).or_default().snapshot = Some(snapshot.clone());
            }
            Event::Finished(end) => {
                self.active.remove(&file);
                self.complete += 1;
                self.sum(end);
            }
            // `fail` and `stopped` count it.
            Event::Failed { summary: end, .. } => {
                self.active.remove(&file);
                self.sum(end);
            }
            Event::Present { same, .. } => {
                self.complete += 1;
                self.present += 1;
                let is_compared = !matches!(same, SameBy::SizeAndTime | SameBy::Name);
                self.compared += u64::from(is_compared);
                self.by_name += u64::from(*same == SameBy::Name);
            }
            Event::Metalink { .. } => {
                self.active.remove(&file);
            }
            Event::Note { unproved_bytes: bytes @ 1.., .. } => {
                self.unproved += 1;
                self.unproved_bytes = self.unproved_bytes.saturating_add(*bytes);
            }
            Event::Unverified { .. } => self.unverified += 1,
            Event::Opened { .. }
            | Event::Forecast { .. }
            | Event::Source { .. }
            | Event::Swath(_)
            | Event::Routes { .. }
            | Event::Note { .. } => {}
        }
    }

    /// Counts a failed file.
    pub(super) fn fail(&mut self, path: &str, error: &str) {
        self.failed += 1;
        if self.failures.len() < FAILED_MAX {
            self.failures.push((path.to_owned(), error.to_owned()));
        }
    }

    /// Returns the number of ended files.
    pub(super) fn ended(&self) -> u64 {
        self.complete + self.failed + self.stopped
    }

    fn sum(&mut self, end: &Summary) {
        self.fetched_bytes = self.fetched_bytes.saturating_add(end.fetched_bytes);
        self.resumed_bytes = self.resumed_bytes.saturating_add(end.resumed_bytes);
        self.wasted_bytes = self.wasted_bytes.saturating_add(end.wasted_bytes);
        for source in &end.sources {
            let host = report::host_of(&source.name);
            let full = self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(&host);
            let host = if full { SourceName::direct("others") } else { host };
            let entry = self.hosts.entry(host).or_default();
            *entry =
                (entry.0.saturating_add(source.bytes), entry.1.saturating_add(source.requests));
        }
    }

    /// Returns the parts of the hosts, the largest first.
    fn sources(&self) -> Vec<ListSource<'_>> {
        let all_bytes: u64 = self.hosts.values().map(|(bytes, _)| bytes).sum();
        let source = |(name, &(bytes, requests))| ListSource {
            name,
            bytes,
            share: bytes as f64 / all_bytes.max(1) as f64,
            requests,
        };
        let mut sources: Vec<ListSource<'_>> = self.hosts.iter().map(source).collect();
        sources.sort_by_key(|source| std::cmp::Reverse(source.bytes));
        sources
    }

    /// Advances the time, for rates and forecasts.
    pub(super) fn tick(&mut self, at_s: f64) {
        self.at_s = at_s;
        let (fetched, files) = (self.fetched_now() as f64, self.ended() as f64);
        self.bytes.add(at_s, fetched);
        self.files.add(at_s, files);
    }

    /// Returns the bytes fetched by this run, active files included.
    pub(super) fn fetched_now(&self) -> u64 {
        let under_way = self.active.values().filter_map(|a| a.snapshot.as_ref());
        let under_way: u64 = under_way.map(|s| s.done_bytes.saturating_sub(s.resumed_bytes)).sum();
        self.fetched_bytes.saturating_add(under_way)
    }

    /// Returns all received bytes, earlier runs included.
    pub(super) fn done_now(&self) -> u64 {
        let under_way: u64 =
            self.active.values().filter_map(|a| a.snapshot.as_ref()).map(|s| s.done_bytes).sum();
        self.fetched_bytes.saturating_add(self.resumed_bytes).saturating_add(under_way)
    }
}
