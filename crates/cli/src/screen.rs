//! Shows the events of a job: bars or lines for one transfer, a common display for several, and notes.
//! Records them for the report.

use std::sync::{Mutex, MutexGuard, PoisonError};

use swath_jobs::{JobEvent, JobObserver, Note};
use swath_report::{Content, ListRecorder, Recorder, Recording};
use swath_transfer::observe::{Event, Observer};

use crate::cp::DryRun;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::progress::{ListProgress, Progress};
use crate::{failure, notes};

/// Shows the events of a job.
pub struct JobScreen {
    progress: Progress,
    has_report: bool,
    is_verbose: bool,
    /// Receives the planned changes of `--dry-run`.
    plan: Option<DryRun>,
    shown: Mutex<State>,
}

struct State {
    /// Shared by all transfers, so that nothing is shown twice.
    transfer: Box<dyn Observer>,
    recorder: Recorder,
    content: Content,
    list: Option<List>,
    /// The worst failure of a list.
    worst: Option<Exit>,
}

struct List {
    files: ListProgress,
    recorder: Option<ListRecorder>,
}

impl JobScreen {
    /// Returns a screen on this display; records the job for a report.
    pub fn new(progress: Progress, has_report: bool, is_verbose: bool) -> JobScreen {
        let transfer = progress.observer();
        let shown = State {
            transfer,
            recorder: Recorder::new(),
            content: Content::File,
            list: None,
            worst: None,
        };
        JobScreen { progress, has_report, is_verbose, plan: None, shown: Mutex::new(shown) }
    }

    /// Sends planned changes to `plan`.
    pub fn planning(self, plan: &DryRun) -> JobScreen {
        JobScreen { plan: Some(plan.clone()), ..self }
    }

    /// Returns the exit code of a list.
    pub fn exit_of_list(&self, files: swath_jobs::FileCounts) -> Exit {
        match self.lock().worst {
            None => Exit::Internal,
            Some(worst) if files.complete == 0 => worst,
            Some(_) => Exit::Some,
        }
    }

    /// Returns the recording.
    pub fn recording(&self) -> Recording {
        let shown = self.lock();
        match shown.list.as_ref().and_then(|list| list.recorder.as_ref()) {
            Some(recorder) => recorder.recording(),
            None => {
                let mut recording = shown.recorder.recording();
                recording.heading.content = shown.content;
                recording
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobObserver for JobScreen {
    fn observe(&self, event: JobEvent) {
        let mut shown = self.lock();
        match event {
            JobEvent::Transfer(event) => {
                shown.transfer.observe(&event);
                if self.has_report {
                    // A Metalink starts another transfer.
                    match event {
                        Event::Metalink { .. } => shown.recorder = Recorder::new(),
                        event => shown.recorder.observe(&event),
                    }
                }
            }
            JobEvent::Note(Note::DiskThreads) if !self.is_verbose => {}
            JobEvent::Note(note) => {
                let (text, is_warning) = notes::words(&note);
                self.progress.note(&text, is_warning);
            }
            JobEvent::ListStarted { title, count } => {
                let files = self.progress.files(&title, count);
                let recorder = self.has_report.then(|| ListRecorder::new(&title));
                shown.list = Some(List { files, recorder });
            }
            JobEvent::CopyStarted { is_single } => {
                shown.content = if is_single { Content::File } else { Content::Tree };
            }
            JobEvent::Planned { bytes, path, further_of, .. } => {
                if let Some(plan) = &self.plan {
                    plan.tell(bytes, &path, further_of.as_deref());
                }
            }
            // A file of a plan that could not be queried.
            JobEvent::FileFailed { name, error, .. } if shown.list.is_none() => {
                let (_, words) = failure::of_file(&error);
                Failure::new(Exit::Some, format!("{name}: {words}")).tell();
            }
            event => shown.of_list(event),
        }
    }
}

impl State {
    fn of_list(&mut self, event: JobEvent) {
        let Some(List { files, recorder }) = &self.list else { return };
        match event {
            JobEvent::File { file, event } => {
                files.observe(file, &event);
                if let Some(recorder) = recorder {
                    recorder.observer(file).observe(&event);
                }
            }
            JobEvent::FileWarning { file, warning } => files.warn(file, &notes::of_list(&warning)),
            JobEvent::FileStopped(..) => files.stopped(),
            JobEvent::FileFailed { file, name, error } => {
                let (exit, words) = failure::of_file(&error);
                let is_reported = error.is_reported();
                files.failed(file, &name, &words, is_reported);
                if let Some(recorder) = recorder.as_ref().filter(|_| !is_reported) {
                    recorder.failed(&name, &words);
                }
                self.worst = Some(self.worst.map_or(exit, |worst| worst.max(exit)));
            }
            JobEvent::ListEnded { is_whole } => files.end(is_whole),
            _ => {}
        }
    }
}
