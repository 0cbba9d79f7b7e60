//! Many files: a stream of requests, some at a time, one display.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use swath_report::ListRecorder;
use swath_transfer::observe::Observer;
use swath_transfer::{Destination, Engine, GetError, Request, Stop};
use tokio::task::{Id, JoinSet};
use tokio::time::sleep;
use url::Url;

use super::inputs::Many;
use super::names::Names;
use super::one::Kept;
use crate::args::Get;
use crate::exit::{self, Exit};
use crate::progress::{Fanout, Files, Progress};
use crate::report;

/// How the files of a list are fetched.
#[derive(Clone, Copy, Debug)]
pub struct Manner<'a> {
    /// At the same time, at most; `None`: as many as are usual.
    pub jobs: Option<u16>,
    /// Where a page with charts is left.
    pub report: Option<&'a Path>,
    /// Nothing is printed for people but errors.
    pub is_silent: bool,
}

impl Manner<'_> {
    /// As a command line has it.
    pub fn of(get: &Get) -> Manner<'_> {
        let report = get.report.as_deref();
        Manner { jobs: get.jobs, report, is_silent: get.quiet || get.json }
    }
}

/// Fetch every file of a list.
pub async fn run(
    manner: Manner<'_>,
    engine: &Engine,
    many: Many,
    progress: &Progress,
    stop: &Stop,
) -> Exit {
    let files = progress.files(&many.title, many.count);
    let recorder = manner.report.is_some().then(|| ListRecorder::new(&many.title));
    let mut entries = many.entries;
    let stop = Arc::new(stop.clone());
    let mut running: JoinSet<Exit> = JoinSet::new();
    let mut tally = Tally::default();
    let mut names = Names::default();
    let mut number = 0;
    let most = usize::from(manner.jobs.unwrap_or(JOBS));
    let mut hosts: HashMap<Id, Vec<Url>> = HashMap::new();
    loop {
        // Files whose hosts are not reached wait aside, and others go first.
        let aside = hosts.values().filter(|of| is_unreached(engine, of)).count();
        let has_place = running.len() - aside < most && aside < ASIDE_MAX;
        let entry = tokio::select! {
            biased;
            () = stop.wait() => break,
            Some(ended) = running.join_next_with_id(), if !running.is_empty() => {
                let (id, exit) = match ended {
                    Ok(ended) => ended,
                    Err(error) => (error.id(), Exit::Internal),
                };
                hosts.remove(&id);
                tally.add(exit);
                continue;
            }
            entry = entries.recv(), if has_place => entry,
            () = sleep(LOOK_AGAIN), if !has_place => continue,
        };
        let Some(entry) = entry else { break };
        for warning in &entry.warnings {
            files.warn(number, warning);
        }
        let refused = |name: &str, error: &str| {
            files.failed(number, name, error, false);
            if let Some(recorder) = &recorder {
                recorder.failed(name, error);
            }
        };
        match entry.request {
            Err((name, error)) => {
                refused(&name, &error);
                tally.add(Exit::Input);
            }
            Ok(request) => match taken(&mut names, &request) {
                Err(error) => {
                    refused(&request.destination_name(), error);
                    tally.add(Exit::Input);
                }
                Ok(()) => match engine.with_headers(&entry.headers) {
                    Ok(engine) => {
                        let (files, stop) = (files.clone(), Arc::clone(&stop));
                        let job = Job { engine, files, number, stop, recorder: recorder.clone() };
                        let urls = request.mirrors.iter().map(|it| it.url.clone()).collect();
                        hosts.insert(running.spawn(job.run(request)).id(), urls);
                    }
                    Err(error) => {
                        refused(&request.destination_name(), &error.to_string());
                        tally.add(Exit::Input);
                    }
                },
            },
        }
        number += 1;
    }
    while let Some(ended) = running.join_next().await {
        tally.add(ended.unwrap_or(Exit::Internal));
    }
    files.end(!stop.is_set());
    let exit = if stop.is_set() {
        exit::fail(Exit::Interrupted, "stopped: the same command goes on where it was")
    } else {
        tally.exit()
    };
    match recorder {
        Some(recorder) => {
            report::write(manner.report, manner.is_silent, recorder.recording(), exit)
        }
        None => exit,
    }
}

fn taken(names: &mut Names, request: &Request) -> Result<(), &'static str> {
    match &request.destination {
        Destination::File(path) => names.take(path),
        Destination::Writer(_) | Destination::Tree(_) | Destination::Nowhere { .. } => Ok(()),
    }
}

/// Whether no host of a file was reached when it was last tried.
fn is_unreached(engine: &Engine, urls: &[Url]) -> bool {
    !urls.is_empty() && urls.iter().all(|url| engine.net().is_down(url))
}

/// One file of the list.
struct Job {
    engine: Engine,
    files: Files,
    number: u64,
    stop: Arc<Stop>,
    recorder: Option<ListRecorder>,
}

impl Job {
    async fn run(self, request: Request) -> Exit {
        let name = request.destination_name();
        let kept = Kept::default();
        let mut observers: Vec<Box<dyn Observer>> =
            vec![self.files.observer(self.number), Box::new(kept.clone())];
        observers.extend(self.recorder.as_ref().map(|recorder| recorder.observer(self.number)));
        match self.engine.get_observed(request, &mut Fanout(observers), &self.stop).await {
            Ok(_) => Exit::Done,
            Err(GetError::Stopped) => {
                self.files.stopped();
                Exit::Interrupted
            }
            Err(error) => {
                self.failed(&name, &exit::words_of_all(&error), kept.is_told());
                exit::of(&error, kept.come_bytes())
            }
        }
    }

    /// `is_told` says that its observers have heard of it.
    fn failed(&self, name: &str, error: &str, is_told: bool) {
        self.files.failed(self.number, name, error, is_told);
        if let Some(recorder) = self.recorder.as_ref().filter(|_| !is_told) {
            recorder.failed(name, error);
        }
    }
}

#[derive(Default)]
struct Tally {
    done: u64,
    worst: Option<Exit>,
}

impl Tally {
    fn add(&mut self, exit: Exit) {
        if exit == Exit::Done {
            self.done += 1;
        } else {
            self.worst = Some(self.worst.map_or(exit, |worst| worst.max(exit)));
        }
    }

    fn exit(&self) -> Exit {
        match (self.done, self.worst) {
            (_, None) => Exit::Done,
            (0, Some(worst)) => worst,
            (_, Some(_)) => Exit::Some,
        }
    }
}

/// Files of a list that are fetched at the same time.
const JOBS: u16 = 16;
/// Files whose hosts are not reached and that may wait aside: as many more as are fetched.
const ASIDE_MAX: usize = 1024;
/// How often that is looked at while there is no place.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
