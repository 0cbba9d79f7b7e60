//! A copy that somebody has ordered, as it runs here.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use swath_jobs::board::{BoardLines, JobEnd, JobSeat, Keep};
use swath_jobs::copy::CopyError;
use swath_jobs::{
    Control, Environment, JobError, JobEvent, JobObserver, JobSpec, Jobs, Note, Outcome, Streams,
    Work,
};
use swath_serve::{Access, Destination, Who};
use swath_source::{Class, ClientCertificate};
use swath_state::KeptState;
use swath_transfer::observe::{Event, Summary};
use swath_transfer::sending::{Failed, InTheWay, Line, Passes, Received, XattrLosses};
use swath_transfer::{GetError, LaneError, PartialError, Reason};
use tokio::time::timeout;

use super::FetchRules;
use super::listed::ListedFiles;
use super::order::KeptOrder;
use super::told::ToldNames;
use crate::exit;
use crate::failure::Failure;
use crate::notes;

/// A copy that somebody has ordered.
pub struct FetchJob {
    /// What it may do.
    pub rules: FetchRules,
    /// What sources are shown.
    pub certificate: ClientCertificate,
    /// Who may write here.
    pub access: Access,
    /// Who ordered it.
    pub owner: Who,
    /// Where it goes.
    pub destination: Destination,
}

/// How a run of an order ended.
enum Ran {
    /// The job has ended.
    Ended(JobEnd),
    /// The order has changed.
    OrderChanged,
    /// The rights to read the sources have ended.
    NoToken(JobEnd),
}

impl FetchJob {
    /// Runs the order, again when it changes. When the rights to read the sources have ended, that is
    /// waited for.
    pub async fn run(self, mut seat: JobSeat) -> JobEnd {
        let mut resumes = false;
        loop {
            match self.run_order(&mut seat, resumes).await {
                Ran::Ended(end) => return end,
                Ran::OrderChanged => {}
                Ran::NoToken(end) => {
                    let record = seat.record.clone();
                    let tell = |text: &str, is_warning| {
                        let note = Event::note(0.0, text.to_owned(), is_warning);
                        record.add(TOKEN_NOTE, Line::event(&note));
                    };
                    tell(NO_TOKEN, true);
                    let Ok(is_renewed) = timeout(REST_MAX, seat.rest()).await else { return end };
                    if is_renewed {
                        tell("the right to read the sources was renewed", false);
                    }
                    if !is_renewed || !seat.take_turn().await {
                        return JobEnd { state: KeptState::Failed, line: lines().cancelled };
                    }
                }
            }
            resumes = true;
        }
    }

    /// Runs the order as it is now; `resumes` goes on with what an earlier run left, whatever was wished.
    async fn run_order(&self, seat: &mut JobSeat, resumes: bool) -> Ran {
        let order = KeptOrder::of_text(&seat.order());
        let order =
            order.and_then(|order| Ok((order.spec(&self.rules, &self.destination)?, order)));
        let (mut spec, order) = match order {
            Ok(order) => order,
            Err(why) => return Ran::Ended(failed_with(&why)),
        };
        if let Work::Copy(copy) = &mut spec.work {
            copy.resume |= resumes;
        }
        let net = self.rules.net(&self.certificate, order.servers());
        let grant = self.destination.grant();
        let environment = self.rules.environment.clone();
        let jobs = Jobs::new(Environment { net, grant, ..environment });
        // The job may go on when this run is stopped.
        let control = Control::default();
        let running = run(&jobs, &spec, seat.clone(), &control, &self.destination);
        let mut running = std::pin::pin!(running);
        let mut looking = tokio::time::interval(LOOK_EVERY);
        let mut stopped_by = None;
        let job = seat.control.clone();
        let (end, needs_token) = loop {
            let is_going = stopped_by.is_none();
            let why = tokio::select! {
                biased;
                () = job.cancelled(), if is_going => Stopped::Cancelled,
                _ = looking.tick(), if is_going => {
                    match self.access.may_still_write(self.owner, SystemTime::now()) {
                        true => continue,
                        false => Stopped::NoRight,
                    }
                }
                () = seat.order_changed(), if is_going => Stopped::OrderChanged,
                ended = &mut running => break ended,
            };
            stopped_by = Some(why);
            control.cancel();
        };
        if end.state == KeptState::Done {
            return Ran::Ended(end);
        }
        match stopped_by {
            Some(Stopped::NoRight) => Ran::Ended(failed_with(NO_RIGHT)),
            Some(Stopped::OrderChanged) if !job.is_cancelled() => Ran::OrderChanged,
            None if needs_token && order.has_ended() => Ran::NoToken(end),
            _ => Ran::Ended(end),
        }
    }
}

/// What stopped a run.
#[derive(Clone, Copy)]
enum Stopped {
    Cancelled,
    NoRight,
    OrderChanged,
}

/// Whether a source wants another token.
fn needs_token(error: &JobError) -> bool {
    let reasons = match error {
        JobError::Copy(error) => match &**error {
            CopyError::Fetch { error, .. } => error.reasons(),
            _ => &[],
        },
        JobError::Transfer { error, .. } => error.reasons(),
        _ => &[],
    };
    let classes = reasons.iter().filter_map(|reason| Some(reason.why.lane_error()?.class()));
    classes.into_iter().any(|class| class == Class::Unauthenticated)
}

/// Runs a copy, and records what happens as lines. Returns its end, and whether a source wants another
/// token.
async fn run(
    jobs: &Jobs,
    spec: &JobSpec,
    seat: JobSeat,
    control: &Control,
    destination: &Destination,
) -> (JobEnd, bool) {
    let names = ToldNames::new(destination.names());
    let observer = Arc::new(Recorder {
        seat,
        names: names.clone(),
        began: Instant::now(),
        listed: ListedFiles::default(),
    });
    let told: Arc<dyn JobObserver> = Arc::clone(&observer) as Arc<dyn JobObserver>;
    let ended = jobs.run(spec, &Streams::default(), &told, control).await;
    let needs_token = ended.as_ref().is_err_and(needs_token);
    let (state, line) = match ended {
        Ok(outcome) => match received(outcome, &observer) {
            Some(received) => (KeptState::Done, Line::Received(Box::new(received))),
            None => {
                let why = "the source is no folder of a swath server, and no file".to_owned();
                (KeptState::Failed, Line::Failed(Failed::at_once(3, why)))
            }
        },
        Err(error) => (KeptState::Failed, Line::Failed(failed(error, &names))),
    };
    (JobEnd { state, line: names.line(&line.to_json()) }, needs_token)
}

/// Records the events of a job.
struct Recorder {
    seat: JobSeat,
    names: ToldNames,
    began: Instant,
    /// The files of a web folder.
    listed: ListedFiles,
}

impl JobObserver for Recorder {
    fn observe(&self, event: JobEvent) {
        let (keep, line) = match event {
            // The last line reports the end. The client makes a forecast from its own history; the
            // time left comes from the history of this server.
            JobEvent::Transfer(
                Event::Finished(_) | Event::Failed { .. } | Event::Forecast { .. },
            ) => return,
            JobEvent::Note(note @ Note::NoHistory(_)) => return exit::warn(&notes::words(&note).0),
            JobEvent::Transfer(event) => (kept_as(&event), Line::event(&event)),
            JobEvent::Note(note) => {
                let (text, is_warning) = notes::words(&note);
                let at_s = self.began.elapsed().as_secs_f64();
                (Keep::Last, Line::event(&Event::note(at_s, text, is_warning)))
            }
            JobEvent::File { event, .. } => {
                self.listed.note(&event);
                return;
            }
            JobEvent::FileFailed { name, error, .. } => {
                let text = format!("{name}: {}", crate::failure::of_file(&error).1);
                let at_s = self.began.elapsed().as_secs_f64();
                (Keep::Last, Line::event(&Event::note(at_s, text, true)))
            }
            JobEvent::Planned { bytes, path, is_folder, further_of } => {
                let change = match bytes {
                    Some(bytes) => Line::copy(bytes, &path, is_folder, further_of.as_deref()),
                    None => Line::Change(None, String::from_utf8_lossy(&path).into_owned(), None),
                };
                (Keep::Last, change.to_json())
            }
            _ => return,
        };
        self.seat.record.add(keep, self.names.line(&line));
    }
}

/// Of what changes all the time, whoever comes late sees the present state. Of progress and of single
/// swaths, whoever watches gets what a slow link can bear.
fn kept_as(event: &Event) -> Keep {
    match event {
        Event::Progress(_) => Keep::Passing,
        Event::Swath(_) => Keep::Detail,
        Event::Source { source, .. } => Keep::Newest(*source as u64),
        _ => Keep::Last,
    }
}

/// Returns the result of a copy as its last line has it.
fn received(outcome: Outcome, recorder: &Recorder) -> Option<Received> {
    match outcome {
        Outcome::Copied(copied) => Some(copied.received),
        Outcome::File(summary) => Some(of_file(*summary)),
        // What a web server lists.
        Outcome::Files(files) => {
            let summary = recorder.listed.summary(recorder.began.elapsed().as_secs_f64());
            Some(Received { counts: [files.complete, 0, 0, 0], ..of_file(summary) })
        }
        _ => None,
    }
}

fn of_file(transfer: Summary) -> Received {
    Received {
        transfer,
        counts: [1, 0, 0, 0],
        removed: 0,
        spared: None,
        unremoved: Default::default(),
        kept_files: 0,
        changed: Vec::new(),
        absent: Vec::new(),
        is_whole: true,
        xattrs: Some(XattrLosses::default()),
    }
}

/// Returns the error of a copy as its last line has it.
fn failed(error: JobError, names: &ToldNames) -> Failed {
    let plain = |exit: u8, error: &str| Failed::at_once(exit, names.text(error));
    match error {
        JobError::Copy(error) => match *error {
            CopyError::Fetch { error, kept, .. } => {
                let exit = exit::of(&error, kept.received_bytes) as u8;
                let (words, in_the_way) = match &*error {
                    error if !error.reasons().is_empty() => (error.with_reasons(), None),
                    // Whoever ordered it adds the advice.
                    GetError::Tree(PartialError::InTheWay { destination, conflicts }) => {
                        let destination = destination.display().to_string();
                        let words = exit::in_the_way(&destination, conflicts);
                        (words, Some(InTheWay::of(conflicts)))
                    }
                    GetError::Stopped => ("cancelled".to_owned(), None),
                    error @ GetError::Tree(PartialError::Locked(_)) => {
                        let advice = "'swath jobs' lists your copies on the server, and 'swath attach' shows one";
                        (format!("{}; {advice}", exit::words(error)), None)
                    }
                    error => (exit::words(error), None),
                };
                let is_refused = |reason: &Reason| {
                    matches!(reason.why.lane_error(), Some(LaneError::RefusedAddress { .. }))
                };
                let advice = match error.reasons().iter().any(is_refused) {
                    true => "; the owner of the destination permits that with --third-party-from",
                    false => "",
                };
                let error = names.text(&(words + advice));
                let kept_bytes = kept.known_bytes();
                Failed { exit, error, kept_bytes, passes: Passes::No, in_the_way }
            }
            error => {
                let failure = crate::cp::failure(error);
                plain(failure.exit as u8, &failure.what)
            }
        },
        JobError::Stopped => plain(exit::Exit::Interrupted as u8, "cancelled"),
        JobError::Files(files) if files.is_stopped => {
            plain(exit::Exit::Interrupted as u8, "cancelled")
        }
        JobError::Files(files) => {
            let text = format!("{} of the listed files were not copied", files.failed);
            plain(exit::Exit::Some as u8, &text)
        }
        error => {
            let failure = Failure::from(error);
            plain(failure.exit as u8, &failure.what)
        }
    }
}

/// The lines that the board adds.
pub fn lines() -> BoardLines {
    let text = "waiting: other copies of this user run on the server".to_owned();
    let last = |exit, words: &str| Line::Failed(Failed::at_once(exit, words.to_owned())).to_json();
    BoardLines {
        waits: Line::event(&Event::note(0.0, text, false)),
        cancelled: last(exit::Exit::Interrupted as u8, "cancelled"),
        broke: last(exit::Exit::Internal as u8, "the server made a mistake"),
    }
}

/// The end of a job that must not go on.
pub fn failed_with(why: &str) -> JobEnd {
    let line = Line::Failed(Failed::at_once(exit::Exit::Target as u8, why.to_owned())).to_json();
    JobEnd { state: KeptState::Failed, line }
}

const NO_RIGHT: &str = "the token that ordered it does not permit writing any more";
const NO_TOKEN: &str = "waiting for a token: the right to read the sources has ended; to go on, repeat the \
                        command that began the copy";
/// Who comes late reads only the newest.
const TOKEN_NOTE: Keep = Keep::Newest(u64::MAX);
/// A copy without a token is given up then.
const REST_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Whether the owner of a copy may still write is looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(5);
