//! Fetches lists of files, some at a time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swath_source::display_name;
use swath_store::tree::is_taken_for_others;
use swath_transfer::observe::Event;
use swath_transfer::{Destination, Engine, GetError, Request};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep;
use url::Url;

use super::names::TakenNames;
use super::server_name;
use crate::control::Control;
use crate::error::{EntryError, FileCounts, FileError, NameConflict};
use crate::event::{JobEvent, JobObserver, ListWarning};
use crate::kept::KeptRecorder;

/// A list of files.
pub struct FileList {
    /// The name of the list.
    pub title: String,
    /// The number of its files, if known.
    pub count: Option<u64>,
    /// The files, as they are read.
    pub entries: mpsc::Receiver<ListEntry>,
}

/// An entry of a list.
pub struct ListEntry {
    /// The request.
    pub request: Result<Request, Refused>,
    /// Headers for its mirrors.
    pub headers: Vec<(String, String)>,
    /// Its ignored parts.
    pub warnings: Vec<ListWarning>,
    /// Its server is asked for its name first.
    pub asks_name: bool,
}

/// A file that cannot be fetched.
pub struct Refused {
    /// Its name, or its position in the list.
    pub name: String,
    /// The error.
    pub error: EntryError,
}

impl ListEntry {
    /// Returns an entry without headers.
    pub fn of(request: Request) -> ListEntry {
        ListEntry::made(Ok(request))
    }

    /// Returns an entry that cannot be fetched.
    pub fn refused(name: impl Into<String>, error: impl Into<EntryError>) -> ListEntry {
        let refused = Refused { name: name.into(), error: error.into() };
        ListEntry::made(Err(refused))
    }

    fn made(request: Result<Request, Refused>) -> ListEntry {
        ListEntry { request, headers: Vec::new(), warnings: Vec::new(), asks_name: false }
    }
}

/// Fetches every file of a list, `at_once` at a time.
pub async fn run(
    at_once: Option<u16>,
    engine: &Engine,
    many: FileList,
    observer: &Arc<dyn JobObserver>,
    control: &Control,
) -> FileCounts {
    let FileList { title, count, mut entries } = many;
    observer.observe(JobEvent::ListStarted { title, count });
    let mut running: JoinSet<FileResult> = JoinSet::new();
    let mut files = FileCounts::default();
    let names: Arc<Mutex<TakenNames>> = Arc::default();
    let mut number = 0;
    let most = usize::from(at_once.unwrap_or(FILES_AT_ONCE));
    let mut under_way: HashMap<Id, ActiveFile> = HashMap::new();
    let failed = |file: u64, name: String, error: FileError| {
        observer.observe(JobEvent::FileFailed { file, name, error });
    };
    loop {
        // Files with unreachable hosts do not count, so that others are fetched meanwhile.
        let aside = under_way.values().filter(|it| is_unreached(engine, &it.urls)).count();
        let has_place = running.len() - aside < most && aside < ASIDE_MAX && !control.is_paused();
        let entry = tokio::select! {
            biased;
            () = control.cancelled() => break,
            Some(ended) = running.join_next_with_id(), if !running.is_empty() => {
                let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
                let known = under_way.remove(&id);
                if let (Err(_), Some(ActiveFile { file, name, .. })) = (&ended, known) {
                    failed(file, name, FileError::Internal);
                }
                files.add(ended.map_or(FileResult::Failed, |(_, ended)| ended));
                continue;
            }
            entry = entries.recv(), if has_place => entry,
            () = sleep(LOOK_AGAIN), if !has_place => continue,
        };
        let Some(ListEntry { request, headers, warnings, asks_name }) = entry else { break };
        let file = number;
        number += 1;
        for warning in warnings {
            observer.observe(JobEvent::FileWarning { file, warning });
        }
        let request = match request {
            Ok(request) => request,
            Err(Refused { name, error }) => {
                failed(file, name, error.into());
                files.add(FileResult::Failed);
                continue;
            }
        };
        let name = request.destination_name();
        let taken = match asks_name {
            true => Ok(()),
            false => take(&names, path_of(&request)).await.map_err(EntryError::from),
        };
        let engine = taken.map_err(FileError::from).and_then(|()| {
            let engine = engine.with_headers(&headers);
            engine.map_err(FileError::from)
        });
        match engine {
            Err(error) => {
                failed(file, name, error);
                files.add(FileResult::Failed);
            }
            Ok(engine) => {
                let urls = request.mirrors.iter().map(|it| it.url.clone()).collect();
                let (observer, control) = (Arc::clone(observer), control.clone());
                let naming = asks_name.then(|| Arc::clone(&names));
                let job = OneFile { engine, file, observer, control, naming };
                let id = running.spawn(job.run(request)).id();
                under_way.insert(id, ActiveFile { file, name, urls });
            }
        }
    }
    while let Some(ended) = running.join_next().await {
        files.add(ended.unwrap_or(FileResult::Failed));
    }
    files.is_stopped = control.is_cancelled();
    observer.observe(JobEvent::ListEnded { is_whole: !files.is_stopped });
    files
}

/// Returns the path of the file that a request is for, if it is for one.
pub fn path_of(request: &Request) -> Option<PathBuf> {
    match &request.destination {
        Destination::File(path) => Some(path.clone()),
        _ => None,
    }
}

/// Adds the name of a file, or returns its conflict.
pub async fn take(names: &Mutex<TakenNames>, path: Option<PathBuf>) -> Result<(), NameConflict> {
    let Some(path) = path else { return Ok(()) };
    let is_alike = names.lock().unwrap_or_else(PoisonError::into_inner).take(&path)?;
    if !is_alike {
        return Ok(());
    }
    match tokio::task::spawn_blocking(move || is_taken_for_others(&path)).await {
        Ok(true) => Err(NameConflict::Alike),
        _ => Ok(()),
    }
}

/// Whether all hosts of a file were unreachable at the last attempt.
fn is_unreached(engine: &Engine, urls: &[Url]) -> bool {
    !urls.is_empty() && urls.iter().all(|url| engine.net().is_down(url))
}

impl FileCounts {
    /// Counts a file that is complete, or has failed.
    pub(crate) fn count(&mut self, is_complete: bool) {
        self.add(if is_complete { FileResult::Complete } else { FileResult::Failed });
    }

    fn add(&mut self, ended: FileResult) {
        match ended {
            FileResult::Complete => self.complete += 1,
            FileResult::Failed => self.failed += 1,
            FileResult::Stopped => {}
        }
    }
}

/// Results of single files.
#[derive(Clone, Copy)]
enum FileResult {
    Complete,
    Failed,
    Stopped,
}

/// A file that is being fetched.
struct ActiveFile {
    file: u64,
    name: String,
    urls: Vec<Url>,
}

/// One file of the list.
struct OneFile {
    engine: Engine,
    file: u64,
    observer: Arc<dyn JobObserver>,
    control: Control,
    /// The names of the list, if the server is asked for that of the file.
    naming: Option<Arc<Mutex<TakenNames>>>,
}

impl OneFile {
    async fn run(self, mut request: Request) -> FileResult {
        if let Some(names) = &self.naming {
            let named = tokio::select! {
                named = named(&self.engine, &mut request, names) => named,
                () = self.control.cancelled() => return FileResult::Stopped,
            };
            if let Err(error) = named {
                let file = self.file;
                let name = match (&error, request.mirrors.first()) {
                    (EntryError::NoName, Some(first)) => display_name(&first.url),
                    _ => request.destination_name(),
                };
                let failed = JobEvent::FileFailed { file, name, error: error.into() };
                self.observer.observe(failed);
                return FileResult::Failed;
            }
        }
        let OneFile { engine, file, observer, control, .. } = self;
        let name = request.destination_name();
        let mut tell =
            |event: &Event| observer.observe(JobEvent::File { file, event: event.clone() });
        let mut recorder = KeptRecorder::new(&mut tell);
        let (event, ended) = match control.fetch(&engine, request, &mut recorder).await {
            Ok(_) => (JobEvent::FileDone(file), FileResult::Complete),
            Err(GetError::Stopped) => (JobEvent::FileStopped(file), FileResult::Stopped),
            Err(error) => {
                let error = FileError::Transfer { error: Box::new(error), kept: recorder.kept };
                (JobEvent::FileFailed { file, name, error }, FileResult::Failed)
            }
        };
        observer.observe(event);
        ended
    }
}

/// Directs a request to the name that the server gives the file, if it gives one.
async fn named(
    engine: &Engine,
    request: &mut Request,
    names: &Mutex<TakenNames>,
) -> Result<(), EntryError> {
    let Destination::File(path) = &request.destination else { return Ok(()) };
    // Without a name of its own the path is that of its folder.
    let is_named =
        !path.as_os_str().as_encoded_bytes().ends_with(b"/") && path.file_name().is_some();
    let folder = if is_named { path.parent() } else { Some(&**path) };
    let folder = folder.map(Path::to_owned).unwrap_or_default();
    match server_name::of_mirrors(engine.net(), &request.mirrors).await {
        Some(name) => server_name::apply(request, &folder, &name),
        None if is_named => {}
        None => return Err(EntryError::NoName),
    }
    Ok(take(names, path_of(request)).await?)
}

/// Files of a list that are fetched at the same time.
const FILES_AT_ONCE: u16 = 16;
/// Most files that may wait for unreachable hosts.
const ASIDE_MAX: usize = 1024;
/// Interval of checking for a free place.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
